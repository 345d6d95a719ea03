"""What a large run does to a person in a real JupyterLab: first paint, the kernel's answers, the page's blocks.

``python -m tests.bench.panel_in_lab`` prints a line for each figure, the machine's load beside them. A real kernel
emits the run of ``panel_robustness`` (5,059 events, 2 MB of streamed text, 500 candidates, a diff of 3,000 lines)
while ``1+1`` is asked again and again, every tab is opened and words are typed. Blocks are CPU time of the page's main
thread, read from a Chromium trace, since other work on the machine would be counted in wall time. ``--events``,
``--text`` and ``--seconds`` scale it down.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH.parent / "support"), str(BENCH)]

from jupyter_lab import LabServer, NotebookPage  # noqa: E402
from panel_robustness import BLOCK_MS, blocked  # noqa: E402
from playwright.sync_api import Page, sync_playwright  # noqa: E402

SET_UP = f"""import sys; sys.path.insert(0, {str(BENCH)!r})
import threading, time, samples
from panel_robustness import large_run
from sample_run import SampleRun
import maxkernel_nb.widgets.publisher as module
events = large_run({{events}}, {{text}})
started = len(samples.started())
def panel():
    global run, publisher
    run = SampleRun(events[:started])
    publisher = module.Publisher(run)
    publisher.show()
def play():
    rest, began = events[started:], time.perf_counter()
    for n, event in enumerate(rest):
        run.emit(event)
        time.sleep(max(0, {{seconds}} * n / len(rest) - (time.perf_counter() - began)))
"""
CELLS = ("panel()", "panel()", "threading.Thread(target=play).start()")
_ASK = """async ([code, times]) => {
    const shown = [...window.jupyterapp.shell.widgets('main')].find(w => w.isVisible && w.content?.widgets);
    const kernel = shown.sessionContext.session.kernel;
    const taken = [];
    for (let n = 0; n < times; n += 1) {
        const began = performance.now();
        await kernel.requestExecute({code, store_history: false}).done;
        taken.push(performance.now() - began);
        await new Promise(done => setTimeout(done, 100));
    }
    return taken;
}"""
_PAINT = """number => new Promise(done => {
    const cell = document.querySelectorAll('.jp-CodeCell')[number];
    addEventListener('keydown', function pressed(event) {
        if (event.key !== 'Enter') return;
        removeEventListener('keydown', pressed, true);
        const began = performance.now();
        const look = () => {
            if (!cell.querySelector('.mkn-panel .mkn-button')) return requestAnimationFrame(look);
            requestAnimationFrame(() => { window.painted = performance.now() - began; });
        };
        look();
    }, true);
    done();
})"""


def first_paint(notebook: NotebookPage, number: int) -> float:
    """Milliseconds from Shift+Enter to the frame after the panel with its Stop button is there."""
    page = notebook.page
    page.evaluate("delete window.painted")
    page.locator(".jp-CodeCell").nth(number).get_by_role("textbox").first.click()
    page.evaluate(_PAINT, number)
    page.keyboard.press("Shift+Enter")
    page.wait_for_function("window.painted !== undefined")
    return float(page.evaluate("window.painted"))


def answers(page: Page, times: int = 20) -> list[float]:
    return list(page.evaluate(_ASK, ["1+1", times]))


def press(page: Page, key: str) -> None:
    """By the panel's own keys: a locator by role walks the whole page, and that would count as the page's work."""
    page.evaluate("""key => document.querySelectorAll('.jp-CodeCell')[2]
        .querySelector(`[data-key="${key}"]`)?.click()""", key)


def used(notebook: NotebookPage) -> list[float]:
    """What a person does while the run goes on; gives how long the kernel took for each ``1+1`` in between."""
    page = notebook.page
    taken: list[float] = []
    for name in ("candidates", "log", "plan", "profile", "source", "checks"):
        press(page, f"tab-{name}")
        taken += answers(page, 8)
    page.locator(".jp-CodeCell").last.get_by_role("textbox").first.click()
    page.keyboard.type("# typed while the panel moves")
    return taken


def ended(notebook: NotebookPage) -> None:
    page = notebook.page
    page.wait_for_function("document.querySelectorAll('.jp-CodeCell')[2].querySelector('.mkn-do-accept') !== null")
    press(page, "tab-proposal")
    for layout in ("split", "unified", "split"):
        press(page, f"layout-{layout}")
        page.wait_for_function("""() => [...document.querySelectorAll('.mkn-hunks')]
            .every(one => !one.hasAttribute('aria-busy'))""")
    press(page, "tab-candidates")
    press(page, "more-candidates")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def longest(trace: list[dict], most: int = 4) -> list[str]:
    """The longest main-thread tasks with what took the time in them."""
    mains = {(e["pid"], e["tid"]) for e in trace if e.get("name") == "thread_name"
             and e["args"].get("name") == "CrRendererMain"}
    ours = [e for e in trace if e.get("ph") == "X" and (e["pid"], e["tid"]) in mains]
    tasks = sorted((e for e in ours if e["name"].endswith("RunTask")), key=lambda e: -e.get("tdur", 0))[:most]
    said = []
    for task in tasks:
        within = [e for e in ours if e["name"] not in ("RunTask", "ThreadControllerImpl::RunTask")
                  and task["ts"] <= e["ts"] < task["ts"] + task["dur"] and e.get("tdur", 0) > 5000]
        parts = sorted(within, key=lambda e: -e["tdur"])[:6]
        said.append(f"{task['tdur'] / 1e3:.0f} ms: " + ", ".join(
            f"{e['name']} {e['tdur'] / 1e3:.0f}" + (f" ({_where(e)})" if _where(e) else "") for e in parts))
    return said


def _where(event: dict) -> str:
    data = event.get("args", {}).get("data", {}) or {}
    place = str(data.get("functionName") or data.get("type") or "")
    url = str(data.get("url", "")).rpartition("/")[2][:30]
    return " ".join(filter(None, (place, url, str(data.get("lineNumber", "")))))


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(browser, server: LabServer, given: argparse.Namespace) -> tuple[dict[str, float], list[str]]:
    cells = [SET_UP.format(events=given.events, text=given.text, seconds=given.seconds), *CELLS, "# mine"]
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    notebook = NotebookPage(page, server.notebook("large.ipynb", cells))
    notebook.run(0)
    answers(page, 3)
    found = {"first paint, first panel of a kernel, ms": first_paint(notebook, 1),
             "first paint, another panel, ms": first_paint(notebook, 2)}
    quiet = answers(page)
    browser.start_tracing(page=page, categories=["devtools.timeline", "toplevel", "v8"])
    notebook.run(3)
    busy = used(notebook)
    ended(notebook)
    trace = json.loads(browser.stop_tracing())["traceEvents"]
    blocks = blocked(trace)
    found |= {
        "1+1 before the run, median ms": statistics.median(quiet), "1+1 during it, median ms": statistics.median(busy),
        "1+1 during it, 95 % below, ms": quantile(busy, 0.95), "times asked": float(len(busy)),
        "longest main-thread block, CPU ms": max(blocks, default=0.0),
        f"blocks over {BLOCK_MS:.0f} ms": float(sum(b > BLOCK_MS for b in blocks)),
    }
    return found, longest(trace)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=5000)
    parser.add_argument("--text", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    server = LabServer(Path(tempfile.mkdtemp(prefix="panel-in-lab-")))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu", "--disable-quic"])
            found, blocks = measure(browser, server, given)
            browser.close()
    finally:
        server.stop()
    for name, value in found.items():
        print(f"{name:42} {value:10,.1f}")
    print("longest tasks:", *blocks, sep="\n  ")
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
