"""A real IPython kernel in another process, for tests that kill it, time it or read what it prints."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from queue import Empty
from typing import Any


class NotebookKernel:
    """Starts in ``folder``; ``run(code)`` gives the cell's outputs and raises ``CellError`` when the cell goes red."""

    def __init__(self, folder: Path, env: dict[str, str] | None = None) -> None:
        from jupyter_client.manager import KernelManager

        self.manager = KernelManager(kernel_name="python3")
        own = {name: value for name, value in os.environ.items() if not name.startswith("MAXKERNEL_")}
        self.manager.start_kernel(cwd=str(folder), env={**own, "JAX_PLATFORMS": "cpu", **(env or {})})
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    @property
    def pid(self) -> int:
        return self.manager.provisioner.pid

    def run(self, code: str, timeout: float = 120, allow_stdin: bool = True) -> list[dict[str, Any]]:
        message = self.client.execute(code, allow_stdin=allow_stdin, stop_on_error=False)
        outputs: list[dict[str, Any]] = []
        red: CellError | None = None
        deadline = time.monotonic() + timeout
        while True:
            try:
                found = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            except Empty:
                raise TimeoutError(f"the cell did not end within {timeout} s: {code[:80]}") from None
            if found["parent_header"].get("msg_id") != message:
                continue
            if found["msg_type"] == "status" and found["content"]["execution_state"] == "idle":
                if red is not None:
                    raise red
                return outputs
            if found["msg_type"] == "error":
                red = CellError("\n".join(found["content"]["traceback"]), found["content"])
                continue
            outputs.append({"type": found["msg_type"], **found["content"]})

    def value(self, expression: str, timeout: float = 120) -> Any:
        """The value of an expression, by way of its repr."""
        import ast

        outputs = self.run(expression, timeout)
        return ast.literal_eval(next(o for o in outputs if o["type"] == "execute_result")["data"]["text/plain"])

    def kill(self) -> None:
        """kill -9 of the kernel alone, as a crash or the out-of-memory killer does it."""
        os.kill(self.pid, signal.SIGKILL)
        self.client.stop_channels()
        self.manager.finish_shutdown()
        self.manager.cleanup_resources()

    def shutdown(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


class CellError(Exception):
    def __init__(self, traceback: str, content: dict[str, Any]) -> None:
        super().__init__(traceback)
        self.name: str = content["ename"]
        self.message: str = content["evalue"]
        self.traceback = traceback
