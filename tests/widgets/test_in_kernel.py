"""The panel in a real kernel process, spoken to as a front end does: comms, display ids, threads."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from queue import Empty

import pytest

from maxkernel_nb.widgets.wire import DOC

manager = pytest.importorskip("jupyter_client.manager")

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


class Client:
    """Collects what the kernel publishes; keeps outputs as a notebook would."""

    def __init__(self, client):
        self.client = client
        self.outputs: dict[str, dict] = {}
        self.document: dict = {}
        self.acks: list[dict] = []
        self.errors: list[str] = []

    def run(self, code):
        asked = self.client.execute(code)
        self.until(
            lambda m: (
                m["msg_type"] == "status"
                and m["content"]["execution_state"] == "idle"
                and m["parent_header"].get("msg_id") == asked
            )
        )
        assert not self.errors, self.errors

    def until(self, done):
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=60)
            except Empty:
                raise AssertionError("the kernel published nothing for a minute") from None
            self.take(message["msg_type"], message["content"])
            if done(message):
                return

    def take(self, kind, content):
        if kind in ("display_data", "update_display_data"):
            self.outputs[content["transient"]["display_id"]] = content["data"]
        elif kind == "comm_open" and DOC in content["data"]["state"]:
            self.comm = content["comm_id"]
            self.document = content["data"]["state"][DOC]
        elif kind == "comm_msg" and content["comm_id"] == self.comm:
            data = content["data"]
            self.document = data.get("state", {}).get(DOC, self.document)
            if data.get("method") == "custom":
                self.acks.append(data["content"])
        elif kind == "error":
            self.errors.append(content["evalue"])

    def click(self, **message):
        data = {"method": "custom", "content": message}
        sent = self.client.session.msg("comm_msg", {"comm_id": self.comm, "data": data})
        self.client.shell_channel.send(sent)

    @property
    def shown(self):
        return next(iter(self.outputs.values()))


@pytest.fixture
def client():
    kernel = manager.KernelManager()
    kernel.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    support = str(Path(__file__).resolve().parents[1] / "support")
    kernel.start_kernel(env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1", "PYTHONPATH": support})
    opened = kernel.client()
    opened.start_channels()
    try:
        opened.wait_for_ready(timeout=90)
        yield Client(opened)
    finally:
        opened.stop_channels()
        kernel.shutdown_kernel(now=True)


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
