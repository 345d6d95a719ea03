"""Recognising attention: follow sampled output elements back to the inputs and see what they were made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maxkernel_nb.authors.recipes.attention_match import LAYOUTS, Layout, Sizes, layout_index, layout_sizes
from maxkernel_nb.authors.recipes.expressions import Leaf, Reader, describe
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.views import Indices, base_of, evaluate, is_positional, sample_points
from maxkernel_nb.errors import Declined

# A score at or under this cannot matter beside an ordinary one: exp(-1e4) is zero in float32.
_MASKING = -1e4


@dataclass
class Trail:
    """One walk from output points to the inputs: where each point's query, key and value elements lie."""

    inputs: dict[str, tuple[int, Indices]] = field(default_factory=dict)  # q, k, v -> (parameter node, indices)
    keep: np.ndarray | None = None  # positional masks at the points
    fills: list[float] = field(default_factory=list)
    reader: Any = None
    result: str = ""
    precision: str = ""


@dataclass
class Found:
    """One case, recognised. ``band`` is (lowest, highest) allowed key minus query, None where unbounded."""

    names: tuple[int, int, int]
    layouts: tuple[Layout, Layout, Layout, Layout]
    sizes: Sizes
    grouping: str
    band: tuple[int | None, int | None]
    trail: Trail
    leaves: tuple[Leaf, ...]
    fill: float | None
    dtypes: tuple[str, ...]
    out_dtype: str
    weights_dtype: str  # of the probabilities as the second product takes them


def recognise_case(graph: Graph, like: Found | None = None) -> Found:
    """``like``: the timing case's findings; axes of one may be read in several ways, so layouts are taken from it."""
    if len(graph.outputs) != 1:
        raise Declined(f"it returns {len(graph.outputs)} arrays, this recipe writes one")
    dots = graph.live("dot")
    if len(dots) != 2:
        raise Declined(f"it has {len(dots)} matrix products, attention has two")
    first, second = sorted(dots)
    if first not in graph.ancestors(second):
        raise Declined("its two products do not follow one another")
    walk = _Walk(graph, first, second)
    rank = len(graph[graph.outputs[0]].shape)
    possible = (like.layouts[3],) if like is not None else LAYOUTS.get(rank, ())
    found, reasons = [], []
    for layout in possible:
        try:
            found.append(_with_layout(walk, layout, like.layouts if like is not None else None))
        except (_WrongLayout, Declined) as reason:
            reasons.append(str(reason))
    if not found:
        raise Declined(reasons[0] if reasons else f"an output of rank {rank} is not attention's")
    return max(found, key=lambda f: f.sizes.q_len)  # one head of many queries, not many heads of one query


class _WrongLayout(Exception):
    """This hypothesis about the arrays' layout does not hold; another may."""


def _with_layout(walk: _Walk, layout: Layout, expected: tuple[Layout, ...] | None) -> Found:
    graph = walk.graph
    out_shape = graph[graph.outputs[0]].shape
    dims = layout_sizes(layout, out_shape, walk.v_dim)
    if dims is None:
        raise _WrongLayout(f"the output {list(out_shape)} does not hold vectors of {walk.v_dim}")
    batch, heads, q_len = dims
    b, h, s, dv, key, d = sample_points((batch, heads, q_len, walk.v_dim, walk.kv_len, walk.head_dim))
    trail = walk.trail(layout_index(layout, {"b": b, "h": h, "s": s, "d": dv}, walk.v_dim), key, d)
    wanted = dict(zip("qkv", expected, strict=False)) if expected else {}
    q_layout = _match(walk, trail, "q", {"b": b, "h": h, "s": s, "d": d}, (batch, heads, q_len), wanted.get("q"))
    kv_heads, grouping, k_layout = _match_keys(
        walk, trail, "k", {"b": b, "h": h, "s": key, "d": d}, batch, heads, wanted.get("k")
    )
    kv_heads_v, grouping_v, v_layout = _match_keys(
        walk, trail, "v", {"b": b, "h": h, "s": key, "d": dv}, batch, heads, wanted.get("v")
    )
    if kv_heads in (1, heads):
        grouping = grouping_v
    if (kv_heads, grouping) != (kv_heads_v, grouping_v):
        raise Declined("keys and values are shared between heads in different ways")
    sizes = Sizes(
        batch=batch, heads=heads, kv_heads=kv_heads, q_len=q_len, kv_len=walk.kv_len, head_dim=walk.head_dim,
        v_dim=walk.v_dim,
    )
    leaves = tuple(_roles(graph, raw, {"b": b, "h": h, "q": s, "k": key}) for raw in trail.reader.raw)
    band, fill = ((None, None), None) if trail.keep is None else _band(walk, layout, sizes)
    params = [n for n in graph.nodes if n.op == "param"]
    numbers = tuple(graph[trail.inputs[name][0]].attr("index") for name in "qkv")
    return Found(
        names=numbers, layouts=(q_layout, k_layout, v_layout, layout), sizes=sizes, grouping=grouping, band=band,
        trail=trail, leaves=leaves, fill=fill, dtypes=tuple(p.dtype for p in params),
        out_dtype=graph.output_dtypes[0], weights_dtype=graph[walk.values].attr("operands")[walk.p_side],
    )


def _same(found: Indices, wanted: Indices) -> bool:
    return len(found) == len(wanted) and all((a == b).all() for a, b in zip(found, wanted, strict=True))


def _match(
    walk: _Walk, trail: Trail, name: str, at: dict[str, np.ndarray], sizes: tuple[int, int, int], wanted: Layout | None
) -> Layout:
    number, indices = trail.inputs[name]
    shape, dim = walk.graph[number].shape, walk.dim_of(name)
    for layout in (wanted,) if wanted else LAYOUTS.get(len(shape), ()):
        if layout_sizes(layout, shape, dim) == sizes and _same(indices, layout_index(layout, at, dim)):
            return layout
    raise _WrongLayout(f"{name} is an input of shape {list(shape)} read in an order this recipe does not know")


def _match_keys(
    walk: _Walk, trail: Trail, name: str, at: dict[str, np.ndarray], batch: int, heads: int, wanted: Layout | None
) -> tuple[int, str, Layout]:
    number, _ = trail.inputs[name]
    shape, dim = walk.graph[number].shape, walk.dim_of(name)
    for layout in (wanted,) if wanted else LAYOUTS.get(len(shape), ()):
        sizes = layout_sizes(layout, shape, dim)
        if sizes is None or heads % sizes[1]:
            continue
        kv_heads = sizes[1]
        for grouping, head in (("block", at["h"] // (heads // kv_heads)), ("tile", at["h"] % kv_heads)):
            try:
                found = _match(walk, trail, name, {**at, "h": head}, (batch, kv_heads, walk.kv_len), layout)
            except _WrongLayout:
                continue
            return kv_heads, grouping, found
    raise _WrongLayout(f"{name} is an input of shape {list(shape)} read in an order this recipe does not know")


def _roles(graph: Graph, raw: tuple[int, Indices], at: dict[str, np.ndarray]) -> Leaf:
    """Which of batch, head, query, key each axis of a mask or bias follows."""
    number, indices = raw
    node = graph[number]
    roles = ""
    for size, index in zip(node.shape, indices, strict=True):
        role = "1" if size == 1 else next((r for r, v in at.items() if r not in roles and (v == index).all()), "")
        if not role:
            raise Declined(f"an input of shape {list(node.shape)} does not lie along batch, heads, queries or keys")
        roles += role
    order = [r for r in roles if r != "1"]
    if order != sorted(order, key="bhqk".index):
        raise Declined(f"an input of shape {list(node.shape)} has its axes in the order {roles}")
    return Leaf(param=node.attr("index"), kind=roles)


def _band(walk: _Walk, layout: Layout, sizes: Sizes) -> tuple[tuple[int | None, int | None], float | None]:
    """The positional mask as a band: allowed ``key - query`` from ``low`` to ``high``."""
    rng = np.random.default_rng(2)
    rows = np.unique(np.r_[0:4, sizes.q_len - 4:sizes.q_len, rng.integers(0, sizes.q_len, 24)])
    rows = rows[(rows >= 0) & (rows < sizes.q_len)]
    q, key = (a.ravel() for a in np.meshgrid(rows, np.arange(sizes.kv_len), indexing="ij"))
    zero = np.zeros_like(q)
    keeps = []
    for b, h in {(0, 0), (sizes.batch - 1, sizes.heads - 1)}:
        at = {"b": zero + b, "h": zero + h, "s": q, "d": zero}
        trail = walk.trail(layout_index(layout, at, walk.v_dim), key, zero)
        keeps.append(np.broadcast_to(np.asarray(trail.keep), q.shape))
    keep = keeps[0]
    if any((k != keep).any() for k in keeps):
        raise Declined("the mask differs between batch entries or heads")
    table = keep.reshape(len(rows), sizes.kv_len)
    some = table.any(axis=1)
    if not some.all() and np.isfinite(min(trail.fills)):
        raise Declined("the mask leaves some queries without any key, and a finite fill then averages over all of them")
    table, rows = table[some], rows[some]
    lowest, highest = table.argmax(axis=1), sizes.kv_len - 1 - table[:, ::-1].argmax(axis=1)
    low = {int(v) for v in (lowest - rows)[lowest > 0]}
    high = {int(v) for v in (highest - rows)[highest < sizes.kv_len - 1]}
    if len(low) > 1 or len(high) > 1:
        raise Declined("the mask is not a band along the diagonal")
    band = (low.pop() if low else None, high.pop() if high else None)
    distance = key - q
    wanted = (distance >= (band[0] if band[0] is not None else -sizes.q_len)) & (
        distance <= (band[1] if band[1] is not None else sizes.kv_len)
    )
    if (wanted != keep).any():
        raise Declined("the mask is not a band along the diagonal")
    return band, min(trail.fills)


class _Walk:
    """Follows output points to the inputs through ``softmax(score(q k)) v``."""

    def __init__(self, graph: Graph, scores: int, values: int) -> None:
        self.graph, self.scores, self.values = graph, scores, values
        for dot in (scores, values):
            if any(len(side) != 1 for side in graph[dot].attr("contract")):
                raise Declined("a product contracts several dimensions at once")
        sides = graph[values].inputs
        self.p_side = next(i for i, n in enumerate(sides) if scores in graph.ancestors(n))
        if scores in graph.ancestors(sides[1 - self.p_side]):
            raise Declined("its second product multiplies the scores with themselves")
        self.v_dim = self._free_size(values, 1 - self.p_side)
        self.kv_len = self._contracted(values)
        self.head_dim = self._contracted(scores)

    def dim_of(self, name: str) -> int:
        return self.v_dim if name == "v" else self.head_dim

    def _contracted(self, dot: int) -> int:
        node = self.graph[dot]
        return self.graph[node.inputs[0]].shape[node.attr("contract")[0][0]]

    def _free_size(self, dot: int, side: int) -> int:
        node = self.graph[dot]
        fixed = {*node.attr("contract")[side], *node.attr("batch")[side]}
        sizes = [s for axis, s in enumerate(self.graph[node.inputs[side]].shape) if axis not in fixed]
        return int(np.prod(sizes, dtype=np.int64))

    def trail(self, output: Indices, key: np.ndarray, depth: np.ndarray) -> Trail:
        graph, trail = self.graph, Trail()
        number, at = base_of(graph, graph.outputs[0], output)
        divisor = None
        if graph[number].op == "div":  # normalised after the second product
            divisor = base_of(graph, graph[number].inputs[1], at)
            number, at = base_of(graph, graph[number].inputs[0], at)
        if number != self.values:
            raise Declined(f"{describe(graph, number)} follows the second product")
        p_at, v_at = (self.operand(number, side, at, key) for side in (self.p_side, 1 - self.p_side))
        trail.inputs["v"] = self.input(graph[number].inputs[1 - self.p_side], v_at, "the values")
        score, score_at = self.softmax(graph[number].inputs[self.p_side], p_at, key, divisor)
        reader = _ScoreReader(graph, self.scores, trail)
        trail.reader = reader
        trail.result = reader.read(score, score_at)
        if reader.at_dot is None:
            raise Declined("the softmax does not see the first product")
        self.queries_and_keys(trail, reader.at_dot, key, depth)
        return trail

    def operand(self, dot: int, side: int, at: Indices, contracted: np.ndarray) -> Indices:
        """Points of a product's operand from points of its result and of the contracted axis."""
        node = self.graph[dot]
        batch, contract = node.attr("batch"), node.attr("contract")
        rank = len(self.graph[node.inputs[side]].shape)
        free = [a for a in range(rank) if a not in batch[side] and a not in contract[side]]
        first = len(batch[0])
        if side == 1:
            first += len(self.graph[node.inputs[0]].shape) - len(batch[0]) - len(contract[0])
        where: dict[int, np.ndarray] = dict(zip(batch[side], at, strict=False))
        where.update({axis: at[first + i] for i, axis in enumerate(free)})
        where[contract[side][0]] = contracted
        return tuple(where[axis] for axis in range(rank))

    def input(self, number: int, at: Indices, what: str) -> tuple[int, Indices]:
        base, at = base_of(self.graph, number, at)
        if self.graph[base].op != "param":
            raise Declined(f"{what} are {describe(self.graph, base)}, not an input")
        return base, at

    def softmax(self, number: int, at: Indices, key: np.ndarray, divisor: Any) -> tuple[int, Indices]:
        """From probabilities back to the scores under the softmax."""
        graph = self.graph
        number, at = base_of(graph, number, at)
        if divisor is None:
            if graph[number].op != "div":
                raise Declined(f"the second product takes {describe(graph, number)}, not a softmax")
            divisor = base_of(graph, graph[number].inputs[1], at)
            number, at = base_of(graph, graph[number].inputs[0], at)
        if graph[number].op != "exp":
            raise Declined(f"the second product takes {describe(graph, number)}, not a softmax")
        self.over_keys("reduce_sum", divisor, number, at, key)
        score, score_at = base_of(graph, graph[number].inputs[0], at)
        if graph[score].op == "sub":
            left, left_at = base_of(graph, graph[score].inputs[0], score_at)
            right = base_of(graph, graph[score].inputs[1], score_at)
            if graph[right[0]].op == "reduce_max":
                self.over_keys("reduce_max", right, left, left_at, key)
                return left, left_at
        return score, score_at

    def over_keys(self, op: str, reduced: tuple[int, Indices], source: int, at: Indices, key: np.ndarray) -> None:
        """Checks that ``reduced`` is the reduction of ``source`` over all keys of the same row."""
        node, kept = self.graph[reduced[0]], reduced[1]
        if node.op != op or len(node.attr("axes")) != 1:
            raise Declined(f"{describe(self.graph, reduced[0])} is not the softmax's reduction over the keys")
        inner = list(kept)
        inner.insert(node.attr("axes")[0], key)
        number, found = base_of(self.graph, node.inputs[0], tuple(inner))
        if number != source or not _same(found, at):
            raise Declined("the softmax does not run over the keys")

    def queries_and_keys(self, trail: Trail, at: Indices, key: np.ndarray, depth: np.ndarray) -> None:
        node = self.graph[self.scores]
        trail.precision = node.attr("precision")
        sides = []
        for side in (0, 1):
            number, points = base_of(self.graph, node.inputs[side], self.operand(self.scores, side, at, depth))
            number, points = trail.reader.scaled(number, points)
            sides.append(self.input(number, points, "queries or keys"))
        moved = self.operand_moves(at, key)
        trail.inputs["q"], trail.inputs["k"] = sides if moved == 1 else sides[::-1]

    def operand_moves(self, at: Indices, key: np.ndarray) -> int:
        """Which operand of the first product follows the keys."""
        node = self.graph[self.scores]
        for side in (0, 1):
            free_points = self.operand(self.scores, side, at, np.zeros_like(key))
            contracted = node.attr("contract")[side][0]
            batch = node.attr("batch")[side]
            free = [i for a, i in enumerate(free_points) if a != contracted and a not in batch]
            if any((i == key).all() for i in free):
                return side
        raise Declined("the softmax does not run over an axis of the first product")


class _ScoreReader(Reader):
    """Reads what happens to the raw scores; positional masks go to the trail, inputs to ``raw``."""

    def __init__(self, graph: Graph, scores: int, trail: Trail) -> None:
        super().__init__(graph)
        self.scores, self.trail = scores, trail
        self.at_dot: Indices | None = None
        self.raw: list[tuple[int, Indices]] = []
        self.bent = 0  # how many nonlinear functions lie between here and the softmax

    def scaled(self, number: int, at: Indices) -> tuple[int, Indices]:
        """Constant factors on a product's operand become steps on the scores."""
        while self.graph[number].op in ("mul", "div"):
            left, right = (base_of(self.graph, i, at) for i in self.graph[number].inputs)
            if self.graph[right[0]].op == "const":
                source, factor = left, right
            elif self.graph[left[0]].op == "const" and self.graph[number].op == "mul":
                source, factor = right, left
            else:
                break
            self.prescales.append((self.graph[number].op, self.graph[factor[0]]))
            number, at = source
        return number, at

    @property
    def prescales(self) -> list[tuple[str, Any]]:
        return self.__dict__.setdefault("_prescales", [])

    def compute(self, number: int, indices: Indices) -> str:
        node = self.graph[number]
        if node.op == "select":
            return self.select(number, indices)
        if node.op in ("add", "sub"):
            masked = self.added_mask(number, indices)
            if masked is not None:
                return masked
        if node.op in ("tanh", "exp", "max", "min", "abs", "square", "integer_pow", "logistic", "neg"):
            self.bent += 1
            try:
                return super().compute(number, indices)
            finally:
                self.bent -= 1
        return super().compute(number, indices)

    def leaf(self, number: int, indices: Indices) -> str | None:
        node = self.graph[number]
        if number == self.scores:
            self.at_dot = indices
            return "acc"
        if node.op == "param":
            for i, (known, at) in enumerate(self.raw):
                if known == number and _same(at, indices):
                    return f"@{i}"
            self.raw.append((number, indices))
            return f"@{len(self.raw) - 1}"
        if node.op in ("iota", "array"):
            raise Declined("the scores change with the position by more than a band mask")
        return None

    def mask(self, keep: np.ndarray, fill: float) -> None:
        if self.bent:
            raise Declined("a mask is followed by a nonlinear function")
        self.trail.keep = keep if self.trail.keep is None else self.trail.keep & keep
        self.trail.fills.append(fill)

    def added_mask(self, number: int, indices: Indices) -> str | None:
        """``score + positional`` where the positional part is zero or hugely negative."""
        node = self.graph[number]
        for score, other in (node.inputs, node.inputs[::-1]):
            if self.scores not in self.graph.ancestors(score) or not is_positional(self.graph, other):
                continue
            if node.op == "sub" and other == node.inputs[0]:
                continue
            if self.graph[base_of(self.graph, other, self.at(number, other, indices))[0]].op == "const":
                continue
            values = evaluate(self.graph, other, self.at(number, other, indices)).astype(float)
            values = -values if node.op == "sub" else values
            if not ((values == 0) | (values <= _MASKING)).all():
                raise Declined("the scores change with the position by more than a band mask")
            self.mask(values == 0, float(values.min(initial=0.0)))
            return self.read(score, indices)
        return None

    def select(self, number: int, indices: Indices) -> str:
        predicate, if_true, if_false = self.graph[number].inputs
        on_true = self.scores in self.graph.ancestors(if_true)
        score, other = (if_true, if_false) if on_true else (if_false, if_true)
        fill = base_of(self.graph, other, self.at(number, other, indices))[0]
        if self.graph[fill].op != "const" or self.graph[fill].attr("value") > _MASKING:
            return super().compute(number, indices)
        value, dtype = float(self.graph[fill].attr("value")), self.graph[fill].dtype
        terms = self.terms(predicate, indices, "and" if on_true else "or")
        arguments = []
        for term, at in terms:
            if is_positional(self.graph, term):
                truth = np.broadcast_to(evaluate(self.graph, term, at), indices[0].shape)
                self.mask(truth if on_true else ~truth, value)
            else:
                arguments.append(self.read(term, at))
        argument = self.read(score, indices)
        if not arguments:
            return argument
        if self.bent:
            raise Declined("a mask is followed by a nonlinear function")
        condition = arguments[0]
        for more in arguments[1:]:
            condition = self.step("and" if on_true else "or", (condition, more))
        # scores are multiplied by log2(e) later; the fill must stay finite if it is
        value, dtype = (-1e37, "float32") if np.isfinite(value) and value < -1e37 else (value, dtype)
        filled = self.constant(value, dtype)
        return self.step("select", (condition, argument, filled) if on_true else (condition, filled, argument))

    def terms(self, number: int, indices: Indices, joint: str) -> list[tuple[int, Indices]]:
        number, indices = base_of(self.graph, number, indices)
        if self.graph[number].op != joint:
            return [(number, indices)]
        return [t for i in self.graph[number].inputs for t in self.terms(i, self.at(number, i, indices), joint)]
