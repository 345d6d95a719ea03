"""Plays a scheduled program's DMAs against time: when each one arrives, and how long the program waits for it.

The emulator says at which cycle of its run a program issues a DMA and at which it waits for one. Here the bundles take
their cycles, the DMAs share the way to HBM, and a wait lasts until its bytes have arrived. So what double buffering
hides, what the first fetch and the last write-back cost, and what uneven steps cost all follow from the program itself.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from maxkernel_nb.tpu.chips import Chip
from maxkernel_nb.tpu.constants import Constants
from maxkernel_nb.tpu.emulate import HEAD, READS, WAITS, WRITES, Event, Execution
from maxkernel_nb.values import Value

FILLING = 3  # steps: what comes before the loop, the first fetch, and the first step that waits for it
LONGEST_CYCLE = 64  # steps that repeat as a group
Step = tuple[
    tuple[int, ...], ...
]  # (at, kind, flag, size) an event, ``at`` from the step's start; the last: its length


class Trace(Value):
    """A program's run, step by step of its outermost loop. ``patterns`` are the different steps; ``order`` says which
    come when, as (patterns in a row, how often that row). ``granule`` is the unit of the DMA sizes in bytes."""

    patterns: tuple[Step, ...] = ()
    order: tuple[tuple[tuple[int, ...], int], ...] = ()
    granule: int = 32

    @property
    def copies(self) -> int:
        """DMAs of the whole run."""
        of = [sum(1 for e in p if len(e) > 1 and e[1] in (READS, WRITES)) for p in self.patterns]
        return sum(of[n] * times for row, times in self.order for n in row)


@dataclass(frozen=True)
class Played:
    """Cycles of a whole run. ``waiting``: of them, those in which the program stood still for a DMA; ``start``: of
    these, those of the first steps (the pipeline fills) and of the last (it drains)."""

    cycles: float
    waiting: float = 0.0
    start: float = 0.0


def compress(run: Execution, granule: int) -> Trace:
    """The trace of ``run`` with equal steps kept once and repeated rows of steps folded. Sync flags are renumbered."""
    flags: dict[int, int] = {}
    patterns: dict[Step, int] = {}
    sequence: list[int] = []
    step: list[tuple[int, ...]] = []
    begun = 0
    for e in (*run.trace, Event(run.cycles, HEAD)):
        if e.kind != HEAD:
            step.append((e.at - begun, e.kind, flags.setdefault(e.flag, len(flags)), e.size))
            continue
        sequence.append(patterns.setdefault((*step, (e.at - begun,)), len(patterns)))
        step, begun = [], e.at
    return Trace(patterns=tuple(patterns), order=tuple(_fold(sequence)), granule=granule)


def _fold(sequence: list[int]) -> list[tuple[tuple[int, ...], int]]:
    """Rows that repeat, as (row, how often): at each place the row that covers most."""
    folded: list[tuple[tuple[int, ...], int]] = []
    at = 0
    while at < len(sequence):
        width, times = 1, 1
        ahead = sequence[at + 1 : at + 1 + LONGEST_CYCLE]
        for w in (n for n, pattern in enumerate(ahead, start=1) if pattern == sequence[at]):
            n = _repeats(sequence, at, w)
            if n > 1 and w * n > width * times:
                width, times = w, n
        folded.append((tuple(sequence[at : at + width]), times))
        at += width * times
    return folded


def _repeats(sequence: list[int], at: int, width: int) -> int:
    end = at + width
    while end < len(sequence) and sequence[end] == sequence[end - width]:
        end += 1
    return (end - at) // width


@dataclass
class _Clock:
    """The state of a run: where time is, until when the ways to HBM are taken, and what is on its way by sync flag."""

    now: float = 0.0
    waiting: float = 0.0
    taken: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # both ways together, reading, writing
    flags: dict[int, deque[tuple[float, int]]] = field(default_factory=dict)

    def ahead(self) -> tuple[float, ...]:
        return tuple(round(max(t - self.now, 0.0), 3) for t in self.taken)

    def skip(self, cycles: float, waiting: float) -> None:
        self.now += cycles
        self.waiting += waiting
        self.taken = [t + cycles for t in self.taken]
        self.flags = {f: deque((t + cycles, n) for t, n in q) for f, q in self.flags.items()}


@dataclass(frozen=True)
class _Rates:
    """All in cycles: of a granule with both ways busy, of one on its way alone, a DMA's least, and its delay."""

    shared: float
    alone: float
    least: float
    delay: float
    crowding: float


def play(trace: Trace, chip: Chip, constants: Constants, cores: int = 1) -> Played:
    """How long one core's run takes beside ``cores`` - 1 others that move as many bytes as it does."""
    cycle = chip.clock_ghz * 1e9
    size = trace.granule * cores * cycle / (chip.device_hbm_gbs * 1e9)
    rates = _Rates(
        shared=size / constants.hbm_efficiency,
        alone=size / constants.one_way_efficiency,
        least=constants.dma_setup_us * 1e-6 * cycle,
        delay=constants.dma_latency_us * 1e-6 * cycle,
        crowding=constants.contention,
    )
    clock, start, last, steps = _Clock(), 0.0, 0.0, 0
    for row, times in trace.order:
        before: tuple[object, ...] = ()
        for n in range(times):
            began, waited = clock.now, clock.waiting
            for index in row:
                last = clock.waiting
                _step(trace.patterns[index], clock, rates)
                steps += 1
                start = clock.waiting if steps <= FILLING else start
            state = (round(clock.now - began, 3), clock.ahead())
            if state == before:  # nothing changes any more from one row to the next
                clock.skip((clock.now - began) * (times - n - 1), (clock.waiting - waited) * (times - n - 1))
                break
            before = state
    end = clock.waiting - last if steps > FILLING else 0.0
    return Played(clock.now, clock.waiting, start + end)


def _step(step: Step, clock: _Clock, rates: _Rates) -> None:
    done = 0
    *events, (length,) = step
    for at, kind, flag, size in events:
        _run(at - done, clock, rates)
        done = at
        if kind == WAITS:
            arrived = _arrival(clock.flags.get(flag), size)
            if arrived > clock.now:
                clock.waiting += arrived - clock.now
                clock.now = arrived
        else:
            clock.taken[0] = max(clock.now, clock.taken[0]) + max(size * rates.shared, rates.least)
            clock.taken[kind] = max(clock.now, clock.taken[kind]) + max(size * rates.alone, rates.least)
            arrives = max(clock.taken[0], clock.taken[kind]) + rates.delay
            clock.flags.setdefault(flag, deque()).append((arrives, size))
    _run(length - done, clock, rates)


def _run(cycles: float, clock: _Clock, rates: _Rates) -> None:
    """Bundles take longer while DMAs use VMEM beside them."""
    beside = min(cycles, max(max(clock.taken) - clock.now, 0.0))
    clock.now += cycles + rates.crowding * beside


def _arrival(queue: deque[tuple[float, int]] | None, size: int) -> float:
    """When the next ``size`` granules on a flag are there."""
    arrived = 0.0
    while queue and size > 0:
        arrived, count = queue.popleft()
        size -= count
    return arrived
