"""What a large run does to the panel: messages, updates, kernel latency, first paint, main-thread blocks.

``python -m tests.bench.panel_robustness`` prints a line for each figure. A real kernel's messages are counted by the
front end's own protocol; the page's blocks are read from a Chromium trace. ``--events`` and ``--text`` scale it down.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import samples
from sample_run import SampleRun

import maxkernel_nb.widgets
from maxkernel_nb import events as ev
from maxkernel_nb.document.build import document
from maxkernel_nb.engine.state import fold
from maxkernel_nb.patches import make_patch
from maxkernel_nb.widgets.limits import MESSAGE_BYTES, fit, size
from maxkernel_nb.widgets.panel import RunPanel
from maxkernel_nb.widgets.publisher import Publisher

WIDGETS = Path(maxkernel_nb.widgets.__file__).parent
BLOCK_MS, SECOND = 100.0, 1.0


def large_run(events: int, text: int) -> list[ev.AnyEvent]:
    """``events`` in all: 500 candidates, ``text`` characters of streamed talk, a diff of 3,000 lines at the end."""
    before = "".join(f"x{n} = compute(a{n}, b{n})  # step {n}\n" for n in range(1500))
    proposal = ev.ProposalMade(proposal="big", candidate=samples.candidate().id, claim="A long one.",
                               patch=make_patch(before, before.replace("compute", "fused")))
    said = ev.ConversationOpened(key="talk", role="implementer", prompt="")
    candidates = min(500, events // 10)
    rest = max(1, events - candidates - len(samples.tuned()) - 3)
    piece = "word " * max(1, text // rest // 5)
    made: list[ev.AnyEvent] = [*samples.tuned(), said]
    for n in range(rest):
        made.append(ev.ModelSaid(key="talk", text=f"{n} {piece}"[-4000:]))
        if n % max(1, rest // candidates) == 0:
            made.append(ev.CandidateAdded(candidate=samples.candidate(source=f"# {n}\n")))
    return [*made, proposal, ev.StatusChanged(status=ev.Status.WAITING)]


class Counted(RunPanel):
    """Notes when a document was sent and how large it was."""

    def __init__(self, run: SampleRun) -> None:
        self.puts: list[tuple[float, int, float]] = []
        super().__init__(run)

    def put(self, doc) -> None:
        began = time.perf_counter()
        super().put(doc)
        self.puts.append((began, size(self.doc), time.perf_counter() - began))


def kernel_side(events: list[ev.AnyEvent], seconds: float) -> dict[str, float]:
    """The events come over ``seconds``; gives sizes, rate and cost of the updates that came of them."""
    run = SampleRun(events[: len(samples.tuned())])
    publisher = Publisher(run, publish=lambda *given: None)
    publisher.panel = panel = Counted(run)
    publisher.show()
    rest = events[len(samples.tuned()) :]
    began, emitted = time.perf_counter(), 0.0
    for n, event in enumerate(rest):
        at = time.perf_counter()
        run.emit(event)
        emitted += time.perf_counter() - at
        while time.perf_counter() - began < seconds * n / len(rest):
            time.sleep(0.001)
    publisher.settle(120)
    publisher.close()
    times = [at for at, _, _ in panel.puts]
    within = [sum(at <= other < at + SECOND for other in times) for at in times]
    return {
        "largest message, bytes": max(length for _, length, _ in panel.puts),
        "updates": len(times), "updates in any second, at most": max(within),
        "an update, mean ms": 1e3 * sum(cost for _, _, cost in panel.puts) / len(times),
        "an event, mean ms": 1e3 * emitted / len(rest),
    }


def page_side(events: list[ev.AnyEvent], browser, updates: int = 20) -> dict[str, float]:
    """``updates`` documents of the growing run in a page, then every tab and both layouts; blocks from a trace."""
    cuts = [max(len(samples.tuned()), len(events) * n // updates) for n in range(1, updates + 1)]
    docs = {str(n): fit(document(fold(events[:cut]))) for n, cut in enumerate(cuts)}
    with served(docs) as address:
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.set_default_timeout(120_000)
        browser.start_tracing(page=page, categories=["devtools.timeline", "toplevel"])
        page.goto(f"{address}?doc=0")
        page.wait_for_selector("body[data-ready]")
        paint = page.evaluate("performance.getEntriesByName('panel')[0]?.duration ?? null")
        for n in range(1, updates):
            page.evaluate("n => new Promise(done => { window.put(n); requestAnimationFrame(() => done()); })", str(n))
        for tab in page.get_by_role("tab").all():
            tab.click()
        page.get_by_role("tab", name="Proposal").click()
        page.get_by_role("button", name="Side by side").click()
        page.wait_for_function("!document.querySelector('.mkn-hunks')?.hasAttribute('aria-busy')")
        rows = page.locator(".mkn-diff tr").count()
        trace = json.loads(browser.stop_tracing())
        page.close()
    blocks = blocked(trace["traceEvents"])
    return {"first paint of the panel, ms": paint or 0.0, "rows of the diff": rows,
            "longest block, ms": max(blocks, default=0.0),
            f"blocks over {BLOCK_MS:.0f} ms": sum(block > BLOCK_MS for block in blocks)}


def blocked(events: list[dict]) -> list[float]:
    """Milliseconds of CPU that the page's main thread spent in each of its tasks (CPU: others use the machine too)."""
    mains = {(e["pid"], e["tid"]) for e in events if e.get("name") == "thread_name"
             and e["args"].get("name") == "CrRendererMain"}
    return [e.get("tdur", e.get("dur", 0)) / 1e3 for e in events
            if e.get("name") in ("RunTask", "ThreadControllerImpl::RunTask") and (e["pid"], e["tid"]) in mains]


class served:
    """The dev page with ``docs``."""

    def __init__(self, docs: dict) -> None:
        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_GET(self):
                if not self.path.endswith("docs.json"):
                    return super().do_GET()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(docs).encode())

        self._server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=str(WIDGETS)))

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}/frontend/dev/index.html"

    def __exit__(self, *error) -> None:
        self._server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=5000)
    parser.add_argument("--text", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    events = large_run(given.events, given.text)
    streamed = sum(len(e.text) for e in events if isinstance(e, ev.ModelSaid))
    print(f"{len(events)} events, {streamed:,} characters streamed")
    found = kernel_side(events, given.seconds)
    assert found["largest message, bytes"] <= MESSAGE_BYTES
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        found |= page_side(events, browser)
        browser.close()
    for name, value in found.items():
        print(f"{name:34} {value:12,.1f}")


if __name__ == "__main__":
    main()
