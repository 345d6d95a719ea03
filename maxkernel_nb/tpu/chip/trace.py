"""Reads device time from a ``jax.profiler`` trace, or refuses with the reason. No TensorFlow.

A TPU's plane (``/device:TPU:n``) has the lines ``XLA Modules`` (one event for each run of a program), ``XLA Ops`` and
``Async XLA Ops``; with synchronisation traced, waits show as events that have ``SyncWait`` in their name. XLA's CPU
backend has no such plane: there the ops of the host plane that carry a ``run_id`` make up a run.

Only durations and order on one device's own clock are used, so an offset between clocks does no harm.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from maxkernel_nb.tpu.chip.wire_check import NoTrace, check

_TPU = re.compile(r"/device:TPU:(\d+)$")
_FINGERPRINT = re.compile(r"\((\d+)\)$")
_MODULES, _OPS, _ASYNC = "XLA Modules", "XLA Ops", "Async XLA Ops"
_WAIT = "syncwait"
_HOST_NOISE = ("end: ", "Threadpool", "Wait ", "Pjit")  # many, and none of them a run's
_HOST_END = "ThunkExecutor::Execute"  # goes on until the last thread has finished; others only send the run
_SLACK_NS = 2.0  # jax cuts starts and durations down to whole nanoseconds


class TraceRefused(Exception):
    """The trace gives no trustworthy figure; the message is the reason."""


class Disturbed(TraceRefused):
    """Something else ran in the window: throw the window away and measure again."""


@dataclass(frozen=True)
class Event:
    """``start`` and ``end`` in nanoseconds of the device's own clock."""

    name: str
    start: float
    end: float
    stats: dict[str, Any]

    @property
    def ns(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class DeviceTrace:
    """One device's events, each list in order of start. ``device`` is the chip's number, -1 for the CPU backend."""

    device: int
    modules: tuple[Event, ...]
    ops: tuple[Event, ...]
    transfers: tuple[Event, ...]  # asynchronous ops: DMAs that run beside the others
    waits: tuple[Event, ...]


@dataclass(frozen=True)
class Call:
    """One run of a program: its name, all device time that it took, and what ran in it."""

    program: str
    ns: float
    module: Event
    ops: tuple[Event, ...]
    transfers: tuple[Event, ...]
    waits: tuple[Event, ...]


def read(raw: bytes) -> tuple[DeviceTrace, ...]:
    """The devices in a serialised trace: its TPUs, else the CPU backend.

    Raises ``TraceRefused`` for bytes that are no whole trace, or one without any device event.
    """
    from jax.profiler import ProfileData

    try:
        check(raw)
        planes = list(ProfileData.from_serialized_xspace(raw).planes)
    except (NoTrace, RuntimeError, ValueError) as error:
        raise TraceRefused(f"The trace cannot be read: {error}.") from error
    devices = [_tpu(plane, int(found[1])) for plane in planes if (found := _TPU.search(plane.name))]
    if not devices:
        devices = [_host(plane) for plane in planes if plane.name == "/host:CPU"]
    found_any = [d for d in devices if d.modules or d.ops]
    if not found_any:
        raise TraceRefused("The trace holds no device event: it was stopped before the device had finished.")
    return tuple(sorted(found_any, key=lambda d: d.device))


def _tpu(plane: Any, number: int) -> DeviceTrace:
    lines = [(line.name, [_event(e) for e in line.events]) for line in plane.lines]

    def of(*names: str) -> tuple[Event, ...]:
        return _ordered(e for name, events in lines if name in names for e in events)

    waits = _ordered(e for _, events in lines for e in events if _WAIT in e.name.lower().replace(" ", ""))
    return DeviceTrace(number, of(_MODULES), of(_OPS), of(_ASYNC), waits)


def _host(plane: Any) -> DeviceTrace:
    """Runs put together from the ops that carry their number: from the first op's start to the last one's end."""
    ops: list[Event] = []
    ends: dict[Any, float] = {}
    for line in plane.lines:
        for event in (_event(e) for e in line.events if not e.name.startswith(_HOST_NOISE)):
            run = event.stats.get("run_id")
            if run is None:
                continue
            if "hlo_op" in event.stats:
                ops.append(event)
            if "hlo_op" in event.stats or event.name.startswith(_HOST_END):
                ends[run] = max(ends.get(run, event.end), event.end)
    runs: dict[Any, list[Event]] = {}
    for op in ops:
        runs.setdefault(op.stats["run_id"], []).append(op)
    modules = [
        Event(str(mine[0].stats.get("hlo_module", "")), min(o.start for o in mine), ends[run], {"run_id": run})
        for run, mine in runs.items()
    ]
    return DeviceTrace(-1, _ordered(modules), _ordered(ops), (), ())


def _event(event: Any) -> Event:
    stats = {str(name): value for name, value in event.stats}
    return Event(str(event.name), float(event.start_ns), float(event.start_ns) + float(event.duration_ns), stats)


def _ordered(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda e: (e.start, -e.end)))


def program_name(module: str) -> str:
    """``jit_f(123)`` -> ``f``."""
    return _FINGERPRINT.sub("", module).removeprefix("jit_")


def calls(traces: Sequence[DeviceTrace], expected: Sequence[str], device: int | None = None) -> tuple[Call, ...]:
    """The runs of ``expected`` programs, in the order in which they were called, each waited for before the next.

    ``device`` is the number of the chip they were sent to; None: whichever it was, but one. All device time between
    one run's start and the next one's is the run's own: not only what bears its name.

    Raises:
        Disturbed: another program ran in between.
        TraceRefused: events are missing, double, without duration, or not where they must be.
    """
    wanted = set(expected)
    mine = _chosen(traces, device, wanted)
    others = [t for t in traces if t is not mine]
    if strays := [m.name for t in others for m in t.modules if program_name(m.name) in wanted]:
        raise TraceRefused(f"{program_name(strays[0])} ran on another chip than the one it was sent to.")
    if foreign := [m for m in mine.modules if program_name(m.name) not in wanted]:
        raise Disturbed(f"Another program ({program_name(foreign[0].name) or 'without a name'}) ran in the window.")
    _same_fingerprints(mine.modules)
    _complete([program_name(m.name) for m in mine.modules], list(expected))
    return tuple(_calls(mine))


def _chosen(traces: Sequence[DeviceTrace], device: int | None, wanted: set[str]) -> DeviceTrace:
    if device is None:
        ran = [t for t in traces if any(program_name(m.name) in wanted for m in t.modules)]
        return ran[0] if ran else traces[0]
    found = [t for t in traces if t.device in (device, -1)]
    if not found:
        seen = ", ".join(str(t.device) for t in traces)
        raise TraceRefused(f"Chip {device} is not in the trace; it holds chip {seen}.")
    return found[0]


def _same_fingerprints(modules: Sequence[Event]) -> None:
    kinds: dict[str, set[str]] = {}
    for module in modules:
        found = _FINGERPRINT.search(module.name)
        kinds.setdefault(program_name(module.name), set()).add(found[1] if found else "")
    if double := [name for name, prints in kinds.items() if len(prints) > 1]:
        raise TraceRefused(f"Two different programs bear the name {double[0]}.")


def _complete(seen: list[str], expected: list[str]) -> None:
    if seen == expected:
        return
    have, want = Counter(seen), Counter(expected)
    for name in want:
        if have[name] != want[name]:
            raise TraceRefused(f"{have[name]} runs of {name} are in the trace and {want[name]} were made.")
    raise TraceRefused("The runs in the trace are not in the order in which they were made.")


def _calls(trace: DeviceTrace) -> Iterable[Call]:
    modules = trace.modules
    for before, after in itertools.pairwise(modules):
        if after.start < before.end - _SLACK_NS:
            raise TraceRefused(f"Two runs overlap in time ({program_name(before.name)}): they were not waited for.")
    for number, module in enumerate(modules):
        begin = module.start - _SLACK_NS
        end = modules[number + 1].start - _SLACK_NS if number + 1 < len(modules) else float("inf")
        ops, transfers, waits = (_within(e, begin, end) for e in (trace.ops, trace.transfers, trace.waits))
        yield _call(module, ops, transfers, waits, trace.device >= 0)
    _none_before(trace)


def _call(
    module: Event, ops: tuple[Event, ...], transfers: tuple[Event, ...], waits: tuple[Event, ...], whole: bool
) -> Call:
    """``whole``: a chip is not taken away within a run, so its ops fill it."""
    name = program_name(module.name)
    total = covered((module, *ops, *transfers))
    if total <= 0 or module.ns <= 0:
        raise TraceRefused(f"A run of {name} has no duration in the trace.")
    if whole and ops and covered(ops) < 0.01 * module.ns and module.ns > 1e6:
        raise TraceRefused(f"The ops of {name} account for less than 1 % of its run: events are missing.")
    return Call(name, total, module, ops, transfers, waits)


def _none_before(trace: DeviceTrace) -> None:
    first = trace.modules[0].start - _SLACK_NS if trace.modules else float("inf")
    if any(e.start < first for e in (*trace.ops, *trace.transfers)):
        raise TraceRefused("Ops lie before every run in the trace: its beginning or its clock is not to be trusted.")


def _within(events: Sequence[Event], begin: float, end: float) -> tuple[Event, ...]:
    return tuple(e for e in events if begin <= e.start < end)


def covered(events: Iterable[Event]) -> float:
    """Nanoseconds in which at least one of the events goes on."""
    total, reached = 0.0, float("-inf")
    for event in sorted(events, key=lambda e: e.start):
        total += max(0.0, event.end - max(event.start, reached))
        reached = max(reached, event.end)
    return total
