"""Recorded landscapes as a world that strategies can search, in microseconds an evaluation, and the two baselines."""

import gzip
import json
import math
import random
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from maxkernel_nb.engine.graph import Graph
from maxkernel_nb.events import DrawObserved, EdgeAdded
from maxkernel_nb.modes.search.contract import Family, Preview
from maxkernel_nb.modes.search.ideas import neighbours

DATA = Path(__file__).parents[1] / "search" / "data"
NAMES = ("long_k", "matmul_gelu", "wide_n", "attention")
FAMILY = "recorded"


@cache
def load(name):
    return Landscape(json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes())))


def key(params):
    return tuple(sorted(params.items()))


class Landscape:
    """Verdicts by point. ``best`` is the least modelled time in ms."""

    def __init__(self, data):
        self.data = data
        self.points = {key(c["params"]): c for c in data["candidates"]}
        self.best = min(c["ms"] for c in data["candidates"] if c["ms"])
        self.axes = {a: tuple(sorted({c["params"][a] for c in data["candidates"]})) for a in data["axes"]}

    def starts(self, seed, most):
        """Distinct random points, the same for every strategy."""
        timed = [c["params"] for c in self.data["candidates"] if c["ms"]]
        return random.Random(seed).sample(timed, most)


class RecordedWorld:
    """One family: what was recorded exists, everything else is refused as the author would refuse it."""

    refines = False

    def __init__(self, landscape, starts):
        self.landscape = landscape
        self.families = {FAMILY: Family(FAMILY, landscape.axes, tuple(starts))}

    def preview(self, family, params):
        known = self.landscape.points.get(key(params))
        return Preview(known["id"], known["bound_ms"], known.get("estimate_ms")) if known else None

    def estimate(self, family, params):
        return self.landscape.points.get(key(params), {}).get("estimate_ms")


def search(strategy, landscape, most, width=1, enough=0.0):
    """Best times after 1, 2 ... evaluations, until one is ``enough`` ms. ``width`` draws are in flight at a time."""
    graph, curve, flight, number, idle = Graph(), [], [], 0, 0
    while len(curve) < most:
        while len(flight) < width and len(curve) + len(flight) < most:
            draw = next_draw(strategy, graph)
            if draw is None:
                break
            known = landscape.points[key(draw.params)]
            again = known["id"] in graph.nodes
            graph.add(EdgeAdded(draw=number, how=draw.how, candidate=known["id"], parents=draw.parents, idea=draw.idea,
                                family=draw.family, lineage=draw.lineage),
                      named(known))
            flight.append((number, known, again))
            number += 1
        if not flight:
            break
        at, known, again = flight.pop(0)
        idle = idle + 1 if again else 0
        if idle > 200:
            break
        seen = DrawObserved(draw=at, candidate=known["id"], modelled_ms=known["ms"], cost=int(not again),
                            result="known" if again else "verified" if known["ms"] else "failed")
        graph.observe(seen, profile_of(known))
        strategy.lessons.observe(graph, seen)
        strategy.observe(graph, seen)
        if not again:
            curve.append(min(curve[-1] if curve else math.inf, known["ms"] or math.inf))
            if curve[-1] <= enough:
                break
    return curve


def named(known):
    """What the graph reads of a candidate, under its recorded id (the text itself was not kept)."""
    return SimpleNamespace(id=known["id"], params=known["params"], bound_ms=known["bound_ms"])


def profile_of(known):
    if "bound_by" not in known:
        return None
    op = SimpleNamespace(modelled_ms=1.0, vmem_bytes=known["vmem_bytes"], spills=known["spills"])
    return SimpleNamespace(ops=(op,), bound_by=known["bound_by"], roofline_ms=known["roofline_ms"],
                           vmem_bytes=known["vmem_bytes"])


def next_draw(strategy, graph):
    for _ in range(20):
        draw = strategy.propose(graph, strategy.select(graph))
        if draw is not None:
            return draw
    return None


# -- baselines: no memory between siblings, strategies drawn at random, the same kernel may be judged twice -----------


class Baseline:
    """Evaluates points; every evaluation costs one, whether the kernel is new or not."""

    def __init__(self, landscape, seed):
        self.landscape, self.dice = landscape, random.Random(seed)
        self.family = Family(FAMILY, landscape.axes)
        self.curve = []

    def judge(self, params):
        ms = self.landscape.points[key(params)]["ms"] or math.inf
        self.curve.append(min(self.curve[-1] if self.curve else math.inf, ms))
        return ms

    def mutate(self, params):
        """A random one of the moves that our strategies have; one time in five, another tiling altogether."""
        moves = [m.params for m in neighbours(self.family, params) if key(m.params) in self.landscape.points]
        if not moves or self.dice.random() < 0.2:
            moves = [c["params"] for c in self.landscape.data["candidates"]]
        return self.dice.choice(moves)


class RandomSampling(Baseline):
    """Points in random order, none twice: what any search has to beat."""

    def run(self, starts, most):
        points = [c["params"] for c in self.landscape.data["candidates"]]
        for params in (*starts, *self.dice.sample(points, len(points))):
            self.judge(params)
        return self.curve[:most]


class PlainParallel(Baseline):
    """Independent climbers in turn: each changes its own best at random and keeps what is faster."""

    def run(self, starts, most):
        best = [(self.judge(p), p) for p in starts]
        while len(self.curve) < most:
            for n, (ms, params) in enumerate(best):
                child = self.mutate(params)
                now = self.judge(child)
                best[n] = (now, child) if now < ms else (ms, params)
        return self.curve[:most]


class RandomBeam(Baseline):
    """Each of the ``width`` fastest gets ``branching`` random children; the fastest of all survive."""

    def run(self, starts, most, width=3, branching=2):
        beam = [(self.judge(p), n, p) for n, p in enumerate(starts)]
        number = len(beam)
        while len(self.curve) < most:
            children = []
            for _, _, params in beam[:width]:
                for _ in range(branching):
                    child = self.mutate(params)
                    children.append((self.judge(child), number, child))
                    number += 1
            beam = sorted([*beam, *children], key=lambda b: b[:2])[:width]
        return self.curve[:most]


def to_reach(curve, limit):
    """Evaluations until the best is at most ``limit`` ms; None when it never is."""
    return next((n + 1 for n, ms in enumerate(curve) if ms <= limit), None)
