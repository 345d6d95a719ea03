"""The matmul recipe's template: a module a person would keep."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.base import itemsize
from maxkernel_nb.authors.recipes.describing import said
from maxkernel_nb.authors.recipes.expressions import Leaf
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import BLOCK_HELPER, comment, erf_helper, indent, joined, run_helpers, vmem_line

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.matmul import MatmulMatch

RESERVED = {
    "jax", "jnp", "lax", "pl", "pltpu", "functools", "m", "n", "k", "rows", "columns", "block_m", "block_n", "block_k",
    "product", "acc", "kernel", "out", "step", "steps", "k_index", "block", "blocks", "value", "column",
    "share", "sofar", "reduced",
}


def _after(argument: str, at: int) -> str:
    """An argument of the steps after step ``at``, whose value they know as ``acc``."""
    if not argument.startswith("%"):
        return argument
    return "acc" if int(argument[1:]) == at else f"%{int(argument[1:]) - at - 1}"


_TURN_HELPER = '''
def _turn(outer, inner, steps):
    """Inner blocks run forwards and backwards in turn, so that the block at each turn need not be fetched again."""
    return jnp.where(jax.lax.rem(outer, 2) == 0, inner, steps - 1 - inner)
'''


def render(
    match: MatmulMatch, params: dict[str, int], blocks: tuple[int, int, int], bound_text: str, vmem_limit: int
) -> str:
    return Module(match, params, blocks, bound_text, vmem_limit).text()


class Module:
    def __init__(
        self, match: MatmulMatch, params: dict[str, int], blocks: tuple[int, int, int], bound_text: str, vmem_limit: int
    ) -> None:
        self.match, self.params, self.blocks = match, params, blocks
        self.bound_text, self.vmem_limit = bound_text, vmem_limit
        self.whole_k = params["BLOCK_K"] >= match.k
        self.whole_n, self.folds = match.holds_rows, match.fold >= 0
        self.x, self.w = (match.signature.params[i] for i in (match.lhs, match.rhs))
        self.weights = [self.w, *([match.signature.params[match.second]] if match.second >= 0 else [])]
        self.products = ["product"] if len(self.weights) == 1 else [f"{w}_product" for w in self.weights]
        self.columns = ["columns"] if len(self.weights) == 1 else [f"{w}_columns" for w in self.weights]
        self.sums_refs = ["acc_ref"] if len(self.weights) == 1 else [f"{w}_acc_ref" for w in self.weights]
        texts = " ".join(c.text for c in match.epilogue.constants)
        self.uses = {name for name in ("n", "k", "m") if re.search(rf"\b{name}\b", texts)}
        runs = [step.args[1] for step in match.epilogue.steps if step.op.startswith("run_")]
        self.run = match.epilogue.constants[int(runs[0][1:])].text if runs else ""
        self.rows_outer = self.folds or self._rows_outer()
        # with two axes the inner one can turn round at each outer step: the block at the turn is there already
        self.snake = self.whole_k and not self.whole_n and not self.folds
        if self.folds:
            self.uses.add("n")

    def _rows_outer(self) -> bool:
        """With whole depth in a block, the outer axis' operand is read once; the other once per outer step."""
        bm, bn, _ = self.blocks
        left = self.match.m * itemsize(self.match.dtypes[self.match.lhs])
        right = self.match.products * self.match.n * itemsize(self.match.dtypes[self.match.rhs])
        return left + right * -(-self.match.m // bm) <= right + left * -(-self.match.n // bn)

    # names

    def leaf_name(self, leaf: Leaf) -> str:
        return self.match.signature.params[leaf.param]

    def ref(self, leaf: Leaf) -> str:
        same = [other for other in self.match.epilogue.leaves if other.param == leaf.param]
        doubled = leaf.param in (self.match.lhs, self.match.rhs, self.match.second) or len(same) > 1
        return f"{self.leaf_name(leaf)}_{leaf.kind}_ref" if doubled else f"{self.leaf_name(leaf)}_ref"

    # pieces

    def text(self) -> str:
        helpers = [BLOCK_HELPER] if not self.match.batch_rank or not self.whole_k else []
        helpers += [_TURN_HELPER] if self.snake else []
        terms = 2 if self.match.dots_dtype == "bfloat16" else 3
        helpers += self.more_helpers()
        helpers += erf_helper(self.epilogue_text()) + run_helpers(self.epilogue_text(), terms)
        parts = [self.header(), self.imports(), self.constants(), *helpers, self.kernel(), self.entry()]
        return "\n\n".join(p.strip("\n") for p in parts[:3]) + "\n\n\n" + "\n\n\n".join(
            p.strip("\n") for p in parts[3:]
        ) + "\n"

    def more_helpers(self) -> list[str]:
        return []

    def header(self) -> str:
        match = self.match
        bm, bn, bk = self.blocks
        what = f"{match.signature.entry}: {' and '.join(f'{self.x} @ {w}' for w in self.weights)}"
        pair = len(self.weights) == 2
        after = said(match.epilogue)
        what += f", then {after}, in one Pallas TPU kernel." if after else " as a Pallas TPU kernel."
        why = "Both products are" if pair else "The product is"
        why += f" {'taken' if self.whole_k else 'accumulated'} in {self.sums} in VMEM"
        why += " and finished there: no intermediate goes to HBM." if match.epilogue.steps else "."
        why += f" A block of {self.x} is read once for both." if pair else ""
        tiles = f"Tiles: {bm} x {bn} results from {bm} x {bk} and {bk} x {bn} inputs"
        tiles += ", the whole depth in one step." if self.whole_k else ", along the depth step by step."
        if self.whole_n:
            tiles += " A block holds whole rows, because the epilogue reduces along them."
        sizes = f"m={match.m}, n={match.n}, k={match.k}"
        sizes += f", {match.batch} products" if match.batch_rank else ""
        return comment(what, why, tiles, f"Bound for {sizes}: {self.bound_text}.")

    def imports(self) -> str:
        lax = "from jax import lax\n" if "lax." in self.epilogue_text() or self.ragged_text() else ""
        return (
            "import functools\n" + ("import math\n" if self.run and not self.whole_n else "")
            + "\nimport jax\nimport jax.numpy as jnp\n" + lax
            + "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu"
        )

    def constants(self) -> str:
        lines = [f"{name} = {value}" for name, value in self.params.items()]
        lines.append(vmem_line(self.vmem_limit))
        return "\n".join(lines)

    def ragged_text(self) -> str:
        return "" if self.whole_k else "lax"

    def epilogue_text(self) -> str:
        return "\n".join(self.epilogue(*self.products))

    def epilogue(self, product: str, second: str = "") -> list[str]:
        """Lines that load the leaves, compute, and store."""
        lines, names = [], {"acc": product} | ({"acc2": second} if second else {})
        taken = set(RESERVED) | set(self.match.signature.params) | set(self.products)
        for i, leaf in enumerate(self.match.epilogue.leaves):
            stem = self.leaf_name(leaf)
            name = stem if stem not in names.values() and stem not in RESERVED else f"{stem}_{leaf.kind}"
            names[f"@{i}"] = name
            load = f"{self.ref(leaf)}[0, 0]" if leaf.kind == "scalar" else f"{self.ref(leaf)}[...]"
            lines.append(f"{name} = {load}.astype(jnp.float32)")
        if self.folds:
            return [*lines, *self.folded(names, taken)]
        body, result = Lines(self.match.epilogue, names, taken).render()
        if result != product and not result.isidentifier():
            body.append(f"result = {result}")
            result = "result"
        return [*lines, *body, f"out_ref[...] = {self.shaped(result)}.astype(out_ref.dtype)"]

    def folded(self, names: dict[str, str], taken: set[str]) -> list[str]:
        """The block's share of each row's reduction, joined with what the blocks before it gave."""
        epilogue, at = self.match.epilogue, self.match.fold
        kind = epilogue.steps[at].op[7:]
        first = epilogue.model_copy(update={"steps": epilogue.steps[:at], "result": epilogue.steps[at].args[0]})
        later = [s.model_copy(update={"args": tuple(_after(a, at) for a in s.args)}) for s in epilogue.steps[at + 1 :]]
        rest = epilogue.model_copy(update={"steps": tuple(later), "result": _after(epilogue.result, at)})
        body, value = Lines(first, names, taken).render()
        done, result = Lines(rest, {**names, "acc": "reduced"}, taken | {"reduced"}).render()
        neutral = {"sum": "0.0", "max": "-jnp.inf", "min": "jnp.inf"}[kind]
        result = result if result.isidentifier() else f"({result})"
        joined_text = "sofar_ref[...] + share" if kind == "sum" else f"jnp.{kind}imum(sofar_ref[...], share)"
        return [
            *body,
            f"value = {value}",
            "if n % value.shape[1]:  # the last block reaches past the end of the rows",
            "    column = jax.lax.broadcasted_iota(jnp.int32, value.shape, 1)",
            f"    value = jnp.where(column < n - block * value.shape[1], value, {neutral})",
            f"share = jnp.{kind}(value, axis=1, keepdims=True)",
            "",
            "@pl.when(block == 0)",
            "def _first_block():",
            "    sofar_ref[...] = share",
            "",
            "@pl.when(block > 0)",
            "def _next_block():",
            f"    sofar_ref[...] = {joined_text}",
            "",
            "@pl.when(block == blocks - 1)",
            "def _last_block():",
            "    reduced = sofar_ref[...]",
            indent([*done, f"out_ref[...] = {result}.astype(out_ref.dtype)"]),
        ]

    def shaped(self, result: str) -> str:
        return result if self.match.epilogue.result == "acc" or self.produces_block() else (
            f"jnp.broadcast_to({result}, out_ref.shape)"
        )

    def produces_block(self) -> bool:
        """True if the result surely has the output block's shape: it depends on the product (or on a full input)."""
        epilogue = self.match.epilogue
        wide: dict[str, str] = {"acc": "full", "acc2": "full"}
        wide.update({f"@{i}": leaf.kind for i, leaf in enumerate(epilogue.leaves)})
        order = ["scalar", "row", "col", "full"]
        for i, step in enumerate(epilogue.steps):
            kinds = [wide.get(a, "scalar") for a in step.args]
            if step.op.startswith("reduce_"):
                wide[f"%{i}"] = "col" if "full" in kinds else "scalar"
            else:
                full = step.op.startswith("run_") or {"row", "col"} <= set(kinds)
                both = "full" if full else max(kinds, key=order.index)
                wide[f"%{i}"] = both
        return wide.get(epilogue.result, "scalar") == self.match.out_kind

    def loads(self) -> list[str]:
        """The operands in the type that the product takes."""
        match = self.match
        texts = []
        narrowed = (*match.narrowed, match.narrowed[1])
        for name, param, narrow in zip(
            (self.x, *self.weights), (match.lhs, match.rhs, match.second), narrowed, strict=False
        ):
            own = "bfloat16" if narrow else match.dtypes[param]
            wanted = match.dots_dtype if own != match.dots_dtype else own
            cast = f".astype(jnp.{wanted})" if wanted != match.dtypes[param] else ""
            texts.append(f"{name}_ref[...]{cast}")
        return texts

    def dots(self) -> list[str]:
        x, *columns = self.loads() if self.whole_k else ["rows", *self.columns]
        return [self.dot(x, w) for w in columns]

    def dot(self, x: str, w: str) -> str:
        match = self.match
        exact = match.precision and match.dots_dtype == "float32"
        extra = f", precision=jax.lax.Precision.{match.precision}" if exact else ""
        if match.rhs_form == "kn":
            return f"jnp.dot({x}, {w}, preferred_element_type=jnp.{self.sums}{extra})"
        dims = "(((1,), (1,)), ((), ()))"
        return f"jax.lax.dot_general({x}, {w}, {dims}, preferred_element_type=jnp.{self.sums}{extra})"

    @property
    def sums(self) -> str:
        """The type products are added up in."""
        return "int32" if self.match.dots_dtype == "int8" else "float32"

    def as_float(self, text: str) -> str:
        return f"{text}.astype(jnp.float32)" if self.sums == "int32" else text

    def kernel(self) -> str:
        match = self.match
        refs = [f"{name}_ref" for name in (self.x, *self.weights)]
        refs += [*(self.ref(leaf) for leaf in match.epilogue.leaves), "out_ref"]
        if not self.whole_k:
            refs += self.sums_refs
        if self.folds:
            refs.append("sofar_ref")
        statics = sorted(self.uses | (set() if self.whole_k else {"k"}))
        head = f"def _kernel({', '.join(refs)}{', *, ' + ', '.join(statics) if statics else ''}):"
        axis = self.axes().index("j") if self.folds else 0
        start = [f"block, blocks = pl.program_id({axis}), pl.num_programs({axis})"] if self.folds else []
        return head + "\n" + indent(start + self.whole_k_body() if self.whole_k else start + self.stepped_body())

    def whole_k_body(self) -> list[str]:
        made = [f"{name} = {self.as_float(dot)}" for name, dot in zip(self.products, self.dots(), strict=True)]
        return [*made, *self.epilogue(*self.products)]

    def stepped_body(self) -> list[str]:
        match = self.match
        axis = self.axes().index("d")
        depth_axis = 0 if match.rhs_form == "kn" else 1
        return [
            f"step, steps = pl.program_id({axis}), pl.num_programs({axis})",
            f"rows, {', '.join(self.columns)} = {', '.join(self.loads())}",
            "block_k = rows.shape[1]",
            "if k % block_k:  # the last step reaches past the end: what lies there is not ours",
            "    left = k - step * block_k",
            "    rows = jnp.where(lax.broadcasted_iota(jnp.int32, rows.shape, 1) < left, rows, 0)",
            *(f"    {c} = jnp.where(lax.broadcasted_iota(jnp.int32, {c}.shape, {depth_axis}) < left, {c}, 0)"
              for c in self.columns),
            "",
            "@pl.when(step == 0)",
            "def _start():",
            *(f"    {acc}[...] = jnp.zeros_like({acc})" for acc in self.sums_refs),
            "",
            *(f"{acc}[...] += {dot}" for acc, dot in zip(self.sums_refs, self.dots(), strict=True)),
            "",
            "@pl.when(step == steps - 1)",
            "def _finish():",
            indent(self.finish()),
        ]

    def finish(self) -> list[str]:
        if self.match.epilogue.uses("acc") == 1 and not self.match.epilogue.steps:
            return self.epilogue(self.as_float("acc_ref[...]"))
        sums = zip(self.products, self.sums_refs, strict=True)
        return [*(f"{name} = {self.as_float(f'{acc}[...]')}" for name, acc in sums), *self.epilogue(*self.products)]

    # the entry function

    def entry(self) -> str:
        match = self.match
        x = self.x
        lines = first_lines(match.signature)
        lines += self.checks()
        lines += self.sizes()
        lines += self.block_choice()
        lines += ["out = pl.pallas_call(", indent(self.call()), f")({', '.join(self.operands())})"]
        lines += [f"return {self.output()}"]
        both = " and ".join(self.weights)
        doc = f'"""{x}: {self.rank_text(match.lhs)}, {both}: {self.rank_text(match.rhs)}. Any sizes; float32 inside."""'
        return f"def {match.signature.entry}({match.signature.header}):\n" + indent([doc, *lines])

    def rank_text(self, param: int) -> str:
        match = self.match
        if match.batch_rank:
            form = match.lhs_form if param == match.lhs else match.rhs_form
            return f"[..., {', '.join(form)}]"
        if param == match.lhs:
            if match.lhs_form == "km":
                return "[k, m]"
            return "[..., k]" if match.lhs_rank > 2 else "[m, k]"
        return "[k, n]" if match.rhs_form == "kn" else "[n, k]"

    def checks(self) -> list[str]:
        match = self.match
        ranks = {self.x: match.lhs_rank, self.w: match.rhs_rank}
        tests = " or ".join(f"{name}.ndim != {rank}" for name, rank in ranks.items())
        wanted = " and ".join(f"{name} of rank {rank}" for name, rank in ranks.items())
        return [
            f"if {tests}:",
            f'    raise ValueError(f"this kernel takes {wanted}, not {{{self.x}.shape}} and {{{self.w}.shape}}")',
        ]

    def sizes(self) -> list[str]:
        match = self.match
        x, w = self.x, self.w
        if match.batch_rank:
            return self.batched_sizes()
        rows = x if match.lhs_form == "mk" else f"{x}.reshape({x}.shape[0], -1).T" if match.lhs_rank > 2 else f"{x}.T"
        if match.lhs_form == "mk" and match.lhs_rank > 2:
            rows = f"{x}.reshape(-1, {x}.shape[-1])"
        n_axis, k_axis = (1, 0) if match.rhs_form == "kn" else (0, 1)
        return [
            f"rows, {', '.join(self.columns)} = {rows}, {', '.join(self.flat(name) for name in self.weights)}",
            f"(m, k), n = rows.shape, {self.columns[0]}.shape[{n_axis}]",
            f"if {self.columns[0]}.shape[{k_axis}] != k:",
            f'    raise ValueError(f"{x} {{{x}.shape}} and {w} {{{w}.shape}} do not share the contracted size")',
            *self.alike(),
            *self.limits(),
        ]

    def flat(self, w: str) -> str:
        """Columns as a matrix."""
        if self.match.rhs_rank == 2:
            return w
        return f"{w}.reshape({w}.shape[0], -1)" if self.match.rhs_form == "kn" else f"{w}.reshape(-1, {w}.shape[-1])"

    def alike(self) -> list[str]:
        if len(self.weights) == 1:
            return []
        first, second = self.weights
        return [
            f"if {second}.shape != {first}.shape:",
            f'    raise ValueError(f"{second} {{{second}.shape}} is not of the shape of {first} {{{first}.shape}}")',
        ]

    def batched_sizes(self) -> list[str]:
        x, w, axis = self.x, self.w, self.match.batch_rank
        n_axis, k_axis = (axis + 1, axis) if self.match.rhs_form == "kn" else (axis, axis + 1)
        plain = axis == 1
        return [
            f"m, k, n = {x}.shape[{axis}], {x}.shape[{axis + 1}], {w}.shape[{n_axis}]",
            f"if {w}.shape[:{axis}] != {x}.shape[:{axis}] or {w}.shape[{k_axis}] != k:",
            f'    raise ValueError(f"{x} {{{x}.shape}} and {w} {{{w}.shape}} do not share batch and contracted size")',
            f"rows = {x}" if plain else f"rows = {x}.reshape(-1, m, k)",
            *(f"{c} = {w}" if plain else f"{c} = {w}.reshape(-1, *{w}.shape[{axis}:])"
              for c, w in zip(self.columns, self.weights, strict=True)),
            *self.alike(),
            *self.limits(),
        ]

    def limits(self) -> list[str]:
        match, lines = self.match, []
        if self.whole_k:
            lines += [
                "if k > BLOCK_K:",
                '    raise NotImplementedError(f"this kernel holds the whole depth in VMEM: k={k} is over {BLOCK_K}")',
            ]
        if self.whole_n:
            lines += [
                f"if n > {match.n}:",
                f'    raise NotImplementedError(f"this kernel holds whole rows in VMEM: n={{n}} is over {match.n}")',
            ]
        return lines

    def block_choice(self) -> list[str]:
        # a batch has steps enough: a block may be all of an axis
        several = self.match.batch_rank > 0
        lines = ["block_m = min(m, BLOCK_M)" if several else f"block_m = _block(m, BLOCK_M, {self.match.rows_unit})"]
        if self.whole_n:
            lines.append("block_n = n  # whole rows")
        elif self.run:
            lines += [
                f"whole = math.lcm(128, {self.run})  # no run of columns is cut",
                "parts = [b for b in range(whole, max(BLOCK_N, whole) + 1, whole) if n % b == 0]",
                "block_n = parts[-1] if parts else n  # every block is full: a sum must not see what lies past the end",
            ]
        else:
            lines.append("block_n = min(n, BLOCK_N)" if several else "block_n = _block(n, BLOCK_N, 128)")
        lines.append("block_k = k  # whole depth" if self.whole_k else "block_k = _block(k, BLOCK_K, 128)")
        if self.snake:
            lines.append(f"steps = pl.cdiv({'n, block_n' if self.rows_outer else 'm, block_m'})")
        return lines

    def axes(self) -> list[str]:
        """Names of the grid's axes, outermost first: b over a batch, i over rows, j over columns, d over depth."""
        axes = ["i"] if self.whole_n else ["i", "j"]
        if self.whole_k and not self.whole_n and not self.rows_outer:
            axes = ["j", "i"]
        batch = ["b"] if self.match.batch_rank else []
        return [*batch, *axes] if self.whole_k else [*batch, *axes, "d"]

    def call(self) -> list[str]:
        match = self.match
        axes = ", ".join(self.axes())
        column = "0" if self.whole_n else "j"
        row = "i"
        depth = "0" if self.whole_k else "d"
        if self.snake and self.rows_outer:
            column = "_turn(i, j, steps)"
        elif self.snake:
            row = "_turn(j, i, steps)"
        # the batch's axis is no axis of a block
        one, b = ("None, ", "b, ") if match.batch_rank else ("", "")
        spec = {
            "full": f"pl.BlockSpec(({one}block_m, block_n), lambda {axes}: ({b}{row}, {column}))",
            "row": f"pl.BlockSpec((1, block_n), lambda {axes}: (0, {column}))",
            "col": f"pl.BlockSpec(({one}block_m, 1), lambda {axes}: ({b}{row}, 0))",
            "scalar": "pl.BlockSpec(memory_space=pltpu.SMEM)",
        }
        columns = (
            f"pl.BlockSpec(({one}block_k, block_n), lambda {axes}: ({b}{depth}, {column}))" if match.rhs_form == "kn"
            else f"pl.BlockSpec(({one}block_n, block_k), lambda {axes}: ({b}{column}, {depth}))"
        )
        in_specs = [f"pl.BlockSpec(({one}block_m, block_k), lambda {axes}: ({b}{row}, {depth}))"]
        in_specs += [columns] * len(self.weights)
        in_specs += [spec[leaf.kind] for leaf in match.epilogue.leaves]
        size = {"b": "rows.shape[0]"}
        size |= {a: f"pl.cdiv({s}, block_{s})" for a, s in (("i", "m"), ("j", "n"), ("d", "k"))}
        statics = sorted(self.uses | (set() if self.whole_k else {"k"}))
        kernel = f"functools.partial(_kernel, {', '.join(f'{s}={s}' for s in statics)})" if statics else "_kernel"
        out_width = "n" if match.out_kind == "full" else "1"
        lead = "rows.shape[0], " if match.batch_rank else ""
        in_order = ("d", "j") if self.folds else ("d",)
        semantics = ", ".join('"arbitrary"' if a in in_order else '"parallel"' for a in self.axes())
        if len(self.axes()) == 1:
            semantics += ","
        lines = [
            f"{kernel},",
            f"out_shape=jax.ShapeDtypeStruct(({lead}m, {out_width}), jnp.{match.out_dtype}),",
            f"grid=({joined([size[a] for a in self.axes()])}),",
            "in_specs=[", *(f"    {s}," for s in in_specs), "],",
            f"out_specs={spec[match.out_kind]},",
        ]
        scratch = [] if self.whole_k else [f"pltpu.VMEM((block_m, block_n), jnp.{self.sums})"] * len(self.weights)
        scratch += ["pltpu.VMEM((block_m, 1), jnp.float32)"] if self.folds else []
        if scratch:
            lines.append(f"scratch_shapes=[{', '.join(scratch)}],")
        lines += [
            "compiler_params=pltpu.CompilerParams(",
            f"    dimension_semantics=({semantics}), vmem_limit_bytes=VMEM_LIMIT",
            "),",
        ]
        return lines

    def operands(self) -> list[str]:
        lead = "-1, " if self.match.batch_rank else ""
        shapes = {"full": f"reshape({lead}m, n)", "row": "reshape(1, n)", "col": f"reshape({lead}m, 1)",
                  "scalar": "reshape(1, 1)"}
        leaves = [f"{self.leaf_name(leaf)}.{shapes[leaf.kind]}" for leaf in self.match.epilogue.leaves]
        return ["rows", *self.columns, *leaves]

    def output(self) -> str:
        x, w, match = self.x, self.w, self.match
        if match.batch_rank:
            whole = match.batch_rank == 1 and match.output_form != "lead"
            shapes = {"lead_tail": f"*{x}.shape[:-1], n", "lead": f"{x}.shape[:-1]", "lead_1": f"*{x}.shape[:-1], 1"}
            return "out" if whole else f"out.reshape({shapes[match.output_form]})"
        lead = f"*{x}.shape[:-1]" if match.lhs_form == "mk" else f"*{x}.shape[1:]"
        tail = f"*{w}.shape[1:]" if match.rhs_form == "kn" else f"*{w}.shape[:-1]"
        if match.output_form in ("m_n", "m_1") or (match.lhs_rank == match.rhs_rank == 2 and match.out_kind == "full"):
            return "out"
        if match.output_form == "lead_1" and match.lhs_rank == 2:
            return "out"
        shape = {
            "lead_tail": f"({lead}, {tail})", "lead_n": f"({lead}, n)", "lead": f"({lead},)", "lead_1": f"({lead}, 1)",
            "m": "(m,)",
        }[match.output_form]
        if match.output_form in ("lead", "m") and match.lhs_rank == 2:
            shape = "m"
            return f"out.reshape({shape})"
        return f"out.reshape{shape}" if shape.startswith("(") else f"out.reshape({shape})"
