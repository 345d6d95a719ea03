"""Recognising a state that a loop over time writes and reads: where its queries, keys, values and gates lie."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from maxkernel_nb.authors.recipes.delta_step import StepRoles, gate_axes, step_roles
from maxkernel_nb.authors.recipes.expressions import describe
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.scans import Loop, read_loop
from maxkernel_nb.authors.recipes.views import Indices, base_of, evaluate, is_positional, sample_points
from maxkernel_nb.errors import Declined

OUT_LAYOUTS = {4: ("bhsd", "bshd", "sbhd"), 3: ("hsd", "shd"), 2: ("sd",)}


@dataclass(frozen=True)
class FoundState:
    """One case. ``names``: parameters of query, key, value, decay and beta (-1 without); ``layouts``: theirs (empty
    without) and the result's, a letter an axis. ``form``: what the decay is of its parameter (``exp``, ``logistic``, or
    the parameter itself), ``beta_form``: of beta. ``slopes``: log decay a step of each head where it is a number.
    """

    names: tuple[int, int, int, int, int]
    layouts: tuple[str, ...]
    sizes: tuple[int, int, int, int, int]  # batch, heads, length, head_dim, v_dim
    delta: bool
    form: str
    beta_form: str
    slopes: tuple[float, ...] | None
    scale: float
    scale_dtype: str
    dtypes: tuple[str, ...]
    out_dtype: str


class _OtherLayout(Exception):
    """The result does not lie so; another layout may fit."""


def recognise_case(graph: Graph, like: FoundState | None = None) -> FoundState:
    """``like``: the timing case's findings, whose layouts are taken."""
    if len(graph.outputs) != 1:
        raise Declined(f"it returns {len(graph.outputs)} arrays, this recipe writes one")
    scans = {graph[n].attr("serial"): n for n in graph.live("other") if graph[n].attr("primitive") == "scan"}
    if len(scans) != 1:
        raise Declined(f"it has {len(scans)} loops over time, this recipe serves one")
    serial, number = scans.popitem()
    loop = read_loop(graph.equations[serial])
    if loop.reverse:
        raise Declined("its loop runs backwards in time")
    rank = len(graph[graph.outputs[0]].shape)
    possible = (like.layouts[5],) if like is not None else OUT_LAYOUTS.get(rank, ())
    walks = [walk for layout in possible if (walk := _walk(graph, serial, layout)) is not None]
    if not walks:
        raise Declined("its result is not what a loop over time gives at each step, in an order known here")
    return _Reader(graph, number, loop, *walks[0]).found(like)


def _walk(graph: Graph, serial: int, layout: str) -> tuple[str, dict[str, int], float] | None:
    """(layout, sizes by axis, factor behind the loop) where the result, read so, is the loop's second output."""
    sizes = {"b": 1, "h": 1, **dict(zip(layout, graph[graph.outputs[0]].shape, strict=True))}
    points = dict(zip("bhsd", sample_points(tuple(sizes[a] for a in "bhsd")), strict=True))
    number, at, factor = _unscaled(graph, graph.outputs[0], tuple(points[a] for a in layout))
    node = graph[number]
    is_loop = node.op == "other" and node.attr("serial") == serial and node.attr("output") == 1
    if not is_loop or not (at[0] == points["s"]).all() or not (at[-1] == points["d"]).all():
        return None
    return layout, sizes, factor


def _unscaled(graph: Graph, number: int, at: Indices) -> tuple[int, Indices, float]:
    """Through layout and products with numbers, to what is scaled."""
    factor = 1.0
    while True:
        number, at = base_of(graph, number, at)
        node = graph[number]
        fixed = [i for i in node.inputs if graph[i].op == "const"]
        if node.op not in ("mul", "div") or len(fixed) != 1 or (node.op == "div" and fixed[0] != node.inputs[1]):
            return number, at, factor
        value = float(graph[fixed[0]].attr("value"))
        factor = factor / value if node.op == "div" else factor * value
        number = next(i for i in node.inputs if i != fixed[0])


class _Reader:
    """From the loop's operands back to the function's inputs, at sampled points."""

    def __init__(self, graph: Graph, number: int, loop: Loop, layout: str, sizes: dict[str, int],
                 factor: float) -> None:
        self.graph, self.loop, self.layout, self.sizes, self.factor = graph, loop, layout, sizes, factor
        self.inputs = graph[number].inputs
        self.roles: StepRoles = step_roles(loop)
        if loop.length != sizes["s"]:
            raise Declined("its result is not what a loop over time gives at each step")
        start = self._base(loop.num_consts)
        if graph[start].op != "const" or graph[start].attr("value") != 0:
            raise Declined("its state starts from something other than zeros")
        all_sizes = (*(sizes[a] for a in "bhs"), self.roles.v_dim, self.roles.head_dim)
        self.points = dict(zip("bhsvd", sample_points(all_sizes), strict=True))

    def _base(self, operand: int) -> int:
        number = self.inputs[operand]
        return base_of(self.graph, number, tuple(np.zeros(1, np.int64) for _ in self.graph[number].shape))[0]

    def batch_at(self, points: dict[str, np.ndarray]) -> Indices:
        """Indices into the loop's batch axes at logical points."""
        at = tuple({**points, "d": points["v"]}[axis] for axis in self.layout)
        _, at, _ = _unscaled(self.graph, self.graph.outputs[0], at)
        return at[1:-1]

    def found(self, like: FoundState | None) -> FoundState:
        graph, roles = self.graph, self.roles
        known = like.layouts if like is not None else (None,) * 5
        q, q_layout, factor = self.vector(roles.q, "d", known[0])
        k, k_layout, k_factor = self.vector(roles.k, "d", known[1])
        v, v_layout, v_factor = self.vector(roles.v, "v", known[2])
        if (k_factor, v_factor) != (1.0, 1.0):
            raise Declined("its keys or values are scaled on their way into the loop")
        decay, decay_layout, form, slopes = self.decay(known[3])
        beta, beta_layout, beta_form = self.beta(known[4])
        scale = roles.scale * self.factor * factor
        params = [n for n in graph.nodes if n.op == "param"]
        return FoundState(
            names=(q, k, v, decay, beta),
            layouts=(q_layout, k_layout, v_layout, decay_layout, beta_layout, self.layout),
            sizes=(*(self.sizes[a] for a in "bhs"), roles.head_dim, roles.v_dim),  # type: ignore[arg-type]
            delta=roles.delta, form=form, beta_form=beta_form, slopes=slopes, scale=scale, scale_dtype="float32",
            dtypes=tuple(p.dtype for p in params), out_dtype=graph.output_dtypes[0],
        )

    def vector(self, operand: int, dim: str, known: str | None) -> tuple[int, str, float]:
        points = {**self.points, "d": self.points[dim]}
        at = (points["s"], *self.batch_at(self.points), points["d"])
        number, at, factor = _unscaled(self.graph, self.operand(operand), at)
        size = self.roles.head_dim if dim == "d" else self.roles.v_dim
        return (*self.param(number, at, points, size, known, "queries, keys or values"), factor)

    def operand(self, operand: int) -> int:
        if operand < self.loop.num_consts:
            raise Declined("its queries, keys or values are the same at every step")
        return self.inputs[operand]

    def gate_at(self, operand: int, points: dict[str, np.ndarray]) -> tuple[int, Indices]:
        """What gives a number for each head (and step, unless it is one of the loop's constants), at the points."""
        number = self.inputs[operand]
        shape = self.graph[number].shape
        fixed = operand < self.loop.num_consts
        own = shape if fixed else shape[1:]
        axes = gate_axes(own, self.roles.batch) or ()
        batch = self.batch_at(points)
        lead = len(axes) - len(own)
        at = [*(i * 0 if n == 1 else i for n, i in zip(axes, batch, strict=True))][max(lead, 0):]
        at += [points["s"] * 0] * (len(own) - len(at))
        return base_of(self.graph, number, tuple(at if fixed else [points["s"], *at]))

    def beta(self, known: str | None) -> tuple[int, str, str]:
        """(parameter, layout, form)."""
        if self.roles.beta < 0:
            return -1, "", ""
        return self.formed(self.roles.beta, ("logistic",), known)

    def formed(self, operand: int, forms: tuple[str, ...], known: str | None) -> tuple[int, str, str]:
        number, at = self.gate_at(operand, self.points)
        form = self.graph[number].op if self.graph[number].op in forms else ""
        if form:
            number, at = base_of(self.graph, self.graph[number].inputs[0], at)
        return (*self.param(number, at, self.points, 0, known, "its gates"), form)

    def decay(self, known: str | None) -> tuple[int, str, str, tuple[float, ...] | None]:
        """(parameter, layout, form, log decay of each head)."""
        roles = self.roles
        if roles.decay < 0:
            return -1, "", "", self.slopes(roles.rates) if roles.rates is not None else None
        if is_positional(self.graph, self.gate_at(roles.decay, self.points)[0]):
            return -1, "", "", self.slopes(None)
        return (*self.formed(roles.decay, ("exp", "logistic"), known), None)

    def slopes(self, rates: np.ndarray | None) -> tuple[float, ...]:
        """Each head's log decay: checks that it does not change with batch or step."""
        heads = np.arange(self.sizes["h"])
        first = {**dict.fromkeys("bsvd", heads * 0), "h": heads}
        each, here = self._numbers(rates, first), self._numbers(rates, self.points)
        if (each <= 0).any() or not np.allclose(here, each[self.points["h"]], rtol=1e-6):
            raise Declined("its state decays by numbers that change with the step, or are not positive")
        return tuple(float(x) for x in np.log(each))

    def _numbers(self, rates: np.ndarray | None, points: dict[str, np.ndarray]) -> np.ndarray:
        if rates is not None:
            return rates[self.batch_at(points)] if rates.ndim else np.full(len(points["h"]), float(rates))
        number, at = self.gate_at(self.roles.decay, points)
        return np.broadcast_to(np.asarray(evaluate(self.graph, number, at), np.float64), points["h"].shape)

    def param(self, number: int, at: Indices, points: dict[str, np.ndarray], dim: int, known: str | None,
              what: str) -> tuple[int, str]:
        """(index, layout) of the function's input that is read at ``at``. ``dim``: size of a vector, 0 for a number."""
        node = self.graph[number]
        if node.op != "param":
            raise Declined(f"{what} are {describe(self.graph, number)}, not an input as it is")
        sizes = {**self.sizes, "d": dim}
        for layout in [known] if known else _layouts(len(node.shape), bool(dim)):
            same = len(layout) == len(at) and node.shape == tuple(sizes[a] for a in layout)
            missing = [a for a in "bhs" if a not in layout and dim]  # a number may be shared, a vector is not
            same = same and all(sizes[a] == 1 for a in missing)
            if same and all((i == points[a]).all() for a, i in zip(layout, at, strict=True)):
                return node.attr("index"), layout
        raise Declined(f"{what} are an input {list(node.shape)} read in an order this recipe does not know")


def _layouts(rank: int, vector: bool) -> list[str]:
    """Orders of the axes, those with batch, heads and steps in that order first. A number need not have all of them."""
    inner = rank - vector
    found: list[str] = []
    for axes in permutations("bhs", inner) if 0 <= inner <= 3 else ():
        found.append("".join(axes) + ("d" if vector else ""))
    return found


def shape_free(found: FoundState) -> tuple[Any, ...]:
    return (found.names, found.layouts, found.delta, found.form, found.beta_form,
            found.slopes is None, found.dtypes, found.out_dtype)
