"""Strategy ``parallel``: independent climbers, one lineage each; they share lessons, never parents."""

from __future__ import annotations

from maxkernel_nb.engine.graph import Graph
from maxkernel_nb.modes.search.contract import Draw, World
from maxkernel_nb.modes.search.ideas import Lessons
from maxkernel_nb.modes.search.strategy import Base


class Parallel(Base):
    name = "parallel"

    def __init__(self, world: World, seed: int = 0, lineages: int = 4, lessons: Lessons | None = None) -> None:
        self.lineages, self._turn = lineages, 0
        super().__init__(world, seed, lineages, lessons)

    def choose(self, graph: Graph) -> tuple[str, ...]:
        """The fastest node of the lineage whose turn it is; none of it alive: a new root."""
        self._turn = (self._turn + 1) % self.lineages
        mine = next((n for n in graph.by_speed() if n.lineage == str(self._turn)), None)
        return (mine.id,) if mine is not None else ()

    def child(self, graph: Graph, parents: tuple[str, ...]) -> Draw | None:
        """A climber at the top of its hill starts anew elsewhere."""
        return super().child(graph, parents) or self.restart(graph)

    def lineage_of_root(self) -> str:
        return str(self._turn)
