"""The panel in a real kernel process, spoken to as a front end does: comms, display ids, threads."""

from __future__ import annotations

import pytest
from panel_kernel import kernel

pytest.importorskip("jupyter_client.manager")

SHOW = """
import samples
from sample_run import SampleRun
from maxkernel_nb.widgets.publisher import Publisher
run = SampleRun(samples.started())
publisher = Publisher(run)
publisher.show()
"""
WAIT = """
import threading
worker = threading.Thread(target=lambda: run.emit(*samples.waiting()[len(samples.started()):]))
worker.start()
worker.join()
assert publisher.settle(20)
"""
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def client():
    with kernel() as opened:
        yield opened


def test_a_run_from_first_panel_to_frozen_report(client):
    client.run(SHOW)
    assert VIEW in client.shown and client.document["header"]["status"] == "running"
    client.run(WAIT)
    assert client.document["header"]["status"] == "waiting for you"
    for _ in range(2):
        client.click(id="click-1", intent="accept", proposal="p1")
    client.until(lambda m: VIEW not in client.shown and client.acks)
    assert all(ack == {"kind": "ack", "id": "click-1", "ok": True, "message": ""} for ack in client.acks)
    client.run("assert len(run.calls) == 1, run.calls")
    assert len(client.outputs) == 1
    assert client.shown["text/plain"] == "maxkernel run auto-7f3a: accepted"
    assert "data:image/png" in client.shown["text/html"]


def test_a_kernel_that_is_shut_down_leaves_a_report(client):
    client.run(SHOW)
    client.client.shutdown()
    client.until(lambda m: VIEW not in client.shown)
    assert "auto-7f3a" in client.shown["text/html"]
