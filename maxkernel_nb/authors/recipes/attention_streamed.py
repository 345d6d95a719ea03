"""The attention template where keys and values of a head do not fit the VMEM: they come a span at a time."""

from __future__ import annotations

from maxkernel_nb.authors.recipes.attention_source import Module
from maxkernel_nb.authors.recipes.expressions import Leaf
from maxkernel_nb.authors.recipes.text import comment, indent


class Streamed(Module):
    """As ``Module``, with an innermost axis of the grid over spans of keys; the softmax's state waits in scratch."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.triangle = False  # the diagonal meets a span at any place
        self.band = bool(self.match.causal or self.match.window is not None)

    def header(self) -> str:
        match, s = self.match, self.match.sizes
        kind = "causal attention" if match.causal else "attention"
        if match.window is not None:
            kind += f" over a window of {match.window} keys"
        skipped = " Spans that the mask empties are neither fetched nor computed." if self.skips else ""
        return comment(
            f"{match.signature.entry}: {kind} as one Pallas TPU kernel with an online softmax. Scores and "
            "probabilities stay in VMEM; only the result is written.",
            "Keys and values of one head are too many for the VMEM: they stream through SPAN at a time, and the "
            "running maximum, sum and result of BLOCK_Q queries wait in scratch for the next span. Within a span an "
            f"inner loop walks over BLOCK_K keys.{skipped} A block of queries is worked on in parts of ROWS: the "
            "product of one part runs on the matrix unit while the vector unit does the softmax of the part before.",
            f"Bound for {s.batch} x {s.heads} heads, {s.q_len} queries, {s.kv_len} keys of {s.head_dim}: {self.bound}.",
        )

    @property
    def skips(self) -> bool:
        return self.band and not self.keeps_fill

    # the kernel

    def scratch_refs(self) -> list[str]:
        return ["top_ref", "total_ref"] if self.sums_on_mxu else ["top_ref", "norm_ref", "total_ref"]

    def opening(self) -> list[str]:
        at = self.order.index("i")
        return [
            f"block_q, (span, v_dim) = {self.q}_ref.shape[0], {self.v}_ref.shape",
            "parts = block_q // rows",
            f"first_query = pl.program_id({at}) * block_q",
            "first_key = pl.program_id(3) * span",
            "",
            "@pl.when(pl.program_id(3) == 0)",
            "def _start():",
            "    top_ref[...] = jnp.full_like(top_ref, LOWEST)",
            *(f"    {ref}[...] = jnp.zeros_like({ref})" for ref in self.scratch_refs()[1:]),
            "",
        ]

    def allowed_function(self) -> list[str]:
        return [line.replace("key = start +", "key = first_key + start +") for line in super().allowed_function()]

    def sweep_function(self) -> list[str]:
        return [line.replace("key = start +", "key = first_key + start +") for line in super().sweep_function()]

    def start_state(self) -> list[str]:
        loads = [f"{ref}[pl.ds(part * rows, rows), {':' if ref == 'total_ref' else ':1'}]"
                 for ref in self.scratch_refs()]
        return ["states = tuple(", f"    ({', '.join(loads)})", "    for part in range(parts)", ")"]

    def schedule(self) -> list[str]:
        """Which of this span's blocks are visited, and which of them are masked."""
        loop = "states = jax.lax.fori_loop({}, {}, lambda j, st: sweep(j * block_k, st{}), states)"
        lines = [*self.start_state(), "blocks, before = span // block_k, jax.lax.div(first_key, block_k)"]
        if self.keeps_fill:
            return [
                *lines,
                "# a query that the input's mask leaves alone averages over every key: no block may be skipped",
                "high = jnp.minimum(pl.cdiv(kv_len, block_k) - before, blocks)",
                loop.format("0", "high", ", masked=True"),
            ]
        bounds = [line.replace("blocks)", "all_blocks)").replace("= blocks,", "= all_blocks,")
                  for line in self.band_bounds()]
        if not self.band:
            bounds = ["low = low_whole = 0", "high, high_whole = all_blocks, kv_len // block_k  # the rest is padding"]
        return [
            *lines, "all_blocks = -(-kv_len // block_k)", *bounds,
            "# those of this span",
            "low, low_whole, high_whole, high = (",
            "    jnp.clip(n - before, 0, blocks) for n in (low, low_whole, high_whole, high)", ")",
            loop.format("low", "low_whole", ", masked=True"),
            loop.format("low_whole", "high_whole", ""),
            loop.format("high_whole", "high", ", masked=True"),
        ]

    def closing(self) -> list[str]:
        stores = []
        for i, ref in enumerate(self.scratch_refs()):
            value = f"states[part][{i}]"
            if ref != "total_ref":
                value = f"jnp.broadcast_to({value}, (rows, {ref}.shape[1]))"
            stores.append(f"    {ref}[pl.ds(part * rows, rows), :] = {value}")
        return [
            "for part in range(parts):", *stores, "",
            "@pl.when(pl.program_id(3) == pl.num_programs(3) - 1)",
            "def _finish():", indent(super().closing()),
        ]

    def kernel_refs(self) -> list[str]:
        return ["out_ref", *self.scratch_refs()]

    # the entry function

    def fitting(self) -> str:
        return ""

    def block_choice(self) -> list[str]:
        return [
            "block_q = _block(q_len, BLOCK_Q, 128)", "rows = _divisor(block_q, ROWS)",
            "span = _block(kv_len, SPAN, 128)", "block_k = _divisor(span, BLOCK_K)", *self.span_function(),
        ]

    def padding_multiple(self) -> str:
        return "span"

    def span_function(self) -> list[str]:
        """The span that a step of the grid is given: where the mask empties it, the one that is there already."""
        match = self.match
        if not self.skips:
            return []
        shift = " + kv_len - q_len" if match.causal == "end" else ""
        least = f"jnp.maximum(i * block_q{shift} - {(match.window or 1) - 1}, 0)"
        most = f"jnp.maximum((i + 1) * block_q - 1{shift}, 0)"
        text = "j"
        if match.window is not None:
            text = f"jnp.maximum({text}, jax.lax.div({least}, span))"
        if match.causal:
            text = f"jnp.minimum({text}, jax.lax.div({most}, span))"
        return [
            "last = -(-kv_len // span) - 1",
            "",
            "def seen(i, j):",
            '    """The nearest span that a block of queries sees: one that is there already is not fetched again."""',
            f"    return jnp.minimum({text}, last)",
            "",
        ]

    def which(self) -> str:
        return "seen(i, j)" if self.skips else "j"

    def key_specs(self, head: str, at: str) -> list[str]:
        return [f"pl.BlockSpec((None, None, span, {dim}), {at}: (b, {head}, {self.which()}, 0)),"
                for dim in ("head_dim", "v_dim")]

    def leaf_spec(self, leaf: Leaf) -> str:
        text = super().leaf_spec(leaf)
        if "kv_len + padding" not in text:
            return text
        return text.replace("kv_len + padding", "span")[: -len("0))")] + f"{self.which()}))"

    def axes(self) -> str:
        return f"{self.order}j"

    def tail(self) -> list[str]:
        width = "2 * v_dim" if self.sums_on_mxu else "v_dim"
        shapes = [*["(block_q, 128)"] * (len(self.scratch_refs()) - 1), f"(block_q, {width})"]
        return [
            "scratch_shapes=[", *(f"    pltpu.VMEM({shape}, jnp.float32)," for shape in shapes), "],",
            "compiler_params=pltpu.CompilerParams(",
            '    dimension_semantics=("parallel", "parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT',
            "),",
        ]
