"""What to change next: moves in a kernel's constants, ideas for an author that writes; both read off the profile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from maxkernel_nb.engine.graph import Graph, Node
from maxkernel_nb.events import DrawObserved
from maxkernel_nb.modes.search.contract import Family

_HELPED = 0.05  # relative; smaller gains are within what a re-compile of the same kernel may show
STEP_BOUND = ("latency", "scalar", "load/store")  # bottlenecks that fewer and larger grid steps relieve
FEWER_STEPS = 0.1  # log speedup that twice the work a step is taken to bring there, before it was tried
_SPILLING = 2000  # spilled registers of one op from which smaller blocks are worth a try


@dataclass(frozen=True)
class Move:
    """``key`` is what lessons are kept about: which constants go up and down."""

    key: str
    params: Mapping[str, int]


def ladder(family: Family, axis: str) -> list[int]:
    """The author's values and those half-way, one step beyond either end included; a point that cannot work is
    refused later."""
    known = sorted(set(family.axes[axis]))
    if len(known) < 2:
        return known
    wider = [known[0] // 2, *known, known[-1] * 2]
    between = [v + v // 2 for v in wider if v > 1]
    return sorted({v for v in (*wider, *between) if known[0] // 2 <= v <= known[-1] * 2 and v > 0})


def neighbours(family: Family, params: Mapping[str, int]) -> Iterator[Move]:
    """One constant a step or an octave up or down, or one up and another down by the same factor."""
    steps: dict[tuple[str, str], list[int]] = {}
    for axis in family.axes:
        values, at = ladder(family, axis), params[axis]
        above, below = [v for v in values if v > at], [v for v in values if v < at]
        steps[axis, "up"] = above[:2]
        steps[axis, "down"] = below[::-1][:2]
    for (axis, way), values in steps.items():
        for value in values:
            yield Move(f"{axis} {way}", {**params, axis: value})
    for up in family.axes:
        for down in family.axes:
            if up != down and steps[up, "up"] and steps[down, "down"]:
                yield Move(f"{up} up, {down} down",
                           {**params, up: steps[up, "up"][-1], down: steps[down, "down"][-1]})


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """The key of the move from one point to another; empty when they share no constants."""
    ways = [f"{a} {'up' if after[a] > before[a] else 'down'}" for a in after if a in before and after[a] != before[a]]
    return ", ".join(sorted(ways, key=lambda w: (w.endswith("down"), w)))


def prior(node: Node, move: Move, bound_ms: float | None, best_ms: float | None) -> float:
    """Expected gain (natural log of the speedup) from the profile alone, before anybody tried the move.

    A kernel that failed or spills wants smaller blocks. One bound by memory gains what its lower bound gains. One
    bound by a fixed cost of each step gains from fewer steps, so from larger blocks.
    """
    grows = math.log2(max(1, _volume(move.params))) - math.log2(max(1, _volume(node.params)))
    if node.result == "failed" or node.spills > _SPILLING:
        return -0.1 * grows
    gain = 0.0
    if bound_ms and node.bound_ms:
        gain += math.log(node.bound_ms / bound_ms) * (1.0 if node.bound_by in ("hbm", "") else 0.5)
    if node.bound_by in STEP_BOUND:
        gain += FEWER_STEPS * grows
    if bound_ms and best_ms and bound_ms > best_ms:
        gain -= 1.0
    return gain


def _volume(params: Mapping[str, int]) -> int:
    return math.prod(params.values())


class Lessons:
    """What every lineage of the run learned about moves: by move and bottleneck, the mean log speedup and how often."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], tuple[int, float, int]] = {}  # tries, sum of gains, times it helped

    def observe(self, graph: Graph, seen: DrawObserved) -> str:
        """A sentence when the draw settled a lesson (its second agreeing trial, then the fourth, the eighth ...)."""
        edge, node = graph.edges[seen.draw], graph.nodes.get(seen.candidate)
        if node is None or not edge.parents or seen.result == "known":
            return ""
        parent = graph.nodes.get(edge.parents[0])
        if parent is None or not parent.timed:
            return ""
        what = difference(parent.params, node.params) if parent.family == node.family else edge.idea
        if not what:
            return ""
        gain = math.log(parent.ms / node.ms) if node.timed and parent.ms and node.ms else -0.5
        key = (what, parent.bound_by)
        tries, total, helped = self.seen.get(key, (0, 0.0, 0))
        self.seen[key] = tries, total, helped = tries + 1, total + gain, helped + (gain > _HELPED)
        return _sentence(key, tries, total, helped) if tries >= 2 and tries & (tries - 1) == 0 else ""

    def expect(self, what: str, bound_by: str, prior: float = 0.0) -> tuple[float, int]:
        """(mean log speedup, tries): one imagined trial at the prior, then what was seen."""
        tries, total, _ = self.seen.get((what, bound_by), (0, 0.0, 0))
        return (prior + total) / (tries + 1), tries

    def told(self, bound_by: str, most: int = 6) -> list[str]:
        """The best supported ones about this bottleneck, as sentences."""
        about = [(k, v) for k, v in self.seen.items() if k[1] == bound_by and v[0] >= 2]
        about.sort(key=lambda kv: (-kv[1][0], kv[0]))
        return [_sentence(k, *v) for k, v in about[:most]]


def _sentence(key: tuple[str, str], tries: int, total: float, helped: int) -> str:
    what, bound = key
    mean = math.exp(total / tries)
    where = f" where {bound} is the bottleneck" if bound else ""
    effect = f"{mean:.2f}x as fast" if mean >= 1 else f"{1 / mean:.2f}x slower"
    return f"{what}{where}: {effect} on average, helped in {helped} of {tries} trials"


# For authors that write. Which resource is short -> what has relieved it, most promising first.
WRITTEN: dict[str, tuple[str, ...]] = {
    "hbm": (
        "Move fewer bytes: keep what is read again in VMEM across grid steps, and order the grid so that the larger "
        "operand changes last.",
        "Fuse what still goes through HBM between kernels into this one.",
        "Narrow what is stored or fetched to bfloat16 where the tolerance admits it, and accumulate in float32.",
    ),
    "mxu": (
        "Skip work whose result is masked or multiplied by zero, block by block.",
        "Feed the MXU bfloat16 operands with a float32 accumulator, and contract over a multiple of its width.",
        "Issue the next product before the vector work on the current one, so that both units are busy.",
    ),
    "valu": (
        "Move reductions and broadcasts onto the MXU (a product with ones), and hoist what does not change out of the "
        "inner loop.",
        "Use cheaper vector work: a running maximum only when it changes, base-2 exponentials, fewer selects.",
    ),
    "eup": ("Fewer transcendental operations: share them between rows, use base-2 forms, delay divisions to the end.",),
    "xlu": ("Avoid transposes and cross-lane reductions: change which dimension lies along the lanes.",),
    "load/store": ("Keep values in registers between uses: smaller inner blocks, loops unrolled less.",
                   "Lay out the operand so that a block is loaded without shuffles."),
    "latency": ("Do more work a grid step and have fewer of them.",
                "Mark independent grid dimensions parallel, and fetch the next block while this one is computed."),
    "scalar": ("Take index arithmetic out of the inner loop: prefetch scalars, use static slices.",),
    "": ("Use another tiling of the grid, with fewer and larger steps.",
         "Use a different algorithm for the same result, with a smaller roofline bound."),
}


def written_ideas(bound_by: str) -> tuple[str, ...]:
    """Ideas for the bottleneck first, then the general ones."""
    return (*WRITTEN.get(bound_by, ()), *WRITTEN[""])
