"""Translates a scheduled program's control flow, DMAs and waits to one Python function that counts and traces them.

Single-assignment registers become local variables, basic blocks the leaves of a tree of comparisons on ``pc``. Only
what branches, DMAs and waits depend on is translated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from maxkernel_nb.tpu.scalars import Definition, literal, local, names, needed, value
from maxkernel_nb.tpu.schedule import CORE, Bundle, Dma, Wait

SIZE_UNKNOWN = "DMA sizes that depend on data are counted as whole blocks"
GUARD_UNKNOWN = "DMAs whose guard depends on data are counted as always issued"
REGION_UNKNOWN = "regions whose condition depends on data are counted as always run"
TRIPS_UNKNOWN = "a loop whose trip count depends on data is counted as one trip"
WAITS, READS, WRITES, HEAD = range(4)  # kinds of a traced event


class Guess(NamedTuple):
    """Stands in for data: ``trips`` of a loop that data ends, ``granules`` of a DMA that data sizes and that moves no
    block, and whether regions and DMAs that data guards run."""

    trips: int = 1
    granules: int = 0
    regions: bool = True


@dataclass
class Block:
    """A basic block of bundles, first to last inclusive; ``branch_at``: the bundle of its branch, -1 for none;
    ``cycles``: that it takes."""

    first: int
    last: int
    branch_at: int = -1
    cycles: int = 0


class Translation:
    """``source`` defines ``run(budget, core_number)``, which returns how often each block ran, the granules that each
    DMA of ``dmas`` moved, the trace, the cycles passed, and whether it came to the end within ``budget`` blocks.
    ``notes`` says what depends on data."""

    def __init__(
        self,
        bundles: list[Bundle],
        blocks: list[Block],
        made: list[Definition],
        tainted: set[str],
        granule: int,
        guess: Guess,
    ) -> None:
        self.bundles, self.blocks, self.tainted, self.granule, self.guess = bundles, blocks, tainted, granule, guess
        self.dmas = [(i, d) for i, b in enumerate(bundles) for d in b.dmas if "hbm" in d.kind]
        self.waits = [(i, w) for i, b in enumerate(bundles) for w in b.waits]
        self.notes: list[str] = []
        self.flags = _Flags(made, tainted)
        self.needed = needed(made, self._roots()) - tainted
        kept = [d for d in made if d.to in self.needed]
        self.home = {d.to: d.bundle for d in kept}
        self.at: dict[int, list[Definition]] = {}
        for d in kept:
            self.at.setdefault(d.bundle, []).append(d)
        self.index = {b.first: k for k, b in enumerate(blocks)}
        self.source = self._source()

    def _roots(self) -> set[str]:
        moved: list[tuple[int, Dma | Wait]] = [*self.dmas, *self.waits]
        roots = {n for _, x in moved for text in (x.predicate, x.size, x.flag) for n in names(text)}
        return roots | {n for b in self.bundles if b.branch for n in names(b.branch.predicate)}

    def _source(self) -> str:
        heads = (k for k, b in enumerate(self.blocks) if self._is_outer_loop(b))
        outer = next(heads, -1)
        body = [self._block(k, k == outer) for k in range(len(self.blocks))]
        lengths = {"w": len(self.waits), "c": len(self.blocks), "t": len(self.blocks), "d": len(self.dmas)}
        start = [f"{name} = [0] * {length}" for name, length in lengths.items()]
        start += ["prev = -1", "pc = cy = 0", "trace = []", "log = trace.append"]
        start += [f"{' = '.join(sorted(self.needed))} = 0"] if self.needed else []
        out = [f"def run(budget, {CORE}):", *("    " + line for line in start), "    while budget:"]
        out += ["        budget -= 1", *_dispatch(body, 0, len(body), 2), "    return c, d, trace, cy, False"]
        return "\n".join(out)

    def _is_outer_loop(self, block: Block) -> bool:
        return self.bundles[block.first].mark == "LB" and self.bundles[block.first].depth <= 1

    def _block(self, k: int, head: bool) -> list[str]:
        block = self.blocks[k]
        lines = [f"log((cy, {HEAD}))"] if head else []
        lines.append(f"c[{k}] += 1")
        for i in range(block.first, block.last + 1):
            here = self.at.get(i, [])
            lines += _phis(here, k, i, self.blocks, self.home)
            lines += [f"{d.to} = {d.expression}" for d in here if not d.phi]
            now = f"cy + {(i - block.first) * block.cycles // (block.last - block.first + 1)}"
            lines += [self._move(n, d, now) for n, (at, d) in enumerate(self.dmas) if at == i]
            lines += [line for n, (at, w) in enumerate(self.waits) if at == i for line in self._wait(n, w, now)]
        return [*lines, f"cy += {block.cycles}", *self._jump(k)]

    def _move(self, n: int, dma: Dma, now: str) -> str:
        size = local(dma.size)
        if size in self.tainted:
            size = str(dma.window_bytes // self.granule or self.guess.granules)
            self.notes.append(SIZE_UNKNOWN)
        condition = value(dma.predicate) if dma.predicate else "True"
        if local(dma.predicate or "0") in self.tainted:
            condition = str(self.guess.regions)
            self.notes.append(GUARD_UNKNOWN)
        kind = READS if dma.kind.startswith("hbm_to") else WRITES
        return f"if {condition}: d[{n}] += {size}; log(({now}, {kind}, {self.flags.number(dma.flag)}, {size}))"

    def _wait(self, n: int, wait: Wait, now: str) -> list[str]:
        """A wait whose guard or size depends on data is for one DMA, always; a pipeline's first finds nothing to wait
        for: its guard would have said that no block is under way."""
        size = "1" if local(wait.size) in self.tainted else local(wait.size)
        event = f"log(({now}, {WAITS}, {self.flags.number(wait.flag)}, {size}))"
        if wait.predicate and local(wait.predicate) in self.tainted:
            return [f"if w[{n}]: {event}", f"w[{n}] = 1"] if wait.pipelined else [event]
        return [f"if {value(wait.predicate) if wait.predicate else 'True'}: {event}"]

    def _jump(self, k: int) -> list[str]:
        at = self.blocks[k].branch_at
        last = k + 1 >= len(self.blocks)
        following = "return c, d, trace, cy, True" if last else f"pc = {k + 1}"
        leave, branch = [f"prev = {k}"], self.bundles[at].branch if at >= 0 else None
        if branch is None:
            return [*leave, following]
        target = self.index[branch.target]
        if branch.predicate and local(branch.predicate) in self.tainted:
            if branch.target > at:
                self.notes.append(REGION_UNKNOWN)
                return [*leave, following if self.guess.regions else f"pc = {target}"]
            self.notes.append(TRIPS_UNKNOWN)
            again = f"t[{k}] = (t[{k}] + 1) % {self.guess.trips}"
            return [*leave, again, f"if t[{k}]: pc = {target}", f"else: {following}"]
        condition = value(branch.predicate) if branch.predicate else "True"
        return [*leave, f"if {condition}: pc = {target}", f"else: {following}"]


class _Flags:
    """Sync flags by number. Where data chooses between a buffer's flags (which slot is next), the buffer's first stands
    for all of them: its DMAs are waited for in the order in which they were issued."""

    def __init__(self, defs: list[Definition], tainted: set[str]) -> None:
        self.tainted = tainted
        self.made = {d.to: d for d in defs}

    def number(self, text: str) -> str:
        if not text:
            return "0"
        if "[" in text and "%" in text:
            return str(literal(text.partition("+")[0]))
        if not any(n in self.tainted for n in names(text)):
            return local(text)
        return self.first(local(text), set())

    def first(self, name: str, seen: set[str]) -> str:
        """The allocation that a register's value is counted from; 0 where none is found."""
        made = self.made.get(name)
        if made is None or name in seen:
            return "0"
        seen.add(name)
        place = re.search(r"\b\d{7,}\b", made.expression)
        if place:
            return place.group()
        return next((f for n in made.needs if (f := self.first(n, seen)) != "0"), "0")


def _phis(here: list[Definition], block: int, at: int, blocks: list[Block], home: dict[str, int]) -> list[str]:
    """All phis of a bundle at once (they read the old values). The operand is chosen by the edge control came along."""
    phis = [d for d in here if d.phi]
    if not phis:
        return []
    values = []
    for d in phis:
        first, second = d.needs
        at_1, at_2 = home.get(first, -1), home.get(second, -1)
        if max(at_1, at_2) >= at:  # a loop: one operand comes from the back edge
            back, entry = (second, first) if at_2 >= at_1 else (first, second)
            values.append(f"({back} if prev >= {block} else {entry})")
        else:  # a join: the operand defined later lies in the region that may have been skipped
            late, early = (second, first) if at_2 >= at_1 else (first, second)
            lo = next((k for k, b in enumerate(blocks) if b.first <= max(at_1, at_2) <= b.last), block)
            values.append(f"({late} if prev >= {lo} else {early})")
    return [f"{', '.join(d.to for d in phis)} = {', '.join(values)}"]


def _dispatch(body: list[list[str]], lo: int, hi: int, depth: int) -> list[str]:
    """A balanced tree of comparisons on ``pc``: Python has no jump table."""
    pad = "    " * depth
    if hi - lo == 1:
        return [pad + line for line in body[lo]]
    mid = (lo + hi) // 2
    return [
        f"{pad}if pc < {mid}:",
        *_dispatch(body, lo, mid, depth + 1),
        f"{pad}else:",
        *_dispatch(body, mid, hi, depth + 1),
    ]
