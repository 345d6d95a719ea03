"""Recipe: a function in parts: regions of it in kernels of other recipes, the rest in plain JAX between them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
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
    check_axes,
)
from maxkernel_nb.authors.recipes.merging import constant_name, merged
from maxkernel_nb.authors.recipes.partition import (
    Partition,
    choices,
    layout_bytes,
    outside,
    partitioned,
    plain_work,
    read_as,
)
from maxkernel_nb.authors.recipes.plain import Plain
from maxkernel_nb.authors.recipes.regions import Region
from maxkernel_nb.authors.recipes.signature import first_lines, signature_of
from maxkernel_nb.authors.recipes.text import comment, fold_raises, fresh_name, indent
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named
from maxkernel_nb.values import Value

_NAMES = {"rows": "normed", "matmul": "product"}  # of kernels, beside others
_OWN = frozenset({"out", "total"})  # what a kernel calls its result, which its caller may call an array
_SEEDS = 3  # points tried of each part while the others stay at their best guess


class Part(Value):
    """``before`` are lines of plain JAX, then ``made = kernel(arguments)``, written by ``recipe`` from ``spec``."""

    recipe: str
    spec: dict[str, Any] = Field(default_factory=dict)
    kernel: str
    before: tuple[str, ...] = ()
    arguments: tuple[str, ...]
    made: str = "out"


class ComposedMatch(Match):
    """``parts`` in the order they are called, then the plain lines ``after``; ``result`` is what is returned.

    The figures are those of the plain parts on the timing case; ``layout_bytes`` are at most what layout changes next
    to kernels read and write. ``left``: what was left to XLA, and why. ``choices``: the same with other parts as
    kernels; they are no part of a plan.
    """

    parts: tuple[Part, ...]
    after: tuple[str, ...] = ()
    result: str
    plain_flops: float = 0.0
    plain_bytes: float = 0.0
    layout_bytes: float = 0.0
    left: tuple[str, ...] = ()
    choices: tuple[ComposedMatch, ...] = Field(default=(), exclude=True, repr=False)

    @property
    def part(self) -> str:
        return self.parts[0].recipe

    @property
    def spec(self) -> dict[str, Any]:
        return self.parts[0].spec

    @property
    def before(self) -> tuple[str, ...]:
        return tuple(line for part in self.parts for line in part.before)

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.parts[0].arguments


class ComposedRecipe(Recipe):
    name = "parts"
    title = "parts in kernels, the rest in plain JAX"
    match_type = ComposedMatch
    last_resort = True
    limits = (
        "at most six kernels a function; what lies between them is left to XLA",
        "between kernels only what can be written in a few lines of plain JAX",
        "a product with nothing to fuse is left to XLA, unless it is the only part",
    )

    def __init__(self, parts: Mapping[str, Recipe]) -> None:
        self.recipes = dict(parts)

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> ComposedMatch:
        names = [task.timing_case.name, *(n for n in traces if n != task.timing_case.name)]
        names, aligned = _aligned(names, traces)
        if len(aligned.outputs) != 1:
            raise Declined(f"it returns {len(aligned.outputs)} arrays, this recipe writes one")
        composer = Composer(self.recipes, aligned, names, task, algebra_of(traces, task))
        parts = partitioned(aligned, composer.serve)
        if not parts.found:
            why = "; ".join(f"as {n}, {r}" for n, r in parts.reasons.items())
            raise Declined(why or "no part of it is a kernel's")
        ways = composer.ways(parts)
        return ways[0].model_copy(update={"choices": tuple(ways[1:])})

    def others(self, match: ComposedMatch) -> tuple[ComposedMatch, ...]:
        return match.choices

    def _inner(self, part: Part) -> tuple[Recipe, Any]:
        recipe = self.recipes[part.recipe]
        return recipe, recipe.match_type.from_dict(part.spec)

    def _each(self, match: ComposedMatch, params: dict[str, int]) -> list[tuple[Recipe, Any, dict[str, int]]]:
        """Recipe, match and constants of each part. Raises ``Declined`` for constants that no part has."""
        check_axes(params, self.space(match))
        found = []
        for part in match.parts:
            recipe, inner = self._inner(part)
            axes = recipe.space(inner).axes
            found.append((recipe, inner, {axis: params[_constant(match, part, axis)] for axis in axes}))
        return found

    def space(self, match: ComposedMatch) -> TuningSpace:
        """Constants of all parts; the points known to be good change those of one part at a time."""
        axes: dict[str, tuple[int, ...]] = {}
        points: list[list[dict[str, int]]] = []
        for part in match.parts:
            recipe, inner = self._inner(part)
            space = recipe.space(inner)
            axes |= {_constant(match, part, axis): values for axis, values in space.axes.items()}
            points.append([{_constant(match, part, a): v for a, v in seed.items()} for seed in space.seeds])
        most = _SEEDS if len(points) > 1 else None
        first = {axis: value for seeds in points for axis, value in seeds[0].items()}
        return TuningSpace(axes=axes, seeds=(first, *({**first, **s} for seeds in points for s in seeds[1:most])))

    def check(self, match: ComposedMatch, params: dict[str, int]) -> None:
        for recipe, inner, own in self._each(match, params):
            recipe.check(inner, own)

    def vmem_bytes(self, match: ComposedMatch, params: dict[str, int]) -> int:
        """Of the part that needs the most: they run one after the other."""
        return max(recipe.vmem_bytes(inner, own) for recipe, inner, own in self._each(match, params))

    def bound(self, match: ComposedMatch) -> Bound:
        return _with_plain([recipe.bound(inner) for recipe, inner in map(self._inner, match.parts)], match)

    def bound_with(self, match: ComposedMatch, params: dict[str, int]) -> Bound:
        return _with_plain([r.bound_with(inner, own) for r, inner, own in self._each(match, params)], match)

    def estimate_ms(self, match: ComposedMatch, params: dict[str, int]) -> float:
        return sum(recipe.estimate_ms(inner, own) for recipe, inner, own in self._each(match, params))

    def plan(self, match: ComposedMatch, params: dict[str, int]) -> Plan:
        plans = [recipe.plan(inner, own) for recipe, inner, own in self._each(match, params)]
        around = len(match.before) + len(match.after)
        whole = {"recipe": self.name, "spec": match.to_dict(), "tiling": params}
        if len(plans) == 1:
            summary = f"{around} lines of plain JAX around one kernel, whose part is: {plans[0].summary}"
            return plans[0].model_copy(update=whole | {
                "strategy": f"one part as a kernel ({plans[0].strategy}), the rest left to XLA",
                "summary": algebra_text(match) + summary + _beside(match),
            })
        told = [f"{part.kernel}: {plan.summary}" for part, plan in zip(match.parts, plans, strict=True)]
        kernels = ", ".join(f"{part.kernel} ({plan.strategy})" for part, plan in zip(match.parts, plans, strict=True))
        return plans[0].model_copy(update=whole | {
            "strategy": f"{len(plans)} parts as kernels: {kernels}; the rest left to XLA",
            "summary": (
                f"{algebra_text(match)}{around} lines of plain JAX around {len(plans)} kernels. {' '.join(told)}"
                f"{_beside(match)} The whole: {bound_text(self.bound(match), match.chip)}."
            ),
            "attacks": self.bound(match).attacks(chip_named(match.chip)),
            **{field: _told(match, [getattr(p, field) for p in plans]) for field in ("grid", "memory", "pipelining")},
        })

    def render(self, match: ComposedMatch, params: dict[str, int]) -> str:
        sources = [fold_raises(recipe.render(inner, own)) for recipe, inner, own in self._each(match, params)]
        head, entry = _header(match, self.bound(match)), _entry(match)
        if len(sources) > 1:
            kernels = dict(zip((part.kernel for part in match.parts), sources, strict=True))
            return f"{head}\n\n{merged(kernels, entry)}"
        kernel = sources[0]
        if "lax." in entry.replace("jax.lax.", "") and "from jax import lax" not in kernel:
            kernel = kernel.replace("import jax.numpy as jnp\n", "import jax.numpy as jnp\nfrom jax import lax\n", 1)
        return f"{head}\n#\n{kernel.rstrip()}\n\n\n{entry}\n"


def _constant(match: ComposedMatch, part: Part, axis: str) -> str:
    """One kernel's constants keep their names."""
    return axis if len(match.parts) == 1 else constant_name(part.kernel, axis)


def _told(match: ComposedMatch, texts: Sequence[str]) -> str:
    return "; ".join(f"{part.kernel}: {text}" for part, text in zip(match.parts, texts, strict=True))


def _beside(match: ComposedMatch) -> str:
    """What lies between kernels, for a plan's summary."""
    text = ""
    if match.layout_bytes:
        ms = 1e3 * match.layout_bytes / (chip_named(match.chip).device_hbm_gbs * 1e9)
        text += f" Layout changes beside kernels move up to {match.layout_bytes / 1e6:.1f} MB ({ms:.3f} ms of HBM)."
    return text + (f" Left to XLA: {'; '.join(match.left)}." if match.left else "")


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


class Composer:
    """Writes the kernels of chosen regions and the plain JAX between them."""

    def __init__(self, recipes: Mapping[str, Recipe], aligned: Aligned, names: list[str], task: KernelTask,
                 algebra: tuple[str, ...]) -> None:
        self.recipes, self.aligned, self.names, self.task, self.algebra = recipes, aligned, names, task, algebra

    def serve(self, region: Region, beside: Sequence[Region] = ()) -> None:
        """Raises ``Declined`` where no kernel serves the region, or nothing can be written around it."""
        if region.recipe not in self.recipes:
            raise Declined(f"there is no recipe {region.recipe}")
        if region.root == self.aligned.outputs[0] and all(self.aligned[c].op == "param" for c in region.cuts):
            raise Declined("there is nothing around the kernel")
        self._recognised(region, "_fused", tuple(f"in{i}" for i in range(len(region.cuts))))
        self.match([*beside, region])

    def ways(self, parts: Partition) -> list[ComposedMatch]:
        """The likeliest choice of kernels first. One that cannot be written is left out, unless it is the first."""
        made = [self.match(parts.found[:1], parts)] if len(parts.found) == 1 else []
        for choice in choices(self.aligned, parts.found) if not made else ():
            try:
                made.append(self.match(choice, parts))
            except Declined:
                continue
        return made or [self.match(parts.found[:1], parts)]

    def match(self, found: Sequence[Region], parts: Partition | None = None) -> ComposedMatch:
        writer = Writer(self.aligned, self.task)
        written: list[Part] = []
        for region, kernel in zip(sorted(found, key=lambda r: r.root), writer.kernels(found), strict=True):
            part, inner = self._part(writer, region, kernel, alone=len(found) == 1)
            written.append(part)
            writer.define(region.root, part.made, inner.out_dtype)
        after, result = writer.finish()
        flops, size = plain_work(self.aligned, found)
        return ComposedMatch(
            signature=signature_of(self.task), chip=self.task.chip, algebra=self.algebra, parts=tuple(written),
            after=after, result=result, plain_flops=flops, plain_bytes=size,
            layout_bytes=layout_bytes(self.aligned, found), left=_left(self.aligned, found, parts) if parts else (),
        )

    def _part(self, writer: Writer, region: Region, kernel: str, alone: bool) -> tuple[Part, Any]:
        recipe = self.recipes[region.recipe]
        before, arguments, cut_names = writer.inputs(region)
        match = self._recognised(region, kernel, tuple(f"{n}_in" if n in _OWN else n for n in cut_names))
        recipe.space(match)
        made = writer.alone if alone else kernel.strip("_")
        return Part(recipe=recipe.name, spec=match.to_dict(), kernel=kernel, before=before, arguments=arguments,
                    made=made), match

    def _recognised(self, region: Region, kernel: str, names: tuple[str, ...]) -> Any:
        """The match of the region as a function of its own, ``kernel(names)``."""
        inner = self.task.model_copy(update={
            "entry": kernel, "params": names, "static": {}, "trees": (), "returns": None, "source": "",
            "name": kernel,
        })
        graphs = self.aligned.region(region.root, region.cuts, region.scaled)
        for graph in graphs:
            graph.output_dtypes = (read_as(self.aligned, region.root),)
        return self.recipes[region.recipe].recognise(dict(zip(self.names, graphs, strict=True)), inner)


def _left(aligned: Aligned, found: Sequence[Region], parts: Partition) -> tuple[str, ...]:
    """What no kernel of this choice serves, and why."""
    compared = [r.recipe for r in parts.found if r not in found]
    told = [f"{_counted(compared.count(name), name + ' part')}, which may be no faster as a kernel"
            for name in dict.fromkeys(compared)]
    rest = outside(aligned, parts.found)
    plain = sum(rest[n].op == "dot" for n in rest.live())
    return (*told, *([f"{_counted(plain, 'product')} with too little to fuse"] if plain else []))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s'[:count != 1]}"


class Writer:
    """The plain JAX around regions."""

    def __init__(self, aligned: Aligned, task: KernelTask) -> None:
        self.aligned, self.task = aligned, task
        nodes = sorted((aligned[n].attr("index"), n) for n in range(len(aligned)) if aligned[n].op == "param")
        params = {n: (task.params[index], aligned[n].dtype) for index, n in nodes}  # sizes are named by the first one
        self.alone = next(n for n in ("out", "fused", "part", "kernel_out") if n not in (*task.params, *task.static))
        words = (self.alone, "block_m", "block_n", "block_k", "rows", "columns")
        self.used = {*task.params, *task.parameters, *task.static, task.entry}
        self.plain = Plain(aligned, params, task.static, {*self.used, "_fused", "_part", *words})

    def kernels(self, found: Sequence[Region]) -> list[str]:
        """A name for each region's kernel, in order; its result has the same without the underscore."""
        if len(found) == 1:
            return ["_fused" if self.task.entry != "_fused" else "_part"]
        taken = {*self.used, *(f"_{name}" for name in self.used)}
        names = [fresh_name("_" + _NAMES.get(r.recipe, r.recipe), taken) for r in sorted(found, key=lambda r: r.root)]
        self.plain.taken |= {name.strip("_") for name in names}
        return names

    def inputs(self, region: Region) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The lines before a kernel, the source of what it is given, and the names of that."""
        self.plain.lines = []
        self.plain.write(*(c for c in region.cuts if self.aligned[c].op != "param"))
        arguments = tuple(self.plain.as_dtype(cut, dtype) for cut, dtype in region.cuts.items())
        names = tuple(self.plain.known[cut].code for cut in region.cuts)
        if not all(name.isidentifier() for name in names):
            raise Declined("a kernel's input is a constant")
        return tuple(self.plain.lines), arguments, names

    def define(self, root: int, name: str, dtype: str) -> None:
        self.plain.define(root, name, dtype)

    def finish(self) -> tuple[tuple[str, ...], str]:
        """The lines after the last kernel, and what is returned."""
        self.plain.lines = []
        output = self.aligned.outputs[0]
        if self.plain.known.get(output) is None:
            self.plain.write(output)
        return tuple(self.plain.lines), self.plain.as_dtype(output, self.aligned.graphs[0].output_dtypes[0])


def _with_plain(bounds: Sequence[Bound], match: ComposedMatch) -> Bound:
    return Bound(flops=sum(b.flops for b in bounds) + match.plain_flops,
                 hbm_bytes=sum(b.hbm_bytes for b in bounds) + match.plain_bytes)


def _header(match: ComposedMatch, bound: Bound) -> str:
    kernels = [part.kernel for part in match.parts]
    one = f"the part {kernels[0]} is a Pallas TPU kernel, the rest plain JAX"
    several = f"{len(kernels)} Pallas TPU kernels ({', '.join(kernels)}), plain JAX around them"
    lines = [f"{match.signature.entry}: {one if len(kernels) == 1 else several}."]
    lines += [f"Algebra: {note}." for note in match.algebra]
    lines.append(f"Bound of the whole: {bound_text(bound, match.chip)}.")
    return comment(*lines)


def _entry(match: ComposedMatch) -> str:
    lines = first_lines(match.signature)
    for part in match.parts:
        lines += [*part.before, _call(part)]
    made = match.parts[-1].made
    if not match.after and match.result == made:
        lines[-1] = "return" + lines[-1][len(f"{made} ="):]
    else:
        lines += [*match.after, f"return {match.result}"]
    return f"def {match.signature.entry}({match.signature.header}):\n" + indent("\n".join(lines))


def _call(part: Part) -> str:
    call = f"{part.made} = {part.kernel}({', '.join(part.arguments)})"
    if len(call) <= 112:
        return call
    arguments = textwrap.fill(", ".join(part.arguments), 100, break_long_words=False, break_on_hyphens=False)
    return f"{part.made} = {part.kernel}(\n{indent(arguments)}\n)"
