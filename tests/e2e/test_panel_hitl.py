"""A human in the loop: every decision of a run taken in the panel, in JupyterLab by clicks, in Notebook 7 by keys."""

import pytest
from accessibility import serious
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
ANSWERS = (
    "run = api.live['f-1']\n"
    "[(q.answer.choice, q.answer.text[:9], q.answer.hunks, q.answer.via) for q in run.state.questions.values()]"
)
TAKEN = (
    "[('edit', 'One pass,', None, 'button'), ('approve', '', (1,), 'button'), ('judge', '', None, 'button'), "
    "('finish', '', None, 'button')]"
)
JUDGE = "Judge it in full (checks, compile, model; no money)"
FINISH = "Finish with the best so far"


def opened(server, page, name):
    loaded, cell = SCRIPTED.format(folder=name, kernel=KERNEL), f"%%maxkernel hitl\n{FUNCTION}"
    cells = [loaded, cell, ANSWERS, "%maxkernel show f-1"]
    notebook = NotebookPage(page, server.notebook(f"{name}.ipynb", cells))
    notebook.run(0, 1)
    return notebook


class Clicks:
    def __init__(self, page):
        self.page = page

    def press(self, panel, name):
        panel.get_by_role("button", name=name, exact=True).click()

    def write(self, panel, text):
        panel.get_by_role("textbox", name="Edit before you answer").fill(text)


class Keys(Clicks):
    """Tab, Enter and typing; the pointer is never used."""

    def press(self, panel, name):
        wanted = panel.get_by_role("button", name=name, exact=True)
        expect(wanted).to_be_enabled()
        self._to(panel, wanted)
        self.page.keyboard.press("Enter")

    def write(self, panel, text):
        box = panel.get_by_role("textbox", name="Edit before you answer")
        self._to(panel, box)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def _to(self, panel, wanted):
        panel.get_by_role("button", name="Stop").or_(panel.get_by_role("tab")).first.focus()
        for _ in range(60):
            if wanted.evaluate("element => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError("sixty times Tab did not lead there")


def decided(notebook, hands):
    """The whole way: the plan rewritten, a hunk left out, judged, finished, accepted, and taken back."""
    panel = notebook.output(1).get_by_role("region", name="maxkernel run")
    expect(panel.get_by_text("Approve this plan?").first).to_be_visible()
    hands.write(panel, "One pass, please.")
    hands.press(panel, "Approve my text")
    expect(panel.get_by_text("Take this kernel on?").first).to_be_visible()
    hands.press(panel, "Reject hunk 1")
    hands.press(panel, "Take it (1 of 2 hunks)")
    expect(panel.get_by_text("What next?").first).to_be_visible()
    hands.press(panel, JUDGE)
    expect(panel.get_by_text("over XLA, modelled").first).to_be_visible()
    hands.press(panel, FINISH)
    hands.press(panel, "Accept kernel")
    expect(notebook.output(1).get_by_text("Accepted: f is bound").first).to_be_visible()
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text(TAKEN)
    notebook.run(3)
    again = notebook.output(3).get_by_role("region", name="maxkernel run")
    hands.press(again, "Undo")
    expect(notebook.output(3).get_by_text("Accepted, then undone").first).to_be_visible()


def test_in_jupyterlab_by_clicks(lab, page, name):
    decided(opened(lab, page, name), Clicks(page))


def test_in_notebook_7_by_keys_in_the_dark(notebook7, page, name):
    notebook = opened(notebook7, page, name)
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", "JupyterLab Dark")
    panel = notebook.output(1).get_by_role("region", name="maxkernel run")
    expect(panel).to_have_attribute("data-theme", "dark")
    assert serious(page, ".mkn-panel") == []
    decided(notebook, Keys(page))
