"""The row recipe's template."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.expressions import Leaf
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import BLOCK_HELPER, comment, erf_helper, indent, run_helpers, vmem_line

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.rowwise import RowwiseMatch

_RESERVED = {"jax", "jnp", "lax", "pl", "pltpu", "functools", "m", "n", "rows", "block_m", "out", "kernel"}


def render(match: RowwiseMatch, params: dict[str, int], bound: str, vmem_limit: int) -> str:
    return _Module(match, params, bound, vmem_limit).text()


class _Module:
    def __init__(self, match: RowwiseMatch, params: dict[str, int], bound: str, vmem_limit: int) -> None:
        self.match, self.params, self.bound, self.vmem_limit = match, params, bound, vmem_limit
        self.shape_name = match.signature.params[match.shaped_by]
        texts = " ".join(c.text for c in match.body.constants)
        self.statics = sorted(name for name in ("m", "n") if re.search(rf"\b{name}\b", texts))

    def text(self) -> str:
        body = "\n".join(self.body())
        lax = "from jax import lax\n" if "lax." in body else ""
        partial = "import functools\n\n" if self.statics else ""
        imports = (
            f"{partial}import jax\nimport jax.numpy as jnp\n{lax}"
            "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu"
        )
        constants = f"BLOCK_M = {self.params['BLOCK_M']}\n{vmem_line(self.vmem_limit)}"
        terms = 3 if "float32" in self.match.dtypes else 2
        helpers = [h.strip("\n") for h in (BLOCK_HELPER, *erf_helper(body), *run_helpers(body, terms))]
        head = "\n\n".join((self.header(), imports, constants))
        return "\n\n\n".join((head, *helpers, self.kernel(), self.entry())) + "\n"

    def header(self) -> str:
        match = self.match
        return comment(
            f"{match.signature.entry}: whole rows at a time as a Pallas TPU kernel.",
            *(f"Algebra: {note}." for note in match.algebra),
            f"Every value is read from HBM once and stays in VMEM until its row is done; a block holds "
            f"{min(self.params['BLOCK_M'], match.m)} rows of {match.n} elements.",
            f"Bound for m={match.m}, n={match.n}: {self.bound}.",
        )

    def name(self, leaf: Leaf) -> str:
        name = self.match.signature.params[leaf.param]
        doubled = sum(other.param == leaf.param for other in self.match.body.leaves) > 1
        return f"{name}_{leaf.kind}" if doubled or name in _RESERVED else name

    def body(self) -> list[str]:
        names, lines = {}, []
        for i, leaf in enumerate(self.match.body.leaves):
            name = names[f"@{i}"] = self.name(leaf)
            load = f"{name}_ref[0, 0]" if leaf.kind == "scalar" else f"{name}_ref[...]"
            lines.append(f"{name} = {load}" + ("" if leaf.kind == "matrix" else ".astype(jnp.float32)"))
        steps, result = Lines(self.match.body, names, _RESERVED | set(self.match.signature.params)).render()
        if not result.isidentifier():
            steps.append(f"result = {result}")
            result = "result"
        wide = result if self.fills_block() else f"jnp.broadcast_to({result}, out_ref.shape)"
        return [*lines, *steps, f"out_ref[...] = {wide}.astype(out_ref.dtype)"]

    def fills_block(self) -> bool:
        """True if the result surely has the output block's shape."""
        body = self.match.body
        order = ["scalar", "row", "col", "full"]
        kinds = {f"@{i}": leaf.kind for i, leaf in enumerate(body.leaves)}
        for i, step in enumerate(body.steps):
            args = [kinds.get(a, "scalar") for a in step.args]
            if step.op == "dot":
                kinds[f"%{i}"] = "full"
            elif step.op.startswith("reduce_"):
                kinds[f"%{i}"] = "col" if "full" in args else "scalar"
            else:
                full = step.op.startswith("run_") or {"row", "col"} <= set(args)
                kinds[f"%{i}"] = "full" if full else max(args, key=order.index)
        return kinds.get(body.result, "scalar") == self.match.out_kind

    def kernel(self) -> str:
        refs = ", ".join([*(f"{self.name(leaf)}_ref" for leaf in self.match.body.leaves), "out_ref"])
        statics = f", *, {', '.join(self.statics)}" if self.statics else ""
        return f"def _kernel({refs}{statics}):\n" + indent(self.body())

    def entry(self) -> str:
        match, name = self.match, self.shape_name
        lead = match.rank - match.tail_rank
        single = match.tail_rank == 1
        lines = first_lines(match.signature)
        lines += [
            f"if {name}.ndim != {match.rank}:",
            f'    raise ValueError(f"this kernel takes {name} of rank {match.rank}, not {{{name}.shape}}")',
        ]
        if single:
            lines.append(f"n = {name}.shape[-1]")
        else:
            rows = " * ".join(f"{name}.shape[{axis}]" for axis in range(lead))
            lines.append(f"n = {name}.size // ({rows})" if lead else f"n = {name}.size")
        lines += [
            f"if n > {match.n}:",
            f'    raise NotImplementedError(f"this kernel holds whole rows in VMEM: n={{n}} is over {match.n}")',
            f"m = {name}.size // n",
            "block_m = _block(m, BLOCK_M, 16)",
            "out = pl.pallas_call(", indent(self.call()), f")({self.operands()})",
            f"return {self.output()}",
        ]
        doc = '"""Any number of rows; float32 inside."""'
        return f"def {match.signature.entry}({match.signature.header}):\n" + indent([doc, *lines])

    def call(self) -> list[str]:
        spec = {
            "full": "pl.BlockSpec((block_m, n), lambda i: (i, 0))", "row": "pl.BlockSpec((1, n), lambda i: (0, 0))",
            "col": "pl.BlockSpec((block_m, 1), lambda i: (i, 0))",
            "scalar": "pl.BlockSpec(memory_space=pltpu.SMEM)",
            "matrix": "pl.BlockSpec((n, n), lambda i: (0, 0))",
        }
        match = self.match
        statics = ", ".join(f"{s}={s}" for s in self.statics)
        width = "n" if match.out_kind == "full" else "1"
        return [
            f"functools.partial(_kernel, {statics})," if statics else "_kernel,",
            f"out_shape=jax.ShapeDtypeStruct((m, {width}), jnp.{match.out_dtype}),",
            "grid=(pl.cdiv(m, block_m),),",
            "in_specs=[", *(f"    {spec[leaf.kind]}," for leaf in match.body.leaves), "],",
            f"out_specs={spec[match.out_kind]},",
            "compiler_params=pltpu.CompilerParams(",
            '    dimension_semantics=("parallel",), vmem_limit_bytes=VMEM_LIMIT',
            "),",
        ]

    def operands(self) -> str:
        shapes = {"full": ".reshape(m, n)", "row": ".reshape(1, n)", "col": ".reshape(m, 1)",
                  "scalar": ".reshape(1, 1)", "matrix": ""}
        params = self.match.signature.params
        return ", ".join(f"{params[leaf.param]}{shapes[leaf.kind]}" for leaf in self.match.body.leaves)

    def output(self) -> str:
        match, name = self.match, self.shape_name
        lead = match.rank - match.tail_rank
        if match.output_form in ("m_n", "m_1") or (match.rank == 2 and match.output_form in ("lead_tail", "lead_1")):
            return "out"
        if match.output_form == "lead_tail":
            return f"out.reshape({name}.shape)"
        shape = {
            "lead_n": f"(*{name}.shape[:{lead}], n)", "lead": f"{name}.shape[:{lead}]",
            "lead_1": f"(*{name}.shape[:{lead}], 1)", "m": "m",
        }[match.output_form]
        return f"out.reshape({shape})"
