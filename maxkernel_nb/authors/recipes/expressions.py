"""Block expressions: the part of a graph that a kernel evaluates on values in VMEM, kept small and serialisable.

An argument is a string: ``@i`` a leaf (see ``Expression.leaves``), ``#i`` a constant, ``%i`` an earlier step, or a name
the recipe gives (``acc``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from maxkernel_nb.authors.recipes.graph import REDUCTIONS, Graph
from maxkernel_nb.authors.recipes.views import Indices, base_of
from maxkernel_nb.errors import Declined
from maxkernel_nb.values import Value

SUPPORTED = frozenset({
    "add", "sub", "mul", "div", "max", "min", "pow", "neg", "exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic",
    "erf", "erfc", "sqrt", "rsqrt", "abs", "sign", "floor", "ceil", "sin", "cos", "square", "integer_pow",
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "select", "cast", "is_finite",
})


class Step(Value):
    op: str
    args: tuple[str, ...]
    power: int = 0


class Constant(Value):
    """``text`` is Python source: a literal, or a formula of dimensions that holds in every case."""

    text: str


class Leaf(Value):
    """A parameter read in the block: its index, and how it lies over the block (the recipe's word)."""

    param: int
    kind: str


class Expression(Value):
    steps: tuple[Step, ...] = ()
    result: str
    leaves: tuple[Leaf, ...] = ()
    constants: tuple[Constant, ...] = ()

    def uses(self, argument: str) -> int:
        return sum(s.args.count(argument) for s in self.steps) + (self.result == argument)


class Reader:
    """Reads a block expression out of a graph, from the result backwards. A recipe subclasses it for its leaves."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Step] = []
        self.leaves: list[Leaf] = []
        self.constants: list[tuple[float, str]] = []
        self._known: dict[Any, str] = {}

    def read(self, number: int, indices: Indices) -> str:
        number, indices = base_of(self.graph, number, indices)
        node = self.graph[number]
        if node.op == "const":
            return self.constant(node.attr("value"), node.dtype)
        key = self.key(number, indices)
        if key not in self._known:
            self._known[key] = self.compute(number, indices)
        return self._known[key]

    def compute(self, number: int, indices: Indices) -> str:
        node = self.graph[number]
        found = self.leaf(number, indices)
        if found is not None:
            return found
        if node.op in REDUCTIONS:
            return self.reduction(number, indices)
        if node.op not in SUPPORTED:
            raise Declined(f"{describe(self.graph, number)} is not an elementwise operation this recipe can render")
        source = self.graph[node.inputs[0]].dtype if node.inputs else ""
        if node.op == "cast" and source != "bool" and "float" not in node.dtype:
            raise Declined(f"it converts {source} to {node.dtype} on the way")
        sugared = _silu(self.graph, number) or _gelu(self.graph, number)
        op, inputs = sugared or (node.op, node.inputs)
        args = tuple(self.read(i, self.at(number, i, indices)) for i in inputs)
        return self.step(op, args, dict(node.attrs).get("power", 0))

    def at(self, number: int, source: int, indices: Indices) -> Indices:
        """A scalar may meet an array without a broadcast between them."""
        return () if not self.graph[source].shape and self.graph[number].shape else indices

    def step(self, op: str, args: tuple[str, ...], power: int = 0) -> str:
        self.steps.append(Step(op=op, args=args, power=power))
        return f"%{len(self.steps) - 1}"

    def constant(self, value: Any, dtype: str) -> str:
        self.constants.append((value, dtype))
        return f"#{len(self.constants) - 1}"

    def add_leaf(self, leaf: Leaf) -> str:
        if leaf not in self.leaves:
            self.leaves.append(leaf)
        return f"@{self.leaves.index(leaf)}"

    def key(self, number: int, indices: Indices) -> Any:
        return number, tuple(i.tobytes() for i in indices)

    def leaf(self, number: int, indices: Indices) -> str | None:
        """The argument for a node that the block does not compute, None to go on, or ``Declined``."""
        raise NotImplementedError

    def reduction(self, number: int, indices: Indices) -> str:
        raise Declined(f"{describe(self.graph, number)} is a reduction, which has no place here")


def describe(graph: Graph, number: int) -> str:
    node = graph[number]
    name = dict(node.attrs).get("primitive", node.op)
    return f"{name} of {node.dtype}{list(node.shape)}"


def combine(result: str, readers: Sequence[Reader], dims: Sequence[dict[str, int]]) -> Expression:
    """One expression from the same reading in every case; constants become literals or formulas of ``dims``."""
    first = readers[0]
    for other in readers[1:]:
        if (other.steps, other.leaves) != (first.steps, first.leaves):
            raise Declined("the computation differs between shape cases, not only in its sizes")
    constants = zip(*(r.constants for r in readers), strict=True)
    return Expression(
        steps=tuple(first.steps), result=result, leaves=tuple(first.leaves),
        constants=tuple(Constant(text=unify([v for v, _ in c], c[0][1], dims)) for c in constants),
    )


def unify(values: Sequence[Any], dtype: str, dims: Sequence[dict[str, int]]) -> str:
    """Source text of a constant whose value may follow the shapes. Raises ``Declined`` if no formula is found."""
    if all(v != v for v in values):
        return number_text(values[0], dtype)
    if all(v == values[0] for v in values) and abs(float(values[0])) in (0.0, 0.5, 1.0, 2.0):
        return number_text(values[0], dtype)
    near = 1 / 128 if dtype == "bfloat16" else 1e-3 if dtype == "float16" else 2e-6
    for name in dims[0]:
        for form in _FORMULAS:
            wanted = [_formula_value(form, d[name]) for d in dims]
            if all(abs(v - w) <= near * abs(w) for v, w in zip(values, wanted, strict=True)):
                if form in ("{}", "{} - 1") and max(wanted) < 16:
                    continue  # a small whole number is more likely just that number
                return form.format(name)
    if any(v != values[0] for v in values) and all(v > 0 and v == int(v) for v in values):
        for name in dims[0]:
            parts = {d[name] / v for v, d in zip(values, dims, strict=True)}
            if len(parts) == 1 and (part := parts.pop()) == int(part):
                return f"{name} // {int(part)}"
    if any(v != values[0] for v in values) and (share := _share(values, dims, near)):
        return share
    if any(v != values[0] for v in values):
        raise Declined(f"a constant follows the shapes ({', '.join(f'{float(v):g}' for v in values)}) in no known way")
    return number_text(values[0], dtype)


def _share(values: Sequence[Any], dims: Sequence[dict[str, int]], near: float) -> str:
    """``0.1 / n`` or ``0.1 * n`` with the same number in every case, else nothing."""
    for name in dims[0]:
        for sign, found in (("/", [v * d[name] for v, d in zip(values, dims, strict=True)]),
                            ("*", [v / d[name] for v, d in zip(values, dims, strict=True)])):
            if found[0] and all(abs(f - found[0]) <= 2 * near * abs(found[0]) for f in found):
                digits = 3 if near > 1e-3 else 6
                return f"{float(f'{found[0]:.{digits}g}')!r} {sign} {name}"
    return ""


_FORMULAS = ("{}", "1.0 / {}", "{}**-0.5", "{}**0.5", "{} - 1", "1.0 / ({} - 1)")


def _formula_value(form: str, size: int) -> float:
    with np.errstate(all="ignore"):
        forms: dict[str, Callable[[float], float]] = {
            "{}": lambda d: d, "1.0 / {}": lambda d: 1 / d, "{}**-0.5": lambda d: d**-0.5, "{}**0.5": lambda d: d**0.5,
            "{} - 1": lambda d: d - 1, "1.0 / ({} - 1)": lambda d: 1 / (d - 1) if d > 1 else np.inf,
        }
        return forms[form](float(size))


def number_text(value: Any, dtype: str) -> str:
    """The shortest decimal that the constant's own dtype cannot tell from its value."""
    if isinstance(value, bool):
        return str(value)
    if np.isnan(value) or np.isinf(value):
        return "jnp.nan" if np.isnan(value) else "jnp.inf" if value > 0 else "-jnp.inf"
    if dtype.startswith(("int", "uint")):
        return str(int(value))
    rounded = _rounder(dtype)
    for digits in range(1, 18):
        text = repr(float(f"{value:.{digits}g}"))
        if rounded(float(text)) == rounded(value):
            return text
    return repr(float(value))


def _rounder(dtype: str) -> Callable[[float], float]:
    if dtype in ("float64", "float32", "float16"):
        return lambda v: float(np.dtype(dtype).type(v))
    import ml_dtypes

    kind = getattr(ml_dtypes, dtype, np.float32)
    return lambda v: float(kind(v))


# What people know by a name is written by that name.


def _const(graph: Graph, number: int) -> float | None:
    while graph[number].op in ("broadcast", "reshape"):
        number = graph[number].inputs[0]
    node = graph[number]
    return float(node.attr("value")) if node.op == "const" else None


def _near(graph: Graph, number: int, value: float) -> bool:
    found = _const(graph, number)
    return found is not None and abs(found - value) <= 0.005 * abs(value)


def _pairs(inputs: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    return (inputs, inputs[::-1])


def _silu(graph: Graph, number: int) -> tuple[str, tuple[int, ...]] | None:
    node = graph[number]
    if node.op != "mul":
        return None
    for x, gate in _pairs(node.inputs):
        if graph[gate].op == "logistic" and graph[gate].inputs[0] == x:
            return "silu", (x,)
    return None


def _gelu(graph: Graph, number: int) -> tuple[str, tuple[int, ...]] | None:
    """``x * (0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))))`` as ``jax.nn.gelu`` writes it."""

    def scaled(n: int, factor: float) -> int | None:
        if graph[n].op != "mul":
            return None
        return next((b for a, b in _pairs(graph[n].inputs) if _near(graph, a, factor)), None)

    def shifted(n: int) -> int | None:
        if graph[n].op != "add":
            return None
        return next((b for a, b in _pairs(graph[n].inputs) if _near(graph, a, 1.0)), None)

    node = graph[number]
    if node.op != "mul":
        return None
    for x, cdf in _pairs(node.inputs):
        half = scaled(cdf, 0.5)
        tanh = shifted(half) if half is not None else None
        if tanh is None or graph[tanh].op != "tanh":
            continue
        inner = scaled(graph[tanh].inputs[0], 0.7978845608)
        if inner is None or graph[inner].op != "add":
            continue
        for a, b in _pairs(graph[inner].inputs):
            cube = scaled(b, 0.044715)
            if a == x and cube is not None and graph[cube].op == "integer_pow" and graph[cube].inputs[0] == x:
                return "gelu", (x,)
    return None
