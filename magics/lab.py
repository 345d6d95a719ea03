"""Where a front end outside the panel (the JupyterLab extension) reaches this kernel: a comm target.

Nothing here needs a front end. The messages are those of ``maxkernel_nb.contract``; loading imports none of it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from maxkernel_nb.config import checked
from maxkernel_nb.errors import UsageError
from maxkernel_nb.magics.commands import Commands
from maxkernel_nb.magics.host import cell_id
from maxkernel_nb.magics.parsing import CommandLine
from maxkernel_nb.options import MODES, OPTIONS, SETTINGS, command, nearest

if TYPE_CHECKING:
    from maxkernel_nb import contract
    from maxkernel_nb.magics.channel import Channel

TARGET = "maxkernel"  # contract.TARGET, without importing pydantic at load


class Lab:
    """The ``House`` of every channel. ``attach`` and ``detach`` are each other's inverse."""

    def __init__(self, shell: Any, commands: Commands) -> None:
        self.shell, self._commands = shell, commands
        self._channels: dict[str, tuple[Any, Channel]] = {}  # by the comm's id
        self._runs: dict[str, Any] = {}
        self._cells: dict[str, str] = {}
        self.settings: dict[str, str] = {}  # a person's defaults in the front end, the lowest layer of config

    @property
    def _manager(self) -> Any:
        """None in a terminal, where no front end can reach us."""
        return getattr(getattr(self.shell, "kernel", None), "comm_manager", None)

    def attach(self) -> None:
        if self._manager is not None:
            self._manager.register_target(TARGET, self._opened)

    def detach(self) -> None:
        for comm, channel in list(self._channels.values()):
            channel.close()
            comm.close()
        self._channels.clear()
        if self._manager is not None:
            self._manager.unregister_target(TARGET, self._opened)

    def _opened(self, comm: Any, message: dict[str, Any]) -> None:
        from maxkernel_nb.magics.channel import Channel

        channel = Channel(comm.send, self)
        self._channels[comm.comm_id] = comm, channel
        comm.on_msg(lambda sent: channel.receive(sent["content"]["data"]))
        comm.on_close(lambda closed: self._closed(comm.comm_id))

    def _closed(self, comm_id: str) -> None:
        _, channel = self._channels.pop(comm_id, (None, None))
        if channel is not None:
            channel.close()

    def created(self, run: Any) -> None:
        """A cell started ``run``, or took it up again: every front end is told."""
        self._runs[run.id] = run
        self._cells[run.id] = cell_id(self.shell) or self._cells.get(run.id, "")
        for _, channel in list(self._channels.values()):
            channel.follow(run)

    # -- the house ---------------------------------------------------------------------------------------------------

    def runs(self) -> list[Any]:
        engine = sys.modules.get("maxkernel_nb.engine.loop")
        started = list(engine.get_engine().runs.values()) if engine is not None else []
        return list({run.id: run for run in (*started, *self._runs.values())}.values())

    def find(self, run_id: str, verb: str) -> Any:
        return self._commands.live(_line(verb, run_id))

    def listed(self) -> tuple[contract.RunInfo, ...]:
        return tuple(self._listed(summary) for summary in self._commands.summaries())

    def _listed(self, summary: Any) -> contract.RunInfo:
        from maxkernel_nb.contract import RunInfo
        from maxkernel_nb.document.notices import run_info

        if summary.live and summary.id in self._runs:
            return run_info(self._runs[summary.id].state, True, self.cell(summary.id))
        return RunInfo(
            id=summary.id, mode=summary.mode, chip=summary.chip, status=summary.status, outcome=str(summary.outcome),
            speedup=summary.speedup, evidence="modelled" if summary.speedup is not None else "", live=summary.live,
            ended=bool(summary.outcome), cell=self.cell(summary.id),
        )

    def resume(self, run_id: str) -> None:
        self._commands.resumed(_line("resume", run_id), self.created)

    def take_back(self, run_id: str) -> None:
        self._commands.taken_back(_line("takeback", run_id), self.created)

    def report(self, run_id: str) -> str:
        return self._commands.report_page(_line("report", run_id))

    def configure(self, settings: dict[str, str]) -> None:
        chosen = {name: value for name, value in settings.items() if value}
        known = {option.name: option for option in SETTINGS}
        for name, value in chosen.items():
            if name not in known:
                raise UsageError(f"There is no setting {name!r}; did you mean {nearest(name, known)!r}?")
            checked(known[name], value, f"JupyterLab setting {name}")
        self.settings = chosen

    def welcome(self) -> contract.Welcome:
        from importlib.metadata import version

        from maxkernel_nb.contract import FormField, FormMode, Welcome

        fields = tuple(
            FormField(name=o.name, flag=o.flag, metavar=o.metavar, help=o.help, default=o.default_text,
                      choices=o.choices, repeat=o.repeat, setting=o.setting, modes=o.modes,
                      type="number" if o.type in (int, float) else "text") for o in OPTIONS
        )
        modes = tuple(FormMode(name=m.name, summary=m.summary, available=m.available) for m in MODES)
        return Welcome(package=version("maxkernel-nb"), modes=modes, options=fields)

    def cell(self, run_id: str) -> str:
        return self._cells.get(run_id, "")


def _line(name: str, run_id: str) -> CommandLine:
    found = command(name)
    assert found is not None, name
    return CommandLine(found, run=run_id)
