"""How long a 3,000-line proposal takes to open in a 500-cell notebook, and what it does to typing. Prints figures.

    python tests/bench/lab_extension.py [--lines 3000] [--cells 500] [--trace FILE]

Everything is read from Chromium's own trace, which --trace keeps (for its Performance panel). Opening: from the
arrival of the kernel's message to the end of the frame that shows the proposal. Typing: for 40 keys in a cell
elsewhere, the main thread's work from a key press to the end of its frame, and the time until the browser had
painted; in one page, before the proposal and with it open.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

KEYS = 40
CATEGORIES = ["devtools.timeline", "blink.user_timing"]
CHROMIUM = ["--no-sandbox", "--disable-gpu"]


def type_keys(page) -> None:
    """Into the third cell, one key a frame; the trace has each."""
    page.evaluate("""() => {
        const shown = [...window.jupyterapp.shell.widgets('main')].find(w => w.isVisible && w.content?.widgets);
        shown.content.activeCellIndex = 2;
        shown.content.mode = 'edit';
        return shown.content.scrollToItem(2);
    }""")
    page.locator(".jp-CodeCell.jp-mod-active .cm-content").first.click()
    for _ in range(KEYS):
        page.keyboard.press("a")
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")


def events(trace: bytes) -> list[dict]:
    return json.loads(trace)["traceEvents"]


def typing_ms(trace: bytes) -> tuple[float, float]:
    """Medians of the key presses in a trace: handling on the main thread, and until painted."""
    found = events(trace)
    handled = [e["dur"] / 1000 for e in found
               if e["name"] == "EventDispatch" and e["args"]["data"]["type"] in ("keydown", "keypress", "textInput")]
    painted = [e["args"]["data"]["duration"] for e in found
               if e["name"] == "EventTiming" and e["ph"] == "b" and e["args"].get("data", {}).get("type") == "keydown"]
    return sum(handled) / KEYS, statistics.median(painted)


def opening_ms(trace: bytes) -> float:
    """The extension's own measure, from the page's timeline."""
    ends = {e["ph"]: e["ts"] for e in events(trace) if e["name"] == "maxkernel-proposal" and e["ph"] in "be"}
    return (ends["e"] - ends["b"]) / 1000


def texts(lines: int) -> tuple[str, str]:
    """A function and its kernel; every tenth line differs."""
    body = [f"    a{n} = {n}" for n in range(lines)]
    changed = [f"{line} + 0" if n % 10 == 0 else line for n, line in enumerate(body)]
    return "\n".join(["def f(x):", *body, "    return x"]), "\n".join(
        ["def f(x):", *changed, "    return x", "# time=1.0", ""])


def measure(lines: int, cells: int) -> tuple[float, tuple[float, float], tuple[float, float], bytes]:
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
            type_keys(page)  # once unmeasured: what is compiled and loaded at the first key
            browser.start_tracing(page=page, categories=CATEGORIES)
            type_keys(page)
            before = browser.stop_tracing()
            browser.start_tracing(page=page, categories=CATEGORIES)
            opened.optimise(1)
            expect(opened.proposal).to_be_visible()
            page.wait_for_function("performance.getEntriesByName('maxkernel-proposal').length > 0")
            opening = browser.stop_tracing()
            type_keys(page)
            browser.start_tracing(page=page, categories=CATEGORIES)
            type_keys(page)
            after = browser.stop_tracing()
            expect(opened.proposal).to_be_attached()
            browser.close()
    finally:
        server.stop()
    return opening_ms(opening), typing_ms(before), typing_ms(after), opening


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--cells", type=int, default=500)
    parser.add_argument("--trace", type=Path, help="keep the trace of the opening here")
    options = parser.parse_args()
    took, before, after, trace = measure(options.lines, options.cells)
    if options.trace:
        options.trace.write_bytes(trace)
    print(f"{options.lines}-line proposal with {-(-options.lines // 10)} changes in a {options.cells}-cell notebook: "
          f"on screen {took:.0f} ms after its message came")
    print(f"typing elsewhere, {KEYS} keys: {before[0]:.1f} ms of work a key before, {after[0]:.1f} ms with it open; "
          f"painted after {before[1]:.0f} and {after[1]:.0f} ms (median)")


if __name__ == "__main__":
    main()
