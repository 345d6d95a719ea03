"""The loss recipe's template: logits block by block, a few numbers a row kept of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.expressions import Leaf
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import BLOCK_HELPER, comment, erf_helper, fold_raises, indent, vmem_line

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.loss import LossMatch

_RESERVED = {
    "jax", "jnp", "pl", "pltpu", "functools", "m", "n", "k", "rows", "columns", "block_m", "block_n", "logits",
    "product", "column", "block", "blocks", "width", "part", "labels", "top", "lse", "picked", "total", "highest",
    "lane", "tiles", "tile", "first", "at", "base", "kept",
}
_START = {"top": "-jnp.inf", "sum": "0.0", "picked": "0.0", "total": "0.0"}
_LANES = 128


def render(match: LossMatch, params: dict[str, int], bound_text: str, vmem_limit: int) -> str:
    return _Module(match, params, bound_text, vmem_limit).text()


class _Module:
    def __init__(self, match: LossMatch, params: dict[str, int], bound_text: str, vmem_limit: int) -> None:
        self.match, self.params, self.bound_text, self.vmem_limit = match, params, bound_text, vmem_limit
        self.x, self.w = (match.signature.params[i] for i in (match.lhs, match.rhs))
        texts = " ".join(c.text for c in match.epilogue.constants)
        self.uses = sorted({"n", *(name for name in ("k", "m") if re.search(rf"\b{name}\b", texts))})
        kept = set(match.statistics)
        self.running = [name for name in ("top", "sum", "picked", "total")
                        if name in kept or ("lse" in kept and name in ("top", "sum"))]

    def text(self) -> str:
        kernel = self.kernel()
        parts = [BLOCK_HELPER, *erf_helper(kernel), kernel, self.statistics(), self.entry()]
        head = "\n\n".join((self.header(), self.imports(kernel), self.constants()))
        return fold_raises(head + "\n\n\n" + "\n\n\n".join(p.strip("\n") for p in parts) + "\n")

    def header(self) -> str:
        match = self.match
        return comment(
            f"{match.signature.entry}: {self.x} @ {self.w} and what the loss reads of it as a Pallas TPU kernel.",
            f"The {match.n} logits of a row are made block by block in VMEM and never stored: of each row only "
            f"{' and '.join(match.statistics)} are kept. The loss is plain arithmetic on those.",
            f"Tiles: {self.params['BLOCK_M']} rows stay in VMEM while {self.params['BLOCK_N']} columns at a time go "
            f"past, in {self.params['PARTS']} parts so that one part's exponentials run beside the next one's product.",
            *(["Each lane of a row keeps numbers of its own; they are joined once, after the last block."]
              if match.by_lane else []),
            f"Bound for m={match.m}, n={match.n}, k={match.k}: {self.bound_text}.",
        )

    def imports(self, kernel: str) -> str:
        lax = "from jax import lax\n" if re.search(r"(?<!jax\.)\blax\.", kernel + "\n".join(self.match.after)) else ""
        return (
            "import functools\n\nimport jax\nimport jax.numpy as jnp\n" + lax
            + "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu"
        )

    def constants(self) -> str:
        lines = [f"{name} = {value}" for name, value in self.params.items()]
        return "\n".join([*lines, vmem_line(self.vmem_limit)])

    # the kernel

    def ref(self, leaf: Leaf) -> str:
        name = self.match.signature.params[leaf.param]
        return f"{name}_{leaf.kind}_ref" if leaf.param in (self.match.lhs, self.match.rhs) else f"{name}_ref"

    def kernel(self) -> str:
        match = self.match
        refs = ["rows_ref", "columns_ref", *(self.ref(leaf) for leaf in match.epilogue.leaves)]
        refs += ["labels_ref"] if match.label else []
        refs += [f"{name}_ref" for name in match.statistics] + [f"{name}_sofar" for name in self.running]
        body = [
            "block, blocks = pl.program_id(1), pl.num_programs(1)",
            f"width = columns_ref.shape[{1 if match.rhs_form == 'kn' else 0}] // PARTS",
            "",
            "@pl.when(block == 0)",
            "def _start():",
            *(f"    {name}_sofar[...] = jnp.full_like({name}_sofar, {_START[name]})" for name in self.running),
            "",
            "for part in range(PARTS):",
            indent(self.part()),
            "",
            "@pl.when(block == blocks - 1)",
            "def _finish():",
            indent(self.joined() if match.by_lane else [self.finished(name) for name in match.statistics]),
        ]
        head = f"def _kernel({', '.join(refs)}, *, {', '.join(self.uses)}):"
        if len(head) > 110:
            head = f"def _kernel(\n    {', '.join(refs)},\n    *, {', '.join(self.uses)},\n):"
        return head + "\n" + indent(body)

    def finished(self, name: str) -> str:
        value = "top_sofar[...] + jnp.log(sum_sofar[...])" if name == "lse" else f"{name}_sofar[...]"
        return f"{name}_ref[...] = {value}"

    def joined(self) -> list[str]:
        """Lanes' numbers made the row's."""
        lines = []
        if "top" in self.running:
            lines.append("top = jnp.max(top_sofar[...], axis=1, keepdims=True)")
        if "sum" in self.running:
            lines += [
                "base = jnp.where(top == -jnp.inf, 0.0, top)",
                "share = sum_sofar[...] * jnp.exp(top_sofar[...] - base)",
            ]
        values = {"top": "top", "lse": "top + jnp.log(jnp.sum(share, axis=1, keepdims=True))",
                  "picked": "jnp.sum(picked_sofar[...], axis=1, keepdims=True)",
                  "total": "jnp.sum(total_sofar[...], axis=1, keepdims=True)"}
        return [*lines, *(f"{name}_ref[...] = {values[name]}" for name in self.match.statistics)]

    def part(self) -> list[str]:
        match = self.match
        lines, names = [], {"acc": "product"}
        taken = set(_RESERVED) | set(match.signature.params)
        for i, leaf in enumerate(match.epilogue.leaves):
            stem = match.signature.params[leaf.param]
            names[f"@{i}"] = name = stem if stem not in _RESERVED and stem not in names.values() else f"{stem}_leaf"
            place = {"full": "[:, pl.ds(part * width, width)]", "row": "[:, pl.ds(part * width, width)]",
                     "col": "[...]", "scalar": "[0, 0]"}[leaf.kind]
            lines.append(f"{name} = {self.ref(leaf)}{place}.astype(jnp.float32)")
        body, result = Lines(match.epilogue, names, taken).render()
        lines += [f"product = {self.dot()}", *body]
        lines.append(f"logits = {result}")
        if match.by_lane:
            return [*lines, *self.gathered_by_lane()]
        lines += [
            "column = (block * PARTS + part) * width + jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1)",
        ]
        return [*lines, *self.gathered()]

    def gathered(self) -> list[str]:
        lines = []
        if "picked" in self.running:
            lines += [
                "mine = jnp.where(column == labels_ref[...], logits, 0.0)",
                "picked_sofar[...] += jnp.sum(mine, axis=1, keepdims=True)",
            ]
        if "total" in self.running:
            lines.append("total_sofar[...] += jnp.sum(jnp.where(column < n, logits, 0.0), axis=1, keepdims=True)")
        if "top" in self.running:
            lines += [
                "if n % (PARTS * width):  # the last block reaches past the end of the rows",
                "    logits = jnp.where(column < n, logits, -jnp.inf)",
                "highest = jnp.maximum(top_sofar[...], jnp.max(logits, axis=1, keepdims=True))",
            ]
            if "sum" in self.running:
                lines += [
                    "# a row of nothing but -inf so far has no exponentials to rescale",
                    "base = jnp.where(highest == -jnp.inf, 0.0, highest)",
                    "kept = sum_sofar[...] * jnp.exp(top_sofar[...] - base)",
                    "sum_sofar[...] = kept + jnp.sum(jnp.exp(logits - base), axis=1, keepdims=True)",
                ]
            lines.append("top_sofar[...] = highest")
        return lines

    def gathered_by_lane(self) -> list[str]:
        """The same numbers for each lane, tile by tile: nothing crosses the lanes in a step."""
        kept: list[str] = [name for name in ("picked", "total") if name in self.running]
        kept += ["highest"] if "top" in self.running else []
        sofar = {name: f"{'top' if name == 'highest' else name}_sofar" for name in kept}
        edge = {"total": "0.0", "highest": "-jnp.inf"}
        lines = [
            "first = (block * PARTS + part) * width",
            f"lane = jax.lax.broadcasted_iota(jnp.int32, (logits.shape[0], {_LANES}), 1)",
            *(f"{name} = {sofar[name]}[...]" for name in kept),
            f"for at in range(0, width, {_LANES}):",
            f"    tile = logits[:, at : at + {_LANES}]",
        ]
        for name in kept:
            if name == "picked":
                lines.append("    picked = jnp.where(lane == labels_ref[...] - first - at, tile, picked)")
                continue
            inside = f"jnp.where(lane < n - first - at, tile, {edge[name]}) if n % (PARTS * width) else tile"
            lines.append(f"    own = {inside}")
            lines.append("    total = total + own" if name == "total" else "    highest = jnp.maximum(highest, own)")
        if "sum" in self.running:
            lines += [
                "# a lane of nothing but -inf so far has no exponentials to rescale",
                "base = jnp.where(highest == -jnp.inf, 0.0, highest)",
                "kept = sum_sofar[...] * jnp.exp(top_sofar[...] - base)",
                f"for at in range(0, width, {_LANES}):",
                f"    share = jnp.exp(logits[:, at : at + {_LANES}] - base)",
                "    kept += jnp.where(lane < n - first - at, share, 0.0) if n % (PARTS * width) else share",
                "sum_sofar[...] = kept",
            ]
        return [*lines, *(f"{sofar[name]}[...] = {name}" for name in kept)]

    def dot(self) -> str:
        match = self.match
        place = "[:, pl.ds(part * width, width)]" if match.rhs_form == "kn" else "[pl.ds(part * width, width), :]"
        kinds = {match.dtypes[match.lhs], match.dtypes[match.rhs]}
        wide = "" if len(kinds) == 1 else ".astype(jnp.float32)"
        extra = ""
        if match.precision and kinds == {"float32"}:
            extra = f", precision=jax.lax.Precision.{match.precision}"
        x, w = f"rows_ref[...]{wide}", f"columns_ref{place}{wide}"
        if match.rhs_form == "kn":
            return f"jnp.dot({x}, {w}, preferred_element_type=jnp.float32{extra})"
        dims = "(((1,), (1,)), ((), ()))"
        return f"jax.lax.dot_general(\n    {x}, {w}, {dims}, preferred_element_type=jnp.float32{extra}\n)"

    # around it

    def arguments(self) -> str:
        leaves = [self.match.signature.params[leaf.param] for leaf in self.match.epilogue.leaves]
        own = list(dict.fromkeys(leaf for leaf in leaves if leaf not in (self.x, self.w)))
        return ", ".join([self.x, self.w, *own, *(["labels"] if self.match.label else [])])

    def statistics(self) -> str:
        match = self.match
        n_axis, k_axis = (1, 0) if match.rhs_form == "kn" else (0, 1)
        spec = {
            "full": "pl.BlockSpec((block_m, BLOCK_N), lambda i, j: (i, j))",
            "row": "pl.BlockSpec((1, BLOCK_N), lambda i, j: (0, j))",
            "col": "pl.BlockSpec((block_m, 1), lambda i, j: (i, 0))",
            "scalar": "pl.BlockSpec(memory_space=pltpu.SMEM)",
        }
        columns = ("pl.BlockSpec((k, BLOCK_N), lambda i, j: (0, j))" if match.rhs_form == "kn"
                   else "pl.BlockSpec((BLOCK_N, k), lambda i, j: (j, 0))")
        in_specs = ["pl.BlockSpec((block_m, k), lambda i, j: (i, 0))", columns]
        in_specs += [spec[leaf.kind] for leaf in match.epilogue.leaves] + ([spec["col"]] if match.label else [])
        shapes = {"full": "reshape(m, n)", "row": "reshape(1, n)", "col": "reshape(m, 1)", "scalar": "reshape(1, 1)"}
        given = ["rows", "columns"]
        given += [f"{match.signature.params[leaf.param]}.{shapes[leaf.kind]}" for leaf in match.epilogue.leaves]
        given += ["labels.reshape(m, 1)"] if match.label else []
        count = len(match.statistics)
        lines = [
            f'"""Of each row of the logits: {", ".join(match.statistics)}, {count} float32 arrays of m values."""',
            f"rows, columns = {self.x}.reshape(-1, {self.x}.shape[-1]), {self.w}",
            f"(m, k), n = rows.shape, columns.shape[{n_axis}]",
            f"if columns.shape[{k_axis}] != k:",
            f'    raise ValueError(f"{self.x} {{{self.x}.shape}} and {self.w} {{{self.w}.shape}} do not share the '
            'contracted size")',
            f"if k > {match.k}:",
            f'    raise NotImplementedError(f"this kernel holds the whole depth in VMEM: k={{k}} is over {match.k}")',
            "block_m = _block(m, BLOCK_M, 16)",
            "found = pl.pallas_call(",
            f"    functools.partial(_kernel, {', '.join(f'{u}={u}' for u in self.uses)}),",
            f"    out_shape=[jax.ShapeDtypeStruct((m, 1), jnp.float32)] * {count},",
            "    grid=(pl.cdiv(m, block_m), pl.cdiv(n, BLOCK_N)),",
            "    in_specs=[", *(f"        {s}," for s in in_specs), "    ],",
            f"    out_specs=[{spec['col']}] * {count},",
            f"    scratch_shapes=[pltpu.VMEM((block_m, {_LANES if match.by_lane else 1}), jnp.float32)]"
            f" * {len(self.running)},",
            "    compiler_params=pltpu.CompilerParams(",
            '        dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT',
            "    ),",
            f")({', '.join(given)})",
            "return [value[:, 0] for value in found]",
        ]
        return f"def _row_statistics({self.arguments()}):\n" + indent(lines)

    def entry(self) -> str:
        match = self.match
        given = self.arguments()
        if match.label:
            given = given.removesuffix("labels") + match.label
        names = ", ".join(match.statistics) if len(match.statistics) > 1 else f"({match.statistics[0]},)"
        lines = [
            *first_lines(match.signature), *match.before, f"{names} = _row_statistics({given})", *match.after,
            f"return {match.result}",
        ]
        return f"def {match.signature.entry}({match.signature.header}):\n" + indent("\n".join(lines))
