"""What a person's hands do with the panel in JupyterLab and Notebook 7: hunks, keys, busy cells, reloads, themes."""

from pathlib import Path

import pytest
from accessibility import serious
from jupyter_lab import NotebookPage
from playwright.sync_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FUNCTION = "def f(x):\n    y = x\n    a = 1\n    b = 2\n    return y"
RESULTS = Path(__file__).resolve().parents[2] / "test-results"
KERNEL = "def f(x):\n    y = x + 0\n    a = 1\n    b = 2\n    return y * 1\n# time=1.0\n"
HOSTILE = KERNEL + "# <img src=x onerror='window.hacked = 1'><script>window.hacked = 1</script> \u202e\x1b[31m"
SCRIPTED = (
    "import fake_api, pathlib, time\n"
    "from maxkernel_nb.authors.fake import ScriptedAuthor\n"
    "folder = pathlib.Path.cwd() / {folder!r}\n"
    "api = fake_api.install(get_ipython(), folder)\n"
    "api.author = ScriptedAuthor([{kernel!r}])"
)
BUSY = "while not (folder / 'go').exists(): time.sleep(0.05)"
TOLD = "[(p.decision.accepted, p.decision.via, p.decision.hunks, p.decision.comment, p.undone) " \
       "for p in api.live['f-1'].state.proposals.values()]"


def opened(server, page, name, kernel=KERNEL):
    cells = [SCRIPTED.format(folder=name, kernel=kernel), f"%%maxkernel auto\n{FUNCTION}", BUSY, TOLD]
    notebook = NotebookPage(page, server.notebook(f"{name}.ipynb", cells))
    notebook.run(0, 1)
    expect(panel(notebook).get_by_role("button", name="Accept kernel")).to_be_visible()
    return notebook


def panel(notebook):
    return notebook.output(1).get_by_role("region", name="maxkernel run")


def button(notebook, name):
    return panel(notebook).get_by_role("button", name=name, exact=True)


@pytest.fixture
def notebook(lab, page, name):
    return opened(lab, page, name)


def cell_count(notebook):
    return notebook.page.locator(".jp-CodeCell").count()


def test_a_hunk_is_rejected_and_commented_the_rest_accepted_and_undone(notebook):
    button(notebook, "Side by side").click()
    expect(panel(notebook).locator(".mkn-word").first).to_be_visible()
    button(notebook, "Reject hunk 1").click()
    button(notebook, "Undo last choice").click()
    expect(button(notebook, "Accept kernel")).to_be_visible()
    button(notebook, "Reject hunk 1").click()
    cells = cell_count(notebook)
    button(notebook, "Comment on hunk 1").click()
    notebook.page.keyboard.type("dd keep this")  # the box has the focus; "dd" outside of it deletes the cell
    panel(notebook).get_by_role("textbox", name="Comment on your decision").click()
    notebook.page.keyboard.type("ddd")
    assert cell_count(notebook) == cells
    button(notebook, "Accept 1 of 2 hunks").click()
    expect(notebook.output(1).get_by_text("Accepted: f is bound").first).to_be_visible()
    notebook.run(3)
    expect(notebook.output(3)).to_contain_text("[(True, 'button', (1,), 'ddd\\nhunk 1: dd keep this', False)]")


def test_by_keyboard_alone_a_kernel_is_accepted_and_then_taken_back(notebook, lab):
    button(notebook, "Stop").focus()
    page = notebook.page
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Accept kernel":
            break
    page.keyboard.press("Enter")
    expect(notebook.output(1).get_by_text("Accepted: f is bound").first).to_be_visible()
    last = cell_count(notebook) - 1
    page.locator(".jp-CodeCell").nth(last).get_by_role("textbox").first.click()
    page.keyboard.press("Control+a")
    page.keyboard.type("%maxkernel show f-1")
    page.keyboard.press("Shift+Enter")
    undo = notebook.output(last).get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    undo.focus()
    page.keyboard.press("Enter")
    expect(notebook.output(last).get_by_text("Accepted, then undone").first).to_be_visible()


def test_a_click_while_a_cell_runs_is_pending_then_applied_once(notebook, lab, name):
    notebook.run(2)
    button(notebook, "Accept kernel").click()
    expect(panel(notebook).get_by_text("The kernel is busy with a cell.")).to_be_visible()
    expect(button(notebook, "Accepting …")).to_be_disabled()
    (lab.root / name / "go").touch()
    expect(notebook.output(1).get_by_text("Accepted: f is bound").first).to_be_visible()
    notebook.run(3)
    expect(notebook.output(3)).to_contain_text("[(True, 'button', None, '', False)]")


def test_light_dark_narrow_and_zoomed_nothing_serious_and_nothing_cut(notebook):
    page = notebook.page
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
        expect(page.locator(f"body[data-jp-theme-name='{theme}']")).to_be_attached()
        expect(panel(notebook)).to_have_attribute("data-theme", "light" if theme.endswith("Light") else "dark")
        for width in (1500, 820, 640):  # 640: 200 % zoom of a 1280 screen
            page.set_viewport_size({"width": width, "height": 1000})
            assert serious(page, ".mkn-panel") == [], (theme, width)
            cut = panel(notebook).evaluate("e => e.scrollWidth - e.clientWidth")
            assert cut <= 0, (theme, width)
            keep_picture(panel(notebook), f"panel-{theme.split()[1].lower()}-{width}")


def keep_picture(locator, name):
    RESULTS.mkdir(exist_ok=True)
    locator.screenshot(path=RESULTS / f"{name}.png")


def test_hostile_code_and_comments_are_shown_as_text(lab, page, name):
    notebook = opened(lab, page, name, HOSTILE)
    panel(notebook).get_by_role("textbox", name="Comment on your decision").fill("<b onclick=hacked=1>x</b>")
    button(notebook, "Reject").click()
    expect(notebook.output(1).get_by_role("article")).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert notebook.output(1).locator("article :is(img[src='x'], script, b)").count() == 0
    assert "\u202e" not in notebook.output(1).inner_text()


def test_notebook_7_accepts_by_click_while_typing_dd_deletes_nothing(notebook7, page, name):
    notebook = opened(notebook7, page, name)
    cells = cell_count(notebook)
    panel(notebook).get_by_role("textbox", name="Comment on your decision").click()
    page.keyboard.type("ddx")
    assert cell_count(notebook) == cells
    assert serious(page, ".mkn-panel") == []
    notebook.run(2)
    button(notebook, "Accept kernel").click()
    expect(panel(notebook).get_by_text("The kernel is busy with a cell.")).to_be_visible()
    (notebook7.root / name / "go").touch()
    expect(notebook.output(1).get_by_text("Accepted: f is bound").first).to_be_visible()
    notebook.run(3)
    expect(notebook.output(3)).to_contain_text("[(True, 'button', None, 'ddx', False)]")
