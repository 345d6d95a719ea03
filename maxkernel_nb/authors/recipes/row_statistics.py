"""What a loss reads of its logits, as a few numbers a row: the logits themselves need never be stored.

A graph in which a product's values are only summed, exponentiated and summed, compared or picked by a label along each
row is rebuilt over four statistics of the row: ``top`` (largest), ``lse`` (log of the sum of exponentials), ``picked``
(the value at the row's label) and ``total`` (sum). Softmax, log-softmax, logsumexp, cross-entropy with smoothing and
z-loss all become arithmetic on those, each an identity for finite values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from maxkernel_nb.authors.recipes.algebra import Rewriter
from maxkernel_nb.authors.recipes.expressions import describe
from maxkernel_nb.authors.recipes.graph import REDUCTIONS, Graph, Node
from maxkernel_nb.authors.recipes.views import base_of, evaluate, flat, is_positional, sample_points
from maxkernel_nb.errors import Declined

STATISTICS = ("top", "lse", "picked", "total")
PRIMITIVE = "row statistics"


@dataclass(frozen=True)
class Form:
    """A [rows, n] value: ``scale * z + shift`` (line), its exponential (exp), ``hot * onehot + rest`` (hot), a line
    times such (mix), or a comparison with the label (mask). ``shift`` and ``label`` are row nodes of the new graph.
    """

    kind: Literal["line", "exp", "hot", "mix", "mask"]
    scale: float = 1.0
    shift: int | None = None
    hot: float = 0.0
    rest: float = 0.0
    label: int | None = None


class Statistics(Rewriter):
    """Rebuilds ``graph`` over the statistics of ``core``, a [..., n] node. Raises ``Declined`` for any other use."""

    def __init__(self, graph: Graph, core: int) -> None:
        super().__init__(graph)
        self.core, self.n = core, graph[core].shape[-1]
        self.m = math.prod(graph[core].shape[:-1])
        self.forms: dict[int, Form] = {}
        self.label: int | None = None

    def rebuilt(self) -> Graph:
        for number in sorted(self.source.reachable() | self._params()):
            self.keep(number)
        if any(n in self.forms for n in self.source.outputs):
            raise Declined("the logits themselves are returned")
        self.graph.outputs = tuple(self.new[n] for n in self.source.outputs)
        self.graph.output_dtypes = self.source.output_dtypes
        return self.graph

    def _params(self) -> set[int]:
        return {n for n, node in enumerate(self.source.nodes) if node.op == "param"}

    def keep(self, number: int, moved: bool = False) -> None:
        node = self.source[number]
        if number == self.core:
            self.forms[number] = Form("line")
        elif (found := self._wide(number, node)) is not None:
            if isinstance(found, Form):
                self.forms[number] = found
            else:
                self.new[number] = found
        else:
            super().keep(number)

    def _wide(self, number: int, node: Node) -> Form | int | None:
        """A form, a node of the new graph, or None for what has nothing to do with the product."""
        if node.op == "eq" and node.shape[-1:] == (self.n,) and not any(i in self.forms for i in node.inputs):
            return self._compared(node)
        if not any(i in self.forms for i in node.inputs):
            return None
        if node.op in REDUCTIONS:
            return self._reduced(number, node)
        if node.op == "other" and node.attr("primitive") == "gather":
            return self._gathered(node)
        found = self._arithmetic(node)
        if found is None:
            raise Declined(f"{describe(self.source, number)} reads the product other than by sums and labels of rows")
        return found

    # rows

    def row(self, number: int) -> int | None:
        """A value that is the same along each row, as a node of shape (m,); None if it is not."""
        shape = self.source[number].shape
        points = sample_points(shape) if shape else ()
        base, at = base_of(self.source, number, points)
        node = self.source[base]
        if node.op == "const":
            return self.const(node.attr("value"), (self.m,), node.dtype)
        if base not in self.new or node.size not in (1, self.m):
            return None
        if node.size == 1:
            one = self.op_reshape({}, [self.new[base]], (), node.dtype)
            return self.op_broadcast_in_dim({"broadcast_dimensions": ()}, [one], (self.m,), node.dtype)
        place = flat(points, shape)
        row = place // self.n if math.prod(shape) == self.m * self.n else place
        if not np.array_equal(np.broadcast_to(flat(at, node.shape), row.shape), row):
            return None
        return self.op_reshape({}, [self.new[base]], (self.m,), node.dtype)

    def rows(self, op: str, *inputs: int) -> int:
        return self.elementwise(op, list(inputs), (self.m,), "float32")

    def number(self, value: float) -> int:
        return self.const(value, (self.m,), "float32")

    def statistic(self, name: str) -> int:
        """A number of each row. Its inputs: the label of what is picked, then every parameter, for its sizes."""
        attrs = (("output", STATISTICS.index(name)), ("primitive", PRIMITIVE), ("serial", -1))
        own = (self.label,) if name == "picked" and self.label is not None else ()
        inputs = (*own, *(self.new[n] for n in sorted(self._params())))
        return self.graph.add(Node("other", inputs, (self.m,), "float32", attrs))

    # forms

    def _compared(self, node: Node) -> Form | None:
        """``labels[:, None] == arange(n)``, either way round."""
        points = sample_points(node.shape)
        for one, other in (node.inputs, node.inputs[::-1]):
            if is_positional(self.source, one) and self.source[one].op != "const":
                column = evaluate(self.source, one, points if self.source[one].shape else ())
                if np.array_equal(column, points[-1]) and (label := self.row(other)) is not None:
                    return Form("mask", label=label)
        return None

    def _arithmetic(self, node: Node) -> Form | None:
        forms = [self.forms.get(i) for i in node.inputs]
        values = [self._const(i) for i in node.inputs]
        first = forms[0]
        match node.op:
            case "reshape" if node.shape[-1] == self.n:
                return first
            case "neg" if first and first.kind in ("line", "mix", "hot"):
                return self._times(first, -1.0)
            case "cast" if first and first.kind == "mask":
                return Form("hot", hot=1.0, label=first.label)
            case "exp" if first and first.kind == "line" and first.scale == 1.0:
                return replace(first, kind="exp")
            case "add" | "sub":
                sign = 1.0 if node.op == "add" else -1.0
                return self._added(node.inputs, forms, values, sign)
            case "mul":
                return self._multiplied(forms, values)
            case "div" if first and values[1]:
                return self._times(first, 1.0 / values[1])
            case "select" if first and first.kind == "mask":
                return self._selected(first, node.inputs[1:], forms[1:], values[1:])
        return None

    def _const(self, number: int) -> float | None:
        node = self.source[number]
        while node.op in ("broadcast", "reshape"):
            node = self.source[node.inputs[0]]
        return float(node.attr("value")) if node.op == "const" else None

    def _times(self, form: Form, factor: float) -> Form | None:
        if form.kind == "hot":
            return replace(form, hot=form.hot * factor, rest=form.rest * factor)
        if form.kind == "mix":
            return replace(form, hot=form.hot * factor, rest=form.rest * factor)
        if form.kind != "line":
            return None
        shift = None if form.shift is None else self.rows("mul", form.shift, self.number(factor))
        return replace(form, scale=form.scale * factor, shift=shift)

    def _added(self, inputs: tuple[int, ...], forms: list[Form | None], values: list[float | None],
               sign: float) -> Form | None:
        left, right = forms
        if left and right:
            if left.kind != "line" or right.kind != "line":
                return None
            turned = self._times(right, sign)
            assert turned is not None
            shift = self._sum_of(left.shift, turned.shift)
            return Form("line", scale=left.scale + turned.scale, shift=shift)
        form = left or right
        assert form is not None
        if left is None and sign < 0:
            turned = self._times(form, -1.0)
            if turned is None:
                return None
            form, sign = turned, 1.0
        other = inputs[1] if left else inputs[0]
        value = values[1] if left else values[0]
        if form.kind == "hot" and value is not None:
            return replace(form, rest=form.rest + sign * value)
        row = self.row(other)
        if form.kind != "line" or row is None:
            return None
        return replace(form, shift=self._sum_of(form.shift, row, sign))

    def _sum_of(self, left: int | None, right: int | None, sign: float = 1.0) -> int | None:
        """``left + sign * right`` of rows; what cancels is dropped."""
        terms = {} if left is None else self._terms(left)
        for node, count in ({} if right is None else self._terms(right)).items():
            terms[node] = terms.get(node, 0.0) + sign * count
        total: int | None = None
        for node, count in sorted(terms.items(), key=lambda term: -term[1]):
            total = self._with_term(total, node, count)
        return total

    def _with_term(self, total: int | None, node: int, count: float) -> int | None:
        if count == 0.0:
            return total
        value = node if abs(count) == 1.0 else self.rows("mul", node, self.number(abs(count)))
        if total is None:
            return value if count > 0 else self.rows("neg", value)
        return self.rows("add" if count > 0 else "sub", total, value)

    def _terms(self, number: int) -> dict[int, float]:
        """A row value as a sum of others, each with its factor."""
        node = self.graph[number]
        signs = {"add": (1.0, 1.0), "sub": (1.0, -1.0), "neg": (-1.0,)}.get(node.op)
        if node.op == "reshape" and self.graph[node.inputs[0]].size == self.m:
            signs = (1.0,)
        elif node.shape != (self.m,):
            signs = signs if node.size == self.m else None
        if signs is None:
            return {self.op_reshape({}, [number], (self.m,), node.dtype): 1.0}
        found: dict[int, float] = {}
        for sign, source in zip(signs, node.inputs, strict=True):
            for inner, count in self._terms(source).items():
                found[inner] = found.get(inner, 0.0) + sign * count
        return found

    def known(self, node: Node, inputs: list[int]) -> int | None:
        """The logarithm of an exponential, also where a reshape lies between."""
        if node.op == "log":
            base = inputs[0]
            while self.graph[base].op == "reshape":
                base = self.graph[base].inputs[0]
            if self.graph[base].op == "exp" and self.graph[base].size == node.size:
                return self.op_reshape({}, [self.graph[base].inputs[0]], node.shape, node.dtype)
        return super().known(node, inputs)

    def _multiplied(self, forms: list[Form | None], values: list[float | None]) -> Form | None:
        if forms[0] and forms[1]:
            hot = next((f for f in forms if f and f.kind == "hot"), None)
            line = next((f for f in forms if f and f.kind == "line"), None)
            if hot is None or line is None:
                return None
            return replace(line, kind="mix", hot=hot.hot, rest=hot.rest, label=hot.label)
        form = forms[0] or forms[1]
        value = values[1] if forms[0] else values[0]
        return None if form is None or value is None else self._times(form, value)

    def _selected(self, mask: Form, inputs: tuple[int, ...], forms: list[Form | None],
                  values: list[float | None]) -> Form | None:
        yes, no = values
        if yes is not None and no is not None:
            return Form("hot", hot=yes - no, rest=no, label=mask.label)
        if forms[0] and forms[0].kind == "line" and no == 0.0:
            return replace(forms[0], kind="mix", hot=1.0, rest=0.0, label=mask.label)
        return None

    # what is read of a row

    def _reduced(self, number: int, node: Node) -> int:
        form, source = self.forms[node.inputs[0]], self.source[node.inputs[0]]
        axes, last = node.attr("axes"), len(source.shape) - 1
        if last not in axes:
            raise Declined(f"{describe(self.source, number)} reduces the product down its columns")
        value = self._of_row(node.op, form)
        if value is None:
            raise Declined(f"{describe(self.source, number)} of the product is no sum, largest or sum of exponentials")
        shape = source.shape[:-1]
        whole = self.op_reshape({}, [value], shape, "float32")
        rest = tuple(a for a in axes if a != last)
        if not rest:
            return whole
        if node.op != "reduce_sum":
            raise Declined(f"{describe(self.source, number)} reduces more than rows")
        return self.graph.add(Node(node.op, (whole,), node.shape, "float32", (("axes", rest),)))

    def _of_row(self, op: str, form: Form) -> int | None:
        if op == "reduce_max" and form.kind == "line" and form.scale > 0:
            return self._line(form, "top", 1.0)
        if op != "reduce_sum":
            return None
        if form.kind == "line":
            return self._line(form, "total", float(self.n))
        if form.kind == "exp":
            inner = self.statistic("lse")
            total = self._sum_of(inner, form.shift)
            return self.number(1.0) if total is None else self.rows("exp", total)
        if form.kind == "mix":
            value = self._sum_of(
                self._weighted(self._picked(form), form.hot), self._weighted(self._line(form, "total", float(self.n)),
                                                                             form.rest),
            )
            return value if value is not None else self.number(0.0)
        return None

    def _weighted(self, value: int, weight: float) -> int | None:
        return None if weight == 0.0 else value if weight == 1.0 else self.rows("mul", value, self.number(weight))

    def _line(self, form: Form, name: str, count: float) -> int:
        value = self.statistic(name)
        if form.scale != 1.0:
            value = self.rows("mul", value, self.number(form.scale)) if form.scale else self.number(0.0)
        if form.shift is None:
            return value
        shift = form.shift if count == 1.0 else self.rows("mul", form.shift, self.number(count))
        total = self._sum_of(value, shift)
        return self.number(0.0) if total is None else total

    def _picked(self, form: Form) -> int:
        if self.label not in (None, form.label):
            raise Declined("values of the product are picked by two different labels")
        self.label = form.label
        return self._line(form, "picked", 1.0)

    def _gathered(self, node: Node) -> int:
        """``take_along_axis`` with one label a row; a label out of range gives what the reference gives."""
        equation = self.source.equations[node.attr("serial")]
        form, indices = self.forms[node.inputs[0]], self.source[node.inputs[1]]
        how = equation.params["dimension_numbers"]
        rank = len(self.source[node.inputs[0]].shape)
        along = tuple(how.start_index_map) == (rank - 1,) and tuple(how.collapsed_slice_dims) == (rank - 1,)
        if not along or indices.size != self.m or node.size != self.m or form.kind != "line":
            raise Declined("it gathers from the product other than by one label a row")
        label = self.row(node.inputs[1])
        if label is None:
            raise Declined("the labels are not one a row")
        mode = str(equation.params["mode"])
        if "CLIP" in mode:
            bounds = [self.const(v, (self.m,), "int32") for v in (0, self.n - 1)]
            label = self.elementwise("max", [label, bounds[0]], (self.m,), "int32")
            label = self.elementwise("min", [label, bounds[1]], (self.m,), "int32")
        value = self._picked(replace(form, label=label))
        if "FILL" in mode:
            zero, end = (self.const(v, (self.m,), "int32") for v in (0, self.n))
            inside = self.elementwise("and", [
                self.elementwise("ge", [label, zero], (self.m,), "bool"),
                self.elementwise("lt", [label, end], (self.m,), "bool"),
            ], (self.m,), "bool")
            value = self.elementwise("select", [inside, value, self.number(math.nan)], (self.m,), "float32")
        return self.op_reshape({}, [value], node.shape, "float32")
