"""Recognising attention without a softmax: causal weights that decay with distance, perhaps divided by their sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maxkernel_nb.authors.recipes.attention_match import LAYOUTS, Layout, layout_index, layout_sizes
from maxkernel_nb.authors.recipes.attention_reader import _MASKING, _match, _same, _Walk, _WrongLayout
from maxkernel_nb.authors.recipes.expressions import describe
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.views import Indices, base_of, evaluate, is_positional, sample_points
from maxkernel_nb.errors import Declined

Norm = str  # "", "sum", "abs_of_sum", "sum_of_abs"


@dataclass
class Weights:
    """One walk: what the weights at sampled points are made of."""

    inputs: dict[str, tuple[int, Indices]] = field(default_factory=dict)
    scores_at: Indices | None = None
    positional: Any = 1.0  # the factor that depends on positions alone
    travelled: tuple[int, Indices, Indices] | None = None  # node, at the query, at the key: exp(node[i] - node[j])
    scale: float = 1.0
    scale_dtype: str = "float32"
    norm: Norm = ""
    floor: float | None = None
    eps: float | None = None


@dataclass(frozen=True)
class FoundDecay:
    """One case. ``slopes``: log of the decay a step for each head, None where nothing decays by position."""

    names: tuple[int, ...]  # query, key, value, travelled (-1 without)
    layouts: tuple[Layout, Layout, Layout, Layout]
    sizes: tuple[int, int, int, int, int]  # batch, heads, length, head_dim, v_dim
    slopes: tuple[float, ...] | None
    scale: float
    scale_dtype: str
    norm: Norm
    floor: float | None
    eps: float | None
    dtypes: tuple[str, ...]
    out_dtype: str


def recognise_case(graph: Graph, like: FoundDecay | None = None) -> FoundDecay:
    """``like``: the timing case's findings, whose layouts are taken."""
    if len(graph.outputs) != 1:
        raise Declined(f"it returns {len(graph.outputs)} arrays, this recipe writes one")
    dots = graph.live("dot")
    if len(dots) != 2 or dots[0] not in graph.ancestors(dots[1]):
        raise Declined(f"it has {len(dots)} matrix products, this recipe serves two that follow one another")
    walk = _DecayWalk(graph, dots[0], dots[1])
    if walk.kv_len != _query_length(walk):
        raise Declined("queries and keys differ in number, so the weights are no causal square")
    possible = (like.layouts[3],) if like is not None else LAYOUTS.get(len(graph[graph.outputs[0]].shape), ())
    reasons = []
    for layout in possible:
        try:
            return _with_layout(walk, layout, like)
        except (_WrongLayout, Declined) as reason:
            reasons.append(str(reason))
    raise Declined(reasons[0] if reasons else "the output's rank is not attention's")


def _query_length(walk: _Walk) -> int:
    """The longest free axis of the scores, which is the queries' where they are as many as the keys."""
    shape = walk.graph[walk.scores].shape
    return walk.kv_len if shape.count(walk.kv_len) >= 2 else max(shape)


def _with_layout(walk: _DecayWalk, layout: Layout, like: FoundDecay | None) -> FoundDecay:
    graph = walk.graph
    dims = layout_sizes(layout, graph[graph.outputs[0]].shape, walk.v_dim)
    if dims is None:
        raise _WrongLayout("the output does not hold whole vectors of values")
    batch, heads, length = dims
    if length != walk.kv_len:
        raise _WrongLayout("queries and keys differ in number")
    points = sample_points((batch, heads, length, walk.v_dim, length, walk.head_dim))
    b, h, i, dv, j, d = points
    found = walk.weights(layout, points)
    where = {"q": {"b": b, "h": h, "s": i, "d": d}, "k": {"b": b, "h": h, "s": j, "d": d},
             "v": {"b": b, "h": h, "s": j, "d": dv}}
    known = like.layouts if like else (None,) * 4
    layouts = tuple(
        _match(walk, found, name, where[name], (batch, heads, length), known[n])  # type: ignore[arg-type]
        for n, name in enumerate("qkv")
    )
    travelled = _travelled(graph, found, (b, h, i, j), (batch, heads, length))
    params = [n for n in graph.nodes if n.op == "param"]
    names = tuple(graph[found.inputs[n][0]].attr("index") for n in "qkv")
    return FoundDecay(
        names=(*names, travelled), layouts=(*layouts, layout),  # type: ignore[arg-type]
        sizes=(batch, heads, length, walk.head_dim, walk.v_dim),
        slopes=_slopes(walk, layout, heads, length, found, (h, i, j)), scale=found.scale,
        scale_dtype=found.scale_dtype, norm=found.norm, floor=found.floor, eps=found.eps,
        dtypes=tuple(p.dtype for p in params), out_dtype=graph.output_dtypes[0],
    )


def _travelled(graph: Graph, found: Weights, at: tuple[np.ndarray, ...], sizes: tuple[int, int, int]) -> int:
    """The parameter of ``exp(node[i] - node[j])``, or -1."""
    if found.travelled is None:
        return -1
    number, query, key = found.travelled
    b, h, i, j = at
    node = graph[number]
    if node.op != "param" or node.shape != sizes or node.dtype != "float32":
        raise Declined(f"the exponent of the decay is {describe(graph, number)}, not an input [batch, heads, length]")
    if not (_same(query, (b, h, i)) and _same(key, (b, h, j))):
        raise Declined("the decay between two positions is not a difference of one running sum")
    return node.attr("index")


def _slopes(walk: _DecayWalk, layout: Layout, heads: int, length: int, found: Weights,
            at: tuple[np.ndarray, ...]) -> tuple[float, ...] | None:
    """Log decay a step of each head; checks that the positional factor is that decay, and zero after the query."""
    h, i, j = at
    each = np.arange(heads)
    if length < 2:
        raise Declined("one position has no decay to read")

    def logs(apart: np.ndarray) -> np.ndarray:
        steps = walk.weights(layout, (each * 0, each, apart, each * 0, each * 0, each * 0)).positional
        steps = np.broadcast_to(np.asarray(steps, np.float64), each.shape)
        if (steps <= 0).any():
            raise Declined("weights of earlier positions are not all positive: no causal mask and a decay a head")
        return np.log(steps) / apart

    near = logs(np.ones(heads, np.int64))
    # read off as far as the factor is a normal number: a rounded table is more exact there
    slopes = logs(np.clip(40 / np.maximum(np.abs(near), 1e-9), 1, length - 1).astype(np.int64))
    wanted = np.where(j <= i, np.exp(slopes[h] * (i - j)), 0.0)
    given = np.broadcast_to(np.asarray(found.positional, np.float64), i.shape)
    if not np.allclose(given, wanted, rtol=1e-4, atol=1e-12):
        raise Declined("the weights change with the position by more than a causal mask and a decay for each head")
    return None if not slopes.any() else tuple(float(s) for s in slopes)


class _DecayWalk(_Walk):
    """Follows output points through ``(score(q k) * decay / norm) v``."""

    def weights(self, layout: Layout, points: Indices) -> Weights:
        graph, found = self.graph, Weights()
        b, h, i, dv, j, d = points
        at = layout_index(layout, {"b": b, "h": h, "s": i, "d": dv}, self.v_dim)
        number, at = base_of(graph, graph.outputs[0], at)
        divisor = None
        if graph[number].op == "div":  # normalised after the second product
            divisor = base_of(graph, graph[number].inputs[1], at)
            number, at = base_of(graph, graph[number].inputs[0], at)
        if number != self.values:
            raise Declined(f"{describe(graph, number)} follows the second product")
        p_at, v_at = (self.operand(number, side, at, j) for side in (self.p_side, 1 - self.p_side))
        found.inputs["v"] = self.input(graph[number].inputs[1 - self.p_side], v_at, "the values")
        weight, weight_at = base_of(graph, graph[number].inputs[self.p_side], p_at)
        if divisor is None and graph[weight].op == "div" and not self.constant(graph[weight].inputs[1]):
            divisor = base_of(graph, graph[weight].inputs[1], weight_at)
            weight, weight_at = base_of(graph, graph[weight].inputs[0], weight_at)
        if divisor is not None:
            self.norm(found, divisor, weight, weight_at, j)
        self.factors(found, weight, weight_at)
        if found.scores_at is None:
            raise Declined("the weights do not see the first product")
        self.queries(found, j, d)
        return found

    def constant(self, number: int) -> bool:
        return self.graph[base_of(self.graph, number, self.zeros(number))[0]].op == "const"

    def zeros(self, number: int) -> Indices:
        return tuple(np.zeros(1, np.int64) for _ in self.graph[number].shape)

    def norm(self, found: Weights, divisor: tuple[int, Indices], weight: int, at: Indices, key: np.ndarray) -> None:
        graph = self.graph
        number, where = divisor
        for op, name in (("max", "floor"), ("add", "eps")):
            if graph[number].op == op:
                sides = [base_of(graph, n, where) for n in graph[number].inputs]
                limits = [s for s in sides if graph[s[0]].op == "const"]
                if len(limits) != 1:
                    raise Declined("the weights are divided by something other than their sum")
                setattr(found, name, float(graph[limits[0][0]].attr("value")))
                number, where = next(s for s in sides if s is not limits[0])
        outer_abs = graph[number].op == "abs"
        if outer_abs:
            number, where = base_of(graph, graph[number].inputs[0], where)
        node = graph[number]
        if node.op != "reduce_sum" or len(node.attr("axes")) != 1:
            raise Declined(f"the weights are divided by {describe(graph, number)}, not by their sum")
        inner = list(where)
        inner.insert(node.attr("axes")[0], key)
        number, where = base_of(graph, node.inputs[0], tuple(inner))
        inner_abs = graph[number].op == "abs"
        if inner_abs:
            number, where = base_of(graph, graph[number].inputs[0], where)
        if number != weight or not _same(where, at):
            raise Declined("the weights are divided by another sum than their own over the keys")
        found.norm = "sum_of_abs" if inner_abs else "abs_of_sum" if outer_abs else "sum"

    def factors(self, found: Weights, number: int, at: Indices) -> None:
        """Takes the weights apart into the raw product, constants, masks and decays."""
        graph = self.graph
        number, at = base_of(graph, number, at)
        node = graph[number]
        if number == self.scores:
            found.scores_at = at
        elif node.op == "const":
            found.scale *= float(node.attr("value"))
        elif is_positional(graph, number):
            found.positional = found.positional * evaluate(graph, number, at).astype(np.float64)
        elif node.op == "mul":
            for side in node.inputs:
                self.factors(found, side, at)
        elif node.op == "div" and self.constant(node.inputs[1]):
            self.factors(found, node.inputs[0], at)
            value = graph[base_of(graph, node.inputs[1], self.zeros(node.inputs[1]))[0]].attr("value")
            found.scale /= float(value)
            found.scale_dtype = node.dtype
        elif node.op == "select":
            self.masked(found, node, at, 0.0)
        elif node.op == "exp":
            self.decay(found, node.inputs[0], at)
        else:
            raise Declined(f"the weights hold {describe(graph, number)}, which this recipe does not know there")

    def masked(self, found: Weights, node: Any, at: Indices, hidden: float) -> None:
        """``select(mask by position, x, hidden)``: goes on in ``x``."""
        graph = self.graph
        predicate, if_true, if_false = node.inputs
        if not is_positional(graph, predicate):
            raise Declined("a mask of the weights is not one by position")
        keep = evaluate(graph, predicate, at).astype(bool)
        fills = [graph[base_of(graph, n, self.zeros(n))[0]] for n in (if_true, if_false)]
        off = [f.op == "const" and (f.attr("value") == 0 if hidden == 0.0 else f.attr("value") <= _MASKING)
               for f in fills]
        if sum(off) != 1:
            raise Declined("a mask of the weights writes something other than nothing")
        found.positional = found.positional * (keep if off[1] else ~keep)
        (self.factors if hidden == 0.0 else self.exponent)(found, if_true if off[1] else if_false, at)

    def decay(self, found: Weights, number: int, at: Indices) -> None:
        number, at = base_of(self.graph, number, at)
        node = self.graph[number]
        if node.op == "select":
            self.masked(found, node, at, -np.inf)
        else:
            self.exponent(found, number, at)

    def exponent(self, found: Weights, number: int, at: Indices) -> None:
        graph = self.graph
        number, at = base_of(graph, number, at)
        node = graph[number]
        if is_positional(graph, number):
            with np.errstate(over="ignore"):
                grown = np.exp(np.asarray(evaluate(graph, number, at), np.float64))
            found.positional = np.where(np.asarray(found.positional) == 0, 0.0, found.positional * grown)
        elif node.op == "sub" and found.travelled is None:
            query, key = (base_of(graph, n, at) for n in node.inputs)
            if query[0] != key[0]:
                raise Declined("the decay between two positions is not a difference of one running sum")
            found.travelled = (query[0], query[1], key[1])
        else:
            raise Declined(f"the decay's exponent is {describe(graph, number)}, which this recipe does not know")

    def queries(self, found: Weights, key: np.ndarray, depth: np.ndarray) -> None:
        node, at = self.graph[self.scores], found.scores_at
        assert at is not None
        sides = []
        for side in (0, 1):
            number, where = base_of(self.graph, node.inputs[side], self.operand(self.scores, side, at, depth))
            while self.graph[number].op == "mul" and any(self.constant(n) for n in self.graph[number].inputs):
                factor = next(n for n in self.graph[number].inputs if self.constant(n))
                other = next(n for n in self.graph[number].inputs if n != factor)
                found.scale *= float(self.graph[base_of(self.graph, factor, self.zeros(factor))[0]].attr("value"))
                found.scale_dtype = self.graph[number].dtype
                number, where = base_of(self.graph, other, where)
            sides.append(self.input(number, where, "queries or keys"))
        moved = self.operand_moves(at, key)
        found.inputs["q"], found.inputs["k"] = sides if moved == 1 else sides[::-1]
