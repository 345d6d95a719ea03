"""A small, read-only Jupyter server extension: the runs of a project while no kernel of its notebook is there to ask.

``GET <base>/maxkernel/runs?path=FOLDER`` gives ``{"runs": [RunInfo ...]}``, newest last, for the ``.maxkernel`` folder
that a notebook in FOLDER (below the server's root) works with. Authenticated as the server is; nothing is written.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

if TYPE_CHECKING:  # the server starts without what only a request needs
    from maxkernel_nb.contract import RunInfo

_MOST = 200


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(app: Any) -> None:
    base, root = app.web_app.settings["base_url"], Path(app.root_dir).expanduser().resolve()
    route = url_path_join(base, "maxkernel", "runs")
    app.web_app.add_handlers(".*$", [(route, RunsHandler, {"root": root})])


class RunsHandler(APIHandler):
    def initialize(self, root: Path) -> None:
        self.root = root

    @web.authenticated
    async def get(self) -> None:
        folder = (self.root / self.get_query_argument("path", "").lstrip("/")).resolve()
        if not folder.is_relative_to(self.root):
            raise web.HTTPError(404, f"There is no folder {self.get_query_argument('path')!r} below the server's root.")
        runs = await asyncio.get_running_loop().run_in_executor(None, recorded_runs, folder, self.root)
        self.finish({"runs": [run.to_dict() for run in runs]})


def recorded_runs(folder: Path, root: Path) -> list[RunInfo]:
    """The newest runs of the project that ``folder`` is in, looking no higher than ``root``; journals only are read."""
    from maxkernel_nb.store import FOLDER, Project

    places = [p for p in (folder, *folder.parents) if p.is_relative_to(root) and (p / FOLDER).is_dir()]
    if not places:
        return []
    runs = Project(places[0]).runs
    found = sorted((p for p in runs.glob("*") if p.is_dir()), key=lambda p: p.stat().st_mtime) if runs.is_dir() else []
    return [_recorded(path) for path in found[-_MOST:]]


def _recorded(folder: Path) -> RunInfo:
    from maxkernel_nb.contract import RunInfo
    from maxkernel_nb.document.notices import run_info
    from maxkernel_nb.engine.state import fold
    from maxkernel_nb.errors import JournalError
    from maxkernel_nb.journal import read_events, writer

    try:
        info = run_info(fold(read_events(folder)), live=False)
    except JournalError as error:
        return RunInfo(id=folder.name, mode="", status=str(error), live=False, ended=True)
    at_work = writer(folder)
    status = info.status if info.ended else f"{info.status} in process {at_work}" if at_work else "interrupted"
    return info.model_copy(update={"id": folder.name, "status": status, "doing": "" if not at_work else info.doing})
