"""Templates of the delta recipe: modules a person would keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import comment, indent, vmem_line

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.delta import DeltaMatch


def render(match: DeltaMatch, params: dict[str, int], bound: str, vmem_limit: int) -> str:
    return _Module(match, params, bound, vmem_limit).text()


class _Module:
    def __init__(self, match: DeltaMatch, params: dict[str, int], bound: str, vmem_limit: int) -> None:
        self.match, self.params, self.bound, self.limit = match, params, bound, vmem_limit
        self.names = [match.signature.params[i] for i in (match.q, match.k, match.v)]
        self.gated = match.beta >= 0
        self.near = "exact" if match.wide else "near"
        self.signed = match.decay >= 0 and not match.form

    def text(self) -> str:
        near = [] if self.match.wide else [_PARTS, _NEAR]
        inverse = [_INVERSE.replace("near(", f"{self.near}(")] if self.match.delta else []
        rest = [_EXACT, *near, *inverse, self.kernel(), self.entry()]
        parts = [self.header(), self.imports(), self.constants()]
        return "\n\n".join(p.strip("\n") for p in parts) + "\n\n\n" + "\n\n\n".join(p.strip("\n") for p in rest) + "\n"

    def header(self) -> str:
        m = self.match
        u = "b (v - a S^T k)" if m.delta and self.gated else "v - a S^T k" if m.delta else "b v" if self.gated else "v"
        rule = f"S <- a S + k u^T with u = {u}, out = S^T q" if m.decays else (
            f"S <- S + k u^T with u = {u.replace(' a', '')}, out = S^T q")
        how = (
            f"At each step {rule}. CHUNK steps are taken together: all earlier chunks reach them through the state S, "
            "which stays in VMEM in float32; HEADS heads are worked on in one step of the grid."
        )
        solved = (
            "Within a chunk u depends on the u of earlier steps: (I + L) U = b (V - decayed K S), L strictly lower. "
            "_inverse gives (I + L)^-1 from blocks of twice the rows each time, which is substitution and so keeps "
            "its accuracy for keys that are alike; the powers of L in the usual product would grow."
        )
        return comment(
            f"{m.signature.entry}: a loop over time that writes a state, as one Pallas TPU kernel.", how,
            *([solved] if m.delta else []),
            f"Bound for {m.batch} x {m.heads} heads, {m.length} steps, state {m.head_dim} x {m.v_dim}: {self.bound}.",
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
        return "\n".join(lines)

    # the kernel

    def operand(self, name: str) -> str:
        """An input block as the products take it."""
        return f"{name}_ref[head]" + (".astype(jnp.float32)" if self.match.wide else "")

    def faded(self, code: str, by: str) -> str:
        return f"{code} * {by}" if self.match.decays else code

    def scaled(self, code: str) -> str:
        return f"({code}) * {self.match.scale}" if self.match.scale else code

    def opening(self) -> list[str]:
        dims = [f"head_dim = {self.names[0]}_ref.shape[2]"] if "head_dim" in self.match.scale else []
        return [
            "@pl.when(pl.program_id(1) == 0)",
            "def _start():",
            "    state_ref[...] = jnp.zeros_like(state_ref)",
            "",
            "chunk = out_ref.shape[1]",
            *dims,
            "query = jax.lax.broadcasted_iota(jnp.int32, (chunk, chunk), 0)",
            "key = jax.lax.broadcasted_iota(jnp.int32, (chunk, chunk), 1)",
            *(["rows = decay_ref[0]  # log decay since the chunk before, [heads, chunk]",
               "columns = rows.T"] if self.match.decays else []),
            *(["numbers = jnp.where(rows == rows, rows, -1e30)  # a decay that is none spoils no step before it"]
              if self.match.decay >= 0 else []),
            *(["betas = beta_ref[0].T"] if self.gated else []),
        ]

    def kernel(self) -> str:
        m, (q, k, v) = self.match, self.names
        refs = [f"{n}_ref" for n in self.names] + ["decay_ref"] * m.decays + ["beta_ref"] * self.gated
        step = [f"q, k, v = {self.operand(q)}, {self.operand(k)}, {self.operand(v)}", "state = state_ref[head]"]
        if m.decays:
            numbers = ["row = numbers[head : head + 1]", "column = jnp.where(column == column, column, -1e30)"]
            step += [
                "row, column = rows[head : head + 1], columns[:, head : head + 1]",
                "since, left = jnp.exp(column), jnp.exp(row[:, -1:])  # of the state, at each step and after the chunk",
                *(numbers if m.decay >= 0 else []),
                "decay = jnp.exp(jnp.where(key <= query, column - row, -jnp.inf))  # from key to query",
            ]
        if self.gated:
            step.append("beta = betas[:, head : head + 1]")
        step += self.written()
        weights = "exact(q, k, ((1,), (1,)))"
        masked = f"{weights} * decay" if m.decays else f"jnp.where(key <= query, {weights}, 0.0)"
        before = self.faded("exact(q, state, ((1,), (0,)))", "since")
        step += [
            f"weights = {masked}",
            f"before = {before}",
            f"out = before + {self.near}(weights, u, ((1,), (0,)))",
            f"out_ref[head] = {'(' + self.scaled('out') + ')' if m.scale else 'out'}.astype(out_ref.dtype)",
        ]
        if m.decays:
            step += [
                "kept = k.astype(jnp.float32) * jnp.exp(row[:, -1:] - column)  # what reaches the chunk's end",
                f"state_ref[head] = state * left + {self.near}(kept, u, ((0,), (0,)))",
            ]
        else:
            step.append(f"state_ref[head] = state + {self.near}(k, u, ((0,), (0,)))")
        head = f"def _kernel({', '.join(refs)}, out_ref, state_ref):\n"
        return head + indent([*self.opening(), "for head in range(out_ref.shape[0]):", indent(step)])

    def written(self) -> list[str]:
        """``u``: what each step writes with its key."""
        beta = "beta * " if self.gated else ""
        value = "v" if self.match.wide else "v.astype(jnp.float32)"
        if not self.match.delta:
            return [f"u = {beta}{value}" if beta else "u = v"]
        known = self.faded("exact(k, state, ((1,), (0,)))", "jnp.exp(column)" if self.match.decay >= 0 else "since")
        alike = self.faded(f"{beta}exact(k, k, ((1,), (1,)))", "decay")
        error = f"beta * ({value} - known)" if beta else f"{value} - known"
        return [
            f"known = {known}  # what the state holds for each key",
            f"lower = jnp.where(key < query, {alike}, 0.0)",
            f"u = {self.near}(_inverse(lower), {error}, ((1,), (0,)))",
        ]

    # the entry function

    def entry(self) -> str:
        m = self.match
        lines = [
            f'"""{self.layout_doc()}."""',
            *first_lines(m.signature), *self.arrays(),
            "batch, heads, length, head_dim = queries.shape", "v_dim = values.shape[3]", *self.checks(),
            "group = next(n for n in range(min(HEADS, heads), 0, -1) if heads % n == 0)",
            "padding = -length % CHUNK",
            "chunks = (length + padding) // CHUNK",
            *self.gates(), *self.flattened(),
            "out = pl.pallas_call(", indent(self.call()), f")({self.operands()})",
            "out = out[:, :length].reshape(batch, heads, length, v_dim)",
            *(["out = (out * sign[..., None]).astype(out.dtype)"] if self.signed else []),
            f"return {_from_canonical(m.layouts[5], 'out')}",
        ]
        return f"def {m.signature.entry}({m.signature.header}):\n" + indent(lines)

    def layout_doc(self) -> str:
        words = {"b": "batch", "h": "heads", "s": "length", "d": "dim"}
        m = self.match
        names = [*self.names, *(m.signature.params[i] for i in (m.decay, m.beta) if i >= 0)]
        layouts = [*m.layouts[:3], *(x for x, i in zip(m.layouts[3:5], (m.decay, m.beta), strict=True) if i >= 0)]
        by: dict[str, list[str]] = {}
        for name, layout in zip(names, layouts, strict=True):
            by.setdefault(layout, []).append(name)
        return "; ".join(f"{', '.join(n)}: [{', '.join(words[a] for a in layout)}]" for layout, n in by.items())

    def arrays(self) -> list[str]:
        words = ("queries", "keys", "values")
        zipped = zip(words, self.match.layouts, self.names, strict=False)
        return [f"{word} = {_arranged(name, layout, 'bhsd')}" for word, layout, name in zipped]

    def checks(self) -> list[str]:
        lines = [
            "if keys.shape != queries.shape or values.shape[:3] != queries.shape[:3]:",
            '    raise ValueError(f"queries {queries.shape}, keys {keys.shape} and values {values.shape} do not fit")',
        ]
        if self.match.slopes:
            lines += ["if heads > len(LOG_DECAY):",
                      '    raise NotImplementedError(f"the decay of {len(LOG_DECAY)} heads is known, not of {heads}")']
        return lines

    def gate(self, number: int, layout: str) -> str:
        name = self.match.signature.params[number]
        text = _arranged(name, layout, "bhs")
        if self.match.dtypes[number] != "float32":
            text += ".astype(jnp.float32)"
        return text if len(layout) == 3 else f"jnp.broadcast_to({text}, (batch, heads, length))"

    def gates(self) -> list[str]:
        m, lines = self.match, []
        if m.decay >= 0:
            text = self.gate(m.decay, m.layouts[3])
            if self.signed:
                lines += [
                    f"decay = {text}",
                    "sign = jnp.cumprod(jnp.where(decay < 0, -1.0, 1.0), axis=2)  # of values and result",
                    "values = (values * sign[..., None]).astype(values.dtype)",
                    "log_decay = jnp.log(jnp.abs(decay))",
                ]
            else:
                lines.append(f"log_decay = {f'jax.nn.log_sigmoid({text})' if m.form == 'logistic' else text}")
            lines.append("log_decay = jnp.maximum(log_decay, -105.0)  # exp of it is 0; differences of -inf are none")
        elif m.slopes:
            lines += ["slopes = jnp.asarray(LOG_DECAY[:heads], jnp.float32)[:, None]",
                      "log_decay = jnp.broadcast_to(slopes, (batch, heads, length))"]
        if self.gated:
            text = self.gate(m.beta, m.layouts[4])
            lines.append(f"beta = {f'jax.nn.sigmoid({text})' if m.beta_form else text}")
        return lines

    def flattened(self) -> list[str]:
        lines = [
            "",
            "def flat(x):",
            '    """[batch * heads, whole chunks, dim]: padded steps have no key and change nothing."""',
            "    x = x.reshape(batch * heads, length, x.shape[3])",
            "    return jnp.pad(x, ((0, 0), (0, padding), (0, 0))) if padding else x",
            "",
        ]
        if self.match.decays or self.gated:
            lines += [
                "def grouped(x):",
                '    """[groups of heads, chunks, heads of a group, CHUNK]"""',
                "    x = jnp.pad(x, ((0, 0), (0, 0), (0, padding))) if padding else x",
                "    return x.reshape(-1, group, chunks, CHUNK).swapaxes(1, 2)",
                "",
            ]
        return lines

    def operands(self) -> str:
        gates = ["jnp.cumsum(grouped(log_decay), axis=-1)"] * self.match.decays + ["grouped(beta)"] * self.gated
        return ", ".join(["flat(queries)", "flat(keys)", "flat(values)", *gates])

    def call(self) -> list[str]:
        m = self.match
        block = "pl.BlockSpec((group, CHUNK, {}), lambda h, i: (h, i, 0))"
        specs = [block.format(d) for d in ("head_dim", "head_dim", "v_dim")]
        specs += ["pl.BlockSpec((None, 1, group, CHUNK), lambda h, i: (h, i, 0, 0))"] * (m.decays + self.gated)
        return [
            "_kernel,",
            f"out_shape=jax.ShapeDtypeStruct((batch * heads, length + padding, v_dim), jnp.{m.out_dtype}),",
            "grid=(batch * heads // group, chunks),",
            "in_specs=[", *(f"    {s}," for s in specs), "],",
            f"out_specs={block.format('v_dim')},",
            "scratch_shapes=[pltpu.VMEM((group, head_dim, v_dim), jnp.float32)],",
            "compiler_params=pltpu.CompilerParams(",
            '    dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT',
            "),",
        ]


def _arranged(name: str, layout: str, axes: str) -> str:
    """Source that brings an array's axes into the order of ``axes``, with ones for those it lacks."""
    present = [a for a in axes if a in layout]
    perm = [layout.index(a) for a in present]
    moved = [i for i, p in enumerate(perm) if i != p]
    if len(moved) == 2:
        name = f"{name}.swapaxes({moved[0]}, {moved[1]})"
    elif moved:
        name = f"{name}.transpose({', '.join(map(str, perm))})"
    slots = [":" if a in layout else "None" for a in axes]
    while slots and slots[-1] == ":":
        slots.pop()
    return f"{name}[{', '.join(slots)}]" if slots else name


def _from_canonical(layout: str, name: str) -> str:
    """Source that brings [batch, heads, length, dim] to ``layout``."""
    gone = [a for a in "bh" if a not in layout]
    name += f"[{', '.join('0' if a in gone else ':' for a in 'bh'[: 'bh'.index(gone[-1]) + 1])}]" if gone else ""
    kept = "".join(a for a in "bhsd" if a not in gone)
    return _arranged(name, kept, layout)


_EXACT = '''
def exact(x, y, axes):
    """A product that keeps all bits of float32 values: two vectors at right angles leave little of them."""
    full = jax.lax.Precision.HIGHEST if jnp.float32 in (x.dtype, y.dtype) else None
    if full is not None:
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    return jax.lax.dot_general(x, y, (axes, ((), ())), precision=full, preferred_element_type=jnp.float32)
'''
_PARTS = '''
def parts(x):
    """A float32 value as the sum of two bfloat16 ones, to 16 bits; a bfloat16 value as it is."""
    if x.dtype == jnp.bfloat16:
        return [x]
    high = x.astype(jnp.bfloat16)
    return [high, (x - high.astype(jnp.float32)).astype(jnp.bfloat16)]
'''
_NEAR = '''
def near(x, y, axes):
    """A product that keeps 16 bits of float32 values: up to three passes of the MXU, where all bits take six."""
    total = 0.0
    for i, one in enumerate(parts(x)):
        for j, other in enumerate(parts(y)):
            if i + j < 2:
                total += jax.lax.dot_general(one, other, (axes, ((), ())), preferred_element_type=jnp.float32)
    return total
'''
_INVERSE = '''
def _inverse(lower):
    """(I + lower)^-1 of a strictly lower triangle whose rows are a power of two.

    Two neighbouring blocks with inverses P and Q and the block R under P make one with the inverse
    [[P, 0], [-Q R P, Q]]. That is done for all pairs at once: every R lies in ``below``.
    """
    size = lower.shape[0]
    row = jax.lax.broadcasted_iota(jnp.int32, lower.shape, 0)
    column = jax.lax.broadcasted_iota(jnp.int32, lower.shape, 1)
    inverse = jnp.where(row == column, 1.0, 0.0)
    for width in (2**n for n in range(size.bit_length() - 1)):
        apart = row // width - column // width  # in blocks; a pair starts at an even one
        below = jnp.where((apart == 1) & (row // width % 2 == 1), lower, 0.0)
        inverse -= below if width == 1 else near(near(inverse, below, ((1,), (0,))), inverse, ((1,), (0,)))
    return inverse
'''
