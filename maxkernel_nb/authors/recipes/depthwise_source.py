"""The depthwise recipe's template: a block and its neighbours' nearest places, rotated for each tap."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.expressions import Leaf
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import comment, erf_helper, fold_raises, fresh_name, indent, joined, vmem_line

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.depthwise import DepthwiseMatch

_RESERVED = {
    "jax", "jnp", "lax", "pl", "pltpu", "functools", "math", "out", "out_ref", "halo", "places", "space", "block",
    "place", "start", "batch", "channels", "per", "last", "image", "reach", "i", "j", "n", "shape",
}
_BACK = ("left", "up", "before")  # from the last space axis on
_ON = ("right", "down", "behind")

_SHIFTED = '''
def _shifted(near, ahead, start, size):
    """``size`` {what} from ``start + ahead`` on: rotated by less than {unit}, then moved by whole registers."""
    turn = ahead % {unit}
    turned = pltpu.roll(near, near.shape[{axis}] - turn, {axis}) if turn else near
    first = start + ahead - turn
    return turned[{cut}first : first + size]
'''
_AHEAD = '''
def _ahead(shift, space):
    """How many places further a shift leads along the flattened space."""
    place = 0
    for step, size in zip(shift, space):
        place = place * size + step
    return place
'''
_REACHES = '''
def _reaches(place, shift, space):
    """Which places are seen from ``shift`` back along all but the first axis: not across an edge."""
    inside, size = True, 1
    for step, width in zip(reversed(shift), reversed(space[1:])):
        at = jax.lax.rem(place // size, width) - step
        inside &= (at >= 0) & (at < width)
        size *= width
    return inside
'''


def render(match: DepthwiseMatch, params: dict[str, int], bound: str, vmem_limit: int) -> str:
    return _Module(match, params, bound, vmem_limit).text()


class _Module:
    def __init__(self, match: DepthwiseMatch, params: dict[str, int], bound: str, vmem_limit: int) -> None:
        self.match, self.params, self.bound, self.vmem_limit = match, params, bound, vmem_limit
        self.axis = 0 if match.channels_last else 1
        self.unit = 16 if match.channels_last else 128
        self.flat = len(match.space) == 1
        shifts = [match.shift(leaf.kind) for leaf in match.body.leaves if leaf.kind.startswith("at")]
        self.reach = tuple(max(abs(s[axis]) for s in shifts) for axis in range(len(match.space)))
        self.before = not self.flat or any(s[0] < 0 for s in shifts)
        self.after = not self.flat or any(s[0] > 0 for s in shifts)
        self.shifted = {i for i in match.images if match.shifts(i) != [_still(match.rank)]}
        self.taken = {*_RESERVED, *match.signature.params}
        self.names = {i: self.local(match.signature.params[i]) for i in sorted({b.param for b in match.body.leaves})}

    def local(self, name: str) -> str:
        return fresh_name(f"{name}_value", self.taken) if name in _RESERVED else name

    def text(self) -> str:
        kernel, entry = self.kernel(), self.entry()
        what, cut = ("rows", "") if self.match.channels_last else ("columns", ":, ")
        shifted = _SHIFTED.format(what=what, cut=cut, axis=self.axis, unit=8 if self.match.channels_last else 128)
        helpers = [shifted, *([] if self.flat else [_AHEAD]), *([_REACHES] if "_reaches(" in kernel else [])]
        helpers += erf_helper(kernel)
        lax = "from jax import lax\n" if re.search(r"(?<!jax\.)\blax\.", kernel) else ""
        standard = [name for name in ("functools", "math") if f"{name}." in kernel + entry]
        imports = "".join(f"import {name}\n" for name in standard) + ("\n" if standard else "") + (
            f"import jax\nimport jax.numpy as jnp\n{lax}"
            "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu"
        )
        constants = [f"{name} = {value}" for name, value in self.params.items()]
        constants.append(vmem_line(self.vmem_limit))
        head = "\n\n".join((self.header(), imports, "\n".join(constants)))
        return "\n\n\n".join((head, *(h.strip("\n") for h in helpers), kernel, entry)) + "\n"

    def header(self) -> str:
        match = self.match
        sides = " and ".join([*(["before"] if self.before else []), *(["after"] if self.after else [])])
        return comment(
            f"{match.signature.entry}: a depthwise convolution and what is around it as a Pallas TPU kernel.",
            *(f"Algebra: {note}." for note in match.algebra),
            f"A block of BLOCK_T places and BLOCK_C channels is read once, with the nearest places {sides} it. What a "
            "tap sees is the block rotated by a few places: the VPU multiplies and adds, no shifted array goes "
            "through HBM.",
            f"Bound for {match.batch} x {list(match.space)} places of {match.channels} channels: {self.bound}.",
        )

    # the kernel

    def kernel(self) -> str:
        lines = [f"block = out_ref.shape[{self.axis + 1}]  # places"]
        names: dict[str, str] = {}
        if self.after or not self.flat:
            lines += self.placed()
        for param in self.match.images:
            lines += self.image(param, names)
        lines += self.others(names)
        body, result = Lines(self.match.body, names, self.taken).render()
        lines += ["", *body, f"out_ref[0] = {_atom(result)}.astype(out_ref.dtype)"]
        statics = ["halo", *(["places"] if self.after else []), *([] if self.flat else ["space"])]
        refs = [*(ref for ref, _ in self.blocks()), "out_ref"]
        head = f"def _kernel({', '.join(refs)}, *, {', '.join(statics)}):"
        if len(head) > 112:
            head = f"def _kernel(\n    {', '.join(refs)}, *,\n    {', '.join(statics)},\n):"
        return head + "\n" + indent(lines)

    def placed(self) -> list[str]:
        """Where a block and its neighbours lie."""
        rows = "block + 2 * halo" if self.before and self.after else "block + halo"
        shape = f"({rows}, 1)" if self.match.channels_last else f"(1, {rows})"
        first = f"pl.program_id(1) * block{' - halo' if self.before else ''}"
        return [f"place = {first} + jax.lax.broadcasted_iota(jnp.int32, {shape}, {self.axis})"]

    def image(self, param: int, names: dict[str, str]) -> list[str]:
        name = self.names[param]
        if param not in self.shifted:
            names[self.argument(param, _still(self.match.rank))] = name
            return [f"{name} = {name}_ref[0].astype(jnp.float32)"]
        near = self.fresh("near")
        inner = f"{name}_ref[0].astype(jnp.float32)"
        lines, parts = [], [inner]
        if self.before:
            before = self.fresh("before")
            lines.append(f"{before} = {name}_before_ref[0].astype(jnp.float32)")
            parts.insert(0, before)
        if not self.after:
            lines.append(f"{before} = jnp.where(pl.program_id(1) == 0, 0.0, {before})  # zeros before the first place")
        else:
            parts.append(f"{name}_after_ref[0].astype(jnp.float32)")
        whole = f"{near} = jnp.concatenate([{', '.join(parts)}], axis={self.axis})"
        if len(whole) > 112:
            whole = f"{near} = jnp.concatenate(\n    [{', '.join(parts)}], axis={self.axis}\n)"
        lines.append(whole)
        if self.after:
            inside = "(place >= 0) & (place < places)" if self.before else "place < places"
            lines.append(f"{near} = jnp.where({inside}, {near}, 0.0)")
        return [*lines, *self.copies(param, near, names)]

    def copies(self, param: int, near: str, names: dict[str, str]) -> list[str]:
        """One name for each shift of an image."""
        lines, seen = [], {}
        start = "halo" if self.before else "0"
        for kind in sorted(self.match.shifts(param), key=self.match.shift):
            shift = self.match.shift(kind)
            tail = shift[1:]
            if any(tail) and tail not in seen:
                seen[tail] = self.fresh("_".join(["near", *_words(tail)]))
                lines.append(f"{seen[tail]} = jnp.where(_reaches(place, {_tuple(tail)}, space), {near}, 0.0)")
            ahead = str(shift[0]) if self.flat else f"_ahead({_tuple(shift)}, space)"
            word = "_".join([self.names[param], *(_words(shift) if not self.flat else _word(shift[0]))])
            name = word if word == self.names[param] else self.fresh(word)
            names[self.argument(param, kind)] = name
            lines.append(f"{name} = _shifted({seen.get(tail, near)}, {ahead}, {start}, block)")
        return lines

    def others(self, names: dict[str, str]) -> list[str]:
        """Lines that read windows, values of a channel and single numbers."""
        lines = []
        for param in self.names:
            leaves = [leaf for leaf in self.match.body.leaves if leaf.param == param]
            name, kinds = self.names[param], [leaf.kind for leaf in leaves if not leaf.kind.startswith("at")]
            if kinds == ["scalar"]:
                lines.append(f"{name} = {name}_ref[0, 0].astype(jnp.float32)")
            elif kinds:
                lines.append(f"{name} = {name}_ref[...].astype(jnp.float32)")
            if kinds in (["scalar"], ["row"]):
                names[self.argument(param, kinds[0])] = name
            elif kinds:
                lines += self.taps(param, kinds, names)
        return lines

    def taps(self, param: int, kinds: list[str], names: dict[str, str]) -> list[str]:
        name, cut = self.names[param], "" if self.match.channels_last else ":, "
        order = sorted(kinds, key=_tap)
        found = [self.fresh(f"{name}{_tap(kind)}") for kind in order]
        names.update({self.argument(param, kind): text for kind, text in zip(order, found, strict=True)})
        if [_tap(k) for k in order] == list(range(len(order))):
            return [f"{joined(found)} = ({name}[{cut}i : i + 1] for i in range({len(order)}))"]
        return [f"{text} = {name}[{cut}{_tap(k)} : {_tap(k) + 1}]" for text, k in zip(found, order, strict=True)]

    def argument(self, param: int, kind: str) -> str:
        return f"@{self.match.body.leaves.index(Leaf(param=param, kind=kind))}"

    def fresh(self, stem: str) -> str:
        return fresh_name(stem, self.taken)

    # the entry function

    def blocks(self) -> list[tuple[str, str]]:
        """Refs of the kernel with their block specs."""
        last = self.match.channels_last
        found = []
        for param, name in self.names.items():
            kinds = [leaf.kind for leaf in self.match.body.leaves if leaf.param == param]
            if param in self.match.images:
                found.append((f"{name}_ref", "block"))
                if param in self.shifted:
                    found += [(f"{name}_before_ref", "before")] if self.before else []
                    found += [(f"{name}_after_ref", "after")] if self.after else []
            elif kinds == ["scalar"]:
                found.append((f"{name}_ref", "pl.BlockSpec(memory_space=pltpu.SMEM)"))
            else:
                width = 1 if kinds == ["row"] else f"{self.operand_name(param)}.shape[{self.axis}]"
                shape = f"({width}, block_c), lambda n, i, j: (0, j)" if last else (
                    f"(block_c, {width}), lambda n, i, j: (j, 0)")
                found.append((f"{name}_ref", f"pl.BlockSpec({shape})"))
        return found

    def operand_name(self, param: int) -> str:
        return f"{self.names[param]}_taps"

    def entry(self) -> str:
        match, x = self.match, self.match.signature.params[self.match.image]
        lines = first_lines(match.signature)
        lines += [
            f"if {x}.ndim != {match.rank}:",
            f'    raise ValueError(f"this kernel takes {x} of rank {match.rank}, not {{{x}.shape}}")',
        ]
        end = "-1" if match.channels_last else ""
        first = match.lead if match.channels_last else match.lead + 1
        channels = f"{x}.shape[{-1 if match.channels_last else match.lead}]"
        if self.flat:
            halo = self.unit * -(-self.reach[0] // self.unit)
            lines += [f"places, channels = {x}.shape[{first}], {channels}", f"halo = {halo}"]
        else:
            lines += [f"space, channels = {x}.shape[{first}:{end}], {channels}", "places = math.prod(space)",
                      f"halo = pl.cdiv(_ahead({_tuple(self.reach)}, space), {self.unit}) * {self.unit}"]
        lines += [
            f"batch = {x}.size // (places * channels)",
            "block_t = max(1, min(BLOCK_T // halo, pl.cdiv(places, halo))) * halo",
            "block_c, per = min(BLOCK_C, channels), block_t // halo",
        ]
        lines += self.specs()
        operands = self.operands(lines)
        if match.rank == 3:
            lines += ["return pl.pallas_call(", indent(self.call()), f")({operands})"]
        else:
            lines += ["out = pl.pallas_call(", indent(self.call()), f")({operands})", f"return out.reshape({x}.shape)"]
        where = "[..., places, channels]" if match.channels_last else "[batch, channels, places]"
        doc = f'"""{x}: {where}, zero outside; float32 inside."""' if self.flat else (
            f'"""{x}: space, then channels; zero outside; float32 inside."""' if match.channels_last else
            f'"""{x}: channels, then space; zero outside; float32 inside."""')
        return f"def {match.signature.entry}({match.signature.header}):\n" + fold_raises(indent([doc, *lines]))

    def specs(self) -> list[str]:
        last = self.match.channels_last

        def spec(name: str, size: str, index: str) -> str:
            shape = f"(1, {size}, block_c)" if last else f"(1, block_c, {size})"
            to = f"(n, {index}, j)" if last else f"(n, j, {index})"
            return f"{name} = pl.BlockSpec({shape}, lambda n, i, j: {to})"

        lines = [spec("block", "block_t", "i")]
        if self.before:
            lines.append(spec("before", "halo", "jnp.maximum(i * per - 1, 0)"))
        if self.after:
            lines.append("last = pl.cdiv(places, halo) - 1")
            lines.append(spec("after", "halo", "jnp.minimum((i + 1) * per, last)"))
        return lines

    def operands(self, lines: list[str]) -> str:
        """The call's arguments; windows are laid out in ``lines`` before it."""
        match, found = self.match, []
        shape = "(batch, places, channels)" if match.channels_last else "(batch, channels, places)"
        for param, name in self.names.items():
            own = match.signature.params[param]
            kinds = [leaf.kind for leaf in match.body.leaves if leaf.param == param]
            if param in match.images:
                text = own
                if match.rank != 3:
                    lines.append(f"{self.operand_name(param)} = {own}.reshape{shape}")
                    text = self.operand_name(param)
                found += [text] * sum(ref.startswith((f"{name}_ref", f"{name}_before_ref", f"{name}_after_ref"))
                                      for ref, _ in self.blocks())
            elif kinds in (["scalar"], ["row"]):
                to = "1, 1" if kinds == ["scalar"] else "1, channels" if match.channels_last else "channels, 1"
                found.append(f"{own}.reshape({to})")
            else:
                lines.append(f"{self.operand_name(param)} = {self.laid_out(own, kinds[0])}")
                found.append(self.operand_name(param))
        return ", ".join(found)

    def laid_out(self, own: str, kind: str) -> str:
        """A window as [taps, channels], or [channels, taps] where space is last."""
        by_taps = kind.split()[1] == "kc"
        text = f"{own}.reshape({'-1, channels' if by_taps else 'channels, -1'})"
        return text if by_taps == self.match.channels_last else f"{text}.T"

    def call(self) -> list[str]:
        last = self.match.channels_last
        statics = ["halo=halo", *(["places=places"] if self.after else []), *([] if self.flat else ["space=space"])]
        shape = "(batch, places, channels)" if last else "(batch, channels, places)"
        return [
            f"functools.partial(_kernel, {', '.join(statics)}),",
            f"out_shape=jax.ShapeDtypeStruct({shape}, jnp.{self.match.out_dtype}),",
            "grid=(batch, pl.cdiv(places, block_t), pl.cdiv(channels, block_c)),",
            "in_specs=[", *(f"    {spec}," for _, spec in self.blocks()), "],",
            "out_specs=block,",
            "compiler_params=pltpu.CompilerParams(",
            '    dimension_semantics=("parallel",) * 3, vmem_limit_bytes=VMEM_LIMIT',
            "),",
        ]


def _still(rank: int) -> str:
    return "at " + " ".join(["0"] * rank)


def _tap(kind: str) -> int:
    return int(kind.split()[2])


def _tuple(values: tuple[int, ...]) -> str:
    return f"({joined([str(v) for v in values])})"


def _word(step: int) -> list[str]:
    return [f"back{-step}" if step < 0 else f"ahead{step}"] if step else []


def _words(shift: tuple[int, ...]) -> list[str]:
    """``up1``, ``left2``: of the axes that are shifted."""
    named = zip(reversed(shift), _BACK, _ON, strict=False)
    return [f"{back}{-step}" if step < 0 else f"{on}{step}" for step, back, on in named if step][::-1]


def _atom(text: str) -> str:
    """The text with brackets around it, unless it is a name or one call."""
    called = re.fullmatch(r"[\w.]+\((.*)\)", text)
    closed = called is not None and _balanced(called.group(1))
    return text if text.isidentifier() or closed else f"({text})"


def _balanced(text: str) -> bool:
    """No bracket closes what was not opened within."""
    depth = 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return depth == 0
