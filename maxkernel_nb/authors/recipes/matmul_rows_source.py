"""The template for a product whose rows are reduced: blocks of columns, statistics a lane, results one step behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.expressions import Leaf
from maxkernel_nb.authors.recipes.matmul_rows import Reduction, RowSplit, part
from maxkernel_nb.authors.recipes.matmul_source import RESERVED, Module
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.text import comment, indent

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.matmul import MatmulMatch

_NEUTRAL = {"sum": "0.0", "max": "-jnp.inf", "min": "jnp.inf"}
_START = {"sum": "0.0", "max": "jnp.finfo(jnp.float32).min", "min": "jnp.finfo(jnp.float32).max"}
_COMBINE = {"sum": "jnp.add", "max": "jnp.maximum", "min": "jnp.minimum"}
_NAMES = {"sum": "total", "max": "top", "min": "least"}

_LANES_HELPER = '''
def _lanes(x):
    """The columns of ``x`` in groups of 128: each lane keeps a number of its own, joined at the end of a row."""
    width = min(x.shape[1], 128)
    return [x[:, at : at + width] for at in range(0, x.shape[1], width)]
'''
_ONLINE_HELPER = '''
def _online(value, top_ref, total_ref):
    """The largest value so far and the sum of exponentials less it, in each lane."""
    top = functools.reduce(jnp.maximum, [top_ref[...], *_lanes(value)])
    grown = total_ref[...] * jnp.exp(top_ref[...] - top)
    total_ref[...] = functools.reduce(jnp.add, [grown, *(jnp.exp(lane - top) for lane in _lanes(value))])
    top_ref[...] = top
'''


class RowsModule(Module):
    """``behind``: results are whole rows, written while the next rows are multiplied; else one column of numbers."""

    def __init__(
        self, match: MatmulMatch, params: dict[str, int], blocks: tuple[int, int, int], bound_text: str,
        vmem_limit: int, split: RowSplit,
    ) -> None:
        super().__init__(match, params, blocks, bound_text, vmem_limit)
        self.split, self.behind = split, match.out_kind == "full"
        self.folds, self.snake, self.rows_outer = False, True, True
        taken = set(RESERVED) | set(match.signature.params) | set(self.products)
        self.lanes = {r.step: self._names(r, taken) for r in (*split.first, *split.again)}
        self.kept = {a: f"kept{i}" if len(split.kept) > 1 else "kept" for i, a in enumerate(split.kept, start=1)}
        result = match.epilogue.result
        self.now = self._leaves([*(r.value for r in split.first), *([split.held] if split.held else [])], ())
        # what is known of a whole row needs leaves too, and so does the last look
        rows = [*(split.kept if self.behind else [result]), *(r.value for r in split.again)]
        self.rows_leaves = self._leaves(rows, (split.held, *(f"%{step}" for step in self._steps())))
        self.later = self._leaves([result], (split.held, *split.kept)) if self.behind else []
        self.late = [*self.later, *(leaf for leaf in self.rows_leaves if leaf not in self.later)] if self.behind else []
        self.all_now = [*self.now, *(x for x in self.rows_leaves if not self.behind and x not in self.now)]
        self.uses.add("n")

    def _names(self, reduction: Reduction, taken: set[str]) -> list[str]:
        kinds = [_NAMES[reduction.kind], *(["total"] if reduction.exps >= 0 else [])]
        found = []
        for stem in kinds:
            name, count = stem, 1
            while name in taken or f"{name}_ref" in taken:
                count += 1
                name = f"{stem}{count}"
            taken.add(name)
            found.append(name)
        return found

    def _steps(self) -> list[int]:
        every = (*self.split.first, *self.split.again)
        return [r.step for r in every] + [r.exps for r in every if r.exps >= 0]

    def _leaves(self, wanted: list[str], known: Iterable[str]) -> list[Leaf]:
        if not wanted:
            return []
        expression, _ = part(self.match.epilogue, wanted, known)
        used = {a for step in expression.steps for a in step.args} | {*wanted}
        return [leaf for i, leaf in enumerate(self.match.epilogue.leaves) if f"@{i}" in used]

    # the text

    def more_helpers(self) -> list[str]:
        return [_LANES_HELPER, *([_ONLINE_HELPER] if any(r.exps >= 0 for r in self.split.first) else [])]

    def header(self) -> str:
        match, (bm, bn, _) = self.match, self.blocks
        what = f"{match.signature.entry}: {' and '.join(f'{self.x} @ {w}' for w in self.weights)}"
        after = " and everything after it, reductions along rows included, in one Pallas TPU kernel."
        why = (
            "What a row is reduced to is kept lane by lane while its blocks of columns are multiplied. "
            + ("A block of rows stays in VMEM in float32 until all its columns are known; it is finished block by "
               "block while the next rows are multiplied, so that the vector unit works beside the matrix unit."
               if self.behind else "The product itself is never stored.")
        )
        tiles = f"Tiles: {bm} x {bn} results from {bm} x k and k x {bn} inputs, the whole depth in one step."
        return comment(what + after, why, tiles, f"Bound for m={match.m}, n={match.n}, k={match.k}: {self.bound_text}.")

    def ref(self, leaf: Leaf, late: bool = False) -> str:
        name = super().ref(leaf)
        return name.replace("_ref", "_before_ref") if late and leaf.kind in ("full", "col") else name

    def epilogue_text(self) -> str:
        return self.body_text()

    def ragged_text(self) -> str:
        return ""

    def body_text(self) -> str:
        return "\n".join([*self.multiply(), *self.finish(), *self.rows_known()]).replace("jax.lax.", "")

    # pieces of the kernel

    def loads_of(self, leaves: list[Leaf], late: bool = False) -> tuple[list[str], dict[str, str]]:
        lines: list[str] = []
        names: dict[str, str] = {}
        for i, leaf in enumerate(self.match.epilogue.leaves):
            if leaf not in leaves:
                continue
            stem = self.leaf_name(leaf)
            name = stem if stem not in names.values() and stem not in RESERVED else f"{stem}_{leaf.kind}"
            names[f"@{i}"] = name
            at = "[0, 0]" if leaf.kind == "scalar" else "[...]"
            lines.append(f"{name} = {self.ref(leaf, late)}{at}.astype(jnp.float32)")
        return lines, names

    def lines(
        self, wanted: list[str], names: Mapping[str, str], named: Iterable[str] = ()
    ) -> tuple[list[str], list[str]]:
        """Assignments and the texts of what is wanted. ``names``: argument -> source text of what is known."""
        known = {a: t for a, t in names.items() if a.startswith("%") or a in self.match_products()}
        expression, places = part(self.match.epilogue, wanted, known)
        texts = {f"known {a}": t for a, t in known.items()} | {a: t for a, t in names.items() if a not in known}
        taken = set(RESERVED) | set(self.match.signature.params) | set(self.products)
        taken |= {name for pair in self.lanes.values() for name in pair}
        rendered = Lines(expression, texts, taken, [places[a] for a in named])
        body, _ = rendered.render()
        return body, [rendered.text[places[a]][0] for a in wanted]

    def match_products(self) -> tuple[str, ...]:
        return ("acc", "acc2")[: len(self.products)]

    def multiply(self) -> list[str]:
        split, wide = self.split, len(self.products)
        made = [f"{name} = {self.as_float(dot)}" for name, dot in zip(self.products, self.dots(), strict=True)]
        loads, names = self.loads_of(self.now)
        names |= dict(zip(("acc", "acc2")[:wide], self.products, strict=True))
        values = [r.value for r in split.first]
        wanted = [*values, *([split.held] if split.held else [])]
        body, texts = self.lines(wanted, names, wanted)
        lines = [*made, *loads, *body]
        if split.held:
            lines.append(f"held_ref[column] = {texts[-1]}")
        seen: dict[str, str] = {}
        for reduction, text in zip(split.first, texts, strict=False):
            value = seen.get(f"{text} {reduction.kind}", "")
            if not value:
                value, more = self.inside(text, reduction, len(seen))
                seen[f"{text} {reduction.kind}"] = value
                lines += more
            lines += self.share(reduction, value)
        return lines

    def inside(self, text: str, reduction: Reduction, number: int) -> tuple[str, list[str]]:
        """The name of a value with nothing of what lies past the end of its rows."""
        name = "inside" if not number else f"inside{number + 1}"
        return name, [
            f"{name} = {text}",
            f"if n % {name}.shape[1]:  # the last block reaches past the end of the rows",
            f"    place = jax.lax.broadcasted_iota(jnp.int32, {name}.shape, 1)",
            f"    {name} = jnp.where(place < n - column * {name}.shape[1], {name}, {_NEUTRAL[reduction.kind]})",
        ]

    def share(self, reduction: Reduction, value: str) -> list[str]:
        names = self.lanes[reduction.step]
        if reduction.exps >= 0:
            return [f"_online({value}, {names[0]}_ref, {names[1]}_ref)"]
        ref, combine = f"{names[0]}_ref", _COMBINE[reduction.kind]
        return [f"{ref}[...] = functools.reduce({combine}, [{ref}[...], *_lanes({value})])"]

    def rows_known(self) -> list[str]:
        """The statistics of whole rows from their lanes', and what the last look needs of them."""
        loads, names = self.loads_of(self.rows_leaves, late=self.behind)
        lines = list(loads)
        for reduction in self.split.first:
            own = self.lanes[reduction.step]
            lines.append(f"{own[0]} = jnp.{reduction.kind}({own[0]}_ref[...], axis=1, keepdims=True)")
            names[f"%{reduction.step}"] = own[0]
            if reduction.exps >= 0:
                grown = f"{own[1]}_ref[...] * jnp.exp({own[0]}_ref[...] - {own[0]})"
                lines.append(f"{own[1]} = jnp.sum({grown}, axis=1, keepdims=True)")
                names[f"%{reduction.exps}"] = own[1]
        for reduction in self.split.again:
            lines += self.taken_again(reduction, names)
        wanted = list(self.split.kept) if self.behind else [self.match.epilogue.result]
        body, texts = self.lines(wanted, names)
        lines += body
        if not self.behind:
            return [*lines, f"result = {texts[0]}", "out_ref[...] = result.astype(out_ref.dtype)"]
        return lines + [f"{self.kept[a]}_ref[...] = {t}" for a, t in zip(wanted, texts, strict=True)]

    def taken_again(self, reduction: Reduction, names: dict[str, str]) -> list[str]:
        (name,) = self.lanes[reduction.step]
        known = {**names, self.split.held: "y"}
        body, (text,) = self.lines([reduction.value], known)
        neutral = _NEUTRAL[reduction.kind]
        names[f"%{reduction.step}"] = name
        return [
            "",
            f"def _{name}_of(column, {name}):",
            "    y = held_ref[column]",
            *indent([*body, f"inside = {text}", "place = jax.lax.broadcasted_iota(jnp.int32, inside.shape, 1)",
                     "if n % inside.shape[1]:",
                     f"    inside = jnp.where(place < n - column * inside.shape[1], inside, {neutral})",
                     f"return functools.reduce({_COMBINE[reduction.kind]}, [{name}, *_lanes(inside)])"]).split("\n"),
            "",
            f"{name} = jnp.full({self.any_lanes()}.shape, {_START[reduction.kind]}, jnp.float32)",
            f"{name} = jax.lax.fori_loop(0, steps, _{name}_of, {name})",
            f"{name} = jnp.{reduction.kind}({name}, axis=1, keepdims=True)",
        ]

    def any_lanes(self) -> str:
        return f"{self.lanes[self.split.first[0].step][0]}_ref"

    def finish(self) -> list[str]:
        if not self.behind:
            return []
        loads, names = self.loads_of(self.later, late=True)
        loads = [*loads, *(f"{name} = {name}_ref[...]" for name in self.kept.values())]
        names |= self.kept
        names[self.split.held] = "y"
        body, (text,) = self.lines([self.match.epilogue.result], names)
        if not text.isidentifier():
            body.append(f"result = {text}")
            text = "result"
        return ["y = held_ref[column]", *loads, *body, f"out_ref[...] = {self.shaped(text)}.astype(out_ref.dtype)"]

    def reset(self) -> list[str]:
        lines = []
        for reduction in self.split.first:
            own = self.lanes[reduction.step]
            kinds = [reduction.kind, *(["sum"] if reduction.exps >= 0 else [])]
            lines += [
                f"{name}_ref[...] = jnp.full({name}_ref.shape, {_START[kind]}, jnp.float32)"
                for name, kind in zip(own, kinds, strict=True)
            ]
        return lines

    def first_names(self) -> list[str]:
        return [name for r in self.split.first for name in self.lanes[r.step]]

    def kernel(self) -> str:
        refs = [f"{name}_ref" for name in (self.x, *self.weights)]
        refs += [self.ref(leaf) for leaf in self.all_now] + [self.ref(leaf, True) for leaf in self.extra()]
        refs += ["out_ref", *(["held_ref"] if self.split.held else [])]
        refs += [f"{name}_ref" for name in self.first_names()] + [f"{name}_ref" for name in self.kept.values()]
        statics = sorted(self.uses)
        head = f"def _kernel({', '.join(refs)}{', *, ' + ', '.join(statics) if statics else ''}):"
        return head + "\n" + indent(self.behind_body() if self.behind else self.column_body())

    def column_body(self) -> list[str]:
        return [
            "j, steps = pl.program_id(1), pl.num_programs(1)",
            "column = _turn(pl.program_id(0), j, steps)",
            "",
            "@pl.when(j == 0)",
            "def _start():",
            indent(self.reset()),
            "",
            *self.multiply(),
            "",
            "@pl.when(j == steps - 1)",
            "def _all_columns_known():",
            indent(self.rows_known()),
        ]

    def behind_body(self) -> list[str]:
        return [
            "i, j = pl.program_id(0), pl.program_id(1)",
            "ends, steps = pl.num_programs(0) - 1, pl.num_programs(1)",
            "column = _turn(i, j, steps)",
            "",
            "def multiply():",
            '    """A block of these rows, and what it adds to their statistics."""',
            indent(self.multiply()),
            "",
            "def finish():",
            '    """The same block of the rows before, now that all of their columns are known."""',
            indent(self.finish()),
            "",
            "@pl.when((i > 0) & (j == 0))",
            "def _all_columns_known():",
            indent(self.rows_known()),
            "",
            "@pl.when(j == 0)",
            "def _start():",
            indent(self.reset()),
            "",
            "@pl.when(i == 0)",
            "def _first_rows():",
            "    multiply()",
            "",
            "@pl.when((i > 0) & (i < ends))  # in one region, so that the units share their cycles",
            "def _next_rows():",
            "    finish()",
            "    multiply()",
            "",
            "@pl.when(i == ends)",
            "def _last_rows():",
            "    finish()",
        ]

    # the call

    def extra(self) -> list[Leaf]:
        """Leaves that the last look reads one block of rows behind, beside those of the product's own block."""
        return [leaf for leaf in self.late if leaf not in self.all_now or leaf.kind in ("full", "col")]

    def block_choice(self) -> list[str]:
        lines = [
            f"block_m = _block(m, BLOCK_M, {self.match.rows_unit})",
            "block_n = _block(n, BLOCK_N, 128)",
            "block_k = k  # whole depth",
            "lanes = min(block_n, 128)",
            "blocks, steps = pl.cdiv(m, block_m), pl.cdiv(n, block_n)",
        ]
        if not self.behind:
            return lines
        return [
            *lines,
            "end = steps - 1 if blocks % 2 else 0  # the block of columns where the last rows end",
            "",
            "def now(i, j):",
            '    """The block that is multiplied; after the last rows there is nothing left to fetch."""',
            "    return jnp.minimum(i, blocks - 1), jnp.where(i < blocks, _turn(i, j, steps), end)",
            "",
            "def before(i, j):",
            '    """The block that is finished, one block of rows behind."""',
            "    return jnp.maximum(i - 1, 0), jnp.where(i > 0, _turn(i, j, steps), steps - 1)",
            "",
        ]

    def limits(self) -> list[str]:
        lines = super().limits()
        if self.split.held:
            told = f"this kernel holds whole rows in VMEM: n={{n}} is over {self.match.n}"
            lines += [f"if n > {self.match.n}:", f'    raise NotImplementedError(f"{told}")']
        return lines

    def call(self) -> list[str]:
        match = self.match
        row, column = ("now(i, j)[0]", "now(i, j)[1]") if self.behind else ("i", "_turn(i, j, steps)")
        block = "now" if self.behind else f"lambda i, j: ({row}, {column})"
        each = "_turn(i, j, steps)"
        columns = f"(block_k, block_n), lambda i, j: (0, {column})"
        if match.rhs_form == "nk":
            columns = f"(block_n, block_k), lambda i, j: ({column}, 0)"
        spec = {
            "full": f"pl.BlockSpec((block_m, block_n), {block})",
            "row": f"pl.BlockSpec((1, block_n), lambda i, j: (0, {each}))",
            "col": f"pl.BlockSpec((block_m, 1), lambda i, j: ({row}, 0))",
            "scalar": "pl.BlockSpec(memory_space=pltpu.SMEM)",
        }
        late = spec | {
            "full": "pl.BlockSpec((block_m, block_n), before)",
            "col": "pl.BlockSpec((block_m, 1), lambda i, j: (before(i, j)[0], 0))",
        }
        in_specs = [f"pl.BlockSpec((block_m, block_k), lambda i, j: ({row}, 0))"]
        in_specs += [f"pl.BlockSpec({columns})"] * len(self.weights)
        in_specs += [spec[leaf.kind] for leaf in self.all_now] + [late[leaf.kind] for leaf in self.extra()]
        statics = sorted(self.uses)
        kernel = f"functools.partial(_kernel, {', '.join(f'{s}={s}' for s in statics)})" if statics else "_kernel"
        grid = "blocks + 1, steps" if self.behind else "blocks, steps"
        semantics = '"arbitrary", "arbitrary"' if self.behind else '"parallel", "arbitrary"'
        out = late["full"] if self.behind else "pl.BlockSpec((block_m, 1), lambda i, j: (i, 0))"
        return [
            f"{kernel},",
            f"out_shape=jax.ShapeDtypeStruct((m, {'n' if self.behind else '1'}), jnp.{match.out_dtype}),",
            f"grid=({grid}),",
            "in_specs=[", *(f"    {s}," for s in in_specs), "],",
            f"out_specs={out},",
            "scratch_shapes=[", *(f"    {s}," for s in self.scratch()), "],",
            "compiler_params=pltpu.CompilerParams(",
            f"    dimension_semantics=({semantics}), vmem_limit_bytes=VMEM_LIMIT",
            "),",
        ]

    def scratch(self) -> list[str]:
        held = ["pltpu.VMEM((steps, block_m, block_n), jnp.float32)"] if self.split.held else []
        lanes = ["pltpu.VMEM((block_m, lanes), jnp.float32)"] * len(self.first_names())
        return [*held, *lanes, *(["pltpu.VMEM((block_m, 1), jnp.float32)"] * len(self.kept))]

    def operands(self) -> list[str]:
        shapes = {"full": "reshape(m, n)", "row": "reshape(1, n)", "col": "reshape(m, 1)", "scalar": "reshape(1, 1)"}
        leaves = [*self.all_now, *self.extra()]
        return ["rows", *self.columns, *(f"{self.leaf_name(leaf)}.{shapes[leaf.kind]}" for leaf in leaves)]


def render(
    match: MatmulMatch, params: dict[str, int], blocks: tuple[int, int, int], bound_text: str, vmem_limit: int,
    split: RowSplit,
) -> str:
    return RowsModule(match, params, blocks, bound_text, vmem_limit, split).text()
