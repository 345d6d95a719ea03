"""A run in a terminal: IPython without a kernel, in a pseudo-terminal, as a person types."""

import os
import sys
from pathlib import Path

import pexpect
import pytest
import samples
from rich.console import Console

from maxkernel_nb.document.build import document
from maxkernel_nb.engine.state import fold
from maxkernel_nb.magics.terminal import live_text

SUPPORT = Path(__file__).resolve().parents[1] / "support"
HOSTILE = "[red]x[/red] \x1b[31m\u202e"
BEGIN = """
import asyncio, pathlib, fake_api
from maxkernel_nb.authors.fake import ScriptedAuthor
from engine_bench import GOOD
class Slow(ScriptedAuthor):
    async def implement(self, view, plan):
        while not pathlib.Path("go").exists():
            await asyncio.sleep(0.05)
        return await super().implement(view, plan)
api = fake_api.install(get_ipython(), pathlib.Path.cwd())
api.author = Slow([GOOD])
get_ipython().run_cell_magic("maxkernel", "auto", "def f(x):\\n    return x\\n")
"""


def test_a_run_is_watched_live_and_decided_by_commands(tmp_path):
    (tmp_path / "begin.ipy").write_text(BEGIN)
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "IPYTHONDIR": str(tmp_path), "TERM": "xterm"}
    shell = pexpect.spawn(sys.executable, ["-m", "IPython", "--no-banner", "--colors=NoColor", "-i", "begin.ipy"],
                          cwd=str(tmp_path), env=environment, encoding="utf-8", timeout=60, dimensions=(40, 110))
    try:
        shell.expect_exact("%maxkernel wait f-1 watches it live.")
        shell.expect_exact("In [")
        shell.send("%maxkernel wait\r")
        shell.expect_exact("… Write the kernel")  # drawn while it waits
        (tmp_path / "go").touch()
        shell.expect_exact("Run f-1 waits for you: %maxkernel accept f-1 or %maxkernel reject f-1.")
        shell.send("%maxkernel accept\r")
        shell.expect_exact("Accepted: f is bound to the kernel")
        shell.send("f\r")
        shell.expect_exact("<verified kernel f of run f-1>")
    finally:
        shell.close(force=True)


@pytest.mark.parametrize("events", [samples.started(), samples.tuned(), samples.waiting(), samples.hostile(HOSTILE)])
def test_what_is_drawn_names_the_state_and_moves_no_cursor(events):
    doc = document(fold(events))
    console = Console(width=100, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(live_text(doc))
    text = " ".join(captured.get().split())
    assert doc.header.status in text and doc.header.run_id in text and "Ctrl-C ends the waiting" in text
    assert "\x1b" not in text and "\u202e" not in text
