"""Tab completion of modes, commands, options, their values and run ids. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from maxkernel_nb.errors import MaxKernelError
from maxkernel_nb.magics.commands import run_folders
from maxkernel_nb.options import COMMANDS, MODES, Option, command, mode, options_of

CELL, LINE = "%%maxkernel", "%maxkernel"


class Completer:
    """IPython calls it with the words so far (``complete_command`` hook, the same on 7.34 and 9)."""

    def __init__(self, shell: Any, project: Callable[[], str | None], live: Callable[[str | None], Any]) -> None:
        """``live(run_id)`` gives a run of this kernel (None: the latest), or None."""
        self.shell, self._project, self._live = shell, project, live

    def attach(self) -> None:
        for key in (CELL, LINE):
            self.shell.set_hook("complete_command", self._hook, str_key=key)

    def detach(self) -> None:
        hooks = self.shell.strdispatchers["complete_command"].strs
        for key in (CELL, LINE):
            hooks.pop(key, None)

    def _hook(self, shell: Any, event: Any) -> list[str]:
        return self.complete(event.text_until_cursor)

    def complete(self, text: str) -> list[str]:
        """All words that may stand where ``text`` ends; the caller filters by what is typed already."""
        words = text.split()
        before = words if text.endswith((" ", "\t")) else words[:-1]
        if not before or '"' in text or "'" in text:
            return []
        if len(before) == 1:
            return [m.name for m in MODES if m.available] if before[0] == CELL else [c.name for c in COMMANDS]
        return self._cell(before) if before[0] == CELL else self._line(before)

    def _cell(self, before: list[str]) -> list[str]:
        found = mode(before[1])
        return self._options(options_of(found.name), before) if found else []

    def _line(self, before: list[str]) -> list[str]:
        found = command(before[1])
        if found is None:
            return []
        if found.name == "help":
            return [c.name for c in COMMANDS] + [m.name for m in MODES]
        if found.words:
            return list(found.offers) if len(before) == 2 else []
        runs = self._runs() if found.run and len(before) == 2 else []
        choices = self._choices(before) if found.name == "answer" else []
        if found.name == "profile" and (len(before) == 2 or before[-1] == "--compare"):
            return self._runs() + self._functions() + (self._options(found.options, before) if len(before) == 2 else [])
        return choices + runs + self._options(found.options, before)

    def _choices(self, before: list[str]) -> list[str]:
        """The answers to the open question of the run named, or of the latest; none once one is given."""
        run = self._live(before[2] if len(before) > 2 else None)
        asked = run.state.open_question if run is not None else None
        return [c.name for c in asked.choices] if asked is not None and len(before) <= 3 else []

    def _options(self, options: Iterable[Option], before: list[str]) -> list[str]:
        options = tuple(options)
        open_option = next((o for o in options if o.flag == before[-1] and o.metavar), None)
        if open_option is None:
            return [o.flag for o in options if o.repeat or o.flag not in before]
        if open_option.names_variable:
            return self._functions()
        return list(open_option.choices)

    def _functions(self) -> list[str]:
        return [n for n, v in self.shell.user_ns.items() if callable(v) and not n.startswith("_")]

    def _runs(self) -> list[str]:
        try:
            return run_folders(self._project())[::-1]
        except MaxKernelError:
            return []
