"""Strategy ``bandit``: UCB over ways to draw and over parents, each draw chosen inside its way by a cost model."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from maxkernel_nb.engine.graph import Graph, Node
from maxkernel_nb.events import DrawObserved, EdgeKind
from maxkernel_nb.modes.search.contract import Draw, Family, World
from maxkernel_nb.modes.search.cost_model import CostModel
from maxkernel_nb.modes.search.ideas import FEWER_STEPS, STEP_BOUND, Lessons, difference, ladder, neighbours
from maxkernel_nb.modes.search.strategy import Base

_WAYS = ("far", "near", "merge")  # tried first in this order: prior knowledge says more than the way from one kernel
_MERGED_FROM = 4  # timed kernels of a family
_TELLING = 1.1  # estimates of a family whose slowest point is not this many times its fastest cannot rank it
_EXPLORE = 0.5
_REPEATED = 0.1  # what the gain of a likely repetition counts
_BETWEEN, _BEYOND = 0.5, 0.25  # the same of a value between the author's, and of one outside of them
_POOL = 1500  # points of a family that are looked at, at most
_PREVIEWS = 128  # of them, new ones a draw: each is a kernel's text


class Bandit(Base):
    name = "bandit"

    def __init__(self, world: World, seed: int = 0, roots: int = 2, lessons: Lessons | None = None) -> None:
        super().__init__(world, seed, roots, lessons)
        self._tries: dict[str, list[float]] = {}  # way -> rewards
        self._way: dict[str, str] = {}  # candidate -> the way that gave it
        self._pools: dict[str, list[dict[str, int]]] = {}
        self._at: dict[str, int] = {}
        self._telling: dict[str, bool] = {}
        firsts = {d.family: d for d in reversed(self._starts)}
        self._guesses = deque(d for d in self._starts if firsts[d.family] is not d)  # while nothing has a time yet
        self._starts = deque(d for d in self._starts if firsts[d.family] is d)

    def choose(self, graph: Graph) -> tuple[str, ...]:
        """UCB over the fastest parents: their speed, and how little was made of them."""
        fastest = graph.fastest(8)
        if not fastest:
            return ()
        total = math.log(len(graph.edges) + 2)

        def worth(node: Node) -> float:
            assert node.ms is not None
            gap = math.log(node.ms / (fastest[0].ms or node.ms))
            return -gap + 0.15 * math.sqrt(total / (len(node.children) + 1))

        return (max(fastest, key=lambda n: (worth(n), -n.draw)).id,)

    def restart(self, graph: Graph) -> Draw | None:
        """The author's next guess before a random point."""
        while self._guesses:
            draw = self._guesses.popleft()
            if self.preview(graph, self.world.families[draw.family], draw.params) is not None:
                return draw
        return super().restart(graph)

    def child(self, graph: Graph, parents: tuple[str, ...]) -> Draw | None:
        node = graph.nodes[parents[0]]
        family = self.world.families.get(node.family)
        rewrite = self.rewrite(graph, node)
        if family is None or not family.axes or (rewrite and self._due_for_rewrite(graph)):
            return rewrite or super().child(graph, parents)
        timed = [n for n in graph.nodes.values() if n.family == family.key and n.timed]
        if not timed:
            return super().child(graph, parents)
        return self._modelled(graph, family, node, timed) or rewrite or super().child(graph, parents)

    def _modelled(self, graph: Graph, family: Family, node: Node, timed: list[Node]) -> Draw | None:
        model = CostModel(tuple(family.axes), 0.0 if self._estimated(family) else trend(timed))
        model.fit([(n.params, self._priors(family, n.params), n.ms) for n in timed if n.ms is not None])
        best = min(n.ms for n in timed if n.ms is not None)
        makers: dict[str, Callable[[], list[dict[str, int]]]] = {
            "near": lambda: [dict(m.params) for m in neighbours(family, node.params)],
            "far": lambda: self._far(family),
            "merge": lambda: _crossings(family, graph.fastest(4)),
        }
        ways = [w for w in self._ranked_ways() if w != "merge" or len(timed) >= _MERGED_FROM]
        found = [(way, chosen) for way in ways
                 if (chosen := self._best_of(graph, family, model, best, makers[way]())) is not None]
        if not found:
            return None
        way, (params, candidate) = next((f for f in found if not self.repeats(family, f[1][0])), found[0])
        self._way[candidate] = way
        if way == "merge":
            parents = _parents_of(params, graph.fastest(4))
            return Draw(EdgeKind.MERGE, family.key, parents, params, "constants of both parents", node.lineage)
        key = difference(node.params, params) or "other constants"
        return Draw(EdgeKind.RETUNE, family.key, (node.id,), params, key, node.lineage)

    def _priors(self, family: Family, params: Mapping[str, int]) -> tuple[float | None, ...]:
        seen = self.world.preview(family.key, params)
        return seen.priors if seen is not None else (None, None)

    def _best_of(self, graph: Graph, family: Family, model: CostModel, best: float,
                 points: Sequence[Mapping[str, int]]) -> tuple[dict[str, int], str] | None:
        looked: list[tuple[dict[str, int], tuple[float | None, ...], str]] = []
        for params in points:
            seen = self.preview(graph, family, params)
            if seen is not None:
                looked.append((dict(params), seen.priors, seen.candidate))
        if not looked:
            return None
        gains = model.improvement([p for p, _, _ in looked], [b for _, b, _ in looked], best)
        gains = gains * self._crowding(graph, family, [p for p, _, _ in looked])
        gains = gains * np.array([self._belief(family, p) for p, _, _ in looked])
        at = int(np.argmax(gains))
        return looked[at][0], looked[at][2]

    def _belief(self, family: Family, params: Mapping[str, int]) -> float:
        """What a promised gain counts: the author chose its values with knowledge that its estimates lack."""
        belief = _REPEATED if self.repeats(family, params) else 1.0
        for axis, values in family.axes.items():
            if params[axis] not in values:
                belief *= _BETWEEN if min(values) < params[axis] < max(values) else _BEYOND
        return belief

    def _crowding(self, graph: Graph, family: Family, points: Sequence[Mapping[str, int]]) -> np.ndarray:
        """Near a kernel that is being judged, or that failed, less is to be learned or won."""
        factor = np.ones(len(points))
        for node in graph.nodes.values():
            if node.family == family.key and (not node.result or node.result == "failed"):
                for n, point in enumerate(points):
                    gap = sum((math.log2(point[a] / node.params[a])) ** 2 for a in family.axes)
                    factor[n] *= 1 - 0.95 * math.exp(-gap)
        return factor

    def _far(self, family: Family) -> list[dict[str, int]]:
        """Every point of the family's lattice, or a fixed sample of it; a few more are looked at each time, those first
        that the author estimates to be fast."""
        pool = self._pool(family)
        self._at[family.key] = min(len(pool), self._at.get(family.key, 0) + _PREVIEWS)
        return pool[: self._at[family.key]]

    def _pool(self, family: Family) -> list[dict[str, int]]:
        """The author's own guesses are looked at first where its estimates cannot tell."""
        if family.key not in self._pools:
            points = [dict(s) for s in family.seeds] + _lattice(family, self.dice)
            ranked = [(self.world.estimate(family.key, p) or math.inf, p) for p in points]
            known = [t for t, _ in ranked if math.isfinite(t)]
            self._telling[family.key] = bool(known) and max(known) >= _TELLING * min(known)
            if self._telling[family.key]:
                ranked.sort(key=lambda pair: pair[0])
            self._pools[family.key] = [p for _, p in ranked]
        return self._pools[family.key]

    def _estimated(self, family: Family) -> bool:
        """The author's estimates rank its kernels."""
        self._pool(family)
        return self._telling[family.key]

    def _ranked_ways(self) -> list[str]:
        total = sum(len(r) for r in self._tries.values()) + 1

        def ucb(way: str) -> float:
            rewards = self._tries.get(way, [])
            if not rewards:
                return math.inf
            return sum(rewards) / len(rewards) + _EXPLORE * math.sqrt(math.log(total) / len(rewards))

        return sorted(_WAYS, key=lambda w: (-ucb(w), _WAYS.index(w)))

    def observe(self, graph: Graph, seen: DrawObserved) -> None:
        super().observe(graph, seen)
        way = self._way.pop(seen.candidate, None)
        if way is None:
            return
        node = graph.nodes[seen.candidate]
        reward = 0.0
        if node.timed and node.ms is not None and graph.lead_ms is not None and not self.repeated(node):
            reward = 1.0 if graph.improved_at == seen.draw else 0.5 * (graph.lead_ms / node.ms) ** 4
        self._tries.setdefault(way, []).append(reward)


def trend(timed: Sequence[Node]) -> float:
    """For a cost model: kernels bound by what each grid step costs get faster with fewer of them."""
    return -FEWER_STEPS * sum(n.bound_by in STEP_BOUND for n in timed) / len(timed)


def _lattice(family: Family, dice: object) -> list[dict[str, int]]:
    """Within the author's values; a step beyond them is taken from a kernel at their end only."""
    values = [[v for v in ladder(family, axis) if min(own) <= v <= max(own)] for axis, own in family.axes.items()]
    size = math.prod(len(v) for v in values)
    axes = tuple(family.axes)
    if size <= _POOL:
        points = [dict(zip(axes, p, strict=True)) for p in itertools.product(*values)]
    else:
        points = [{a: dice.choice(v) for a, v in zip(axes, values, strict=True)} for _ in range(_POOL)]  # type: ignore[attr-defined]
    dice.shuffle(points)  # type: ignore[attr-defined]
    return points


def _crossings(family: Family, nodes: Sequence[Node]) -> list[dict[str, int]]:
    same = [n for n in nodes if n.family == family.key and set(family.axes) <= set(n.params)]
    values = [sorted({n.params[a] for n in same}) for a in family.axes]
    return [dict(zip(family.axes, p, strict=True)) for p in itertools.product(*values)] if same else []


def _parents_of(params: Mapping[str, int], nodes: Sequence[Node]) -> tuple[str, ...]:
    """The two fastest nodes that share most constants with the point."""
    shared = sorted(nodes, key=lambda n: (-sum(n.params.get(a) == v for a, v in params.items()), n.ms, n.draw))
    return tuple(n.id for n in shared[:2])
