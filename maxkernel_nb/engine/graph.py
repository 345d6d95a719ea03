"""The graph of a search: its nodes are candidates (the same text is one node), its edges say how each came to be.

A graph is a fold: of ``EdgeAdded`` (with the candidate it names) and ``DrawObserved``, in the order drawn.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from maxkernel_nb import events as ev
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.task import Candidate
from maxkernel_nb.tpu.profiles import ScheduleProfile

TIMED = ("timed", "verified")


@dataclass
class Node:
    """A candidate. ``result`` is empty until its draw was observed; times in ms, modelled."""

    id: str
    draw: int
    how: ev.EdgeKind
    family: str = ""
    lineage: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    idea: str = ""
    depth: int = 0
    bound_ms: float | None = None
    result: str = ""
    ms: float | None = None
    cost: int = 0
    found: int = 1  # how many draws gave this candidate
    bound_by: str = ""
    vmem_bytes: int = 0
    roofline_ms: float = 0.0
    spills: int = 0
    children: list[str] = field(default_factory=list)

    @property
    def timed(self) -> bool:
        return self.result in TIMED and self.ms is not None

    @property
    def floor_ms(self) -> float:
        """No kernel of its constants, or failing that of its algorithm, can be faster; 0 when nothing is known."""
        return self.bound_ms or self.roofline_ms

    def profiled(self, profile: ScheduleProfile | None) -> None:
        if profile is None:
            return
        longest = max(profile.ops, key=lambda op: op.modelled_ms, default=None)
        self.bound_by, self.roofline_ms = profile.bound_by, profile.roofline_ms
        self.vmem_bytes = profile.vmem_bytes or (longest.vmem_bytes if longest else 0)
        self.spills = longest.spills if longest else 0


class Graph:
    """``nodes`` in the order of their first draw.

    ``best``: the fastest verified one. A faster one may be timed already, its check still to come: ``lead_ms`` is its.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.edges: dict[int, ev.EdgeAdded] = {}
        self.observed: dict[int, ev.DrawObserved] = {}
        self.best: str | None = None
        self.cost = 0
        self.improved_at = -1  # the draw that last gave a faster kernel than all before
        self.checked: set[str] = set()  # nodes whose full check was drawn after they were timed
        self.trust = 1.0  # the least share of its lower bound that any kernel here took: bounds are estimates too
        self.pinned: dict[str, int] = {}  # node -> draws made when it was pinned
        self.pruned: set[str] = set()
        self.spent: set[str] = set()  # parents that a strategy has no idea left for
        self._by_time: list[tuple[float, int, str]] = []  # timed nodes, the fastest first

    def add(self, edge: ev.EdgeAdded, candidate: Candidate | None) -> None:
        """A draw gave a candidate (or none)."""
        self.edges[edge.draw] = edge
        if edge.how is ev.EdgeKind.CHECK:
            self.checked.add(edge.candidate)
            return
        if candidate is None:
            return
        known = self.nodes.get(edge.candidate)
        if known is not None:
            known.found += 1
            return
        self.place(Node(id=edge.candidate, draw=edge.draw, how=edge.how, family=edge.family, lineage=edge.lineage,
                        params=candidate.params, parents=edge.parents, idea=edge.idea, bound_ms=candidate.bound_ms))

    def place(self, node: Node) -> None:
        parents = [self.nodes[p] for p in node.parents if p in self.nodes]
        node.depth = 1 + max((p.depth for p in parents), default=-1)
        self.nodes[node.id] = node
        for parent in parents:
            parent.children.append(node.id)

    def observe(self, seen: ev.DrawObserved, profile: ScheduleProfile | None = None) -> None:
        """What came of a draw, in the order drawn."""
        self.observed[seen.draw] = seen
        self.cost += seen.cost
        node = self.nodes.get(seen.candidate)
        if node is None or seen.result == "known":
            return
        lead = self.lead_ms
        if node.timed and node.ms is not None:
            self._by_time.remove((node.ms, node.draw, node.id))
        node.result, node.ms, node.cost = seen.result, seen.modelled_ms, node.cost + seen.cost
        node.profiled(profile)
        if node.ms and node.bound_ms:
            self.trust = min(self.trust, node.ms / node.bound_ms)
        if node.timed and node.ms is not None:
            bisect.insort(self._by_time, (node.ms, node.draw, node.id))
            if lead is None or node.ms < lead:
                self.improved_at = seen.draw
        if node.result == "verified" and self._better(node):
            self.best = node.id
            if node.ms is None:
                self.improved_at = seen.draw

    def _better(self, node: Node) -> bool:
        if self.best is None:
            return True
        best = self.nodes[self.best].ms
        return node.ms is not None and (best is None or node.ms < best)

    def mark(self, marks: Iterable[ev.NodeMarked]) -> None:
        """The person's marks as they stand."""
        marks = list(marks)
        self.pinned = {m.node: m.at_draw for m in marks if m.mark == "pinned" and m.node in self.nodes}
        self.pruned = {m.node for m in marks if m.mark == "pruned"}

    @property
    def best_ms(self) -> float | None:
        return self.nodes[self.best].ms if self.best is not None else None

    @property
    def lead_ms(self) -> float | None:
        """Of the fastest kernel that the judge timed and has not refused."""
        return self._by_time[0][0] if self._by_time else None

    def unchecked(self) -> Iterator[Node]:
        """Timed nodes that would be the best if they passed their full check, the fastest first."""
        for ms, _, node in self._by_time:
            if self.best_ms is not None and ms >= self.best_ms:
                return
            if self.nodes[node].result == "timed" and node not in self.checked:
                yield self.nodes[node]

    @property
    def refused(self) -> int:
        """Leading kernels that failed their full check."""
        return sum(self.nodes[n].result == "failed" for n in self.checked if n in self.nodes)

    @property
    def curve(self) -> list[tuple[int, float]]:
        """(judgements, ms) at each gain that led to the best; kernels faster than it are not checked, so left out."""
        found: list[tuple[int, float]] = []
        cost, best = 0, self.best_ms or 0.0
        for seen in self.observed.values():
            cost += seen.cost
            node = self.nodes.get(seen.candidate)
            if node is None or not node.timed or node.ms is None or node.ms < best:
                continue
            if self.best is not None and (not found or node.ms < found[-1][1]):
                found.append((cost, node.ms))
        return found

    def fastest(self, most: int | None = None) -> list[Node]:
        """Nodes that may have children, the fastest first. What it costs depends on ``most``, not on all there are."""
        return list(itertools.islice(self.by_speed(), most))

    def by_speed(self) -> Iterator[Node]:
        for _, _, node in self._by_time:
            if node not in self.spent and not self.is_pruned(node):
                yield self.nodes[node]

    def is_pruned(self, node: str) -> bool:
        """It, or the first parent of it or of one of those, was pruned."""
        if not self.pruned:
            return False
        return any(n in self.pruned for n in self.lineage(node))

    def lineage(self, node: str) -> list[str]:
        """From the root to ``node``, along first parents."""
        path, seen = [node], {node}
        while (parents := self.nodes[path[-1]].parents) and parents[0] in self.nodes and parents[0] not in seen:
            path.append(parents[0])
            seen.add(parents[0])
        return path[::-1]


def graph_of(state: RunState) -> Graph:
    """The graph of a recorded or live search."""
    graph = Graph()
    for edge in sorted(state.edges, key=lambda e: e.draw):
        known = state.candidates.get(edge.candidate)
        graph.add(edge, known.candidate if known else None)
    for seen in sorted(state.observed, key=lambda o: o.draw):
        known = state.candidates.get(seen.candidate)
        graph.observe(seen, known.profile if known else None)
    graph.mark(state.marks.values())
    return graph
