"""One front end's conversation with the kernel: the messages of ``maxkernel_nb.contract`` over any two-way pipe."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import singledispatchmethod
from typing import Any, Protocol

from pydantic import ValidationError

from maxkernel_nb import contract
from maxkernel_nb.document import notices
from maxkernel_nb.errors import MaxKernelError, UsageError
from maxkernel_nb.widgets.coalesce import Coalescer

log = logging.getLogger(__name__)
_REMEMBERED = 1000  # acks kept, to answer a repeated message without doing it again


class House(Protocol):
    """What a channel needs of the kernel it is in. ``cell(run_id)``: the cell that started a run, or empty."""

    def runs(self) -> list[Any]: ...
    def find(self, run_id: str, verb: str) -> Any: ...
    def listed(self) -> tuple[contract.RunInfo, ...]: ...
    def resume(self, run_id: str) -> None: ...
    def take_back(self, run_id: str) -> None: ...
    def report(self, run_id: str) -> str: ...
    def configure(self, settings: dict[str, str]) -> None: ...
    def welcome(self) -> contract.Welcome: ...
    def cell(self, run_id: str) -> str: ...


class Channel:
    """``receive`` carries a command out at most once and acknowledges it; ``follow`` tells a run's changes.

    Every method is safe from any thread. Notices of a run are sent at most ten times a second, the newest always.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None], house: House) -> None:
        self._pipe, self._house = send, house
        self._sending, self._deciding = threading.Lock(), threading.Lock()
        self._acks: OrderedDict[str, contract.Ack] = OrderedDict()
        self._followed: dict[int, tuple[Callable[[], None], Coalescer[Any]]] = {}
        self._told: dict[tuple[str, str], Any] = {}  # (run, what) -> what was last said of it
        self._open = True

    # -- from the front end --------------------------------------------------------------------------------------

    def receive(self, data: Any) -> None:
        self._send(self._answer(data))

    def _answer(self, data: Any) -> contract.Ack:
        try:
            command = contract.command_from_dict(data)
        except ValidationError as error:
            return _not_understood(data, error)
        with self._deciding:
            if command.id not in self._acks:
                self._acks[command.id] = self._carry_out(command)
                while len(self._acks) > _REMEMBERED:
                    self._acks.popitem(last=False)
            return self._acks[command.id]

    def _carry_out(self, command: contract.Command) -> contract.Ack:
        try:
            return contract.Ack(id=command.id, ok=True, data=self._do(command))
        except MaxKernelError as error:
            return contract.Ack(id=command.id, ok=False, message=str(error))
        except Exception as error:  # the dispatcher: a click must be answered whatever went wrong
            log.exception("%s failed", command.command)
            return contract.Ack(id=command.id, ok=False, message=f"{command.command} failed: {error}")

    @singledispatchmethod
    def _do(self, command: Any) -> contract.Answered | None:
        raise TypeError(f"no way to carry out {command!r}")

    @_do.register
    def _(self, command: contract.Hello) -> contract.Answered | None:
        for run in self._house.runs():
            self.follow(run)
        return self._house.welcome()

    @_do.register
    def _(self, command: contract.Runs) -> contract.Answered | None:
        return contract.RunList(runs=self._house.listed())

    @_do.register
    def _(self, command: contract.Look) -> contract.Answered | None:
        run = self._house.find(command.run, "show")
        self._told = {key: said for key, said in self._told.items() if key[0] != run.id}
        self.follow(run)
        self._tell(run)
        return None

    @_do.register
    def _(self, command: contract.Decide) -> contract.Answered | None:
        run = self._house.find(command.run, "accept" if command.accepted else "reject")
        proposal, asked = run.state.open_proposal, run.state.open_question
        if asked is not None and not run.state.ended:
            raise UsageError(f"Run {run.id} asks {asked.title!r} and proposes nothing yet; answer that first.")
        _refuse_stale(command.proposal, proposal.id if proposal is not None else "")
        if command.accepted:
            run.accept(hunks=command.hunks, via="lab", uuid=command.id, comment=command.comment)
        else:
            run.reject(via="lab", uuid=command.id, comment=command.comment)
        return None

    @_do.register
    def _(self, command: contract.Answer) -> contract.Answered | None:
        run = self._house.find(command.run, "answer")
        asked = run.state.open_question
        _refuse_stale(command.question, asked.question if asked is not None else "")
        run.answer(command.choice, command.text, via="lab", uuid=command.id, hunks=command.hunks)
        return None

    @_do.register
    def _(self, command: contract.Ask) -> contract.Answered | None:
        self._house.find(command.run, "ask").ask(command.text)
        return None

    @_do.register
    def _(self, command: contract.Control) -> contract.Answered | None:
        if command.action in ("resume", "takeback"):
            (self._house.resume if command.action == "resume" else self._house.take_back)(command.run)
            return None
        run = self._house.find(command.run, command.action)
        act = {"stop": run.stop, "pause": run.pause, "unpause": run.unpause, "undo": run.undo}
        act[command.action]()
        return None

    @_do.register
    def _(self, command: contract.Configure) -> contract.Answered | None:
        self._house.configure(command.settings)
        return None

    @_do.register
    def _(self, command: contract.Report) -> contract.Answered | None:
        return contract.ReportPage(run=command.run, html=self._house.report(command.run))

    # -- to the front end ----------------------------------------------------------------------------------------

    def follow(self, run: Any) -> None:
        """Tells ``run`` now and after every change, until the channel is closed."""
        with self._sending:
            if not self._open or id(run) in self._followed:
                return
            updates: Coalescer[Any] = Coalescer(lambda state: self._tell(run))
            self._followed[id(run)] = run.subscribe(updates.submit), updates
        updates.submit(run.state)

    def _tell(self, run: Any) -> None:
        state, cell = run.state, self._house.cell(run.id)
        self._say(run.id, "run", contract.RunChanged(run=notices.run_info(state, not run.closed, cell)))
        if (matter := notices.open_matter(state, cell)) is not None:
            self._say(run.id, "matter", matter)
        for decided in notices.decisions(state, cell):
            self._say(run.id, decided.proposal, decided)

    def _say(self, run: str, what: str, notice: Any) -> None:
        if self._told.get((run, what)) != notice:
            self._told[run, what] = notice
            self._send(notice)

    def _send(self, message: Any) -> None:
        with self._sending:
            if self._open:
                self._pipe(message.to_dict())

    def close(self) -> None:
        """The front end is gone: nothing is sent any more."""
        with self._sending:
            self._open = False
            followed, self._followed = list(self._followed.values()), {}
        for unsubscribe, _ in followed:
            unsubscribe()

    def settle(self, timeout: float | None = None) -> bool:
        """Waits until the newest state of every run is told. False after ``timeout`` seconds a run."""
        return all(updates.settle(timeout) for _, updates in list(self._followed.values()))


def _refuse_stale(looked_at: str, open_now: str) -> None:
    if open_now and open_now != looked_at:
        raise UsageError(f"{looked_at} is no longer open; look at {open_now}, which is, and decide again.")


def _not_understood(data: Any, error: ValidationError) -> contract.Ack:
    known = data if isinstance(data, dict) else {}
    identity = known.get("id") if isinstance(known.get("id"), str) else ""
    if known.get("version") != contract.VERSION:
        return contract.Ack(id=identity, ok=False, message=(
            f"This kernel speaks version {contract.VERSION} of maxkernel's commands, the front end version "
            f"{known.get('version')!r}; update maxkernel-nb on both sides and reload the page."
        ))
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "message"
    return contract.Ack(id=identity, ok=False, message=(
        f"The command {known.get('command')!r} cannot be read ({where}: {first['msg']}); reload the page."
    ))
