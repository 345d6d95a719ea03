"""The convolution recipe's template: passes over an image's pixels, the first of which makes the convolution."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.conv_batch import BatchLines
from maxkernel_nb.authors.recipes.expressions import Constant, Expression, Leaf, Step
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import comment, erf_helper, fold_raises, fresh_name, indent, vmem_line

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.conv import ConvMatch

_OVER_PIXELS = ("pixels", "group", "image")  # reductions that need a pass over all pixels before they are known
_RESERVED = {
    "jax", "jnp", "lax", "pl", "pltpu", "functools", "image_ref", "window_ref", "out_ref", "kept_ref", "place", "near",
    "patches", "y", "valid", "total", "first", "part", "pixels", "channels", "space", "window", "images", "span", "out",
    "halo", "inside", "blocks", "block", "result", "carry", "image",
}
_NEUTRAL = {"sum": "0.0", "max": "-jnp.inf", "min": "jnp.inf"}
_JOIN = {"sum": "{0} + {1}", "max": "jnp.maximum({0}, {1})", "min": "jnp.minimum({0}, {1})"}

_PATCHES = '''
def _patches(near, shifts, width):
    """[channels, width + halo] -> [places of the window * channels, width]: row by row the pixels a shift further.

    Lanes are rotated in 32 bits, two rows of bfloat16 at once; shifts by whole registers of 128 lanes cost nothing.
    """
    packed = near if near.dtype == jnp.float32 else pltpu.bitcast(near, jnp.int32)
    turned = {0: packed}
    for shift in shifts:
        if shift % 128 not in turned:
            turned[shift % 128] = pltpu.roll(packed, packed.shape[1] - shift % 128, 1)
    rows = [turned[s % 128][:, s - s % 128 : s - s % 128 + width] for s in shifts]
    stacked = jnp.concatenate(rows, axis=0)
    return stacked if near.dtype == jnp.float32 else pltpu.bitcast(stacked, near.dtype)
'''
_VALID = '''
def _valid(first, width, space, window):
    """Which of ``width`` places from ``first`` on are pixels of the result; the others lie across an edge."""
    place = first + jax.lax.broadcasted_iota(jnp.int32, (1, width), 1)
    valid, size = True, 1
    for axis in reversed(range(1, len(space))):
        valid &= jax.lax.rem(place // size, space[axis]) <= space[axis] - window[axis]
        size *= space[axis]
    return valid & (place < (space[0] - window[0] + 1) * size)
'''
_OVER_GROUPS = '''
def _over_groups(total, size):
    """[channels, 1]: the sum over each group of ``size`` neighbouring channels, held in every one of them."""
    shape = (total.shape[0], total.shape[0])
    row, column = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 1))
    sums = jnp.sum(jnp.where(row // size == column // size, total, 0.0), axis=0, keepdims=True)
    return jnp.sum(jnp.where(row == column, sums, 0.0), axis=1, keepdims=True)
'''


def render(match: ConvMatch, params: dict[str, int], bound: str, vmem_limit: int) -> str:
    return _Module(match, params, bound, vmem_limit).text()


def levels(body: Expression) -> dict[str, int]:
    """How many passes over the pixels come before a step's value is known."""
    found: dict[str, int] = {}
    for i, step in enumerate(body.steps):
        before = max((found.get(a, 0) for a in step.args), default=0)
        found[f"%{i}"] = before + (step.op.split("_")[0] in _OVER_PIXELS)
    return found


def passes(body: Expression, out_kind: str) -> int:
    """Loops over the pixels; a result of one value a channel or image needs none of its own."""
    return levels(body).get(body.result, 0) + (out_kind in ("full", "row"))


class _Module:
    def __init__(self, match: ConvMatch, params: dict[str, int], bound: str, vmem_limit: int) -> None:
        self.match, self.params, self.bound, self.vmem_limit = match, params, bound, vmem_limit
        self.body = match.body
        self.image, self.window = (match.signature.params[i] for i in (match.image, match.window))
        self.body = self.by_reciprocals(match.body)
        self.levels = levels(self.body)
        self.passes = passes(match.body, match.out_kind)
        self.taken = {*_RESERVED, *match.signature.params}
        self.names = {f"@{i}": self.leaf_name(leaf) for i, leaf in enumerate(match.body.leaves)}
        self.taken |= set(self.names.values())
        self.known: dict[str, str] = {}  # reductions over pixels that are done: their names
        texts = " ".join(c.text for c in match.body.constants)
        self.statics = [n for n in ("pixels", "channels") if re.search(rf"\b{n}\b", texts)]

    def by_reciprocals(self, body: Expression) -> Expression:
        """Pixels divided by what is the same for all of them are multiplied by its reciprocal, taken once a block."""
        steps: list[Step] = []
        new: dict[str, str] = {}
        one = f"#{len(body.constants)}"
        for i, step in enumerate(body.steps):
            args = tuple(new.get(a, a) for a in step.args)
            kinds = [self.shape_of(a) for a in step.args]
            if step.op == "div" and kinds[0] in ("full", "row") and kinds[1] in ("col", "one", "scalar"):
                steps.append(Step(op="div", args=(one, args[1])))
                step, args = Step(op="mul", args=args), (args[0], f"%{len(steps) - 1}")
            steps.append(step.model_copy(update={"args": args}))
            new[f"%{i}"] = f"%{len(steps) - 1}"
        constants = (*body.constants, Constant(text="1.0"))
        return body.model_copy(
            update={"steps": tuple(steps), "constants": constants, "result": new.get(body.result, body.result)}
        )

    def leaf_name(self, leaf: Leaf) -> str:
        name = self.match.signature.params[leaf.param]
        return f"{name}_value" if name in _RESERVED else name

    def text(self) -> str:
        kernel, entry = self.kernel(), self.entry()
        helpers = [_PATCHES, *([_VALID] if "_valid(" in kernel else [])]
        helpers += [_OVER_GROUPS] if "_over_groups(" in kernel else []
        helpers += erf_helper(kernel + entry)
        lax = "from jax import lax\n" if re.search(r"(?<!jax\.)\blax\.", kernel + entry) else ""
        imports = (
            f"import functools\nimport math\n\nimport jax\nimport jax.numpy as jnp\n{lax}"
            "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu"
        )
        constants = f"BLOCK_P = {self.params['BLOCK_P']}\n{vmem_line(self.vmem_limit)}"
        head = "\n\n".join((self.header(), imports, constants))
        return "\n\n\n".join((head, *(h.strip("\n") for h in helpers), kernel, entry)) + "\n"

    def header(self) -> str:
        match = self.match
        more = self.passes - 1
        return comment(
            f"{match.signature.entry}: a convolution and all that follows as a Pallas TPU kernel, an image at a time.",
            *(f"Algebra: {note}." for note in match.algebra),
            f"An image is a matrix of channels and pixels in a row. {self.params['BLOCK_P']} pixels at a time are "
            f"shifted by every place of the window and stacked, {match.depth} deep, so that one product on the MXU is "
            "the convolution. Places across an edge come out too and are left out where values are added up or "
            "returned.",
            *([f"The convolution stays in VMEM: {more} more pass{'es' if more > 1 else ''} over it for what needs a "
               "whole image's statistics."] if more else []),
            f"Bound for {match.image_shape[0]} images of {list(match.image_shape[1:])}: {self.bound}.",
        )

    # the kernel

    def kernel(self) -> str:
        leaves = [f"{name}_ref" for name in self.names.values()]
        refs = ["image_ref", "window_ref", *leaves, "out_ref", *(["kept_ref"] if self.passes > 1 else [])]
        lines = [
            "window = window_ref[...]",
            *(f"{name} = {name}_ref[...].astype(jnp.float32)" for name in self.names.values()),
            "blocks, block = pl.cdiv(span, BLOCK_P), BLOCK_P",
        ]
        for level in range(self.passes):
            lines += ["", *self.loop(level)]
        if self.match.out_kind in ("col", "one"):
            code, result = self.expression(self.body.result, self.passes)
            lines += ["", *code, f"out_ref[0] = jnp.broadcast_to({result}, out_ref.shape[1:]).astype(out_ref.dtype)"]
        statics = ", ".join(["span", "halo", "space", "size", *self.statics])
        head = f"def _kernel({', '.join(refs)}, *, {statics}):"
        if len(head) > 112:
            head = f"def _kernel(\n    {', '.join(refs)}, *,\n    {statics},\n):"
        return head + "\n" + indent(lines)

    def loop(self, level: int) -> list[str]:
        """One pass: reductions that are known after it, or what is written."""
        sums = [i for i, step in enumerate(self.body.steps) if self.levels[f"%{i}"] == level + 1
                and step.op.split("_")[0] in _OVER_PIXELS]
        last = level == self.passes - 1 and self.match.out_kind in ("full", "row")
        names = [self.fresh("{1}_of_{0}".format(*self.body.steps[i].op.split("_"))) for i in sums]
        work: list[str] = ["first = pl.multiple_of(i * block, 128)", "place = pl.ds(first, block)"]
        work += self.convolution() if level == 0 else ["y = kept_ref[:, place]"]
        if level == 0 and self.passes > 1:
            work.append("kept_ref[:, place] = y")
        shares = []
        if sums:
            work.append("valid = _valid(first, block, space, size)")
        for i, name in zip(sums, names, strict=True):
            kind = self.body.steps[i].op.split("_")[1]
            code, value = self.expression(self.body.steps[i].args[0], level)
            work += code
            part = self.fresh("part")
            work.append(f"inside = jnp.where(valid, {value}, {_NEUTRAL[kind]})")
            work.append(f"{part} = jnp.{kind}(inside, axis=1, keepdims=True)")
            shares.append(_JOIN[kind].format(name, part))
        if last:
            code, result = self.expression(self.body.result, level)
            work += [*code, f"out_ref[0, :, place] = {self.filled(result)}.astype(out_ref.dtype)"]
        carried = ", ".join(names) + ("," if len(names) == 1 else "")
        back = f"return {', '.join(shares) + (',' if len(shares) == 1 else '')}" if sums else "return carry"
        step = f"_pass{level + 1}"
        start = ", ".join(self.start(i) for i in sums) + ("," if len(sums) == 1 else "")
        opened = [f"{carried} = carry"] if sums else []
        head = [f"def {step}(i, carry):", indent([*opened, *work, back]), ""]
        call = f"jax.lax.fori_loop(0, blocks, {step}, {f'({start})' if sums else 0})"
        done = [f"{carried} = {call}" if sums else call]
        for i, name in zip(sums, names, strict=True):
            done += self.finished(self.body.steps[i], name)
            self.known[f"%{i}"] = name
        return [*head, *done]

    def start(self, i: int) -> str:
        step = self.body.steps[i]
        rows = 1 if self.shape_of(step.args[0]) in ("row", "one", "scalar") else "window.shape[0]"
        return f"jnp.full(({rows}, 1), {_NEUTRAL[step.op.split('_')[1]]})"

    def finished(self, step: Step, name: str) -> list[str]:
        over, kind = step.op.split("_")
        if over == "group":
            size = self.body.constants[int(step.args[1][1:])].text
            return [f"{name} = _over_groups({name}, {size})"]
        return [f"{name} = jnp.{kind}({name}, axis=0, keepdims=True)"] if over == "image" else []

    def convolution(self) -> list[str]:
        precise = f", precision=jax.lax.Precision.{self.match.precision}" if self.match.precision else ""
        return [
            "near = image_ref[0, :, pl.ds(first, block + halo)]",
            "patches = _patches(near, _shifts(space, size), block)",
            f"y = jnp.dot(window, patches, preferred_element_type=jnp.float32{precise})",
        ]

    def expression(self, argument: str, level: int) -> tuple[list[str], str]:
        """Lines and text of a value, with what earlier passes found under its name there."""
        names = {"acc": "y", **self.names}
        order: list[int] = []

        def visit(a: str) -> None:
            if a in self.known:
                names[a.replace("%", "known")] = self.known[a]
            elif a.startswith("%") and int(a[1:]) not in order:
                for inner in self.body.steps[int(a[1:])].args:
                    visit(inner)
                order.append(int(a[1:]))

        visit(argument)
        place = {f"%{i}": f"%{n}" for n, i in enumerate(order)}

        def renamed(a: str) -> str:
            return a.replace("%", "known") if a in self.known else place.get(a, a)

        steps = tuple(
            self.body.steps[i].model_copy(update={"args": tuple(renamed(a) for a in self.body.steps[i].args)})
            for i in order
        )
        part = self.body.model_copy(update={"steps": steps, "result": renamed(argument)})
        return Lines(part, names, self.taken | set(self.known.values())).render()

    def shape_of(self, argument: str) -> str:
        """``full``, ``col``, ``row``, ``one`` or ``scalar``: how a value lies in the kernel."""
        if argument == "acc":
            return "full"
        if argument.startswith("@"):
            return "col" if self.body.leaves[int(argument[1:])].kind == "col" else "one"
        if not argument.startswith("%"):
            return "scalar"
        step = self.body.steps[int(argument[1:])]
        kinds = {self.shape_of(a) for a in step.args}
        over = step.op.split("_")[0]
        inner = self.shape_of(step.args[0])
        if over == "pixels":
            return "col" if inner in ("full", "col") else "one"
        if over in ("group", "image"):
            return "col" if over == "group" else "one"
        if over == "down":
            return "row" if inner in ("full", "row") else "one"
        if "full" in kinds or {"row", "col"} <= kinds:
            return "full"
        return next((k for k in ("row", "col", "one") if k in kinds), "scalar")

    def filled(self, result: str) -> str:
        wide = self.shape_of(self.body.result) == self.match.out_kind
        rows = "window.shape[0]" if self.match.out_kind == "full" else "1"
        if wide:
            return result if result.isidentifier() else f"({result})"
        return f"jnp.broadcast_to({result}, ({rows}, block))"

    def fresh(self, stem: str) -> str:
        return fresh_name(stem, self.taken)

    # the entry function

    def entry(self) -> str:
        match, x, w = self.match, self.image, self.window
        rank = len(match.image_shape)
        odd = match.dtype == "bfloat16"
        lines = first_lines(match.signature)
        lines += [
            f"if {x}.ndim != {rank} or {w}.ndim != {rank} or {x}.shape[1] != {w}.shape[1]:",
            f'    raise ValueError(f"this kernel takes {x} and {w} of rank {rank} and as many channels, not '
            f'{{{x}.shape}} and {{{w}.shape}}")',
        ]
        image = x
        if any(a or b for a, b in match.pads):
            lines.append(f"image = jnp.pad({x}, ((0, 0), (0, 0), {', '.join(map(str, match.pads))}))")
            image = "image"
        window = w
        if odd:
            lines += [
                f"odd = {x}.shape[1] % 2  # channels are rotated in pairs",
                f"image = jnp.pad({image}, ((0, 0), (0, odd){', (0, 0)' * (rank - 2)}))",
                f"window = jnp.pad({w}, ((0, 0), (0, odd){', (0, 0)' * (rank - 2)}))",
            ]
            image, window = "image", "window"
        turn = ", ".join(map(str, (0, *range(2, rank), 1)))
        lines += [
            f"images, space, size = {image}.shape[0], {image}.shape[2:], {w}.shape[2:]",
            f"channels, window = {w}.shape[0], {window}.transpose({turn}).reshape({w}.shape[0], -1)",
            f"image = {image}.reshape(images, {image}.shape[1], -1)",
            "span = (space[0] - size[0] + 1) * math.prod(space[1:])  # places of results, and some across an edge",
            *(["pixels = math.prod(s - w + 1 for s, w in zip(space, size))"] if "pixels" in self.statics else []),
            "halo = pl.cdiv(_shifts(space, size)[-1], 128) * 128",
            "places = pl.cdiv(span, BLOCK_P) * BLOCK_P",
            "out = pl.pallas_call(", indent(self.call()), f")({', '.join(self.operands())})",
            *self.output(),
        ]
        shifts = [
            "def _shifts(space, window):",
            '    """How many places of a flattened image each place of the window lies ahead, in order."""',
            "    shifts = [0]",
            "    for axis, width in enumerate(window):",
            "        step = math.prod(space[axis + 1 :])",
            "        shifts = [s + step * i for s in shifts for i in range(width)]",
            "    return shifts",
        ]
        doc = f'"""{x}: [images, channels, *space], {w}: [channels out, channels, *window]. Float32 inside."""'
        head = f"def {match.signature.entry}({match.signature.header}):\n" + fold_raises(indent([doc, *lines]))
        return "\n".join(shifts) + "\n\n\n" + head

    def call(self) -> list[str]:
        statics = ["span=span", "halo=halo", "space=space", "size=size", *(f"{s}={s}" for s in self.statics)]
        kind = self.match.out_kind
        shape = {"full": "channels, span", "row": "1, span", "col": "channels, 1", "one": "1, 1"}[kind]
        block = shape.replace("span", "places")
        leaves = ["pl.BlockSpec((channels, 1), lambda i: (0, 0))," if leaf.kind == "col"
                  else "pl.BlockSpec((1, 1), lambda i: (0, 0))," for leaf in self.body.leaves]
        kept = ["scratch_shapes=[pltpu.VMEM((channels, places), jnp.float32)],"] if self.passes > 1 else []
        return [
            f"functools.partial(_kernel, {', '.join(statics)}),",
            f"out_shape=jax.ShapeDtypeStruct((images, {shape}), jnp.{self.match.kernel_dtype}),",
            "grid=(images,),",
            "in_specs=[",
            "    # what this block reads past an image's end is never used",
            "    pl.BlockSpec((1, image.shape[1], places + halo), lambda i: (i, 0, 0)),",
            "    pl.BlockSpec(window.shape, lambda i: (0, 0)),",
            *(f"    {leaf}" for leaf in leaves),
            "],",
            f"out_specs=pl.BlockSpec((1, {block}), lambda i: (i, 0, 0)),",
            *kept,
            'compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=VMEM_LIMIT),',
        ]

    def operands(self) -> list[str]:
        params = self.match.signature.params
        return ["image", "window", *(
            f"{params[leaf.param]}.reshape({'channels' if leaf.kind == 'col' else '1'}, 1)" for leaf in self.body.leaves
        )]

    def output(self) -> list[str]:
        match = self.match
        axes, kind = len(match.pads), match.out_kind
        if kind in ("col", "one"):
            lead = "images, channels" if kind == "col" else "images"
            ones = match.out_rank - (2 if kind == "col" else 1)
            return [f"return out.reshape({lead}{', 1' * ones})"]
        lead = "channels, " if kind == "full" else "1, " if match.out_rank == axes + 2 else ""
        dots = ["...", *(f": space[{a}] - size[{a}] + 1" for a in range(1, axes))]
        lines = [f"out = out.reshape(images, {lead}-1, *space[1:])"]
        cut = f"out[{', '.join(dots)}]" if axes > 1 else "out"
        return [*lines, *self.after(cut)] if match.after else [*lines, f"return {cut}"]

    def after(self, cut: str) -> list[str]:
        """Statistics of the batch and what needs them, in plain JAX on ``cut``."""
        match = self.match
        assert match.after is not None
        names, lines = {"acc": "out"}, [f"out = {cut}"] if cut != "out" else []
        if any("count" in c.text for c in match.after.constants):
            lines.append("count = out.size // out.shape[1]  # pixels of all images")
        ones = "".join(", 1" for _ in match.pads)
        for i, leaf in enumerate(match.after.leaves):
            own = match.signature.params[leaf.param]
            names[f"@{i}"] = self.fresh(f"{own}_wide")
            shape = f"-1{ones}" if leaf.kind == "col" else ""
            lines.append(f"{names[f'@{i}']} = {own}.reshape({shape}).astype(jnp.float32)")
        code, result = BatchLines(match.after, names, {*self.taken, "count"}, len(match.image_shape)).render()
        return [*lines, *code, f"return ({result}).astype(jnp.{match.out_dtype})"]
