"""Runs the scalar side of a scheduled program, to learn how often each of its bundles executes and what its DMAs move.

The compiler's final program carries its whole control flow: grid counters, ``pl.when`` conditions, loop bounds and DMA
guards are scalar instructions in single-assignment form. They are translated to one Python function (only what
branches and DMAs depend on) and run. So region frequencies and trip counts come from the very program that would run,
for Pallas kernels and XLA fusions alike. What depends on data (scalar prefetch, values taken from vectors) is unknown:
such a branch is counted as falling into its region, such a loop as run once, and both are reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from maxkernel_nb.tpu.scalars import definitions, taint, wrap
from maxkernel_nb.tpu.schedule import Bundle, Program
from maxkernel_nb.tpu.translate import HEAD, READS, WAITS, WRITES, Block, Guess, Translation

DELAY_SLOTS = 4  # bundles after a branch that run anyway (v4 to v6e); a region marker may show fewer
STEP_BUDGET = 400_000  # executed basic blocks; about half a second


@dataclass
class Execution:
    """``times[i]``: how often bundle i runs; ``spent[i]``: the cycles it takes in all, with those in which the matrix
    units hold it up. ``bytes_in``/``bytes_out``: HBM bytes by DMA, over the whole program.

    ``trace``: its DMAs and waits in order, by the ``cycles`` that passed; ``repeat`` scales both where only the first
    part of a long loop was run. ``unknown`` says what could not be followed, each as a sentence.
    """

    times: list[float]
    spent: list[float] = field(default_factory=list)
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    trace: list[Event] = field(default_factory=list)
    cycles: int = 0  # of what was run; ``spent`` adds up to ``repeat`` times this
    repeat: float = 1.0
    trips: tuple[float, ...] = ()
    unknown: list[str] = field(default_factory=list)
    moved: list[tuple[int, str, float]] = field(default_factory=list)  # (bundle, kind, bytes) a DMA instruction


class Event(NamedTuple):
    """One thing that the program does at cycle ``at`` of its run: issue a DMA, wait for one, or pass the
    head of its outermost loop. ``flag`` is the sync flag of a DMA or wait, ``size`` in granules."""

    at: int
    kind: int
    flag: int = 0
    size: int = 0


def execute(
    program: Program,
    granule: int = 32,
    core: int = 0,
    guess: Guess | None = None,
    matrix_rows: float = 0.0,
    memory: Mapping[int, int] | None = None,
) -> Execution:
    """Emulates the control flow of ``program``; ``granule``: the chip's DMA unit in bytes; ``core``: whose share of
    the work, on a device of several cores; ``guess``: what to take for what depends on data; ``matrix_rows``: the rows
    that the matrix units take in a cycle (0: as many as are issued); ``memory``: known words in SMEM by address."""
    bundles = program.bundles
    blocks = _blocks(bundles, matrix_rows)
    memory = memory or {}
    made, unknown = definitions(bundles, memory)
    translation = Translation(bundles, blocks, made, taint(made, unknown), granule, guess or Guess())
    scope: dict = {"wrap": wrap, "peek": lambda address: memory.get(address, 0)}
    exec(compile(translation.source, "<schedule>", "exec"), scope)
    counts, moved, trace, cycles, finished = scope["run"](STEP_BUDGET, core)
    dmas = [(at, d.kind) for at, d in translation.dmas]
    run = _collect(program, blocks, counts, moved, dmas, finished, translation.notes, granule)
    run.trace, run.cycles = [Event(*e) for e in trace], cycles
    return run


# --- structure


def _delay(bundles: list[Bundle], at: int) -> int:
    for d in range(DELAY_SLOTS + 1):
        if at + d < len(bundles) and bundles[at + d].ends_region:
            return d
    return min(DELAY_SLOTS, len(bundles) - 1 - at)


def _blocks(bundles: list[Bundle], matrix_rows: float) -> list[Block]:
    leaders, branch_ends = {0}, {}
    for i, b in enumerate(bundles):
        if b.branch:
            end = i + _delay(bundles, i)
            if b.branch.target > i:
                end = min(end, b.branch.target - 1)
            branch_ends[end] = i
            leaders.update({b.branch.target, end + 1})
    starts = sorted(x for x in leaders if x < len(bundles))
    ends = [s - 1 for s in starts[1:]] + [len(bundles) - 1]
    return [
        Block(s, e, branch_ends.get(e, -1), _cycles(bundles[s : e + 1], matrix_rows))
        for s, e in zip(starts, ends, strict=True)
    ]


def _cycles(block: list[Bundle], matrix_rows: float) -> int:
    """A bundle a cycle, but no faster than the matrix units take what is issued: the compiler's schedules for v5e, v5p
    and v7x issue products at up to twice the chip's peak rate, and the units' queues make them wait."""
    needed = math.ceil(sum(b.rows for b in block) / matrix_rows) if matrix_rows else 0
    return max(len(block), needed)


# --- result


def _collect(program, blocks, counts, moved, dmas, finished, notes, granule) -> Execution:
    times = [0.0] * len(program.bundles)
    spent = list(times)
    for block, count in zip(blocks, counts, strict=True):
        length = block.last - block.first + 1
        times[block.first : block.last + 1] = [float(count)] * length
        spent[block.first : block.last + 1] = [count * block.cycles / length] * length
    scale = 1.0
    if not finished:
        scale = _remaining(program, times)
        notes.append("the program is long: its frequencies were read from the first part of its grid")
        times, spent = [t * scale for t in times], [t * scale for t in spent]
    into = sum(m for m, (_, kind) in zip(moved, dmas, strict=True) if kind.startswith("hbm_to"))
    out = sum(m for m, (_, kind) in zip(moved, dmas, strict=True) if kind.endswith("to_hbm"))
    return Execution(
        times=times,
        spent=spent,
        bytes_in=into * granule * scale,
        bytes_out=out * granule * scale,
        repeat=scale,
        trips=tuple(times[i] for i, b in enumerate(program.bundles) if b.mark == "LB"),
        unknown=list(dict.fromkeys(notes)),
        moved=[(at, kind, m * granule * scale) for m, (at, kind) in zip(moved, dmas, strict=True)],
    )


def _remaining(program: Program, times: list[float]) -> float:
    """How many times longer the outermost loop is than what was run of it: its exit test's constant over its count."""
    for i, b in enumerate(program.bundles):
        ends = [c for c in program.bundles[i:] if c.branch and c.branch.target == i]
        if b.mark != "LB" or b.depth > 1 or not times[i] or not ends:
            continue
        test = re.compile(rf"{re.escape(ends[0].predicate.lstrip('!'))} = scmp\.g\w\.s32\.totalorder %\w+, (\d+)")
        for text in (t for c in program.bundles[i:] for t in c.scalars):
            bound = test.match(text)
            if bound:
                return max(int(bound.group(1)) / times[i], 1.0)
    return 1.0


__all__ = ["HEAD", "READS", "WAITS", "WRITES", "Event", "Execution", "Guess", "execute"]
