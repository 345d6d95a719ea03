"""``%%maxkernel`` and ``%maxkernel``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from maxkernel_nb import config
from maxkernel_nb.errors import UsageError
from maxkernel_nb.magics import cell, helptext
from maxkernel_nb.magics.commands import Commands
from maxkernel_nb.magics.completion import Completer
from maxkernel_nb.magics.differentiated import differentiated, executed
from maxkernel_nb.magics.failures import Interrupted, one_sentence
from maxkernel_nb.magics.host import is_batch, is_disabled
from maxkernel_nb.magics.lab import Lab
from maxkernel_nb.magics.panels import Panels
from maxkernel_nb.magics.parsing import CellLine, parse_cell_line, parse_command_line
from maxkernel_nb.magics.quiet import CellWatch
from maxkernel_nb.magics.settings import MaxKernel
from maxkernel_nb.magics.views import Text
from maxkernel_nb.options import nearest

_DISABLED = "maxkernel is turned off (MAXKERNEL_DISABLE is set)"


_GIVE_INPUTS = (FunctionType, partial, tuple, list, dict)


def _engine_api() -> Any:
    return import_module("maxkernel_nb.api")


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            "Interrupted before the run began: nothing was started; run the cell again."
        ) from None


@magics_class
class MaxKernelMagics(Magics):  # type: ignore[misc]
    """Registers nothing by being made; ``attach`` and ``detach`` are each other's inverse."""

    def __init__(self, shell: Any, api: Callable[[], Any] = _engine_api) -> None:
        super().__init__(shell)
        self._api = api
        self.traits_settings = MaxKernel(parent=shell)
        self.panels = Panels(shell)
        self._home: Path | None = None  # the working folder when the first run began: os.chdir loses no run
        self.commands = Commands(shell, self.panels, self.settings, api, self.project, self._created)
        self.completer = Completer(shell, self.project, self.panels.live)
        self.watch = CellWatch(shell)
        self.lab = Lab(shell, self.commands)

    def attach(self) -> None:
        self.shell.register_magics(self)
        self.shell.configurables.append(self.traits_settings)
        self.panels.attach()
        self.completer.attach()
        self.watch.attach()
        self.lab.attach()

    def detach(self) -> None:
        self.lab.detach()
        self.watch.detach()
        self.completer.detach()
        self.panels.detach()
        ours = (self, self.traits_settings)  # IPython adds every registered Magics object to the list
        self.shell.configurables[:] = [c for c in self.shell.configurables if c not in ours]
        manager = self.shell.magics_manager
        for kind in ("line", "cell"):
            manager.magics[kind].pop("maxkernel", None)
        manager.registry.pop(type(self).__name__, None)

    def settings(self, options: dict[str, Any] | None = None) -> dict[str, config.Setting]:
        return config.resolve(cell=options, traits=self.traits_settings.chosen(), folder=self._home,
                              front=self.lab.settings)

    def project(self, options: dict[str, Any] | None = None) -> str:
        """The folder that holds .maxkernel. A relative setting counts from where the first run began."""
        here = Path.cwd()
        home = here if (options or {}).get("project") else self._home or here
        return str(home / Path(self.settings(options)["project"].value or "").expanduser())

    def _created(self, run: Any) -> None:
        self._home = self._home or Path.cwd()
        self.panels.show(run)
        self.lab.created(run)

    @no_var_expand
    @line_magic("maxkernel")
    def line(self, line: str) -> Any:
        with one_sentence(self.shell):
            parsed = parse_command_line(line)
            if is_disabled() and parsed.command.name not in ("help", "version", "config"):
                raise UsageError(f"{_DISABLED}; unset it and restart the kernel.")
            return self.commands(parsed)

    @no_var_expand
    @cell_magic("maxkernel")
    def cell(self, line: str, body: str) -> Any:
        with one_sentence(self.shell):
            parsed = parse_cell_line(line)
            if parsed.help:
                return Text(helptext.cell_help(parsed.mode.name))
            settings = self.settings(parsed.options)
            with _interruptible():
                ran = cell.execute(self.shell, body)
                run = None if is_disabled() else self._start(parsed, settings, ran)
            if run is None:
                return Text(f"{_DISABLED}: the cell ran as plain Python.")
            return self.commands.finish(run) if is_batch(self.shell) else run

    def _start(self, parsed: CellLine, settings: dict[str, config.Setting], ran: cell.Body) -> Any:
        options, namespace = parsed.options, self.shell.user_ns
        found = cell.find_function(ran, namespace, options.get("name"), options.get("inputs"))
        if "resume" in options:
            return self._resume(parsed, found.fn)
        policy = "propose" if is_batch(self.shell) else "ask"
        where = differentiated([*executed(self.shell), ran.text], found.name)
        return self._api().start(
            found.fn, source=found.source, name=found.name, mode=parsed.mode.name, namespace=namespace,
            inputs=self._inputs(options.get("inputs")), shapes=options.get("shapes"),
            static=options.get("static", ()), cases=options.get("case", ()), on_created=self._created,
            **({"differentiated": where} if where else {}),
            **{"policy": policy, **config.values(settings), "project": self.project(options)},
        )

    def _resume(self, parsed: CellLine, fn: Any) -> Any:
        options, project = parsed.options, self.project(parsed.options)
        run_id = options["resume"]
        state = self._api().find_run(run_id, project=project)
        state = getattr(state, "state", state)
        if state.mode != parsed.mode.name:
            what = f"Run {run_id} is no {parsed.mode.name} but {state.mode}"
            raise UsageError(f"{what}; %maxkernel resume {run_id} goes on with it.")
        given = {name: options.get(name) for name in ("policy", "budget", "address")}
        return self._api().resume(run_id, fn, namespace=self.shell.user_ns, project=project, on_created=self._created,
                                  **given)

    def _inputs(self, name: str | None) -> Any:
        namespace = self.shell.user_ns
        if name is None or name in namespace:
            return namespace.get(name)
        hidden = self.shell.user_ns_hidden  # IPython's own names, such as quit
        known = [n for n, v in namespace.items() if n[:1] != "_" and n not in hidden and isinstance(v, _GIVE_INPUTS)]
        hint = f"did you mean {nearest(name, known)!r}?" if known else "define it in a cell first."
        raise UsageError(f"--inputs {name}: there is no such name in the notebook; {hint}")


MaxKernelMagics.cell.__doc__ = helptext.cell_help()
MaxKernelMagics.line.__doc__ = helptext.line_help()
