"""What one op's program says beyond its time: loops, predicated regions, buffers, start-up. For reading, not for time.

Everything is counted from the program as the emulator ran it: ``times`` says how often each bundle ran, ``spent`` how
many cycles passed in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from maxkernel_nb.tpu.chips import Chip
from maxkernel_nb.tpu.emulate import Execution
from maxkernel_nb.tpu.hlo import Instruction, Module
from maxkernel_nb.tpu.profiles import LoopProfile, RegionProfile
from maxkernel_nb.tpu.schedule import Program

MOST_LOOPS, MOST_REGIONS = 8, 8  # kept of one op, the largest
LEAST_REGION = 8  # bundles; shorter ones are guards of single DMAs
DELAY_SLOTS = 4  # bundles behind a branch that run before it is taken
_MOVERS = ("copy", "transpose", "bitcast", "reshape", "parameter", "tuple", "get-tuple-element", "constant", "slice",
           "dynamic-slice", "concatenate", "pad")  # fmt: skip


def details(program: Program, run: Execution, chip: Chip) -> dict[str, Any]:
    """The fields of ``OpProfile`` that come from the program: ``loops`` and ``regions``."""
    return {"loops": loops(program, run, chip), "regions": regions(program, run)}


def slots_used(program: Program, run: Execution, chip: Chip, bundles: Sequence[int]) -> dict[str, float]:
    """Issue slots that these bundles use as they run, by unit. The matrix units' are those that their rows take at the
    peak rate, where the compiler counts fewer."""
    at, times = np.asarray(bundles, dtype=int), np.asarray(run.times)
    used = {}
    for unit, slots in program.slots.items():
        here = at[at < len(slots)]
        used[unit] = float(np.asarray(slots, dtype=float)[here] @ times[here])
    rows = sum(program.bundles[k].rows * run.times[k] for k in bundles if program.bundles[k].rows)
    if "mxu" in used:
        used["mxu"] = max(used["mxu"], rows / chip.matrix_rows * program.capacity.get("mxu", 0))
    return used


def loops(program: Program, run: Execution, chip: Chip) -> tuple[LoopProfile, ...]:
    """The program's loops that run, outermost first; of many, those with the largest share."""
    spans = _spans(program, run.times)
    found = [_loop(program, run, chip, span, [s for s in spans if _inside(s, span)]) for span in spans]
    kept = sorted(found, key=lambda x: -x.share)[:MOST_LOOPS]
    return tuple(x for x in found if x in kept)


def regions(program: Program, run: Execution) -> tuple[RegionProfile, ...]:
    """Regions behind a forward branch, those in which most bundles run first."""
    total = sum(run.spent) or 1.0
    found = []
    for at, bundle in enumerate(program.bundles):
        if not bundle.branch or not bundle.predicate or bundle.branch.target <= at or not run.times[at]:
            continue
        first, end = _behind(at, bundle.branch.target, run.times), bundle.branch.target
        if end - first < LEAST_REGION:
            continue
        share = sum(run.spent[first:end]) / total
        found.append(
            RegionProfile(
                bundles=end - first,
                runs=run.times[first],
                chances=run.times[at],
                loop=bundle.depth,
                share=round(share, 4),
            )
        )
    return tuple(sorted(found, key=lambda r: (-r.share, -r.bundles))[:MOST_REGIONS])


def moves(i: Instruction, module: Module) -> Literal["", "copy", "layout"]:
    """Whether an instruction only moves data: a copy, or a change of layout (transpose, retiling)."""
    if i.opcode in ("copy-start", "slice-start", "async-start"):
        return "copy"
    body = module.computations.get(i.called[0], []) if i.opcode == "fusion" and i.called else [i]
    if not body or any(b.opcode not in _MOVERS for b in body):
        return ""
    turned = any(b.opcode == "transpose" or (b.opcode == "copy" and _relaid(b, module)) for b in body)
    return "layout" if turned else "copy"


def _relaid(copy: Instruction, module: Module) -> bool:
    sources = [s for name in copy.operands if name in module.by_name for s in module.by_name[name].shapes]
    return bool(sources) and sources[0].layout.split("S(")[0] != copy.shapes[0].layout.split("S(")[0]


def _spans(program: Program, times: list[float]) -> list[tuple[int, int]]:
    """(first, last bundle) of every loop that runs."""
    spans = []
    for head, bundle in enumerate(program.bundles):
        if bundle.mark != "LB" or not times[head]:
            continue
        backs = [at for at, b in enumerate(program.bundles) if b.branch and b.branch.target == head and at >= head]
        if backs:
            last = backs[-1]
            spans.append((head, max(head, _behind(last, last + DELAY_SLOTS + 1, times) - 1)))
    return spans


def _behind(at: int, limit: int, times: list[float]) -> int:
    """The first bundle behind a branch and its delay slots, which run as often as the branch itself."""
    end = min(at + 1 + DELAY_SLOTS, limit, len(times))
    return next((k for k in range(at + 1, end) if times[k] != times[at]), end)


def _inside(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return inner != outer and outer[0] <= inner[0] and inner[1] <= outer[1]


def _loop(
    program: Program, run: Execution, chip: Chip, span: tuple[int, int], inner: list[tuple[int, int]]
) -> LoopProfile:
    first, last = span
    every = range(first, last + 1)
    own = [k for k in every if not any(a <= k <= b for a, b in inner)]
    trips = run.times[first]
    bundles = sum(run.spent[k] for k in own) / trips
    slots = {u: n / trips for u, n in slots_used(program, run, chip, own).items()}
    moved = [(kind, size) for at, kind, size in run.moved if first <= at <= last]
    return LoopProfile(
        depth=program.bundles[first].depth,
        trips=trips,
        bundles=round(bundles, 2),
        with_inner=round(sum(run.spent[k] for k in every) / trips, 2),
        share=round(sum(run.spent[k] for k in own) / (sum(run.spent) or 1.0), 4),
        slots={u: round(n, 2) for u, n in slots.items() if n},
        utilisation={
            u: round(n / bundles / program.capacity[u], 4)
            for u, n in slots.items()
            if bundles and program.capacity.get(u) and n
        },
        read_bytes=sum(s for kind, s in moved if kind.startswith("hbm_to")) / trips,
        written_bytes=sum(s for kind, s in moved if kind.endswith("to_hbm")) / trips,
    )
