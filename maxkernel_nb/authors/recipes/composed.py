"""Recipe: a function in parts: one region of it in a kernel of another recipe, the rest in plain JAX around it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes.algebra import rewritten
from maxkernel_nb.authors.recipes.aligned import Aligned
from maxkernel_nb.authors.recipes.base import (
    Bound,
    Match,
    Recipe,
    algebra_of,
    algebra_text,
    bound_text,
    itemsize,
)
from maxkernel_nb.authors.recipes.plain import Plain
from maxkernel_nb.authors.recipes.regions import Region, flops, regions
from maxkernel_nb.authors.recipes.signature import first_lines, signature_of
from maxkernel_nb.authors.recipes.text import comment, fold_raises, indent
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan


class ComposedMatch(Match):
    """``before`` and ``after`` are lines of plain JAX; between them ``made = kernel(arguments)``, written by ``part``
    from ``spec``. ``result`` is what is returned. The figures are those of the plain parts on the timing case.
    """

    part: str
    spec: dict[str, Any] = Field(default_factory=dict)
    kernel: str
    before: tuple[str, ...] = ()
    arguments: tuple[str, ...]
    after: tuple[str, ...] = ()
    result: str
    made: str = "out"
    plain_flops: float = 0.0
    plain_bytes: float = 0.0


class ComposedRecipe(Recipe):
    name = "parts"
    title = "one part in a kernel, the rest in plain JAX"
    match_type = ComposedMatch
    last_resort = True
    limits = (
        "one kernel a function; what lies around it is left to XLA",
        "around the kernel only what can be written in a few lines of plain JAX",
    )

    def __init__(self, parts: Mapping[str, Recipe]) -> None:
        self.parts = dict(parts)

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> ComposedMatch:
        names = [task.timing_case.name, *(n for n in traces if n != task.timing_case.name)]
        names, aligned = _aligned(names, traces)
        if len(aligned.outputs) != 1:
            raise Declined(f"it returns {len(aligned.outputs)} arrays, this recipe writes one")
        reasons: dict[str, str] = {}
        for region in regions(aligned):
            try:
                return self._match(aligned, region, names, traces, task)
            except Declined as reason:
                reasons.setdefault(region.recipe, str(reason))
        raise Declined("; ".join(f"as {n}, {r}" for n, r in reasons.items()) or "no part of it is a kernel's")

    def _match(
        self, aligned: Aligned, region: Region, names: list[str], traces: Mapping[str, Any], task: KernelTask
    ) -> ComposedMatch:
        recipe = self.parts.get(region.recipe)
        if recipe is None:
            raise Declined(f"there is no recipe {region.recipe}")
        if region.root == aligned.outputs[0] and all(aligned[c].op == "param" for c in region.cuts):
            raise Declined("there is nothing around the kernel")
        writer = Writer(aligned, region, task)
        inner = task.model_copy(update={
            "entry": writer.kernel, "params": writer.cut_names, "static": {}, "trees": (), "returns": None,
            "source": "", "name": writer.kernel,
        })
        graphs = aligned.region(region.root, region.cuts)
        if region.root == aligned.outputs[0]:
            for graph in graphs:
                graph.output_dtypes = aligned.graphs[0].output_dtypes
        match = recipe.recognise(dict(zip(names, graphs, strict=True)), inner)
        recipe.space(match)
        after, result = writer.finish(match)
        plain_flops, plain_bytes = _plain_work(aligned, region)
        return ComposedMatch(
            signature=signature_of(task), chip=task.chip, algebra=algebra_of(traces, task), part=recipe.name,
            spec=match.to_dict(), kernel=writer.kernel, before=writer.before, arguments=writer.arguments,
            after=after, result=result, made=writer.made, plain_flops=plain_flops, plain_bytes=plain_bytes,
        )

    def _inner(self, match: ComposedMatch) -> tuple[Recipe, Any]:
        recipe = self.parts[match.part]
        return recipe, recipe.match_type.from_dict(match.spec)

    def space(self, match: ComposedMatch) -> TuningSpace:
        recipe, inner = self._inner(match)
        return recipe.space(inner)

    def check(self, match: ComposedMatch, params: dict[str, int]) -> None:
        recipe, inner = self._inner(match)
        recipe.check(inner, params)

    def vmem_bytes(self, match: ComposedMatch, params: dict[str, int]) -> int:
        recipe, inner = self._inner(match)
        return recipe.vmem_bytes(inner, params)

    def bound(self, match: ComposedMatch) -> Bound:
        recipe, inner = self._inner(match)
        return _with_plain(recipe.bound(inner), match)

    def bound_with(self, match: ComposedMatch, params: dict[str, int]) -> Bound:
        recipe, inner = self._inner(match)
        return _with_plain(recipe.bound_with(inner, params), match)

    def estimate_ms(self, match: ComposedMatch, params: dict[str, int]) -> float:
        recipe, inner = self._inner(match)
        return recipe.estimate_ms(inner, params)

    def plan(self, match: ComposedMatch, params: dict[str, int]) -> Plan:
        recipe, inner = self._inner(match)
        plan = recipe.plan(inner, params)
        around = len(match.before) + len(match.after)
        return plan.model_copy(update={
            "strategy": f"one part as a kernel ({plan.strategy}), the rest left to XLA",
            "summary": (
                algebra_text(match) + f"{around} lines of plain JAX around one kernel, whose part is: {plan.summary}"
            ),
            "recipe": self.name,
            "spec": match.to_dict(),
        })

    def render(self, match: ComposedMatch, params: dict[str, int]) -> str:
        recipe, inner = self._inner(match)
        kernel = fold_raises(recipe.render(inner, params))
        entry = _entry(match)
        if "lax." in entry.replace("jax.lax.", "") and "from jax import lax" not in kernel:
            kernel = kernel.replace("import jax.numpy as jnp\n", "import jax.numpy as jnp\nfrom jax import lax\n", 1)
        return f"{_header(match, self.bound(match))}\n#\n{kernel.rstrip()}\n\n\n{entry}\n"


def _aligned(names: list[str], traces: Mapping[str, Any]) -> tuple[list[str], Aligned]:
    """The timing case with every other case of its structure: axes of one are often spelled differently in a jaxpr.

    Cases left out are judged like all others. Raises ``Declined`` where no other case is left.
    """
    graphs = {n: rewritten(traces[n]).graph for n in names}
    kept = [names[0]]
    reason = Declined("it has one shape case only, so what follows the shapes cannot be told")
    for name in names[1:]:
        try:
            Aligned([graphs[names[0]], graphs[name]])
            kept.append(name)
        except Declined as why:
            reason = why
    if len(kept) == 1 and len(names) > 1:
        raise reason
    return kept, Aligned([graphs[n] for n in kept])


class Writer:
    """The plain JAX around a region."""

    def __init__(self, aligned: Aligned, region: Region, task: KernelTask) -> None:
        self.aligned, self.region, self.task = aligned, region, task
        self.kernel = "_fused" if task.entry != "_fused" else "_part"
        self.made = next(n for n in ("out", "fused", "part", "kernel_out") if n not in (*task.params, *task.static))
        nodes = sorted((aligned[n].attr("index"), n) for n in range(len(aligned)) if aligned[n].op == "param")
        params = {n: (task.params[index], aligned[n].dtype) for index, n in nodes}  # sizes are named by the first one
        words = (self.made, "block_m", "block_n", "block_k", "rows", "columns")
        taken = {*task.params, *task.parameters, *task.static, self.kernel, *words}
        self.plain = Plain(aligned, params, task.static, taken)
        self.plain.write(*(c for c in region.cuts if aligned[c].op != "param"))
        self.before = tuple(self.plain.lines)
        self.arguments = tuple(self.plain.as_dtype(cut, dtype) for cut, dtype in region.cuts.items())
        self.cut_names = tuple(self.plain.known[cut].code for cut in region.cuts)
        if not all(name.isidentifier() for name in self.cut_names):
            raise Declined("a kernel's input is a constant")

    def finish(self, match: Any) -> tuple[tuple[str, ...], str]:
        """The lines after the kernel, and what is returned."""
        root, output = self.region.root, self.aligned.outputs[0]
        if root == output:
            return (), self.made
        self.plain.lines = []
        self.plain.define(root, self.made, match.out_dtype)
        self.plain.write(output)
        return tuple(self.plain.lines), self.plain.as_dtype(output, self.aligned.graphs[0].output_dtypes[0])


def _plain_work(aligned: Aligned, region: Region) -> tuple[float, float]:
    """(FLOPs of products, bytes of parameters read and of cuts written) outside the kernel, on the timing case."""
    made = [c for c in region.cuts if aligned[c].op != "param"]
    before = aligned.ancestors(*made) if made else set()
    after = aligned.ancestors(*aligned.outputs) - aligned.ancestors(region.root)
    work = sum(flops(aligned, n) for n in before | after if aligned[n].op == "dot")
    sizes = [aligned[n].size * itemsize(aligned[n].dtype) for n in before | after if aligned[n].op == "param"]
    sizes += [aligned[c].size * itemsize(region.cuts[c]) for c in made]
    return work, float(sum(sizes))


def _with_plain(bound: Bound, match: ComposedMatch) -> Bound:
    return Bound(flops=bound.flops + match.plain_flops, hbm_bytes=bound.hbm_bytes + match.plain_bytes)


def _header(match: ComposedMatch, bound: Bound) -> str:
    lines = [f"{match.signature.entry}: the part {match.kernel} is a Pallas TPU kernel, the rest plain JAX."]
    lines += [f"Algebra: {note}." for note in match.algebra]
    lines.append(f"Bound of the whole: {bound_text(bound, match.chip)}.")
    return comment(*lines)


def _entry(match: ComposedMatch) -> str:
    call = f"{match.made} = {match.kernel}({', '.join(match.arguments)})"
    if len(call) > 112:
        arguments = textwrap.fill(", ".join(match.arguments), 100, break_long_words=False, break_on_hyphens=False)
        call = f"{match.made} = {match.kernel}(\n{indent(arguments)}\n)"
    if not match.after and match.result == match.made:
        call = "return" + call[len(f"{match.made} ="):]
    lines = [*first_lines(match.signature), *match.before, call, *match.after]
    if match.after or match.result != match.made:
        lines.append(f"return {match.result}")
    return f"def {match.signature.entry}({match.signature.header}):\n" + indent("\n".join(lines))

