"""The attention recipe's template: a module a person would keep."""

from __future__ import annotations

import re

from maxkernel_nb.authors.recipes.attention_match import AttentionMatch, from_canonical, to_canonical
from maxkernel_nb.authors.recipes.base import itemsize
from maxkernel_nb.authors.recipes.expressions import Expression, Leaf
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import BLOCK_HELPER, comment, erf_helper, indent, vmem_line

_RESERVED = {
    "jax", "jnp", "pl", "pltpu", "functools", "math", "batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "s",
    "block_q", "block_k", "rows", "out", "part", "start", "size", "state", "states", "scores", "absorb", "step", "t",
    "queries", "keys", "values", "factor", "first_query", "parts", "position", "group",
}


_DIVISOR_HELPER = '''
def _divisor(size, limit):
    """A whole number of registers' widths that divides ``size``, or ``size`` itself if it is no such number."""
    return size if size % 128 else math.gcd(size, limit)
'''


def render(match: AttentionMatch, params: dict[str, int], bound: str, vmem_limit: int, sums_on_mxu: bool) -> str:
    from maxkernel_nb.authors.recipes.attention_streamed import Streamed

    return (Streamed if "SPAN" in params else Module)(match, params, bound, vmem_limit, sums_on_mxu).text()


def plain_scale(score: Expression) -> str | None:
    """The factor's text if the score is just the product times one positive constant, "" if it is the product."""
    if score.result == "acc" and not score.steps:
        return ""
    if len(score.steps) == 1 and score.result == "%0" and score.steps[0].op in ("mul", "div"):
        step = score.steps[0]
        others = [a for a in step.args if a != "acc"]
        if len(others) == 1 and others[0].startswith("#") and (step.op == "mul" or step.args[0] == "acc"):
            text = score.constants[int(others[0][1:])].text
            if not text.startswith("-") and text != "0.0":
                wrapped = text if re.fullmatch(r"[\w.*-]+", text) else f"({text})"
                return wrapped if step.op == "mul" else f"1.0 / {wrapped}"
    return None


def _grid_order(match: AttentionMatch, params: dict[str, int]) -> str:
    """The grid's axes, outer first: batch, heads, blocks of queries. What batches share is fetched once for all of
    them where the batch is innermost; keys and values are then fetched again for each block of queries.
    """
    s = match.sizes
    shared = [leaf for leaf in match.score.leaves if "b" not in leaf.kind and {"q", "k"} <= set(leaf.kind)]
    tables = sum(min(params["BLOCK_Q"], s.q_len) * s.kv_len * itemsize(match.dtypes[leaf.param]) for leaf in shared)
    keys = s.kv_len * (s.head_dim * itemsize(match.dtypes[match.k]) + s.v_dim * itemsize(match.dtypes[match.v]))
    return "hib" if s.batch > 1 and tables > keys else "bhi"


class Module:
    def __init__(
        self, match: AttentionMatch, params: dict[str, int], bound: str, vmem_limit: int, sums_on_mxu: bool
    ) -> None:
        self.match, self.params, self.bound = match, params, bound
        self.vmem_limit, self.sums_on_mxu = vmem_limit, sums_on_mxu
        self.q, self.k, self.v = (match.signature.params[i] for i in (match.q, match.k, match.v))
        self.scale = plain_scale(match.score)
        self.keeps_fill = match.mask_fill is not None
        # the static triangle is only worth its code where each block of queries meets the diagonal the same way
        self.triangle = match.causal == "square" and match.window is None and not self.keeps_fill
        self.band = bool(match.causal or match.window is not None) and not self.triangle
        self.order = _grid_order(match, params)

    def text(self) -> str:
        top = [self.header(), self.imports(), self.constants()]
        rest = [BLOCK_HELPER, _DIVISOR_HELPER, *erf_helper(self.body_text()), self.kernel(), self.entry()]
        return "\n\n".join(p.strip("\n") for p in top) + "\n\n\n" + "\n\n\n".join(p.strip("\n") for p in rest) + "\n"

    # head

    def header(self) -> str:
        match, s = self.match, self.match.sizes
        kind = "causal attention" if match.causal else "attention"
        if match.window is not None:
            kind += f" over a window of {match.window} keys"
        shared = (
            f" Each key head serves {s.heads // s.kv_heads} query heads through the index map: keys are never repeated."
            if s.heads != s.kv_heads else ""
        )
        skipped = " Blocks of keys above the diagonal are never touched, and only those on it are masked."
        skipped = skipped if self.triangle else ""
        held = "Keys and values of one head stay in VMEM" if self.order == "bhi" else (
            "Keys and values of one head are whole in VMEM, fetched again for each batch,"
        )
        return comment(
            f"{match.signature.entry}: {kind} as one Pallas TPU kernel with an online softmax. Scores and "
            "probabilities stay in VMEM; only the result is written.",
            f"{held} while its queries stream through, BLOCK_Q at a time; an inner "
            f"loop walks over BLOCK_K keys.{skipped}{shared} A block of queries is worked on in parts of ROWS: the "
            "product of one part runs on the matrix unit while the vector unit does the softmax of the part before.",
            f"Bound for {s.batch} x {s.heads} heads, {s.q_len} queries, {s.kv_len} keys of {s.head_dim}: {self.bound}.",
        )

    def imports(self) -> str:
        return (
            "import functools\nimport math\n\nimport jax\nimport jax.numpy as jnp\n"
            + ("from jax import lax\n" if "lax." in self.body_text() else "")
            + "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu"
        )

    def body_text(self) -> str:
        found = "\n".join(self.score_function()) + self.entry()
        return re.sub(r"jax\.lax\.", "", found)

    def constants(self) -> str:
        lines = [f"{name} = {value}" for name, value in self.params.items()]
        lines += [
            vmem_line(self.vmem_limit),
            "LOG2_E = math.log2(math.e)  # exp(x) = exp2(x * LOG2_E), and exp2 is what the hardware has",
            "LOWEST = -3.0e38  # where the running maximum starts: finite, so that masked scores give 0 and not NaN",
        ]
        if "bsm" in self.match.layouts:
            named = {"HEADS": self.match.sizes.heads, "KV_HEADS": self.match.sizes.kv_heads}
            lines += [f"{name} = {count}" for name, count in named.items() if re.search(rf"\b{name}\b", self.entry())]
        return "\n".join(lines)

    # the kernel

    def leaf_name(self, leaf: Leaf) -> str:
        name = self.match.signature.params[leaf.param]
        same = [other for other in self.match.score.leaves if other.param == leaf.param]
        doubled = len(same) > 1 or leaf.param in (self.match.q, self.match.k, self.match.v)
        return f"{name}_{leaf.kind}" if doubled else name

    def kernel(self) -> str:
        refs = [f"{n}_ref" for n in (self.q, self.k, self.v)]
        refs += [f"{self.leaf_name(leaf)}_ref" for leaf in self.match.score.leaves]
        body = [
            *self.opening(), *self.scores_function(), "", *self.score_function(), *self.absorb_function(), "",
            *self.sweep_function(), "", *self.schedule(), *self.closing(),
        ]
        statics = ["rows", "block_k", *(["kv_len"] if self.asks_length(body) else []), "factor"]
        if self.match.causal == "end":
            statics.append("shift")
        head = f"def _kernel({', '.join([*refs, *self.kernel_refs()])}, *, {', '.join(statics)}):"
        return head + "\n" + indent(body)

    def kernel_refs(self) -> list[str]:
        return ["out_ref"]

    def asks_length(self, body: list[str]) -> bool:
        return re.search(r"\bkv_len\b", "\n".join(body)) is not None

    def opening(self) -> list[str]:
        return [
            f"block_q, v_dim = {self.q}_ref.shape[0], {self.v}_ref.shape[1]",
            "parts = block_q // rows",
            f"first_query = pl.program_id({self.order.index('i')}) * block_q",
            "",
        ]

    def scores_function(self) -> list[str]:
        match = self.match
        q, k = f"{self.q}_ref[pl.ds(part * rows, rows), :]", f"{self.k}_ref[pl.ds(start, size), :]"
        if match.dtypes[match.q] != match.dtypes[match.k]:
            q, k = f"{q}.astype(jnp.float32)", f"{k}.astype(jnp.float32)"
        return [
            "def scores(part, start, size):",
            '    """Products of one part\'s queries with keys ``start`` to ``start + size``, in float32."""',
            f"    q, k = {q}, {k}",
            "    dims = (((1,), (1,)), ((), ()))",
            f"    return jax.lax.dot_general(q, k, dims, preferred_element_type=jnp.float32{self.precision()})",
        ]

    def precision(self) -> str:
        match = self.match
        wide = "float32" in (match.dtypes[match.q], match.dtypes[match.k])
        return f", precision=jax.lax.Precision.{match.precision}" if match.precision and wide else ""

    def score_function(self) -> list[str]:
        """What the reference does to the scores before its softmax, unless it is a plain scale."""
        if self.scale is not None:
            return []
        names, lines = {"acc": "s"}, []
        for i, leaf in enumerate(self.match.score.leaves):
            name = self.leaf_name(leaf)
            names[f"@{i}"] = name if name not in _RESERVED else f"{name}_block"
            lines.append(f"{names[f'@{i}']} = {self.leaf_load(leaf)}")
        body, result = Lines(self.match.score, names, set(_RESERVED) | set(self.match.signature.params)).render()
        uses_dim = any("head_dim" in c.text for c in self.match.score.constants)
        dim = [f"head_dim = {self.q}_ref.shape[1]"] if uses_dim else []
        return [
            "def score(s, part, start, size):",
            '    """What the softmax sees, from the products."""',
            indent([*dim, *lines, *body, f"return {result}"]),
            "",
        ]

    def leaf_load(self, leaf: Leaf) -> str:
        ref = f"{self.leaf_name(leaf)}_ref"
        rows = "pl.ds(part * rows, rows)" if "q" in leaf.kind else ":"
        keys = "pl.ds(start, size)" if "k" in leaf.kind else ":"
        dtype = self.match.dtypes[leaf.param]
        if dtype in ("bool", "int8", "int32"):
            wide = f"jnp.broadcast_to({ref}[{rows}, {keys}].astype(jnp.int32), s.shape)"
            return f"{wide} != 0" if dtype == "bool" else wide
        return f"{ref}[{rows}, {keys}].astype(jnp.float32)"

    def absorb_function(self) -> list[str]:
        names = "top, total" if self.sums_on_mxu else "top, norm, total"
        lines = [
            "def absorb(state, s, start, size):",
            '    """The online softmax: what was summed fades as the running maximum grows."""',
            f"    {names} = state",
            "    new_top = jnp.maximum(top, jnp.max(s, axis=1, keepdims=True))",
            "    weights = jnp.exp2((s - new_top) * factor)",
            "    fade = jnp.exp2((top - new_top) * factor)",
            f"    v = {self.v}_ref[pl.ds(start, size), :]",
        ]
        wide = "float32" in (self.match.weights_dtype, self.match.dtypes[self.match.v])
        dot = "jnp.dot(weights.astype(v.dtype), v, preferred_element_type=jnp.float32)"
        if wide:
            lines[-1] += ".astype(jnp.float32)"
            dot = "jnp.dot(weights, v, preferred_element_type=jnp.float32)"
        if self.sums_on_mxu:
            return [
                *lines,
                "    # columns of ones fill the matrix unit's width: it sums the weights on the way",
                "    v = jnp.concatenate([v, jnp.ones_like(v)], axis=1)",
                f"    return new_top, total * fade + {dot}",
            ]
        return [
            *lines,
            "    norm = norm * fade + jnp.sum(weights, axis=1, keepdims=True)",
            f"    return new_top, norm, total * fade + {dot}",
        ]

    def prepared(self, inner: str) -> str:
        return inner if self.scale is not None else f"score({inner}, part, start, size)"

    def sweep_function(self) -> list[str]:
        """All parts against one range of keys, product and softmax overlapped."""
        lines = [
            f"def sweep(start, states{'' if self.triangle else ', masked=False'}):",
            '    """All parts against block_k keys: the next part\'s product is issued before this part\'s softmax."""',
            "    start, size = pl.multiple_of(start, block_k), block_k",
            "    raw, done = scores(0, start, size), []",
            "    for part in range(parts):",
            "        s, raw = raw, scores(part + 1, start, size) if part + 1 < parts else None",
        ]
        if self.scale is None:
            lines.append("        s = score(s, part, start, size)")
        if self.triangle:
            return [*lines, "        done.append(absorb(states[part], s, start, size))", "    return tuple(done)"]
        lines += [
            "        if masked:",
            "            s = jnp.where(allowed(s.shape, part, start), s, "
            + (self.fill_text() if self.keeps_fill else "-jnp.inf") + ")",
        ]
        if self.keeps_fill:
            lines += [
                "            key = start + jax.lax.broadcasted_iota(jnp.int32, s.shape, 1)",
                "            s = jnp.where(key < kv_len, s, -jnp.inf)",
            ]
        lines += ["        done.append(absorb(states[part], s, start, size))", "    return tuple(done)"]
        return [*self.allowed_function(), "", *lines]

    def fill_text(self) -> str:
        fill = self.match.mask_fill or 0.0
        return "-jnp.inf" if fill == float("-inf") else repr(max(fill, -1e37))

    def allowed_function(self) -> list[str]:
        match = self.match
        lines = ["def allowed(shape, part, start):"]
        tests = []
        if not self.keeps_fill:
            tests.append("key < kv_len")
        if self.band:
            shift = " + shift" if match.causal == "end" else ""
            query = f"query = first_query + part * rows{shift} + jax.lax.broadcasted_iota(jnp.int32, shape, 0)"
            if match.causal:
                tests.append("key <= query")
            if match.window is not None:
                tests.append(f"key > query - {match.window}")
        else:
            query = ""
        joined = " & ".join(f"({t})" for t in tests) if len(tests) > 1 else tests[0]
        lines += ["    key = start + jax.lax.broadcasted_iota(jnp.int32, shape, 1)"]
        if query:
            lines.append(f"    {query}")
        return [*lines, f"    return {joined}"]

    def start_state(self) -> list[str]:
        width = "2 * v_dim" if self.sums_on_mxu else "v_dim"
        norm = "" if self.sums_on_mxu else "jnp.zeros((rows, 1), jnp.float32), "
        return [
            f"empty = jnp.full((rows, 1), LOWEST, jnp.float32), {norm}jnp.zeros((rows, {width}), jnp.float32)",
            "states = (empty,) * parts",
        ]

    def schedule(self) -> list[str]:
        """Which blocks of keys are visited, and which of them are masked."""
        loop = "states = jax.lax.fori_loop({}, {}, lambda j, st: sweep(j * block_k, st{}), states)"
        if self.triangle:
            return [
                *self.start_state(),
                "# keys before this block of queries: no mask",
                loop.format("0", "jax.lax.div(first_query, block_k)", ""),
                "# the triangle on the diagonal: each part meets only the keys up to its own last query",
                "states, raw = list(states), scores(0, first_query, rows)",
                "for part in range(parts):",
                "    start, size = pl.multiple_of(first_query, rows), (part + 1) * rows",
                "    s, raw = raw, scores(part + 1, start, size + rows) if part + 1 < parts else None",
                *(["    s = score(s, part, start, size)"] if self.scale is None else []),
                *(f"    {line}" for line in self.corner()),
                "    states[part] = absorb(states[part], s, start, size)",
            ]
        blocks = f"blocks = {self.k}_ref.shape[0] // block_k"
        if self.keeps_fill:
            return [
                *self.start_state(), blocks,
                "# a query that the input's mask leaves alone averages over every key: no block may be skipped",
                loop.format("0", "blocks", ", masked=True"),
            ]
        if not self.band:
            return [
                *self.start_state(), blocks,
                "whole = kv_len // block_k  # the rest is padding, masked",
                loop.format("0", "whole", ""),
                "if whole < blocks:",
                "    states = sweep(whole * block_k, states, masked=True)",
            ]
        return [*self.start_state(), blocks, *self.band_bounds(), *[
            loop.format("low", "low_whole", ", masked=True"),
            loop.format("low_whole", "high_whole", ""),
            loop.format("high_whole", "high", ", masked=True"),
        ]]

    def corner(self) -> list[str]:
        """The mask of a block on the diagonal. Cut out where values are joined anyway: elsewhere a block of one part
        would be another program than one of several, and a short case no witness for a long one.
        """
        if not self.sums_on_mxu:
            return [
                "query = part * rows + jax.lax.broadcasted_iota(jnp.int32, s.shape, 0)",
                "s = jnp.where(jax.lax.broadcasted_iota(jnp.int32, s.shape, 1) <= query, s, -jnp.inf)",
            ]
        return [
            "corner = s[:, part * rows :]",
            "query = jax.lax.broadcasted_iota(jnp.int32, corner.shape, 0)",
            "key = jax.lax.broadcasted_iota(jnp.int32, corner.shape, 1)",
            "corner = jnp.where(key <= query, corner, -jnp.inf)",
            "s = jnp.concatenate([s[:, : part * rows], corner], axis=1) if part else corner",
        ]

    def band_bounds(self) -> list[str]:
        match = self.match
        shift = " + shift" if match.causal == "end" else ""
        lines = ["# blocks low..high meet the mask's band; low_whole..high_whole lie inside it and need no mask"]
        lines.append(f"first, last = first_query{shift}, first_query{shift} + block_q - 1")
        whole = "kv_len // block_k"
        if match.causal:
            lines += [
                "high = jnp.minimum(jax.lax.div(jnp.maximum(last, 0), block_k) + 1, blocks)",
                f"high_whole = jnp.minimum(jax.lax.div(jnp.maximum(first + 1, 0), block_k), {whole})",
            ]
        else:
            lines.append(f"high, high_whole = blocks, {whole}")
        if match.window is not None:
            lines += [
                f"low = jnp.minimum(jax.lax.div(jnp.maximum(first - {match.window - 1}, 0), block_k), high)",
                f"low_whole = jax.lax.div(jnp.maximum(last - {match.window - 1}, 0) + block_k - 1, block_k)",
                "low_whole = jnp.clip(low_whole, low, high)",
                "high_whole = jnp.clip(high_whole, low_whole, high)",
            ]
        else:
            lines += ["low = low_whole = 0"]
            if match.causal:
                lines.append("high_whole = jnp.minimum(high_whole, high)")
        return lines

    def closing(self) -> list[str]:
        if self.sums_on_mxu:
            return [
                "for part in range(parts):",
                "    _, total = states[part]",
                "    result = total[:, :v_dim] / total[:, v_dim:]",
                "    out_ref[pl.ds(part * rows, rows), :] = result.astype(out_ref.dtype)",
            ]
        return [
            "for part in range(parts):",
            "    _, norm, total = states[part]",
            "    out_ref[pl.ds(part * rows, rows), :] = (total / norm).astype(out_ref.dtype)",
        ]

    # the entry function

    def entry(self) -> str:
        match = self.match
        lines = [
            self.layout_doc(),
            *first_lines(match.signature), *self.arrays(), *self.checks(), *self.block_choice(), *self.padding(),
            "out = pl.pallas_call(", indent(self.call()), f")({', '.join(self.operands())})",
            f"return {from_canonical(match.layouts[3], 'out')}",
        ]
        return f"def {match.signature.entry}({match.signature.header}):\n" + indent(lines)

    def layout_doc(self) -> str:
        words = {"b": "batch", "h": "heads", "s": "length", "d": "dim", "m": "heads * dim"}
        by_layout: dict[str, list[str]] = {}
        for name, layout in zip((self.q, self.k, self.v), self.match.layouts, strict=False):
            by_layout.setdefault(layout, []).append(name)
        parts = [f"{', '.join(names)}: [{', '.join(words[a] for a in layout)}]" for layout, names in by_layout.items()]
        lengths = "as many queries as keys" if self.match.causal == "square" else "any lengths"
        return f'"""{"; ".join(parts)}.\n\nAny batch and heads, {lengths}{self.fitting()}.\n"""'

    def fitting(self) -> str:
        return "; a head's keys and values fit VMEM_LIMIT twice"

    def arrays(self) -> list[str]:
        match = self.match
        ranks = [3 if layout == "bsm" else len(layout) for layout in match.layouts[:3]]
        names = (self.q, self.k, self.v)
        tests = " or ".join(f"{n}.ndim != {r}" for n, r in zip(names, ranks, strict=True))
        lines = [
            f"if {tests}:",
            f'    raise ValueError(f"this kernel takes {", ".join(names)} of rank {", ".join(map(str, ranks))}, not '
            f'{{{self.q}.shape}}, {{{self.k}.shape}}, {{{self.v}.shape}}")',
        ]
        canonical = [
            to_canonical(layout, name, heads)
            for layout, name, heads in zip(match.layouts, names, ("HEADS", "KV_HEADS", "KV_HEADS"), strict=False)
        ]
        one = f"queries, keys, values = {', '.join(canonical)}"
        if len(one) < 100:
            return [*lines, one]
        words = ("queries", "keys", "values")
        return [*lines, *(f"{word} = {text}" for word, text in zip(words, canonical, strict=True))]

    def checks(self) -> list[str]:
        match = self.match
        lines = [
            "batch, heads, q_len, head_dim = queries.shape",
            "kv_heads, kv_len, v_dim = keys.shape[1], keys.shape[2], values.shape[3]",
            "if keys.shape != (batch, kv_heads, kv_len, head_dim) or values.shape != (batch, kv_heads, kv_len, v_dim):",
            f'    raise ValueError(f"{self.q} {{{self.q}.shape}}, {self.k} {{{self.k}.shape}} and {self.v} '
            f'{{{self.v}.shape}} do not fit together")',
            *self.heads_check(),
        ]
        words = {"b": "batch", "h": "heads", "q": "q_len", "k": "kv_len", "1": "1"}
        for leaf in match.score.leaves:
            name, shape = match.signature.params[leaf.param], ", ".join(words[r] for r in leaf.kind)
            lines += [
                f"if {name}.shape != ({shape}{',' if len(leaf.kind) == 1 else ''}):",
                f'    raise ValueError(f"this kernel takes {name} as [{shape}], not {{{name}.shape}}")',
            ]
        if match.causal == "square":
            lines += [
                "if q_len != kv_len:",
                '    raise NotImplementedError(f"this kernel masks equal lengths, not {q_len} queries, {kv_len} keys")',
            ]
        if match.causal == "start" and match.window is not None and not match.nan_rows:
            lines += [
                "if q_len > kv_len:",
                '    raise NotImplementedError(f"{q_len} queries, {kv_len} keys: the window leaves some without any")',
            ]
        if match.causal == "end" and not match.nan_rows:
            lines += [
                "if q_len > kv_len:",
                '    raise NotImplementedError(f"{q_len} queries, {kv_len} keys: the mask leaves some without any")',
            ]
        return lines

    def heads_check(self) -> list[str]:
        if self.match.sizes.heads == self.match.sizes.kv_heads:
            told = "this kernel takes a key head for each query head, not {kv_heads} for {heads}"
            return ["if kv_heads != heads:", f'    raise NotImplementedError(f"{told}")']
        lines = [
            "if heads % kv_heads:",
            '    raise ValueError(f"{heads} query heads cannot share {kv_heads} key heads evenly")',
        ]
        if self.match.grouping == "block":
            lines.append("group = heads // kv_heads  # query heads that share a key head")
        return lines

    def block_choice(self) -> list[str]:
        lines = ["block_q = _block(q_len, BLOCK_Q, 128)"]
        if self.triangle:
            lines += [
                "rows = _divisor(block_q, ROWS)",
                "block_k = _divisor(block_q, BLOCK_K)  # so that the loop ends where the diagonal starts",
            ]
        else:
            lines += ["rows = _divisor(block_q, ROWS)", "block_k = _block(kv_len, BLOCK_K, 128)"]
        return lines

    def padding(self) -> list[str]:
        lines = [
            f"padding = -kv_len % {self.padding_multiple()}",
            "if padding:",
            "    keys, values = (jnp.pad(a, ((0, 0), (0, 0), (0, padding), (0, 0))) for a in (keys, values))",
        ]
        for leaf in self.match.score.leaves:
            lines.append(f"{self.local(leaf)} = {self.match.signature.params[leaf.param]}{self.expanded(leaf)}")
            if "k" in leaf.kind:
                lines += [
                    "if padding:",
                    f"    {self.local(leaf)} = jnp.pad({self.local(leaf)}, ((0, 0), (0, 0), (0, 0), (0, padding)))",
                ]
        return lines

    def padding_multiple(self) -> str:
        return "block_q" if self.triangle else "block_k"

    def local(self, leaf: Leaf) -> str:
        return f"{self.leaf_name(leaf)}_4d"

    def expanded(self, leaf: Leaf) -> str:
        """Indexing that brings a mask to [batch, heads, queries, keys], with ones where it does not vary."""
        kinds, axes, position = leaf.kind, [], 0
        cast = ".astype(jnp.int8)" if self.match.dtypes[leaf.param] == "bool" else ""
        if len(kinds) == 4:
            return cast
        roles = [r for r in kinds if r != "1"]
        if len(roles) != len(kinds):  # axes of one among the others: drop them, then insert
            keep = ", ".join("0" if r == "1" else ":" for r in kinds)
            first = f"[{keep}]" if keep else ""
        else:
            first = ""
        for role in "bhqk":
            axes.append(":" if position < len(roles) and roles[position] == role else "None")
            position += axes[-1] == ":"
        return f"{first}[{', '.join(axes)}]{cast}"

    def call(self) -> list[str]:
        match = self.match
        statics = ["rows=rows", "block_k=block_k", f"factor={self.factor()}"]
        if ", kv_len," in self.kernel().split(":\n", 1)[0]:
            statics.insert(2, "kv_len=kv_len")
        if match.causal == "end":
            statics.append("shift=kv_len - q_len")
        head = "h" if match.sizes.heads == match.sizes.kv_heads else (
            "jax.lax.div(h, group)" if match.grouping == "block" else "jax.lax.rem(h, kv_heads)"
        )
        at = f"lambda {', '.join(self.axes())}"
        specs = [
            f"pl.BlockSpec((None, None, block_q, head_dim), {at}: (b, h, i, 0)),",
            *self.key_specs(head, at),
            *(f"{self.leaf_spec(leaf)}," for leaf in match.score.leaves),
        ]
        counts = {"b": "batch", "h": "heads", "i": "pl.cdiv(q_len, block_q)", "j": "(kv_len + padding) // span"}
        note = "" if self.order == "bhi" else "  # the batch last: what it shares stays in VMEM"
        return [
            f"functools.partial(_kernel, {', '.join(statics)}),",
            f"out_shape=jax.ShapeDtypeStruct((batch, heads, q_len, v_dim), jnp.{match.out_dtype}),",
            f"grid=({', '.join(counts[axis] for axis in self.axes())}),{note}",
            "in_specs=[", *(f"    {s}" for s in specs), "],",
            f"out_specs=pl.BlockSpec((None, None, block_q, v_dim), {at}: (b, h, i, 0)),", *self.tail(),
        ]

    def axes(self) -> str:
        """The grid's, outer first."""
        return self.order

    def key_specs(self, head: str, at: str) -> list[str]:
        return [f"pl.BlockSpec((None, None, kv_len + padding, {dim}), {at}: (b, {head}, 0, 0)),"
                for dim in ("head_dim", "v_dim")]

    def tail(self) -> list[str]:
        return [
            "compiler_params=pltpu.CompilerParams(",
            '    dimension_semantics=("parallel", "parallel", "parallel"), vmem_limit_bytes=VMEM_LIMIT',
            "),",
        ]

    def factor(self) -> str:
        if not self.scale:
            return "LOG2_E"
        return f"{self.scale} * LOG2_E"

    def leaf_spec(self, leaf: Leaf) -> str:
        kinds = leaf.kind if len(leaf.kind) == 4 else "".join(r if r in leaf.kind else "1" for r in "bhqk")
        shape = f"(None, None, {'block_q' if 'q' in kinds else '1'}, {'kv_len + padding' if 'k' in kinds else '1'})"
        index = ", ".join([
            "b" if "b" in kinds else "0", "h" if "h" in kinds else "0", "i" if "q" in kinds else "0", "0",
        ])
        return f"pl.BlockSpec({shape}, lambda {', '.join(self.axes())}: ({index}))"

    def operands(self) -> list[str]:
        return ["queries", "keys", "values", *(self.local(leaf) for leaf in self.match.score.leaves)]
