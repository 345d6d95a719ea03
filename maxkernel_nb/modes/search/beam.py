"""Strategy ``beam``: the fastest ``width`` nodes each get ``branching`` children; a better parent is never lost."""

from __future__ import annotations

from collections import deque

from maxkernel_nb.engine.graph import Graph
from maxkernel_nb.modes.search.contract import World
from maxkernel_nb.modes.search.ideas import Lessons
from maxkernel_nb.modes.search.strategy import KEEP, Base


class Beam(Base):
    """``keep``: a node slower than this times the best leaves the beam (slack may still serve its family)."""

    name = "beam"

    def __init__(self, world: World, seed: int = 0, width: int = 3, branching: int = 2, keep: float = KEEP,
                 roots: int = 2, lessons: Lessons | None = None) -> None:
        self.width, self.branching, self.keep = width, branching, keep
        self._round: deque[str] = deque()
        super().__init__(world, seed, roots, lessons)

    def choose(self, graph: Graph) -> tuple[str, ...]:
        self._round = deque(n for n in self._round if not graph.is_pruned(n))
        if not self._round:
            self._round = deque(n for n in self._beam(graph) for _ in range(self.branching))
        return (self._round.popleft(),) if self._round else ()

    def _beam(self, graph: Graph) -> list[str]:
        """Nodes whose ideas are used up make room for the next ones."""
        fastest = graph.fastest(4 * self.width)
        if not fastest:
            return []
        limit = self.keep * (graph.lead_ms or fastest[0].ms or 0.0)
        found: list[str] = []
        for node in fastest:
            within = node.ms is not None and node.ms <= limit
            if (within or not found) and (self.ranked(graph, node) or self.rewrite(graph, node)):
                found.append(node.id)
            if len(found) == self.width:
                break
        return found
