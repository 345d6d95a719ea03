"""What every strategy shares: roots, repairs, slack for slow but promising kernels, ideas ranked by what is known."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping

from maxkernel_nb.engine.graph import Graph, Node
from maxkernel_nb.events import DrawObserved, EdgeKind
from maxkernel_nb.modes.search.contract import Draw, Family, Preview, World
from maxkernel_nb.modes.search.ideas import Lessons, Move, neighbours, prior, written_ideas

KEEP = 1.5  # slower than this times the best counts as slow
SLACK = 0.25  # share of the draws that slow but promising families may take
_SLACK_PATIENCE = 6  # draws without a gain after which a slow family is given up
_HEADROOM = 1.1  # its floor must be this much below the best time
_RETUNES_A_REWRITE = 3  # where the author can rewrite a kernel: constants tried between two rewrites
_REPAIRS = 2
_COMPARED = 8  # nodes of one program that a new one is compared with
_HEADS = 500  # of the fastest kernels, among which slow families are looked for
_CURIOSITY = 0.08  # log speedup that an untried idea is given the benefit of
_REPEAT = 0.2  # log speedup that a move to a likely repetition is behind


class Base:
    """Subclasses say whom to build on (``choose``) and may say how (``child``)."""

    name = ""
    lineages = 1

    def __init__(self, world: World, seed: int = 0, roots: int = 1, lessons: Lessons | None = None) -> None:
        self.world, self.dice, self.lessons = world, random.Random(seed), lessons or Lessons()
        self._starts = deque(self._first(roots))
        self._same: dict[tuple[str, str], int] = {}  # (family, constant) -> from here on larger values change nothing
        self._points: set[tuple[str, tuple[tuple[str, int], ...]]] = set()  # of the graph, values reduced that way
        self._programs: dict[tuple[str, float | None, int, int], list[str]] = {}  # nodes that look like one program
        self._repairs: deque[str] = deque()
        self._slack_draws: dict[str, int] = {}  # slow family -> draws since it gained
        self._slow_draws = 0
        self._slow = ""  # the slow family that the draw in hand is for

    # -- the contract ------------------------------------------------------------------------------------------------

    def select(self, graph: Graph) -> tuple[str, ...]:
        self._slow = ""
        if self._starts:
            return ()
        if self._repairs:
            return (self._repairs.popleft(),)
        slow = self._promising(graph)
        if slow is not None:
            self._slow = slow.family
            return (slow.id,)
        return self.choose(graph)

    def propose(self, graph: Graph, parents: tuple[str, ...]) -> Draw | None:
        if not parents:
            return self._starts.popleft() if self._starts else self.restart(graph)
        node = graph.nodes[parents[0]]
        if node.result == "failed" and self.world.refines:
            return Draw(EdgeKind.REPAIR, node.family, parents, idea="repair what the judge refused",
                        lineage=node.lineage)
        draw = self.child(graph, parents)
        if draw is None:
            graph.spent.add(node.id)
        if self._slow and draw is not None:
            self._slow_draws += 1
            self._slack_draws[self._slow] = self._slack_draws.get(self._slow, 0) + 1
        return draw

    def observe(self, graph: Graph, seen: DrawObserved) -> None:
        node = graph.nodes.get(seen.candidate)
        if node is None:
            return
        self._learn_sameness(graph, node)
        written = node.how in (EdgeKind.REFINE, EdgeKind.REPAIR) or (node.how is EdgeKind.RECIPE and graph.best is None)
        if written and self.world.refines and seen.result == "failed" and _repairs_above(graph, node) < _REPAIRS:
            self._repairs.append(node.id)
        if node.timed and node.family in self._slack_draws and _leads(graph, node):
            self._slack_draws[node.family] = 0

    def done(self, graph: Graph) -> str:
        return ""

    # -- for subclasses ----------------------------------------------------------------------------------------------

    def choose(self, graph: Graph) -> tuple[str, ...]:
        raise NotImplementedError

    def child(self, graph: Graph, parents: tuple[str, ...]) -> Draw | None:
        """The idea with the highest expected gain: other constants, or a rewrite where the author can."""
        node = graph.nodes[parents[0]]
        moves = self.ranked(graph, node)
        rewrite = self.rewrite(graph, node)
        if rewrite is not None and (not moves or self._due_for_rewrite(graph)):
            return rewrite
        return self.retune(node, moves[0]) if moves else None

    def retune(self, node: Node, move: Move) -> Draw:
        return Draw(EdgeKind.RETUNE, node.family, (node.id,), move.params, move.key, node.lineage)

    def ranked(self, graph: Graph, node: Node) -> list[Move]:
        """Untried, possible and not hopeless moves from ``node``, best expectation first."""
        family = self.world.families.get(node.family)
        if family is None or not set(family.axes) <= set(node.params):
            return []
        scored = []
        for move in neighbours(family, node.params):
            seen = self.preview(graph, family, move.params)
            if seen is None:
                continue
            mean, tries = self.lessons.expect(move.key, node.bound_by, prior(node, move, seen.bound_ms, graph.lead_ms))
            doubt = _REPEAT if self.repeats(family, move.params) else 0.0
            scored.append((mean + _CURIOSITY / math.sqrt(tries + 1) - doubt, self.dice.random(), move))
        scored.sort(key=lambda s: (-s[0], s[1]))
        return [move for _, _, move in scored]

    def preview(self, graph: Graph, family: Family, params: Mapping[str, int]) -> Preview | None:
        """None for a point that cannot work, is in the graph already, or cannot beat the best."""
        seen = self.world.preview(family.key, params)
        if seen is None or seen.candidate in graph.nodes or hopeless(graph, seen.bound_ms):
            return None
        return seen

    def repeats(self, family: Family, params: Mapping[str, int]) -> bool:
        """It is likely to give a program that is in the graph already."""
        return self._reduced(family.key, params) in self._points

    def repeated(self, node: Node) -> bool:
        """Its program, as far as the judge's figures tell, was there before under other constants."""
        return self._programs.get(_program(node), [node.id])[0] != node.id

    def rewrite(self, graph: Graph, node: Node) -> Draw | None:
        """The most promising untried idea about the bottleneck of ``node``, for an author that writes."""
        if not self.world.refines:
            return None
        tried = {e.idea for e in graph.edges.values() if node.id in e.parents}
        ideas = [i for i in written_ideas(node.bound_by) if i not in tried]
        ideas.sort(key=lambda i: -self.lessons.expect(i, node.bound_by)[0])
        return Draw(EdgeKind.REFINE, node.family, (node.id,), idea=ideas[0], lineage=node.lineage) if ideas else None

    def restart(self, graph: Graph) -> Draw | None:
        """A new root: a random point that nobody tried."""
        keys = sorted(self.world.families)
        for _ in range(50):
            family = self.world.families[self.dice.choice(keys)] if keys else None
            if family is None or not family.axes:
                return None
            params = {axis: self.dice.choice(values) for axis, values in family.axes.items()}
            if self.preview(graph, family, params) is not None:
                return Draw(EdgeKind.RECIPE, family.key, (), params, "another start", self.lineage_of_root())
        return None

    def lineage_of_root(self) -> str:
        return ""

    # -- private -----------------------------------------------------------------------------------------------------

    def _learn_sameness(self, graph: Graph, node: Node) -> None:
        """Values of a constant that gave the very same program (a block larger than what it divides, say) are taken
        for one elsewhere too, and so are larger ones, until nothing better is at hand."""
        place = self._reduced(node.family, node.params)
        if node.timed:
            same = self._programs.setdefault(_program(node), [])
            if place in self._points and not same:  # a program of its own: larger values do change something
                self._relearn(graph, {k: v for k, v in self._same.items() if k[0] != node.family})
            found = dict(self._same)
            for other in (graph.nodes[n] for n in same[-_COMPARED:]):
                for axis in (a for a, v in node.params.items() if other.params.get(a, v) != v):
                    low = min(node.params[axis], other.params[axis])
                    found[node.family, axis] = min(low, found.get((node.family, axis), low))
            if found != self._same:
                self._relearn(graph, found)
            same.append(node.id)
        self._points.add(self._reduced(node.family, node.params))

    def _relearn(self, graph: Graph, same: dict[tuple[str, str], int]) -> None:
        self._same = same
        self._points = {self._reduced(n.family, n.params) for n in graph.nodes.values() if n.result}

    def _reduced(self, family: str, params: Mapping[str, int]) -> tuple[str, tuple[tuple[str, int], ...]]:
        return family, tuple((a, min(v, self._same.get((family, a), v))) for a, v in sorted(params.items()))

    def _first(self, roots: int) -> list[Draw]:
        """Each family's best guess, then their second guesses and so on."""
        found: list[Draw] = []
        families = list(self.world.families.values())
        for rank in range(max((len(f.seeds) for f in families), default=0)):
            for family in families:
                if rank < len(family.seeds):
                    lineage = f"{len(found) % max(1, self.lineages)}"
                    seed = family.seeds[rank]
                    found.append(Draw(EdgeKind.RECIPE, family.key, (), seed, "the author's guess", lineage))
        return found[: max(roots, len(families))]

    def _due_for_rewrite(self, graph: Graph) -> bool:
        """Enough constants were tried since an author last wrote something."""
        since = 0
        for edge in reversed(graph.edges.values()):
            if edge.how in (EdgeKind.REFINE, EdgeKind.REPAIR):
                break
            since += edge.how in (EdgeKind.RETUNE, EdgeKind.MERGE)
        return since >= _RETUNES_A_REWRITE

    def _promising(self, graph: Graph) -> Node | None:
        """The fastest node of a slow family that its own floor allows to win; at most ``SLACK`` of all draws. Of equal
        floors the fastest goes first, so that a line of rewrites that gets faster is followed down."""
        if graph.lead_ms is None or self._slow_draws + 1 > SLACK * (len(graph.edges) + 1):
            return None
        heads: dict[str, Node] = {}
        for node in graph.fastest(_HEADS):
            heads.setdefault(node.family, node)
        slow = [
            n for n in heads.values()
            if n.ms is not None and n.ms > KEEP * graph.lead_ms and n.floor_ms * _HEADROOM < graph.lead_ms
            and self._slack_draws.get(n.family, 0) < _SLACK_PATIENCE
        ]
        return min(slow, key=lambda n: (n.floor_ms, n.ms, n.draw), default=None)


def hopeless(graph: Graph, bound_ms: float | None) -> bool:
    """Its own lower bound, trusted as far as bounds held in this run, is no better than what is known."""
    return bound_ms is not None and graph.lead_ms is not None and bound_ms * graph.trust >= graph.lead_ms


def _program(node: Node) -> tuple[str, float | None, int, int]:
    return node.family, node.ms, node.vmem_bytes, node.spills


def _leads(graph: Graph, node: Node) -> bool:
    first = next((n for n in graph.by_speed() if n.family == node.family), None)
    return first is not None and first.id == node.id


def _repairs_above(graph: Graph, node: Node) -> int:
    return sum(graph.nodes[n].how is EdgeKind.REPAIR for n in graph.lineage(node.id))
