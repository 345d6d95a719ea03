"""Strategy ``evolve``: islands, each with an archive of the fastest kernel of every kind, crossed and mutated.

The kind of a kernel (MAP-Elites) is what binds it, how much VMEM it uses and how large its blocks are: different ways
of being fast are kept side by side, and two of them may be merged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from maxkernel_nb.engine.graph import Graph, Node
from maxkernel_nb.events import EdgeKind
from maxkernel_nb.modes.search.contract import Draw, World
from maxkernel_nb.modes.search.ideas import Lessons
from maxkernel_nb.modes.search.strategy import Base

_MERGES = 0.3  # share of the draws with two parents
_ABROAD = 0.25  # of those, the share whose second parent lives on the next island
_GREED = 0.5  # chance to take the fastest elite, then the second ...
_LOOKED_AT = 2000  # of the fastest kernels, when the archive is drawn up
_LOCAL = 0.75  # share of mutations that take the best ranked idea


class Evolve(Base):
    name = "evolve"

    def __init__(self, world: World, seed: int = 0, islands: int = 2, roots: int = 4,
                 lessons: Lessons | None = None) -> None:
        self.lineages, self._turn = islands, 0
        super().__init__(world, seed, max(roots, islands), lessons)

    def choose(self, graph: Graph) -> tuple[str, ...]:
        self._turn = (self._turn + 1) % self.lineages
        here = self.elites(graph, self._turn)
        if not here:
            here = graph.fastest(1)
        if not here:
            return ()
        first = self._pick(here)
        if self.dice.random() < _MERGES:
            there = here if self.dice.random() >= _ABROAD else self.elites(graph, (self._turn + 1) % self.lineages)
            others = [n for n in there if n.id != first.id and n.family == first.family]
            if others:
                return first.id, self._pick(others).id
        return (first.id,)

    def elites(self, graph: Graph, island: int) -> list[Node]:
        """The fastest node of every kind on the island, fastest first."""
        kinds: dict[tuple[str, int, int], Node] = {}
        for node in itertools.islice(graph.by_speed(), _LOOKED_AT):
            if node.lineage == str(island):
                kinds.setdefault(descriptor(node), node)
        return list(kinds.values())

    def _pick(self, ranked: Sequence[Node]) -> Node:
        for node in ranked:
            if self.dice.random() < _GREED:
                return node
        return ranked[0]

    def child(self, graph: Graph, parents: tuple[str, ...]) -> Draw | None:
        node = graph.nodes[parents[0]]
        if len(parents) == 2:
            merged = self._merge(graph, node, graph.nodes[parents[1]])
            if merged is not None:
                return merged
        if self.dice.random() >= _LOCAL and (moves := self.ranked(graph, node)):
            return self.retune(node, moves[min(len(moves) - 1, int(self.dice.expovariate(0.5)))])
        return super().child(graph, parents[:1]) or self.restart(graph)

    def _merge(self, graph: Graph, one: Node, other: Node) -> Draw | None:
        """Each constant from either parent; a new point that can work, or a rewrite of both by the author."""
        family = self.world.families.get(one.family)
        if family is not None and set(family.axes) <= set(one.params) & set(other.params):
            for _ in range(6):
                params = {a: (one if self.dice.random() < 0.5 else other).params[a] for a in family.axes}
                if self.preview(graph, family, params) is not None:
                    return Draw(EdgeKind.MERGE, one.family, (one.id, other.id), params, "constants of both parents",
                                one.lineage)
        if self.world.refines:
            return Draw(EdgeKind.MERGE, one.family, (one.id, other.id), idea="Combine what makes both parents fast.",
                        lineage=one.lineage)
        return None

    def lineage_of_root(self) -> str:
        return str(self._turn)


def descriptor(node: Node) -> tuple[str, int, int]:
    """What binds it, VMEM used in steps of a factor of two, block volume in steps of a factor of four."""
    vmem = int(math.log2(max(1, node.vmem_bytes >> 20)))
    volume = int(math.log2(max(1, math.prod(node.params.values()))) / 2) if node.params else 0
    return node.bound_by, vmem, volume
