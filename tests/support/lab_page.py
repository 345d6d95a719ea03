"""What a person does with the lab extension, for tests and benches. The kernel is real, the author scripted."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from jupyter_lab import LIMIT_MS, NotebookPage
from playwright.sync_api import BrowserContext, Locator, TimeoutError

FUNCTION = "def f(x):\n    y = x\n    a = 1\n    b = 2\n    return y"
KERNEL = "def f(x):\n    y = x + 0\n    a = 1\n    b = 2\n    return y * 1\n# time=1.0\n"
MARKED = f"%%maxkernel auto\n{FUNCTION}"
ACCEPTED = KERNEL.rstrip("\n")
KEPT = f"%%maxkernel auto\n# The reference that run f-1 replaced in the cell above.\n{FUNCTION}\n"

_SHOWN = "[...window.jupyterapp.shell.widgets('main')].find(w => w.isVisible && w.content?.widgets)"
_ASK = f"""async code => {{
    const kernel = {_SHOWN}.sessionContext.session.kernel;
    const said = [];
    const request = kernel.requestExecute({{code, store_history: false}});
    request.onIOPub = message => said.push(message.content.text ?? message.content.evalue ?? '');
    await request.done;
    return said.join('').trim();
}}"""


def scripted(folder: str, kernel: str = KERNEL) -> str:
    """A cell that loads MaxKernel over the fake engine, its project in ``folder`` beside the notebook."""
    return (
        "import fake_api, pathlib\n"
        "from maxkernel_nb.authors.fake import ScriptedAuthor\n"
        f"api = fake_api.install(get_ipython(), pathlib.Path.cwd() / {folder!r})\n"
        f"api.author = ScriptedAuthor([{kernel!r}])"
    )


def foreign(context: BrowserContext, own: str) -> list[str]:
    """Fills with the address of every request that goes elsewhere than to the server at ``own``."""
    found: list[str] = []
    host = urlsplit(own).netloc

    def look(address: str) -> None:
        if urlsplit(address).scheme not in ("data", "blob") and urlsplit(address).netloc != host:
            found.append(address)

    context.on("request", lambda request: look(request.url))
    context.on("page", lambda page: page.on("websocket", lambda socket: look(socket.url)))
    return found


class LabPage(NotebookPage):
    """Cells are counted from 0 and are code cells. ``region`` finds what is shown inside a cell."""

    @property
    def proposal(self) -> Locator:
        return self.region("^Proposed kernel for f")

    @property
    def sidebar(self) -> Locator:
        return self.page.get_by_role("region", name="MaxKernel runs")

    def region(self, name: str) -> Locator:
        return self.page.get_by_role("region", name=re.compile(name))

    def cell(self, number: int) -> Locator:
        return self.page.locator(".jp-CodeCell").nth(number)

    def select(self, number: int) -> None:
        self.cell(number).get_by_role("textbox").first.click()

    def editor(self, number: int) -> Locator:
        return self.cell(number).locator(".jp-InputArea-editor")

    def source(self, number: int) -> str:
        """The exact text of a cell, from the document's model."""
        return self.sources()[number]

    def sources(self) -> list[str]:
        return self.page.evaluate(f"() => {_SHOWN}.content.widgets.map(w => w.model.sharedModel.getSource())")

    def has_source(self, number: int, text: str) -> None:
        """Waits until a cell holds exactly ``text``, and says what it holds where it never does."""
        same = f"([n, text]) => {_SHOWN}.content.widgets[n]?.model.sharedModel.getSource() === text"
        try:
            self.page.wait_for_function(same, arg=[number, text], timeout=LIMIT_MS / 2)
        except TimeoutError:
            assert self.source(number) == text

    def script(self, code: str) -> None:
        """Runs JavaScript on the notebook's ``panel``, for what has no button or many."""
        self.page.evaluate(f"() => {{ const panel = {_SHOWN}; return {code}; }}")

    def ask(self, code: str) -> str:
        """What the notebook's kernel prints for ``code``, after everything that it was sent before."""
        return self.page.evaluate(_ASK, code)

    def says(self, code: str, text: str) -> None:
        """Waits until the kernel prints ``text`` for ``code``: what a click sets off reaches it in its own time."""
        same = f"async ([code, text]) => await ({_ASK})(code) === text"
        try:
            self.page.wait_for_function(same, arg=[code, text], timeout=LIMIT_MS / 2, polling=200)
        except TimeoutError:
            assert self.ask(code) == text

    def ended(self, text: str) -> None:
        """Waits until the first run has ended so: its outcome and what ``f`` is."""
        self.says("print(api.live['f-1'].wait_end(30).state.outcome, type(f).__name__)", text)

    def on_cell(self, number: int, name: str) -> None:
        """Presses a button of a cell's toolbar."""
        self.select(number)
        self.page.locator(".jp-cell-toolbar").get_by_role("button", name=re.compile(name)).click()

    def delete(self, number: int) -> None:
        """As the menu does."""
        self.select(number)
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:delete-cell')")

    def optimise(self, number: int, mode: str = "auto") -> None:
        """By clicks: the cell's button, the form, Start."""
        self.on_cell(number, "^Optimise with MaxKernel")
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("combobox", name=re.compile("^Mode")).select_option(mode)
        dialog.get_by_role("button", name="Start", exact=True).click()

    def choose(self, name: str) -> None:
        self.page.locator(".mkl-choices").get_by_role("button", name=name).click()

    def open_sidebar(self) -> Locator:
        """By its tab; Notebook 7 has none and opens it by the menu."""
        if "/lab" in self.page.url:
            self.page.get_by_role("tab", name="MaxKernel runs").click()
        else:
            self.menu("Run", "MaxKernel", "MaxKernel Runs")
        return self.sidebar

    def menu(self, top: str, *items: str) -> None:
        """Opens a menu of the bar and clicks through to an entry."""
        self.page.get_by_role("menubar").get_by_role("menuitem", name=top, exact=True).click()
        for item in items:
            entries = self.page.locator(".lm-Menu").last.locator(".lm-Menu-item")  # those with a submenu have no role
            entries.filter(has=self.page.get_by_text(item, exact=True)).click()

    def restart(self) -> None:
        self.page.get_by_role("button", name="Restart the kernel", exact=True).click()
        self.page.get_by_role("button", name="Confirm Kernel Restart").click()

    def settle(self) -> None:
        """Until every font is there, every animation that runs to an end has ended (a cursor blinks for ever, a toast's
        may be held), and two frames were drawn."""
        self.page.evaluate("""async () => {
            await document.fonts.ready;
            const ends = one => one.playState === 'running' && one.effect?.getComputedTiming().endTime !== Infinity;
            const ended = document.getAnimations().filter(ends).map(one => one.finished.catch(() => undefined));
            await Promise.race([Promise.all(ended), new Promise(done => setTimeout(done, 3000))]);
            await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
        }""")
