"""A real kernel with a panel in it, spoken to as a front end does: comms, display ids, clicks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty

from maxkernel_nb.widgets.wire import DOC

LIMIT_S, NUDGE_S = 120, 3


@contextmanager
def kernel(before: str = "") -> Iterator[Client]:
    """Starts one with this Python; ``before``: a folder whose packages go before the installed ones."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    path = os.pathsep.join(filter(None, (before, str(Path(__file__).parent))))
    manager.start_kernel(env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1", "PYTHONPATH": path})
    opened = manager.client()
    opened.start_channels()
    try:
        opened.wait_for_ready(timeout=LIMIT_S)
        yield Client(opened)
    finally:
        opened.stop_channels()
        manager.shutdown_kernel(now=True)


class Client:
    """Collects what the kernel publishes; keeps outputs as a notebook would."""

    def __init__(self, client):
        self.client = client
        self.outputs: dict[str, dict] = {}
        self.document: dict = {}
        self.acks: list[dict] = []
        self.errors: list[str] = []
        self.waiting: dict[str, dict] = {}  # clicks that are not acknowledged yet

    def run(self, code):
        self.finish(self.begin(code))

    def begin(self, code):
        """Sends a cell; ``finish`` waits for its end."""
        return self.client.execute(code)

    def finish(self, asked):
        self.until(
            lambda m: (
                m["msg_type"] == "status"
                and m["content"]["execution_state"] == "idle"
                and m["parent_header"].get("msg_id") == asked
            )
        )
        assert not self.errors, self.errors

    def until(self, done):
        silent = 0
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=NUDGE_S)
            except Empty:
                silent += NUDGE_S
                assert silent < LIMIT_S, "the kernel published nothing for two minutes"
                self.nudge()
                continue
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
                self.waiting.pop(data["content"].get("id"), None)
        elif kind == "error":
            self.errors.append(content["evalue"])

    def nudge(self):
        """ipykernel 7.1.0 can leave a message lying until the next one comes: what is not answered is said again."""
        if not self.waiting:
            self.client.kernel_info()
        for message in list(self.waiting.values()):
            self._send(message)

    def click(self, **message):
        self.waiting[message["id"]] = message
        self._send(message)

    def _send(self, message):
        data = {"method": "custom", "content": message}
        sent = self.client.session.msg("comm_msg", {"comm_id": self.comm, "data": data})
        self.client.shell_channel.send(sent)

    @property
    def shown(self):
        return next(iter(self.outputs.values()))
