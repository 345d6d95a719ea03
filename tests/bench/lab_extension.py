"""How long a 3,000-line proposal takes to open in a 500-cell notebook, and what it does to typing. Prints figures.

    python tests/bench/lab_extension.py [--lines 3000] [--cells 500] [--trace FILE]

Everything is read from Chromium's own trace; --trace keeps that of the opening (for its Performance panel). Opening:
from the arrival of the kernel's message to the end of the frame that shows the proposal. Typing: 40 keys in the cell
below the proposal and 40 in one far away, before it comes, while it is open and after it was rejected, in one page.
Processor time is what the page's main thread itself used: other load on the machine shows less in it than in times on
the clock.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

KEYS = 40
CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline", "blink.user_timing", "toplevel"]
CHROMIUM = ["--no-sandbox", "--disable-gpu"]
LONG_MS = 50


def type_keys(page, cell: int) -> None:
    """Into a cell, one key a frame; the trace has each."""
    page.evaluate("""async cell => {
        const shown = [...window.jupyterapp.shell.widgets('main')].find(w => w.isVisible && w.content?.widgets);
        shown.content.activeCellIndex = cell;
        shown.content.mode = 'edit';
        await shown.content.scrollToItem(cell);
    }""", cell)
    page.locator(".jp-CodeCell.jp-mod-active .jp-InputArea-editor .cm-content").first.click()
    for _ in range(KEYS):
        page.keyboard.press("a")
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")


@dataclass(frozen=True)
class Typing:
    """Of one key, in ms: ``work`` is the main thread's processor time, ``painted`` the median on the clock until the
    browser had painted. ``long``: tasks that used more than 50 ms of processor time."""

    work: float
    painted: float
    long: int


@dataclass(frozen=True)
class Opening:
    """In ms: on the clock, the main thread's processor time in that span, and the longest task's."""

    clock: float
    work: float
    longest: float


def tasks(found: list[dict], since: float = 0, until: float = math.inf) -> list[float]:
    """Processor time (ms) of every task of the page's main thread that began in a span of the trace, but for what this
    program asks of the page itself."""
    busiest = Counter((e["pid"], e["tid"]) for e in found if e["name"] == "EventDispatch").most_common(1)[0][0]
    mine = [e for e in found if (e["pid"], e["tid"]) == busiest and since <= e["ts"] <= until]
    asked = sorted(e["ts"] for e in mine if "DevToolsSession" in str(e["args"]))
    whole = [e for e in mine if e["name"] == "RunTask"]
    return [e.get("tdur", 0) / 1000 for e in whole if not _holds_any(asked, e["ts"], e["ts"] + e.get("dur", 0))]


def _holds_any(moments: list[float], since: float, until: float) -> bool:
    at = bisect_left(moments, since)
    return at < len(moments) and moments[at] <= until


def typing_of(trace: bytes) -> Typing:
    found = json.loads(trace)["traceEvents"]
    painted = [e["args"]["data"]["duration"] for e in found
               if e["name"] == "EventTiming" and e["ph"] == "b" and e["args"].get("data", {}).get("type") == "keydown"]
    spent = tasks(found)
    return Typing(sum(spent) / KEYS, statistics.median(painted), sum(t > LONG_MS for t in spent))


def opening_of(trace: bytes) -> Opening:
    """The extension's own measure, from the page's timeline."""
    found = json.loads(trace)["traceEvents"]
    ends = {e["ph"]: e["ts"] for e in found if e["name"] == "maxkernel-proposal" and e["ph"] in "be"}
    spent = tasks(found, ends["b"], ends["e"])
    return Opening((ends["e"] - ends["b"]) / 1000, sum(spent), max(spent))


def texts(lines: int) -> tuple[str, str]:
    """A function and its kernel; every tenth line differs."""
    body = [f"    a{n} = {n}" for n in range(lines)]
    changed = [f"{line} + 0" if n % 10 == 0 else line for n, line in enumerate(body)]
    return "\n".join(["def f(x):", *body, "    return x"]), "\n".join(
        ["def f(x):", *changed, "    return x", "# time=1.0", ""])


def measure(lines: int, cells: int) -> tuple[Opening, dict[str, tuple[Typing, ...]], bytes]:
    """The opening; typing before, with and after the proposal, by where it was done; the opening's trace."""
    from jupyter_lab import LabServer
    from lab_page import LabPage, scripted
    from playwright.sync_api import expect, sync_playwright

    function, kernel = texts(lines)
    written = [scripted("bench", kernel), function, "b = ''", *(f"cell_{n} = {n}" for n in range(cells - 3))]
    server = LabServer(Path(tempfile.mkdtemp()))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            opened = LabPage(page, server.notebook("bench.ipynb", written))
            opened.run(0)
            opened.ask("print(1)")
            # JupyterLab makes the editors one by one while it idles, and each makes every key dearer.
            every = "cells => document.querySelectorAll('.jp-CodeCell .jp-InputArea .cm-editor').length >= cells"
            page.wait_for_function(every, arg=cells, polling=1000, timeout=300_000)

            def typed(cell: int) -> Typing:
                type_keys(page, cell)  # once unmeasured: what is compiled and loaded at the first key
                browser.start_tracing(page=page, categories=CATEGORIES)
                type_keys(page, cell)
                return typing_of(browser.stop_tracing())

            where = {"in the cell below": 2, "far away": cells // 2}
            before = {name: typed(cell) for name, cell in where.items()}
            browser.start_tracing(page=page, categories=CATEGORIES)
            opened.optimise(1)
            page.wait_for_function("performance.getEntriesByName('maxkernel-proposal').length > 0", polling=100)
            opening = browser.stop_tracing()
            during = {name: typed(cell) for name, cell in where.items()}
            expect(page.locator(".mkl-proposal")).to_be_attached()
            page.evaluate("""[...document.querySelectorAll('.mkl-choices button')]
                .find(button => button.textContent === 'Reject').click()""")
            expect(page.locator(".mkl-proposal")).not_to_be_attached()
            after = {name: typed(cell) for name, cell in where.items()}
            browser.close()
    finally:
        server.stop()
    return opening_of(opening), {name: (before[name], during[name], after[name]) for name in where}, opening


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--cells", type=int, default=500)
    parser.add_argument("--trace", type=Path, help="keep the trace of the opening here")
    options = parser.parse_args()
    took, typing, trace = measure(options.lines, options.cells)
    if options.trace:
        options.trace.write_bytes(trace)
    print(f"{options.lines}-line proposal with {-(-options.lines // 10)} changes in a {options.cells}-cell notebook, "
          f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"on screen {took.clock:.0f} ms after its message came; the main thread's own processor time in that span is "
          f"{took.work:.0f} ms, its longest task {took.longest:.0f} ms")
    for name, (before, during, after) in typing.items():
        print(f"typing {name}, {KEYS} keys: processor time a key {before.work:.1f} ms before, {during.work:.1f} ms "
              f"with it open, {after.work:.1f} ms after it was rejected; painted after {before.painted:.0f}, "
              f"{during.painted:.0f} and {after.painted:.0f} ms (median); "
              f"tasks over {LONG_MS} ms: {before.long}, {during.long} and {after.long}")


if __name__ == "__main__":
    main()
