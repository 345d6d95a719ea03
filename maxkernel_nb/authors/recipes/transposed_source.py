"""The transposed convolution's template: neighbours of each row in its lanes, one product for each phase and slice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.expressions import Leaf
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import comment, erf_helper, fold_raises, fresh_name, indent, vmem_line

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.transposed import TransposedMatch

_RESERVED = {
    "jax", "jnp", "lax", "pl", "pltpu", "functools", "math", "x_ref", "window_ref", "out_ref", "spread_ref",
    "product_ref", "merged_ref", "taps", "width", "product", "image", "window", "rows", "near", "deep", "high", "wide",
    "tall", "depth", "lanes", "images", "channels", "block_d", "block_o", "d", "h", "i", "j", "n", "o", "first", "size",
    "merged", "low", "at", "place", "spread",
}

_PHASE = '''
def _phase(axis, phase):
    """Of results at ``STRIDES[axis] * i + phase``: the window's first tap, and how far from ``i`` its value lies."""
    tap = (EDGES[axis] - phase) % STRIDES[axis]
    return tap, (phase + tap - EDGES[axis]) // STRIDES[axis]


def _first(axis):
    """Of all phases, the value that lies furthest back."""
    return min(_phase(axis, phase)[1] for phase in range(STRIDES[axis]))


def _last(axis, taps):
    return max(_phase(axis, phase)[1] for phase in range(STRIDES[axis])) + taps - 1
'''
_ROWS = '''
def _rows(image, taps):
    """[n, c, d, h, w] -> rows (d, h), zeros before and after; lanes (neighbour along h, c, w), zero past an edge."""
    n, c, deep, high, wide = image.shape
    tall = pl.cdiv(high, 16) * 16  # whole registers
    image = jnp.pad(image, ((0, 0), (0, 0), (0, 0), (0, tall - high), (0, 0)))
    rows = image.reshape(n, c, deep * tall, wide).transpose(0, 2, 1, 3).reshape(n, deep * tall, c * wide)
    place = jnp.arange(deep * tall)[:, None] % tall
    near = []
    for ahead in range(_first(1), _last(1, taps[1]) + 1):
        inside = (place + ahead >= 0) & (place + ahead < high)
        near.append(jnp.where(inside, jnp.roll(rows, -ahead, axis=1), 0))
    ends = (-_first(0) * tall, _last(0, taps[0]) * tall)
    return jnp.pad(jnp.concatenate(near, axis=2), ((0, 0), ends, (0, 0)))
'''
_BY_PHASE = '''
def _by_phase(window, taps, width):
    """[o, c, *size] -> [phases and their taps, (last axis, c), (o, width)]: a value in all lanes of its o."""
    more = [(0, t * s - k) for t, s, k in zip(taps, STRIDES, window.shape[2:4])]
    window = jnp.pad(window, ((0, 0), (0, 0), *more, (0, 0)))
    parts = [
        window[:, :, _phase(0, d)[0] + STRIDES[0] * i, _phase(1, h)[0] + STRIDES[1] * j]
        for d in range(STRIDES[0]) for h in range(STRIDES[1]) for i in range(taps[0]) for j in range(taps[1])
    ]
    parts = jnp.stack(parts).transpose(0, 3, 2, 1)
    return jnp.repeat(parts.reshape(len(parts), -1, window.shape[0]), width, axis=2)
'''
_SPREAD = '''
def _spread(window_ref, spread_ref, wide, width):
    """Matrices from the image's last axis (for each channel) to the result's: the window, moved by the stride."""
    shape = wide, spread_ref.shape[2]
    place = jax.lax.broadcasted_iota(jnp.int32, shape, 0) * STRIDES[2]
    result = jax.lax.broadcasted_iota(jnp.int32, shape, 1) % width
    channels = spread_ref.shape[1] // wide

    def fill(t, carry):
        window, matrices = window_ref[t].astype(jnp.float32), []
        for c in range(channels):
            matrix = jnp.zeros(shape, jnp.float32)
            for k in range(window.shape[0] // channels):
                matrix = jnp.where(result + k - EDGES[2] == place, window[k * channels + c][None], matrix)
            matrices.append(matrix)
        spread_ref[t] = jnp.concatenate(matrices).astype(spread_ref.dtype)
        return carry

    jax.lax.fori_loop(0, spread_ref.shape[0], fill, 0)
'''
_RUN = '''
def _run_{name}(x, size):
    """The {what} of each run of ``size`` neighbouring lanes, held in every one of them."""
    step, parts = size if 128 % size else 128, []
    for first in range(0, x.shape[1], step):
        part = x[:, first : first + step]
        run = jax.lax.broadcasted_iota(jnp.int32, part.shape, 1) // size
        total = jnp.zeros_like(part)
        for r in range(part.shape[1] // size):
            mine = jnp.{name}(jnp.where(run == r, part, {neutral}), axis=1, keepdims=True)
            total = jnp.where(run == r, mine, total)
        parts.append(total)
    return jnp.concatenate(parts, axis=1)
'''
_RUNS = {"sum": ("sum", "0.0"), "max": ("largest", "-jnp.inf"), "min": ("smallest", "jnp.inf")}
_PAIRED = '''
def _paired(even, odd):
    """Rows of two arrays in turn, as bfloat16: two neighbouring rows of a column share 32 bits."""
    low, high = (
        jax.lax.bitcast_convert_type(x.astype(jnp.bfloat16).astype(jnp.float32), jnp.int32) for x in (even, odd)
    )
    return pltpu.bitcast(jax.lax.shift_right_logical(low, 16) | high, jnp.bfloat16)
'''


def render(match: TransposedMatch, params: dict[str, int], bound: str, vmem_limit: int) -> str:
    return _Module(match, params, bound, vmem_limit).text()


class _Module:
    def __init__(self, match: TransposedMatch, params: dict[str, int], bound: str, vmem_limit: int) -> None:
        self.match, self.params, self.bound, self.vmem_limit = match, params, bound, vmem_limit
        self.flat = len(match.size) == 2
        self.pairs = match.stride == 2 and match.out_dtype == "bfloat16"
        self.taken = {*_RESERVED, *match.signature.params, "y"}
        self.names = {leaf: self.local(leaf) for leaf in match.body.leaves}

    def local(self, leaf: Leaf) -> str:
        name = self.match.signature.params[leaf.param]
        doubled = sum(other.param == leaf.param for other in self.match.body.leaves) > 1
        return fresh_name(f"{name}_{leaf.kind}", self.taken) if doubled or name in _RESERVED | {"y"} else name

    def text(self) -> str:
        after, kernel, entry = self.after(), self.kernel(), self.entry()
        runs = [_RUN.format(name=n, what=what, neutral=neutral) for n, (what, neutral) in _RUNS.items()
                if f"_run_{n}(" in after]
        helpers = [_PHASE, _ROWS, _BY_PHASE, _SPREAD, *([_PAIRED] if self.pairs else []), *runs, *erf_helper(after)]
        lax = "from jax import lax\n" if re.search(r"(?<!jax\.)\blax\.", after) else ""
        imports = (
            f"import functools\nimport math\n\nimport jax\nimport jax.numpy as jnp\n{lax}"
            "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu"
        )
        head = "\n\n".join((self.header(), imports, self.constants()))
        return "\n\n\n".join((head, *(h.strip("\n") for h in helpers), after, kernel, entry)) + "\n"

    def header(self) -> str:
        m = self.match
        return comment(
            f"{m.signature.entry}: a transposed convolution and all that follows as a Pallas TPU kernel.",
            *(f"Algebra: {note}." for note in m.algebra),
            f"Along depth and height each of the {m.phases} phases of the result is a plain convolution with every "
            "STRIDES-th tap. Along the last axis the window is spread to a matrix from all places and channels of the "
            "image to all places and BLOCK_O channels of the result: zeros are multiplied too, but rows come out whole "
            "and in the result's own layout, so what follows is done on them in VMEM. The matrices are made once for "
            "each block of channels.",
            f"Bound for {m.image_shape[0]} images of {list(m.image_shape[1:])}: {self.bound}.",
        )

    def constants(self) -> str:
        m = self.match
        strides, edges = (m.stride,) * len(m.size), m.edge
        if self.flat:
            strides, edges = (1, *strides), (0, *edges)
        return "\n".join([
            f"STRIDES = {strides}  # depth, height, width",
            f"EDGES = {edges}  # zeros before the image, spread by the strides",
            *(f"{name} = {value}" for name, value in self.params.items()),
            vmem_line(self.vmem_limit),
        ])

    def after(self) -> str:
        """The function of what follows the convolution."""
        names = {"acc": "y", **{f"@{i}": self.names[leaf] for i, leaf in enumerate(self.match.body.leaves)}}
        lines, result = Lines(self.match.body, names, self.taken).render()
        doc = '"""What follows the convolution. y: rows of [channels, width]."""'
        arguments = ", ".join(["y", *self.names.values(), "width"])
        return f"def _after({arguments}):\n" + indent([doc, *lines, f"return {result}"])

    # the kernel

    def kernel(self) -> str:
        scratch = ["spread_ref", "product_ref", *([] if self.pairs else ["merged_ref"])]
        refs = ["x_ref", "window_ref", *(f"{name}_ref" for name in self.names.values()), "out_ref", *scratch]
        head = f"def _kernel({', '.join(refs)}, *, taps, width):"
        if len(head) > 112:
            head = f"def _kernel(\n    {', '.join(refs)},\n    *, taps, width,\n):"
        loads = [f"{name} = {name}_ref[{'0, 0' if leaf.kind == 'scalar' else '...'}].astype(jnp.float32)"
                 for leaf, name in self.names.items()]
        precise = f", precision=jax.lax.Precision.{self.match.precision}" if self.match.precision else ""
        call = f"_after(product_ref[h, i * tall : (i + 1) * tall], {', '.join([*self.names.values(), 'width'])})"
        if self.pairs:
            merge = [f"rows = [{call} for h in range(2)]", "merged = _paired(*rows)[: out_ref.shape[3]]"]
        else:
            merge = ["for h in range(STRIDES[1]):", f"    rows = {call}",
                     "    merged_ref[pl.ds(h, tall, stride=STRIDES[1])] = rows",
                     "merged = merged_ref[: out_ref.shape[3]].astype(out_ref.dtype)"]
        lines = [
            *loads,
            "block_d, (_, depth, lanes) = out_ref.shape[2] // STRIDES[0], spread_ref.shape",
            "tall = product_ref.shape[1] // block_d",
            "",
            "@pl.when((pl.program_id(1) == 0) & (pl.program_id(2) == 0))",
            "def _new_channels():",
            "    _spread(window_ref, spread_ref, width // STRIDES[2], width)",
            "",
            "for d in range(STRIDES[0]):",
            "    for h in range(STRIDES[1]):",
            "        product = jnp.zeros(product_ref.shape[1:], jnp.float32)",
            "        low = (_phase(1, h)[1] - _first(1)) * depth",
            "        for i in range(taps[0]):",
            "            first = pl.program_id(2) * block_d + _phase(0, d)[1] - _first(0) + i",
            "            place = pl.ds(pl.multiple_of(first * tall, 16), block_d * tall)",
            "            at = ((d * STRIDES[1] + h) * taps[0] + i) * taps[1]",
            "            spread = spread_ref[at : at + taps[1]].reshape(taps[1] * depth, lanes)",
            "            rows = x_ref[0, place, low : low + taps[1] * depth]",
            f"            product += jnp.dot(rows, spread, preferred_element_type=jnp.float32{precise})",
            "        product_ref[h] = product",
            "    for i in range(block_d):",
            *(f"        {line}" for line in merge),
            "        for o in range(out_ref.shape[1]):",
            "            out_ref[0, o, STRIDES[0] * i + d] = merged[:, o * width : (o + 1) * width]",
        ]
        return head + "\n" + indent(lines)

    # the entry function

    def entry(self) -> str:
        m = self.match
        x, w = (m.signature.params[i] for i in (m.image, m.window))
        rank, own = len(m.image_shape), 0 if m.swapped else 1
        mirrored = f"jnp.flip({w}, {tuple(range(2, rank))})" if m.flipped else w
        window = f"{mirrored}.swapaxes(0, 1)" if m.swapped else mirrored
        lines = first_lines(m.signature)
        lines += [
            f"if {x}.ndim != {rank} or {w}.ndim != {rank} or {x}.shape[1] != {w}.shape[{own}]:",
            f'    raise ValueError(f"this kernel takes {x} and {w} of rank {rank} and as many channels, not '
            f'{{{x}.shape}} and {{{w}.shape}}")',
            f"image, window = {x}, {window}",
            *(["image, window = image[:, :, None], window[:, :, None]  # a depth of one"] if self.flat else []),
            "images, _, deep, high, wide = image.shape",
            "channels, width = window.shape[0], STRIDES[2] * wide",
            "taps = [pl.cdiv(size, stride) for size, stride in zip(window.shape[2:], STRIDES)]",
            "block_o, block_d = min(BLOCK_O, channels), math.gcd(BLOCK_D, deep)",
            "near, window = _rows(image, taps), _by_phase(window, taps, width)",
            "tall, depth, lanes = pl.cdiv(high, 16) * 16, image.shape[1] * wide, block_o * width",
            f"{'out =' if self.flat else 'return'} pl.pallas_call(", indent(self.call()), *self.operands(),
            *(["return out[:, :, 0]"] if self.flat else []),
        ]
        order = "channels, channels out" if m.swapped else "channels out, channels"
        doc = f'"""{x}: [images, channels, *space], {w}: [{order}, *window]. Float32 inside."""'
        return f"def {m.signature.entry}({m.signature.header}):\n" + fold_raises(indent([doc, *lines]))

    def operands(self) -> list[str]:
        forms = {"channel": "jnp.repeat({0}.reshape(-1), width)[None]",
                 "place": "jnp.tile({0}.reshape(-1), block_o)[None]", "both": "{0}.reshape(1, -1)",
                 "scalar": "{0}.reshape(1, 1)"}
        texts = [forms[leaf.kind].format(self.match.signature.params[leaf.param]) for leaf in self.match.body.leaves]
        one_line = f")({', '.join(['near', 'window', *texts])})"
        return [one_line] if len(one_line) <= 100 else [")(", indent(["near, window,", *(f"{t}," for t in texts)]), ")"]

    def call(self) -> list[str]:
        m = self.match
        specs = {"channel": "pl.BlockSpec((1, lanes), lambda j, n, i: (0, j)),",
                 "place": "pl.BlockSpec((1, lanes), lambda j, n, i: (0, 0)),",
                 "both": "pl.BlockSpec((1, lanes), lambda j, n, i: (0, j)),",
                 "scalar": "pl.BlockSpec(memory_space=pltpu.SMEM),"}
        merged = [] if self.pairs else ["    pltpu.VMEM((STRIDES[1] * tall, lanes), jnp.float32),"]
        return [
            "functools.partial(_kernel, taps=taps, width=width),",
            "out_shape=jax.ShapeDtypeStruct(",
            f"    (images, channels, STRIDES[0] * deep, STRIDES[1] * high, width), jnp.{m.out_dtype}",
            "),",
            "grid=(pl.cdiv(channels, block_o), images, deep // block_d),",
            "in_specs=[",
            "    pl.BlockSpec((1, *near.shape[1:]), lambda j, n, i: (n, 0, 0)),",
            "    pl.BlockSpec((*window.shape[:2], lanes), lambda j, n, i: (0, 0, j)),",
            *(f"    {specs[leaf.kind]}" for leaf in m.body.leaves),
            "],",
            "out_specs=pl.BlockSpec(",
            "    (1, block_o, STRIDES[0] * block_d, STRIDES[1] * high, width), lambda j, n, i: (n, j, i, 0, 0)",
            "),",
            "scratch_shapes=[",
            "    pltpu.VMEM((window.shape[0], depth, lanes), image.dtype),",
            "    pltpu.VMEM((STRIDES[1], block_d * tall, lanes), jnp.float32),",
            *merged,
            "],",
            "compiler_params=pltpu.CompilerParams(",
            '    dimension_semantics=("parallel", "arbitrary", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT',
            "),",
        ]
