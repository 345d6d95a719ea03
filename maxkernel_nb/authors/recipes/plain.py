"""Parts of a computation as plain JAX: what a kernel is given and what is left to XLA, in readable lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maxkernel_nb import compat
from maxkernel_nb.authors.recipes.aligned import Aligned, Dimensions
from maxkernel_nb.authors.recipes.canonical import ELEMENTWISE
from maxkernel_nb.authors.recipes.expressions import _gelu, _silu, describe, unify
from maxkernel_nb.authors.recipes.graph import REDUCTIONS, Node
from maxkernel_nb.authors.recipes.rendering import CALLS, INFIX, OPERATIONS
from maxkernel_nb.authors.recipes.text import fresh_name
from maxkernel_nb.errors import Declined

_ATOM = 9
_LINE = 88
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_NAMES = {
    "reduce_sum": "total", "reduce_max": "largest", "reduce_min": "smallest", "dot": "product", "exp": "weights",
    "other": "y", "silu": "activated", "gelu": "activated", "reshape": "shaped", "transpose": "turned",
    **OPERATIONS,
}


@dataclass(frozen=True)
class Text:
    """Source of a value. ``lean``: shorter source that numpy broadcasts to it. ``dtype``: what the source gives."""

    code: str
    level: int
    dtype: str
    lean: str = ""


class Plain:
    """Renders nodes of an aligned graph. ``names``: nodes that have a name in scope, with their dtype there."""

    def __init__(self, aligned: Aligned, names: Mapping[int, tuple[str, str]], static: Mapping[str, Any],
                 taken: set[str]) -> None:
        self.aligned = aligned
        self.dims = Dimensions({name: aligned.shapes(n) for n, (name, _) in names.items()}, static)
        self.known = {n: Text(name, _ATOM, dtype) for n, (name, dtype) in names.items()}
        self.taken = {"jax", "jnp", "lax", "pl", "pltpu", "functools", *taken, *(name for name, _ in names.values())}
        self.users = aligned.users()
        self.needed: set[int] = set()
        self.lines: list[str] = []
        self._timing = {members[0]: n for n, members in enumerate(aligned.members)}

    def write(self, *roots: int) -> None:
        """Adds the lines that compute ``roots`` from what is in scope."""
        self.needed = self._unknown(roots)
        for number in sorted(self.needed):
            self.known[number] = self._named(number, self.text(number), wanted=number in roots)

    def define(self, number: int, name: str, dtype: str) -> None:
        """A value that another line gave a name."""
        self.known[number] = Text(name, _ATOM, dtype)
        self.taken.add(name)

    def fresh(self, stem: str) -> str:
        return fresh_name(stem, self.taken)

    def as_dtype(self, number: int, dtype: str) -> str:
        """The value's source, converted if it is not of that dtype."""
        text = self.known[number]
        if text.dtype == dtype:
            return text.code
        return f"{_wrapped(text, _ATOM)}.astype(jnp.{dtype})"

    def _unknown(self, roots: Sequence[int]) -> set[int]:
        seen: set[int] = set()
        todo = list(roots)
        while todo:
            number = todo.pop()
            if number not in seen and number not in self.known:
                seen.add(number)
                todo.extend(self.sources(number))
        return seen

    def _named(self, number: int, text: Text, wanted: bool) -> Text:
        node = self.aligned[number]
        if node.op in ("const", "iota"):
            return text
        uses = sum(self.sources(u).count(number) for u in self.users[number] if u in self.needed)
        if not wanted and uses <= 1 and len(text.code) <= _LINE:
            return text
        if len(text.code) > 112:
            text = Text(_folded(text.code), text.level, text.dtype)
        name = self.fresh(_NAMES.get(self.sugar(number)[0], "y"))
        self.lines.append(f"{name} = {text.code}")
        return Text(name, _ATOM, text.dtype)

    # what a node reads

    def sugar(self, number: int) -> tuple[str, tuple[int, ...]]:
        """The op and its inputs; what people know by a name is that op."""
        graph, own = self.aligned.graphs[0], self.aligned.members[number][0]
        found = _silu(graph, own) or _gelu(graph, own)
        if found is not None and all(i in self._timing for i in found[1]):
            return found[0], tuple(self._timing[i] for i in found[1])
        return self.aligned[number].op, self.aligned.inputs(number)

    def sources(self, number: int) -> tuple[int, ...]:
        return self.sugar(number)[1]

    # one node

    def text(self, number: int) -> Text:
        node = self.aligned[number]
        op, inputs = self.sugar(number)
        if op in ELEMENTWISE or op in ("silu", "gelu"):
            return self.elementwise(number, op, inputs)
        if op in REDUCTIONS:
            axes = node.attr("axes")
            if (runs := self.sum_of_runs(number, inputs[0])) is not None:
                return runs
            which = str(axes[0]) if len(axes) == 1 else str(axes)
            code = f"jnp.{op[7:]}({self.wide(inputs[0])[0]}, axis={which})"
            return Text(code, _ATOM, _widened(node.dtype))
        handler = getattr(self, "op_" + op, None)
        if handler is None:
            raise Declined(f"{describe(self.aligned.graphs[0], self.aligned.members[number][0])} is left without words")
        return handler(number, node, inputs)

    def sum_of_runs(self, number: int, source: int) -> Text | None:
        """A large sum over short runs of the last axis is a product with zeros and ones: no layout changes."""
        node, shaped = self.aligned[number], self.aligned[source]
        if node.op != "reduce_sum" or shaped.op != "reshape" or source in self.known_names():
            return None
        before = self.aligned.inputs(source)[0]
        rank, size = len(node.shape), self.aligned[before].shape
        split = len(shaped.shape) == rank + 1 and shaped.shape[:-2] == size[:-1] and node.attr("axes") == (rank,)
        text = self.known[before]
        if not split or shaped.shape[-1] > 128 or shaped.size < 1 << 22 or text.dtype != "bfloat16":
            return None
        run = self.dims.text([s[-1] for s in self.aligned.shapes(source)])
        count = self.dims.text([s[-2] for s in self.aligned.shapes(source)])
        name = self.fresh("runs")
        self.lines.append(f"{name} = jnp.repeat(jnp.eye({count}, dtype=jnp.bfloat16), {run}, axis=0)")
        code = f"jnp.matmul({text.code}, {name}, preferred_element_type=jnp.float32)"
        return Text(code, _ATOM, "float32")

    def known_names(self) -> set[int]:
        return {n for n, text in self.known.items() if text.code.isidentifier()}

    def wide(self, number: int) -> tuple[str, int]:
        """Narrow floats are widened where something is computed with them."""
        text = self.known[number]
        if _widened(text.dtype) == text.dtype or self.aligned[number].op == "const":
            return text.code, text.level
        return f"{_wrapped(text, _ATOM)}.astype(jnp.float32)", _ATOM

    def elementwise(self, number: int, op: str, inputs: tuple[int, ...]) -> Text:
        node = self.aligned[number]
        full = any(not self.known[i].lean and self.aligned[i].op != "const" for i in inputs)
        args = [self._operand(i, full) for i in inputs]
        dtype = _widened(node.dtype)
        if op == "cast":
            return Text(f"{_bracketed(args[0], _ATOM)}.astype(jnp.{node.dtype})", _ATOM, node.dtype)
        if op in INFIX:
            sign, level = INFIX[op]
            return Text(f"{_bracketed(args[0], level)} {sign} {_bracketed(args[1], level + 1)}", level, dtype)
        if op == "neg":
            return Text(f"-{_bracketed(args[0], 7)}", 6, dtype)
        if op == "integer_pow":
            return Text(f"{_bracketed(args[0], 8)}**{node.attr('power')}", 7, dtype)
        names = CALLS | {"not": "jnp.logical_not", "is_finite": "jnp.isfinite", "erf": "jax.scipy.special.erf",
                         "erfc": "jax.scipy.special.erfc", "expm1": "jnp.expm1", "cbrt": "jnp.cbrt", "rem": "lax.rem"}
        return Text(f"{names[op]}({', '.join(code for code, _ in args)})", _ATOM, dtype)

    def _operand(self, number: int, full: bool) -> tuple[str, int]:
        text = self.known[number]
        if full and text.lean:
            narrow = _widened(text.dtype) != text.dtype
            return (f"{text.lean}.astype(jnp.float32)" if narrow else text.lean), _ATOM
        return self.wide(number)

    def op_const(self, number: int, node: Node, inputs: tuple[int, ...]) -> Text:
        value = unify(self.aligned.attrs(number, "value"), node.dtype, self.dims.named)
        if node.shape and not self._scalar_use(number):
            dtype = "bool_" if node.dtype == "bool" else node.dtype
            return Text(f"jnp.full({self.shape(number)}, {value}, jnp.{dtype})", _ATOM, node.dtype, lean=value)
        return Text(value, _ATOM if _plain(value) else 0, node.dtype)

    def _scalar_use(self, number: int) -> bool:
        return all(self.aligned[u].op in ELEMENTWISE for u in self.users[number])

    def op_iota(self, number: int, node: Node, inputs: tuple[int, ...]) -> Text:
        code = f"lax.broadcasted_iota(jnp.{node.dtype}, {self.shape(number)}, {node.attr('dim')})"
        return Text(code, _ATOM, node.dtype)

    def op_reshape(self, number: int, node: Node, inputs: tuple[int, ...]) -> Text:
        source = self.known[inputs[0]]
        kept = _inserted(self.aligned[inputs[0]].shape, node.shape)
        if kept is not None:
            return Text(f"{_wrapped(source, _ATOM)}[{kept}]", _ATOM, source.dtype)
        return Text(f"{_wrapped(source, _ATOM)}.reshape({self.target(number)})", _ATOM, source.dtype)

    def target(self, number: int) -> str:
        """Source of a reshape's shape; an axis whose size is no plain size is left to jax."""
        axes = list(zip(*self.aligned.shapes(number), strict=True))
        texts = [self.dims.find(tuple(sizes)) or "" for sizes in axes]
        odd = [i for i, text in enumerate(texts) if not _plain(text)]
        if not odd or (all(texts) and len(odd) > 1):
            return self.shape(number)
        if len(odd) > 1:
            raise Declined(f"a reshape to {list(self.aligned[number].shape)} follows the shapes in no known way")
        texts[odd[0]] = "-1"
        return ", ".join(texts) if len(texts) > 1 else "-1"

    def op_transpose(self, number: int, node: Node, inputs: tuple[int, ...]) -> Text:
        source, perm = self.known[inputs[0]], node.attr("perm")
        how = ".T" if perm == (1, 0) else f".transpose({', '.join(map(str, perm))})"
        return Text(_wrapped(source, _ATOM) + how, _ATOM, source.dtype)

    def op_broadcast(self, number: int, node: Node, inputs: tuple[int, ...]) -> Text:
        source, dims = self.known[inputs[0]], node.attr("dims")
        rank = len(node.shape)
        lean = _wrapped(source, _ATOM)
        if dims != tuple(range(rank - len(dims), rank)):
            first = min(dims, default=rank)
            slots = [":" if axis in dims else "None" for axis in range(first, rank)]
            lean += f"[{', '.join(slots)}]" if dims else ""
        return Text(f"jnp.broadcast_to({lean}, {self.shape(number)})", _ATOM, source.dtype, lean=lean)

    def op_slice(self, number: int, node: Node, inputs: tuple[int, ...]) -> Text:
        source = self.known[inputs[0]]
        outer, inner = self.aligned.shapes(inputs[0]), self.aligned.shapes(number)
        starts, strides = self.aligned.attrs(number, "start"), node.attr("strides")
        parts = []
        for axis in range(len(node.shape)):
            first = [s[axis] for s in starts]
            last = [f + (size[axis] - 1) * strides[axis] + 1 for f, size in zip(first, inner, strict=True)]
            whole = all(end == shape[axis] for end, shape in zip(last, outer, strict=True))
            begin = "" if not any(first) else self.dims.text(first)
            step = f":{strides[axis]}" if strides[axis] != 1 else ""
            parts.append(f"{begin}:{'' if whole else self.dims.text(last)}{step}")
        while len(parts) > 1 and parts[-1] == ":":
            parts.pop()
        if len(parts) > 2 and all(p == ":" for p in parts[:-1]) and len(parts) == len(node.shape):
            parts = ["...", parts[-1]]
        return Text(f"{_wrapped(source, _ATOM)}[{', '.join(parts)}]", _ATOM, source.dtype)

    def op_dot(self, number: int, node: Node, inputs: tuple[int, ...]) -> Text:
        operands = node.attr("operands")
        args = [self.as_dtype(i, d) if compat.is_float(d) else self.known[i].code
                for i, d in zip(inputs, operands, strict=True)]
        wider = node.dtype == "float32" and "bfloat16" in operands
        extra = ", preferred_element_type=jnp.float32" if wider else ""
        if node.attr("precision"):
            extra += f", precision=jax.lax.Precision.{node.attr('precision')}"
        left, right = (len(self.aligned[i].shape) for i in inputs)
        equation = einsum_equation(left, right, node.attr("contract"), node.attr("batch"))
        plain = left >= 2 and node.attr("contract") == ((left - 1,), (0,)) and right == 2 and not node.attr("batch")[0]
        if plain and not extra:
            texts = [Text(a, _ATOM, "") for a in args]
            return Text(f"{texts[0].code} @ {texts[1].code}", 6, node.dtype)
        return Text(f'jnp.einsum("{equation}", {args[0]}, {args[1]}{extra})', _ATOM, node.dtype)

    def op_other(self, number: int, node: Node, inputs: tuple[int, ...]) -> Text:
        equation = self.aligned.graphs[0].equations[node.attr("serial")]
        args = [self.known[i] for i in inputs]
        match node.attr("primitive"):
            case "concatenate":
                dtype = args[0].dtype if len({a.dtype for a in args}) == 1 else "float32"
                parts = ", ".join(self.as_dtype(i, dtype) for i in inputs)
                return Text(f"jnp.concatenate([{parts}], axis={equation.params['dimension']})", _ATOM, dtype)
            case "cumsum" if not equation.params["reverse"]:
                code = self.wide(inputs[0])[0]
                return Text(f"jnp.cumsum({code}, axis={equation.params['axis']})", _ATOM, _widened(node.dtype))
            case "top_k":
                code = f"lax.top_k({args[0].code}, {equation.params['k']})[{node.attr('output')}]"
                return Text(code, _ATOM, args[0].dtype if node.attr("output") == 0 else node.dtype)
            case "argmax" | "argmin" as name:
                axis = equation.params["axes"][0]
                return Text(f"jnp.{name}({args[0].code}, axis={axis})", _ATOM, node.dtype)
        what = describe(self.aligned.graphs[0], self.aligned.members[number][0])
        raise Declined(f"{what} is not written in plain JAX by this recipe")

    def shape(self, number: int) -> str:
        """Source of the node's shape in every case."""
        axes = list(zip(*self.aligned.shapes(number), strict=True))
        if not axes:
            return "()"
        for known, text in self.known.items():
            same = text.code.isidentifier() and self.aligned.shapes(known) == self.aligned.shapes(number)
            if same and len(axes) > 1 and known in self.dims_named():
                return f"{text.code}.shape"
        return f"({', '.join(self.dims.text(sizes) for sizes in axes)}{',' if len(axes) == 1 else ''})"

    def dims_named(self) -> set[int]:
        return {n for n, text in self.known.items() if text.code.isidentifier() and self.aligned[n].op == "param"}


def einsum_equation(left: int, right: int, contract: Any, batch: Any) -> str:
    letters = iter(_LETTERS)
    first = [next(letters) for _ in range(left)]
    second = [""] * right
    for pairs in (contract, batch):
        for a, b in zip(*pairs, strict=True):
            second[b] = first[a]
    second = [x or next(letters) for x in second]
    batched = [first[a] for a in batch[0]]
    shared = {first[a] for a in contract[0]}
    rest = [x for x in first if x not in shared and x not in batched] + [x for x in second if x not in first]
    return f"{''.join(first)},{''.join(second)}->{''.join(batched + rest)}"


def _plain(text: str) -> bool:
    """A number, a name or an axis of an array: nothing that needs brackets."""
    return bool(re.fullmatch(r"[\w.]+(\[\d+\])?|\d[\d.]*e-?\d+", text))


def _folded(code: str) -> str:
    """A long expression over several lines, in parentheses."""
    words = textwrap.fill(code, 100, break_long_words=False, break_on_hyphens=False)
    return "(\n" + textwrap.indent(words, "    ") + "\n)"


def _widened(dtype: str) -> str:
    return "float32" if dtype in ("bfloat16", "float16") or dtype.startswith("float8") else dtype


def _wrapped(text: Text, level: int) -> str:
    return _bracketed((text.code, text.level), level)


def _bracketed(text: tuple[str, int], level: int) -> str:
    return text[0] if text[1] >= level else f"({text[0]})"


def _inserted(source: tuple[int, ...], shape: tuple[int, ...]) -> str | None:
    """The index that only inserts axes of one (``None, :``), or None where the reshape does more."""
    if tuple(s for s in shape if s != 1) != source or len(shape) <= len(source):
        return None
    slots, left = [], list(source)
    for size in shape:
        if left and size == left[0]:
            left.pop(0)
            slots.append(":")
        else:
            slots.append("None")
    while len(slots) > 1 and slots[-1] == ":":
        slots.pop()
    return ", ".join(slots)
