"""Templates of the recurrence recipe: modules a person would keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.attention_match import from_canonical, to_canonical
from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import comment, indent, vmem_line

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.recurrence import RecurrenceMatch


def render(match: RecurrenceMatch, params: dict[str, int], bound: str, vmem_limit: int) -> str:
    return _Module(match, params, bound, vmem_limit).text()


class _Module:
    def __init__(self, match: RecurrenceMatch, params: dict[str, int], bound: str, vmem_limit: int) -> None:
        self.match, self.params, self.bound, self.limit = match, params, bound, vmem_limit
        self.names = [match.signature.params[i] for i in (match.q, match.k, match.v)]
        self.decays = bool(match.slopes) or match.travelled >= 0
        self.wide = "float32" in (match.dtypes[match.v],)

    def text(self) -> str:
        kernel = self.turned() if self.match.turned else self.linear() if self.match.linear else self.quadratic()
        parts = [self.header(), self.imports(), self.constants()]
        rest = [*([_RELATIVE, _COLUMN] if self.decays else []), kernel, self.entry()]
        return "\n\n".join(p.strip("\n") for p in parts) + "\n\n\n" + "\n\n\n".join(p.strip("\n") for p in rest) + "\n"

    def header(self) -> str:
        m = self.match
        how = (
            "Within a chunk of CHUNK positions the weights are formed in VMEM; all earlier chunks reach a query "
            "through a running state of [head_dim, v_dim], so the work grows with the length, not its square. HEADS "
            "heads are worked on in one step of the grid."
            + (" Vectors shorter than a register lie across it: positions along lanes, as XLA stores such arrays."
               if m.turned else "") if m.linear else
            "The divisor sums absolute values, which no running state holds: every pair is visited, CHUNK by CHUNK, "
            "and weights stay in VMEM. Between chunks the decay splits into a factor of the key and one of the chunk, "
            "so only the diagonal needs an exponential for each pair."
        )
        return comment(
            f"{m.signature.entry}: causal attention without a softmax as one Pallas TPU kernel.", how,
            f"Bound for {m.batch} x {m.heads} heads, {m.length} positions of {m.head_dim}: {self.bound}.",
        )

    def imports(self) -> str:
        return (
            "import jax\nimport jax.numpy as jnp\n"
            "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu"
        )

    def constants(self) -> str:
        m = self.match
        lines = [f"{name} = {value}" for name, value in self.params.items()]
        lines.append(vmem_line(self.limit))
        if m.slopes:
            rows = [", ".join(f"{s:.9g}" for s in m.slopes[i:i + 6]) for i in range(0, len(m.slopes), 6)]
            lines += ["LOG_DECAY = (  # of each head, a step", *(f"    {row}," for row in rows), ")"]
        if "bsm" in m.layouts:
            lines.append(f"HEAD_COUNT = {m.heads}")
        return "\n".join(lines)

    # pieces of the kernels

    def refs(self) -> str:
        q, k, v = self.names
        decay = ", decay_ref" if self.decays else ""
        return f"{q}_ref, {k}_ref, {v}_ref{decay}, out_ref"

    def scaled(self, code: str) -> str:
        return code if self.match.scale == "" else f"({code}) * {self.match.scale}"

    def cast(self, code: str) -> str:
        return code if self.wide else f"{code}.astype(v.dtype)"

    def value(self, code: str) -> str:
        return f"{code}.astype(jnp.float32)" if self.wide else code

    def divisor(self, total: str) -> str:
        m = self.match
        text = f"jnp.abs({total})" if m.norm == "abs_of_sum" else total
        if m.eps is not None:
            text = f"{text} + {m.eps!r}"
        return f"jnp.maximum({text}, {m.floor!r})" if m.floor is not None else text

    def causal(self) -> list[str]:
        axis = 1 if self.match.turned else -1
        dim = [f"head_dim = {self.names[0]}_ref.shape[{axis}]"] if "head_dim" in self.match.scale else []
        size = f"out_ref.shape[{2 if self.match.turned else 1 if self.match.linear else 0}]"
        names = ("key", "query") if self.match.turned else ("query", "key")
        iotas = [f"{n} = jax.lax.broadcasted_iota(jnp.int32, (chunk, chunk), {axis})" for axis, n in enumerate(names)]
        return [*dim, f"chunk = {size}", *iotas]

    def diagonal(self) -> list[str]:
        """The weights within a chunk."""
        lines = [f"s = {self.scaled('dot(q, k, ((1,), (1,)))')}"]
        if self.decays:
            lines.append("weights = s * jnp.exp(jnp.where(key <= query, column - row, -jnp.inf))")
        else:
            lines.append("weights = jnp.where(key <= query, s, 0.0)")
        return lines

    def opening(self) -> list[str]:
        """A group of heads starts; what its chunks share."""
        q, k, v = self.names
        return [
            "@pl.when(pl.program_id(1) == 0)",
            "def _start():",
            "    state_ref[...] = jnp.zeros_like(state_ref)",
            *(["    norm_ref[...] = jnp.zeros_like(norm_ref)"] if self.match.norm else []),
            "",
            *self.causal(),
            *(["rows = decay_ref[0]  # log decay since the chunk before, [heads, chunk]",
               "columns = _column(rows)"] if self.decays else []),
            "for head in range(out_ref.shape[0]):",
            f"    q, k, v = {q}_ref[head], {k}_ref[head], {self.value(f'{v}_ref[head]')}",
        ]

    def turned(self) -> str:
        """As ``linear``, with every matrix on its side: [dim, chunk]."""
        m, times = self.match, " * since" if self.decays else ""
        step: list[str] = []
        if self.decays:
            step += ["row, column = rows[head : head + 1], columns[:, head : head + 1]",
                     "since = jnp.exp(row)  # what is left of the state at each query"]
        step.append(f"s = {self.scaled('dot(k, q, ((0,), (0,)))')}  # [keys, queries]")
        step.append("weights = s * jnp.exp(jnp.where(key <= query, row - column, -jnp.inf))" if self.decays
                    else "weights = jnp.where(key <= query, s, 0.0)")
        step += ["state = state_ref[head]",
                 f"before = {self.scaled(f'dot({self.state_cast()}, q, ((1,), (0,)))')}",
                 f"out = dot(v, {self.cast('weights')}, ((1,), (0,))) + before{times}"]
        if m.norm:
            step += [
                "norm = norm_ref[head]",
                f"earlier = {self.scaled('jnp.sum(q.astype(jnp.float32) * norm, axis=0, keepdims=True)')}{times}",
                "total = jnp.sum(weights, axis=0, keepdims=True) + earlier",
                f"out = out / ({self.divisor('total')})",
            ]
        step.append("out_ref[head] = out.astype(out_ref.dtype)")
        if self.decays:
            step += [
                "end = row[:, -1:]",
                "kept = k.astype(jnp.float32) * jnp.exp(end - row)  # what reaches the chunk's end",
                f"state_ref[head] = state * jnp.exp(end) + dot(v, {self.kept_cast('kept')}, ((1,), (1,)))",
            ]
            norm = "norm_ref[head] = norm * jnp.exp(end) + jnp.sum(kept, axis=1, keepdims=True)"
        else:
            step.append(f"state_ref[head] = state + dot(v, {self.kept_cast('k')}, ((1,), (1,)))")
            norm = "norm_ref[head] = norm + jnp.sum(k.astype(jnp.float32), axis=1, keepdims=True)"
        step += [norm] if m.norm else []
        scratch = ", state_ref" + (", norm_ref" if m.norm else "")
        return _DOT + f"\n\ndef _kernel({self.refs()}{scratch}):\n" + indent([*self.opening(), indent(step)])

    def linear(self) -> str:
        m, body = self.match, self.opening()
        step: list[str] = []
        if self.decays:
            step += ["row, column = rows[head : head + 1], columns[:, head : head + 1]",
                     "since = jnp.exp(column)  # what is left of the state at each query"]
        step += [*self.diagonal(), "state = state_ref[head]",
                 f"before = {self.scaled(f'dot(q, {self.state_cast()}, ((1,), (0,)))')}"]
        times = " * since" if self.decays else ""
        step.append(f"out = dot({self.cast('weights')}, v, ((1,), (0,))) + before{times}")
        if m.norm:
            step += [
                "norm = norm_ref[pl.ds(head, 1), :]",
                f"earlier = {self.scaled('jnp.sum(q.astype(jnp.float32) * norm, axis=1, keepdims=True)')}{times}",
                "total = jnp.sum(weights, axis=1, keepdims=True) + earlier",
                f"out = out / ({self.divisor('total')})" if m.floor is None else f"out = out / {self.divisor('total')}",
            ]
        step.append("out_ref[head] = out.astype(out_ref.dtype)")
        if self.decays:
            step += [
                "end = row[:, -1:]",
                "kept = k.astype(jnp.float32) * jnp.exp(end - column)  # what reaches the chunk's end",
                f"state_ref[head] = state * jnp.exp(end) + dot({self.kept_cast('kept')}, v, ((0,), (0,)))",
            ]
            norm = "norm_ref[pl.ds(head, 1), :] = norm * jnp.exp(end) + jnp.sum(kept, axis=0, keepdims=True)"
        else:
            step.append(f"state_ref[head] = state + dot({self.kept_cast('k')}, v, ((0,), (0,)))")
            norm = "norm_ref[pl.ds(head, 1), :] = norm + jnp.sum(k.astype(jnp.float32), axis=0, keepdims=True)"
        step += [norm] if m.norm else []
        scratch = ", state_ref" + (", norm_ref" if m.norm else "")
        return _DOT + f"\n\ndef _kernel({self.refs()}{scratch}):\n" + indent([*body, indent(step)])

    def state_cast(self) -> str:
        return "state" if self.match.dtypes[self.match.q] == "float32" else "state.astype(q.dtype)"

    def kept_cast(self, code: str) -> str:
        if self.wide:
            return f"{code}.astype(jnp.float32)" if code == "k" else code
        return code if code == "k" and self.match.dtypes[self.match.k] == "bfloat16" else f"{code}.astype(v.dtype)"

    def quadratic(self) -> str:
        q, k, v = self.names
        part = f"{self.value(f'{v}_ref[pl.ds(start, chunk), :]')}"
        absorb = [
            "def absorb(j, carried):",
            '    """One chunk of keys before the queries\'."""',
            "    total, norm = carried",
            "    start = pl.multiple_of(j * chunk, chunk)",
            f"    k, v = {k}_ref[pl.ds(start, chunk), :], {part}",
            f"    s = {self.scaled('dot(q, k, ((1,), (1,)))')}",
        ]
        if self.decays:
            absorb += [
                "    row = decay_ref[pl.ds(j, 1), :]",
                "    end = row[:, -1:]",
                "    s, fade = s * jnp.exp(end - row), jnp.exp(end)",
                "    total, norm = total * fade, norm * fade",
            ]
        absorb += [
            f"    total = total + dot({self.cast('s')}, v, ((1,), (0,)))",
            "    return total, norm + jnp.sum(jnp.abs(s), axis=1, keepdims=True)",
        ]
        body = [
            *self.causal(), f"i, q = pl.program_id(1), {q}_ref[...]", "", *absorb, "",
            f"empty = jnp.zeros((chunk, {v}_ref.shape[1]), jnp.float32), jnp.zeros((chunk, 1), jnp.float32)",
            "total, norm = jax.lax.fori_loop(0, i, absorb, empty)",
            "start = pl.multiple_of(i * chunk, chunk)",
            f"k, v = {k}_ref[pl.ds(start, chunk), :], {part}",
        ]
        if self.decays:
            body += ["row = decay_ref[pl.ds(i, 1), :]", "column = _column(jnp.broadcast_to(row, (8, chunk)))[:, :1]",
                     "since = jnp.exp(column)", "total, norm = total * since, norm * since"]
        body += [
            *self.diagonal(),
            f"total = total + dot({self.cast('weights')}, v, ((1,), (0,)))",
            "norm = norm + jnp.sum(jnp.abs(weights), axis=1, keepdims=True)",
            f"out_ref[...] = (total / ({self.divisor('norm')})).astype(out_ref.dtype)",
        ]
        return _DOT + f"\n\ndef _kernel({self.refs()}):\n" + indent(body)

    # the entry function

    def entry(self) -> str:
        m = self.match
        lines = [
            *first_lines(m.signature), *self.arrays(),
            "batch, heads, length, head_dim = queries.shape", "v_dim = values.shape[3]",
            *self.checks(),
            "chunk = min(CHUNK, -(-length // 128) * 128)",
            *(["group = next(n for n in range(min(HEADS, heads), 0, -1) if heads % n == 0)"] if m.linear else []),
            "padding = -length % chunk",
            "chunks = (length + padding) // chunk",
            *self.flattened(),
            "out = pl.pallas_call(", indent(self.call()), f")({self.operands()})",
            f"out = out{'.swapaxes(1, 2)' if m.turned else ''}[:, :length].reshape(batch, heads, length, v_dim)",
            f"return {self.returned()}",
        ]
        return f"def {m.signature.entry}({m.signature.header}):\n" + indent(lines)

    def returned(self) -> str:
        return from_canonical(self.match.layouts[3], "out").replace("q_len", "length")

    def arrays(self) -> list[str]:
        words = ("queries", "keys", "values")
        zipped = zip(words, self.match.layouts, self.names, strict=False)
        return [f"{word} = {to_canonical(layout, name, 'HEAD_COUNT')}" for word, layout, name in zipped]

    def checks(self) -> list[str]:
        m = self.match
        lines = [
            "if keys.shape != queries.shape or values.shape[:3] != queries.shape[:3]:",
            '    raise ValueError(f"queries {queries.shape}, keys {keys.shape} and values {values.shape} do not fit")',
        ]
        if m.travelled >= 0:
            name = m.signature.params[m.travelled]
            lines += [f"if {name}.shape != queries.shape[:3]:",
                      f'    raise ValueError(f"{name} has to be [batch, heads, length], not {{{name}.shape}}")']
        if m.slopes:
            lines += ["if heads > len(LOG_DECAY):",
                      '    raise NotImplementedError(f"the decay of {len(LOG_DECAY)} heads is known, not of {heads}")']
        return lines

    def flattened(self) -> list[str]:
        m = self.match
        shape = "dim, whole chunks" if m.turned else "whole chunks, dim"
        pads = "(0, 0), (0, padding)" if m.turned else "(0, padding), (0, 0)"
        lines = [
            "",
            "def flat(x):",
            f'    """[batch * heads, {shape}]: padded keys are zero and add nothing."""',
            f"    x = x.reshape(batch * heads, length, x.shape[3]){'.swapaxes(1, 2)' if m.turned else ''}",
            f"    return jnp.pad(x, ((0, 0), {pads})) if padding else x",
            "",
        ]
        if m.travelled >= 0:
            lines.append(f"travelled = {m.signature.params[m.travelled]}.reshape(batch * heads, length)")
        elif m.slopes:
            lines += ["slopes = jnp.asarray(LOG_DECAY[:heads], jnp.float32)[:, None]",
                      "travelled = slopes * jnp.arange(length, dtype=jnp.float32)"]
        if self.decays:
            shape = "(-1, group, chunks, chunk).swapaxes(1, 2)" if m.linear else "(-1, chunks, chunk)"
            lines.append(f"decay = _relative(travelled, padding, chunk).reshape{shape}")
        return lines

    def operands(self) -> str:
        return "flat(queries), flat(keys), flat(values)" + (", decay" if self.decays else "")

    def call(self) -> list[str]:
        m = self.match
        group = "group" if m.linear else "None"
        block = f"pl.BlockSpec(({group}, chunk, {{}}), lambda h, i: (h, i, 0))"
        if m.turned:
            block = f"pl.BlockSpec(({group}, {{}}, chunk), lambda h, i: (h, 0, i))"
        whole = "pl.BlockSpec((None, length + padding, {}), lambda h, i: (h, 0, 0))"
        keys = block if m.linear else whole
        specs = [block.format("head_dim"), keys.format("head_dim"), keys.format("v_dim")]
        if self.decays:
            which = "jax.lax.rem(h, heads{})".format(" // group" if m.linear else "") if m.slopes else "h"
            specs.append(
                f"pl.BlockSpec((None, 1, group, chunk), lambda h, i: ({which}, i, 0, 0))" if m.linear
                else f"pl.BlockSpec((None, chunks, chunk), lambda h, i: ({which}, 0, 0))"
            )
        scratch = []
        if m.linear:
            state, norm = ("v_dim, head_dim", "head_dim, 1") if m.turned else ("head_dim, v_dim", "head_dim")
            scratch = ["scratch_shapes=[", f"    pltpu.VMEM((group, {state}), jnp.float32),"]
            scratch += [f"    pltpu.VMEM((group, {norm}), jnp.float32),"] if m.norm else []
            scratch.append("],")
        size = "v_dim, length + padding" if m.turned else "length + padding, v_dim"
        semantics = '"parallel", "arbitrary"' if m.linear else '"parallel", "parallel"'
        return [
            "_kernel,",
            f"out_shape=jax.ShapeDtypeStruct((batch * heads, {size}), jnp.{m.out_dtype}),",
            f"grid=(batch * heads{' // group' if m.linear else ''}, chunks),",
            "in_specs=[", *(f"    {s}," for s in specs), "],",
            f"out_specs={block.format('v_dim')},", *scratch,
            "compiler_params=pltpu.CompilerParams(",
            f"    dimension_semantics=({semantics}), vmem_limit_bytes=VMEM_LIMIT",
            "),",
        ]


_DOT = '''
def dot(x, y, axes):
    return jax.lax.dot_general(x, y, (axes, ((), ())), preferred_element_type=jnp.float32)
'''
_RELATIVE = '''
def _relative(travelled, padding, chunk):
    """The running log decay counted from the end of the chunk before, so that no factor under- or overflows early."""
    travelled = jnp.pad(travelled, ((0, 0), (0, padding)), mode="edge").reshape(travelled.shape[0], -1, chunk)
    return travelled - jnp.concatenate([travelled[:, :1, :1], travelled[:, :-1, -1:]], axis=1)
'''
_COLUMN = '''
def _column(rows):
    """[heads, chunk] turned to [chunk, heads], so that a query's factor lies along its row."""
    return rows.T
'''
