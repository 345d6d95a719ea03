"""A real JupyterLab of its own, and a page object for one notebook in it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator, Page, expect

SUPPORT = Path(__file__).parent
QUIET = {"fetchNews": "false", "checkForUpdates": False}
LIMIT_MS = 60_000


class LabServer:
    """Started on a free port with a token of its own; settings, workspaces and notebooks live under ``folder``.

    ``app``: ``jupyterlab`` or ``notebook`` (Notebook 7). ``together``: with real-time collaboration. ``environment``:
    variables that differ from this process's, such as another ``PATH``; ``python``: another environment's.
    """

    def __init__(self, folder: Path, app: str = "jupyterlab", together: bool = False, python: str = sys.executable,
                 environment: dict[str, str] | None = None) -> None:
        self._app = app
        self.root = folder / "notebooks"
        self.root.mkdir(parents=True)
        self._log = (folder / "server.log").open("w")
        self.token = secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{_free_port()}"
        _write_settings(folder / "settings")
        self._process = subprocess.Popen(
            [python, "-m", app, "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
             f"--ServerApp.port={self.url.rpartition(':')[2]}", "--ServerApp.port_retries=0",
             f"--{'LabApp' if app == 'jupyterlab' else 'JupyterNotebookApp'}.expose_app_in_browser=True",
             f"--YDocExtension.disable_rtc={not together}",
             f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.root}"],
            env={**_environment(folder), **(environment or {})}, cwd=folder, stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL, text=True, start_new_session=True,
        )
        self._ready = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()
        if not self._ready.wait(60) or self._process.poll() is not None:
            raise RuntimeError(f"JupyterLab did not start; see {self._log.name}")

    def _follow(self) -> None:
        for line in self._process.stderr:
            self._log.write(line)
            self._log.flush()
            if "is running at" in line:
                self._ready.set()
        self._ready.set()

    def notebook(self, name: str, cells: list[str], kernel: str = "python3") -> str:
        """Writes a notebook; gives the address that opens it."""
        spec = {"name": kernel, "display_name": kernel}
        made = new_notebook(cells=[new_code_cell(text) for text in cells], metadata={"kernelspec": spec})
        nbformat.write(made, self.root / name)
        where = "lab/tree" if self._app == "jupyterlab" else "notebooks"
        return f"{self.url}/{where}/{name}?token={self.token}&reset"

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _write_settings(folder: Path) -> None:
    path = folder / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(QUIET))


def _environment(folder: Path) -> dict[str, str]:
    own = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
           "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython"}
    paths = {name: str(folder / value) for name, value in own.items()}
    return {**os.environ, **paths, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(SUPPORT)}


class NotebookPage:
    """One open notebook. Everything is found by role and label, and waited for by state."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        page.set_default_timeout(LIMIT_MS)
        expect.set_options(timeout=LIMIT_MS)
        page.goto(address)
        self.wait_idle()

    def wait_idle(self) -> None:
        """Cells run before the kernel is connected are dropped, and both front ends show it idle too early."""
        self.page.wait_for_function("""() => {
            const shown = [...(window.jupyterapp?.shell.widgets('main') ?? [])];
            return shown.some(w => w.isVisible && w.sessionContext?.session?.kernel?.status === 'idle');
        }""")

    def run(self, *numbers: int) -> None:
        """Runs code cells one after another, as a person does with Shift+Enter."""
        for number in numbers:
            self.page.locator(".jp-CodeCell").nth(number).get_by_role("textbox").first.click()
            self.page.keyboard.press("Shift+Enter")

    def output(self, number: int) -> Locator:
        """The output area of a code cell, counted from 0."""
        return self.page.locator(".jp-CodeCell").nth(number).locator(".jp-Cell-outputWrapper")

    def save(self) -> None:
        """Returns when the server has the notebook's bytes."""
        with self.page.expect_response(lambda r: r.request.method == "PUT" and "/api/contents/" in r.url):
            self.page.keyboard.press("Control+s")
