"""The lab extension by clicks: from a plain cell to an edited one and back. Real JupyterLab and kernel, fake author."""

import json
import re
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from engine_bench import Bench
from jupyter_lab import NotebookPage
from playwright.sync_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FUNCTION = "def f(x):\n    y = x\n    a = 1\n    b = 2\n    return y"
KERNEL = "def f(x):\n    y = x + 0\n    a = 1\n    b = 2\n    return y * 1\n# time=1.0\n"
SCRIPTED = (
    "import fake_api, pathlib\n"
    "from maxkernel_nb.authors.fake import ScriptedAuthor\n"
    "api = fake_api.install(get_ipython(), pathlib.Path.cwd() / {folder!r})\n"
    "api.author = ScriptedAuthor([{kernel!r}])"
)
STATE = "print(api.live['f-1'].state.outcome, type(f).__name__)"


class LabPage(NotebookPage):
    @property
    def proposal(self):
        return self.page.get_by_role("region", name=re.compile("^Proposed kernel for f"))

    def select(self, number):
        self.page.locator(".jp-CodeCell").nth(number).get_by_role("textbox").first.click()

    def editor(self, number):
        return self.page.locator(".jp-CodeCell").nth(number).locator(".jp-InputArea-editor")

    def source(self, number):
        """The exact text of a cell, from the document's model."""
        return self.page.evaluate("""number => {
            const shown = [...window.jupyterapp.shell.widgets('main')];
            const panel = shown.find(w => w.isVisible && w.content?.widgets);
            return panel.content.widgets[number].model.sharedModel.getSource();
        }""", number)

    def optimise(self, number):
        self.select(number)
        self.page.locator(".jp-cell-toolbar").get_by_role("button", name="Optimise with MaxKernel").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("button", name="Start", exact=True).click()
        expect(self.proposal).to_be_visible()

    def choose(self, name):
        self.proposal.locator(".mkl-choices").get_by_role("button", name=name).click()


@pytest.fixture
def cells(request):
    scripted = SCRIPTED.format(folder=request.node.name, kernel=KERNEL)
    return [scripted, FUNCTION, STATE]


@pytest.fixture
def notebook(lab, page, request, cells):
    opened = LabPage(page, lab.notebook(f"{request.node.name}.ipynb", cells))
    opened.run(0)
    opened.optimise(1)
    return opened


def test_from_a_plain_cell_to_an_accepted_edit_and_back_with_ctrl_z(notebook):
    assert notebook.source(1) == f"%%maxkernel auto\n{FUNCTION}"
    notebook.choose("Accept all")
    expect(notebook.proposal).to_be_hidden()
    expect(notebook.output(1).get_by_text("Accepted: f is bound")).to_be_visible()
    assert notebook.source(1) == KERNEL.rstrip("\n")
    kept = "# The reference that run f-1 replaced in the cell above."
    assert notebook.source(2) == f"%%maxkernel auto\n{kept}\n{FUNCTION}\n"
    notebook.run(3)
    expect(notebook.output(3)).to_contain_text("accepted BoundKernel")
    notebook.select(1)
    notebook.page.keyboard.press("Control+z")
    expect(notebook.page.locator(".jp-CodeCell")).to_have_count(4)  # the cell below is gone, a new last one stays
    assert notebook.source(1) == f"%%maxkernel auto\n{FUNCTION}"
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("accepted function")


def test_one_change_is_rejected_and_the_other_accepted(notebook):
    expect(notebook.proposal.get_by_text("Change 2 of 2")).to_be_visible()
    notebook.proposal.get_by_role("button", name="Reject change 1").click()
    notebook.proposal.get_by_role("button", name="Comment on change 1").click()
    notebook.proposal.get_by_role("textbox", name="Comment on change 1").fill("keep this line dd")
    notebook.choose("Accept 1 of 2")
    expect(notebook.proposal).to_be_hidden()
    assert notebook.source(1) == KERNEL.replace("x + 0", "x").rstrip("\n")
    notebook.page.locator(".jp-CodeCell").nth(3).get_by_role("textbox").first.click()
    notebook.page.keyboard.press("Control+a")
    notebook.page.keyboard.type("[p.decision.comment for p in api.live['f-1'].state.proposals.values()]")
    notebook.page.keyboard.press("Shift+Enter")
    expect(notebook.output(3)).to_contain_text("change 1: keep this line dd")


def test_reject_leaves_the_exact_bytes(notebook):
    before = notebook.source(1)
    notebook.choose("Reject")
    expect(notebook.proposal).to_be_hidden()
    assert notebook.source(1) == before
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("rejected function")


def test_a_cell_that_was_edited_gets_a_new_comparison_and_is_not_overwritten(notebook):
    notebook.select(1)
    notebook.page.keyboard.press("Control+End")
    notebook.page.keyboard.type(" + 41")
    expect(notebook.proposal.get_by_role("alert")).to_contain_text("changed since")
    expect(notebook.proposal).to_contain_text("return y + 41")
    notebook.choose("Accept")
    expect(notebook.proposal).to_be_hidden()
    assert notebook.source(1) == KERNEL.rstrip("\n")
    notebook.select(1)
    notebook.page.keyboard.press("Control+z")
    assert notebook.source(1) == f"%%maxkernel auto\n{FUNCTION} + 41"


def test_a_deleted_cell_is_said_and_the_proposal_stays_open(notebook):
    notebook.select(1)
    notebook.page.keyboard.press("Escape")
    notebook.page.keyboard.press("d")
    notebook.page.keyboard.press("d")
    expect(notebook.page.get_by_text("The cell of run f-1 was deleted")).to_be_visible()
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("None function")


def test_a_restarted_kernel_takes_the_proposal_away_and_resume_brings_it_back(notebook):
    notebook.page.get_by_role("button", name="Restart the kernel", exact=True).click()
    notebook.page.get_by_role("button", name="Confirm Kernel Restart").click()
    expect(notebook.proposal).to_be_hidden()
    notebook.wait_idle()
    notebook.run(0)
    notebook.page.locator(".jp-CodeCell").nth(2).get_by_role("textbox").first.click()
    notebook.page.keyboard.press("Control+a")
    notebook.page.keyboard.type("f = lambda x: x\n%maxkernel resume f-1")
    notebook.page.keyboard.press("Shift+Enter")
    expect(notebook.proposal).to_be_visible()


def test_a_second_tab_shows_the_same_proposal_and_the_decision(notebook, lab, request):
    other = LabPage(notebook.page.context.new_page(), notebook.page.url.replace("&reset", ""))
    expect(other.proposal).to_be_visible()
    notebook.choose("Accept all")
    expect(notebook.proposal).to_be_hidden()
    expect(other.proposal).to_be_hidden()
    assert notebook.source(1) == KERNEL.rstrip("\n")


def test_by_keyboard_alone(notebook):
    notebook.page.locator(".jp-CodeCell").nth(1).press("Escape")
    notebook.page.keyboard.press("Alt+F8")
    focused = notebook.page.locator(":focus")
    expect(focused).to_have_attribute("aria-label", "Accept change 1")
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Space")
    expect(notebook.proposal.get_by_role("button", name="Reject change 1")).to_have_attribute("aria-pressed", "true")
    accept = notebook.proposal.locator(".mkl-choices").get_by_role("button", name="Accept 1 of 2")
    for _ in range(20):
        if accept.evaluate("e => e === document.activeElement"):
            break
        notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Enter")
    expect(notebook.proposal).to_be_hidden()


def test_the_sidebar_lists_the_run_and_finds_its_cell(notebook):
    notebook.page.get_by_role("tab", name="MaxKernel runs").click()
    sidebar = notebook.page.get_by_role("region", name="MaxKernel runs")
    expect(sidebar).to_contain_text("a proposal waits for you")
    sidebar.get_by_role("button", name="Show cell f-1").click()
    expect(notebook.page.locator(".jp-CodeCell.jp-mod-active").get_by_role("region", name="Proposed")).to_be_visible()
    sidebar.get_by_role("button", name="Stop f-1").click()
    expect(sidebar).to_contain_text("stopped")
    expect(notebook.proposal).to_be_hidden()


AXE = Path(__file__).resolve().parents[2] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"


def serious(page, selector):
    """What axe finds serious or worse in one part of the page."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("selector => axe.run(selector, {resultTypes: ['violations']})", selector)
    return [(v["id"], v["nodes"][0]["html"][:200], v["nodes"][0]["failureSummary"])
            for v in found["violations"] if v["impact"] in ("serious", "critical")]


def test_axe_finds_nothing_serious_light_dark_narrow_and_wide(notebook):
    notebook.proposal.get_by_role("button", name="Reject change 1").click()
    notebook.page.get_by_role("tab", name="MaxKernel runs").click()
    expect(notebook.page.get_by_role("region", name="MaxKernel runs")).to_be_visible()
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        notebook.page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
        expect(notebook.page.locator(f"body[data-jp-theme-name='{theme}']")).to_be_attached()
        for width in (1280, 800):
            notebook.page.set_viewport_size({"width": width, "height": 1000})
            assert serious(notebook.page, ".mkl-proposal") == []
            assert serious(notebook.page, "#maxkernel-runs") == []
            box = notebook.proposal.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width


def test_notebook_7_has_button_proposal_and_edit(notebook7, page, request, cells):
    opened = LabPage(page, notebook7.notebook(f"{request.node.name}.ipynb", cells))
    opened.run(0)
    opened.optimise(1)
    opened.choose("Accept all")
    expect(opened.proposal).to_be_hidden()
    assert opened.source(1) == KERNEL.rstrip("\n")


def test_with_collaboration_on_an_edit_is_written_once_and_undone_for_everyone(lab_together, page, request, cells):
    mine = LabPage(page, lab_together.notebook(f"{request.node.name}.ipynb", cells))
    mine.run(0)
    mine.optimise(1)
    theirs = LabPage(page.context.new_page(), page.url)
    expect(theirs.proposal).to_be_visible()
    mine.choose("Accept all")
    for view in (mine, theirs):
        expect(view.proposal).to_be_hidden()
        expect(view.editor(1)).to_contain_text("time=1.0")
        assert view.source(1) == KERNEL.rstrip("\n")
    mine.select(1)
    mine.page.keyboard.press("Control+z")
    expect(theirs.editor(1)).not_to_contain_text("time=1.0")  # the output shows the kernel too
    assert theirs.source(1) == mine.source(1) == f"%%maxkernel auto\n{FUNCTION}"


def test_the_server_lists_runs_without_a_kernel_and_only_to_its_own(lab):
    Bench(lab.root / "quiet").run().wait(10).accept().wait_end(10).close()
    address = f"{lab.url}/maxkernel/runs?path="
    with urlopen(Request(f"{address}quiet", headers={"Authorization": f"token {lab.token}"})) as answer:
        assert [(run["id"], run["outcome"]) for run in json.load(answer)["runs"]] == [("f-1", "accepted")]
    for path, token, code in (("quiet", "wrong", 403), ("../..", lab.token, 404)):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{address}{path}", headers={"Authorization": f"token {token}"}))
        assert refused.value.code == code
