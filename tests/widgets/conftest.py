"""The built panel in a browser, around a fake model: ``view("doc=waiting&theme=dark")`` opens a sample."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from pathlib import Path

import pytest
import samples

import maxkernel_nb.widgets
from maxkernel_nb.document.build import document
from maxkernel_nb.document.compare import comparison
from maxkernel_nb.engine.state import fold
from maxkernel_nb.widgets.limits import fit, fit_comparison

WIDGETS = Path(maxkernel_nb.widgets.__file__).parent
LIMIT_MS = 60_000
HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\u202e"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.path.endswith("docs.json"):
            made = {name: fit(document(fold(events()))) for name, events in samples.ALL.items()}
            made["hostile"] = fit(document(fold(samples.hostile(HOSTILE))))
            made["hostile_asked"] = fit(document(fold(samples.hostile_question(HOSTILE))))
            for name, events in samples.heavy().items():
                made[name] = fit(document(fold(events)))
            ids = [samples.candidate(n).id for n in (0, 1)]
            made["comparison"] = fit_comparison(comparison(fold(samples.waiting()), *ids))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(made).encode())
        else:
            super().do_GET()


@pytest.fixture(scope="module")
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(WIDGETS)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/frontend/dev/index.html"
    server.shutdown()


@pytest.fixture
def view(browser, address):
    """Opens the panel on one sample; faults on the page fail the test."""
    from playwright.sync_api import expect

    page, faults = browser.new_page(viewport={"width": 900, "height": 800}), []
    page.set_default_timeout(LIMIT_MS)
    expect.set_options(timeout=LIMIT_MS)
    page.on("pageerror", lambda error: faults.append(str(error)))

    def open_(query):
        page.goto(f"{address}?{query}")
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_
    page.close()
    assert not faults
