"""Templates of the paged attention recipe: modules a person would keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import comment, indent, vmem_line

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.paged import PagedMatch


def render(match: PagedMatch, params: dict[str, int], bound: str, vmem_limit: int) -> str:
    decodes, prefills = match.decode_count != 0, match.prefill_count > 0
    names = match.signature.params
    head = [
        f"{match.signature.entry}: attention over a paged key/value cache as Pallas TPU kernels.",
        "Decoding: one query of every head against PAGES pages a step, which the page table, read ahead of the grid, "
        "brings straight from the cache, one block on its way while another is worked on: nothing is gathered into a "
        "copy. A page's keys of all heads are one matrix; every query head meets all of them and keeps those of its "
        "own key head. That is more work for the matrix unit, which waits for memory anyway, and shuffles no heads.",
    ] if decodes else [f"{match.signature.entry}: attention over a paged key/value cache as a Pallas TPU kernel."]
    if prefills:
        head.append(
            "Prefilling: the keys and values of these sequences are gathered once, one head after the other; BLOCK_Q "
            "rows (queries of a group of heads) meet BLOCK_K keys at a time with an online softmax, up to the last key "
            "that any of them may see, ROWS rows at a time."
        )
    head.append(f"Bound for {match.slots} sequences of up to {match.pages * match.page} keys: {bound}.")
    constants = [f"{name} = {value}" for name, value in params.items()]
    constants += [
        vmem_line(vmem_limit),
        "LOG2_E = 1.4426950408889634  # exp(x) = exp2(x * LOG2_E), and exp2 is what the hardware has",
        "LOWEST = -3.0e38  # where the running maximum starts: finite, so that masked scores give 0 and not NaN",
    ]
    parts = [
        "import functools\n\nimport jax\nimport jax.numpy as jnp\n"
        "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu",
        "\n".join(constants),
    ]
    functions = [_ABSORB.format(**(_SHIFTED if decodes and match.values < 0 else _UNSHIFTED))]
    if decodes:
        functions += [_DECODE_KERNEL.format(**_decode_words(match)), _DECODE.format(**_decode_words(match))]
    if prefills:
        functions += [_PREFILL_KERNEL, _PREFILL.format(scale=_scale(match), dtype=match.dtype)]
    functions.append(_entry(match, names))
    text = "\n\n".join([comment(*head), *parts])
    return text + "\n\n\n" + "\n\n\n".join(f.strip("\n") for f in functions) + "\n"


def _scale(match: PagedMatch) -> str:
    return "dim**-0.5 * LOG2_E" if match.scaled else "LOG2_E"


def _decode_words(match: PagedMatch) -> dict[str, str]:
    joined = match.values < 0
    names = ("pages",) if joined else ("k_pages", "v_pages")
    return {
        "scale": _scale(match), "dtype": match.dtype, "arrays": ", ".join(names), "first": names[0],
        "kv_heads": "pages.shape[2] // 2" if joined else "k_pages.shape[2]",
        "each": "2 * kv_heads" if joined else "kv_heads",
        "mine": "2 * (jnp.arange(heads)[:, None] // group)" if joined else "jnp.arange(heads)[:, None] // group",
        "refs": ", ".join([*(f"{n}_ref" for n in names), "out_ref", *(f"{n}_held" for n in names)]),
        "source": "pages_ref" if joined else "source", "held_page": "pages_held" if joined else "held",
        "pairs": "" if joined else f" for source, held in ({', '.join(f'({n}_ref, {n}_held)' for n in names)})",
        "load": "keys = values = pages_held[slot].reshape(-1, dim)" if joined else
        "keys, values = k_pages_held[slot].reshape(-1, dim), v_pages_held[slot].reshape(-1, dim)",
        "shift": ", shift=1" if joined else "",
        "in_hbm": ", ".join(["pl.BlockSpec(memory_space=pl.ANY)"] * len(names)),
        "held": "\n".join(
            f"                pltpu.VMEM((2, count, *{n}.shape[1:]), {n}.dtype)," for n in names
        ),
        "pages_doc": "keys at even and values at odd heads" if joined else "keys and values apart",
    }  # fmt: skip


_ABSORB = '''
def _absorb(scores, values, top_ref, norm_ref, total_ref{argument}):
    """The online softmax: what was summed fades as the running maximum grows. Scores are in powers of two.{told}"""
    top = top_ref[...]
    new_top = jnp.maximum(top, jnp.max(scores, axis=1, keepdims=True))
    weights, fade = jnp.exp2(scores - new_top), jnp.exp2(top - new_top)
    top_ref[...] = new_top
    norm_ref[...] = norm_ref[...] * fade + jnp.sum(weights, axis=1, keepdims=True)
{rolled}    product = jnp.dot(weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
    total_ref[...] = total_ref[...] * fade + product
'''

_SHIFTED = {
    "argument": ", shift=0", "told": "\n\n    ``shift``: rows that a key's value lies after it.\n    ",
    "rolled": "    if shift:\n        weights = pltpu.roll(weights, shift, 1)\n",
}
_UNSHIFTED = dict.fromkeys(_SHIFTED, "")

_DECODE_KERNEL = '''
def _decode_kernel(
    lengths_ref, table_ref, q_ref, own_ref, token_ref, {refs},
    arrived, top_ref, norm_ref, total_ref, *, count, page, factor, blocks,
):
    """Step n fetches block n, ``count`` pages, while it works on block n - 1; a sequence has ``blocks`` of them.

    ``own_ref``: 0 where a row of the pages is a query head's key, else -inf. ``token_ref``: each row's key in a block.
    """
    step, dim = pl.program_id(0), q_ref.shape[1]

    def left(block):
        """Keys of the block's sequence from its first on."""
        return lengths_ref[jax.lax.div(block, blocks)] - jax.lax.rem(block, blocks) * count * page

    def copies(slot, index):
        """Those of a block's pages into ``slot``: page i is number ``index(i)`` of the cache."""
        return [
            pltpu.make_async_copy({source}.at[index(i)], {held_page}.at[slot, i], arrived.at[slot])
            for i in range(count){pairs}
        ]

    fetched = jnp.minimum(step, pl.num_programs(0) - 2)

    @pl.when((step < pl.num_programs(0) - 1) & (left(fetched) > 0))
    def _fetch():
        sequence, first = jax.lax.div(fetched, blocks), jax.lax.rem(fetched, blocks) * count
        # past the sequence's end the table may hold anything: its last page is fetched again
        last = jnp.clip(jax.lax.div(lengths_ref[sequence] - 1, page), 0, table_ref.shape[1] - 1)
        for copy in copies(jax.lax.rem(step, 2), lambda i: table_ref[sequence, jnp.minimum(first + i, last)]):
            copy.start()

    block = jnp.maximum(step - 1, 0)

    @pl.when(jax.lax.rem(block, blocks) == 0)
    def _start():
        top_ref[...] = jnp.full_like(top_ref, LOWEST)
        norm_ref[...] = jnp.zeros_like(norm_ref)
        total_ref[...] = jnp.zeros_like(total_ref)

    @pl.when((step > 0) & (left(block) > 0))
    def _work():
        slot = jax.lax.rem(block, 2)
        for copy in copies(slot, lambda i: 0):
            copy.wait()
        {load}
        dims = (((1,), (1,)), ((), ()))
        scores = jax.lax.dot_general(q_ref[...], keys, dims, preferred_element_type=jnp.float32) * factor
        scores = jnp.where(token_ref[...] < left(block), scores + own_ref[...], -jnp.inf)
        _absorb(scores, values, top_ref, norm_ref, total_ref{shift})

    @pl.when(jax.lax.rem(block, blocks) == blocks - 1)
    def _finish():
        out_ref[...] = (total_ref[...] / norm_ref[...]).astype(out_ref.dtype)
'''

_DECODE = '''
def _decode(queries, {arrays}, lengths, table):
    """queries: [sequences, heads, dim]; pages: {pages_doc}; lengths: visible keys."""
    sequences, heads, dim = queries.shape
    page, kv_heads = {first}.shape[1], {kv_heads}
    group, count = heads // kv_heads, min(PAGES, table.shape[1])
    blocks = pl.cdiv(table.shape[1], count)
    row = jnp.arange(count * page * {each})[None]
    own = jnp.where(row % ({each}) == {mine}, 0.0, -jnp.inf)
    token = (row // ({each})).astype(jnp.int32)

    def whole(array):
        return pl.BlockSpec(array.shape, lambda step, *_: (0, 0))

    def sequence(step, *_):
        return jax.lax.div(jnp.maximum(step - 1, 0), blocks), 0, 0

    return pl.pallas_call(
        functools.partial(_decode_kernel, count=count, page=page, factor={scale}, blocks=blocks),
        out_shape=jax.ShapeDtypeStruct(queries.shape, jnp.{dtype}),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(sequences * blocks + 1,),
            in_specs=[
                pl.BlockSpec((None, heads, dim), sequence), whole(own), whole(token),
                {in_hbm},
            ],
            out_specs=pl.BlockSpec((None, heads, dim), sequence),
            scratch_shapes=[
{held}
                pltpu.SemaphoreType.DMA((2,)),
                *(pltpu.VMEM((heads, n), jnp.float32) for n in (1, 1, dim)),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_LIMIT),
    )(lengths, table, queries, own, token, {arrays})
'''

_PREFILL_KERNEL = '''
def _prefill_kernel(first_ref, last_ref, q_ref, k_ref, v_ref, out_ref, top_ref, norm_ref, total_ref, *, width, factor):
    """Rows of one key head: query ``n`` of each head of the group sees keys 0 to ``first + n``."""
    rows, block_k = q_ref.shape[0], min(BLOCK_K, k_ref.shape[0])
    sequence, start = pl.program_id(0), jax.lax.rem(pl.program_id(2) * rows, width)
    first = first_ref[sequence] + start
    top_ref[...] = jnp.full_like(top_ref, LOWEST)
    norm_ref[...] = jnp.zeros_like(norm_ref)
    total_ref[...] = jnp.zeros_like(total_ref)

    def step(j, _):
        @pl.when(j * block_k <= jnp.minimum(first + rows - 1, last_ref[sequence]))
        def _work():
            at, dims = pl.ds(pl.multiple_of(j * block_k, block_k), block_k), (((1,), (1,)), ((), ()))
            # in parts, so that the matrix unit works on one part while the vector unit does another's softmax
            part = rows if rows % ROWS else ROWS
            raw = [
                jax.lax.dot_general(q_ref[pl.ds(i, part), :], k_ref[at, :], dims, preferred_element_type=jnp.float32)
                for i in range(0, rows, part)
            ]
            for number, scores in enumerate(raw):
                mine = pl.ds(number * part, part)
                query = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0) + number * part
                key = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
                scores = jnp.where(key - query <= first - j * block_k, scores * factor, -jnp.inf)
                _absorb(scores, v_ref[at, :], top_ref.at[mine], norm_ref.at[mine], total_ref.at[mine])

        return 0

    jax.lax.fori_loop(0, k_ref.shape[0] // block_k, step, 0)
    out_ref[...] = (total_ref[...] / norm_ref[...]).astype(out_ref.dtype)
'''

_PREFILL = '''
def _prefill(queries, keys, values, first, lengths):
    """[sequences, width, heads, dim] and [sequences, kv_heads, keys, dim]; first: which key query 0 is."""
    sequences, width, heads, dim = queries.shape
    kv_heads, length = keys.shape[1:3]
    group = heads // kv_heads
    rows = min(BLOCK_Q, width)
    while width % rows:
        rows //= 2
    padding = -length % min(BLOCK_K, -(-length // 128) * 128)
    keys, values = (jnp.pad(a, ((0, 0), (0, 0), (0, padding), (0, 0))) for a in (keys, values))
    grouped = queries.reshape(sequences, width, kv_heads, group, dim).transpose(0, 2, 3, 1, 4)
    grouped = grouped.reshape(sequences, kv_heads, group * width, dim)
    block = pl.BlockSpec((None, None, rows, dim), lambda s, h, i, *_: (s, h, i, 0))
    whole = pl.BlockSpec((None, None, length + padding, dim), lambda s, h, i, *_: (s, h, 0, 0))
    out = pl.pallas_call(
        functools.partial(_prefill_kernel, width=width, factor={scale}),
        out_shape=jax.ShapeDtypeStruct(grouped.shape, jnp.{dtype}),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(sequences, kv_heads, group * width // rows),
            in_specs=[block, whole, whole],
            out_specs=block,
            scratch_shapes=[pltpu.VMEM((rows, n), jnp.float32) for n in (1, 1, dim)],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel"), vmem_limit_bytes=VMEM_LIMIT
        ),
    )(first, lengths - 1, grouped, keys, values)
    return out.reshape(sequences, kv_heads, group, width, dim).transpose(0, 3, 1, 2, 4)
'''


def _entry(match: PagedMatch, names: tuple[str, ...]) -> str:
    lines = [*first_lines(match.signature)]
    if match.signature.static:
        lines.append("")
    queries, table, lengths = (names[i] for i in (match.queries, match.table, match.lengths))
    pages = names[match.keys] if match.values < 0 else f"{names[match.keys]}, {names[match.values]}"
    if match.simple:
        if match.starts >= 0:
            lines.append(f"rows = {queries}[{names[match.starts]}[:-1]]")
        lines.append(f"return _decode({'rows' if match.starts >= 0 else queries}, {pages}, {lengths}, {table})")
    else:
        lines += _packed(match, queries, pages, lengths, table, names)
    return f"def {match.signature.entry}({match.signature.header}):\n" + indent(lines)


def _packed(match: PagedMatch, queries: str, pages: str, lengths: str, table: str, names: tuple[str, ...]) -> list[str]:
    starts, d, p, w = names[match.starts], max(match.decode_count, 0), match.prefill_count, match.prefill_width
    active = f"{names[match.active]}[0]" if match.active >= 0 else f"{lengths}.shape[0]"
    lines = [
        f"total, heads, dim = {queries}.shape",
        f"begin, own = {starts}[:-1], {starts}[1:] - {starts}[:-1]  # first row and number of rows of each sequence",
        f"first = {lengths} - own  # the key that a sequence's first query is",
    ]
    found = []
    if d:
        lines += [
            f"# sequences of one query: slots 0 to {d - 1}",
            f"rows = {queries}[jnp.minimum(begin[:{d}], total - 1)]",
            f"single = _decode(rows, {pages}, jnp.maximum(first[:{d}] + 1, 1), {table}[:{d}])",
        ]
        found.append(f"single.reshape({d}, heads * dim)")
    if p:
        which = f"{d}:{d + p}"
        lines.append(f"# sequences of up to {w} queries: slots {d} to {d + p - 1}")
        if match.values < 0:
            lines += [
                f"held = {pages}[{table}[{which}]]  # [sequences, pages, page, 2 * kv_heads, dim]",
                f"held = held.reshape({p}, -1, held.shape[3] // 2, 2, dim).transpose(3, 0, 2, 1, 4)",
                "keys, values = held[0], held[1]",
            ]
        else:
            lines += [f"keys, values = (a[{table}[{which}]] for a in ({pages}))",
                      f"keys, values = (a.reshape({p}, -1, a.shape[3], dim).swapaxes(1, 2) for a in (keys, values))"]
        lines += [
            f"at = jnp.minimum(begin[{which}, None] + jnp.arange({w}), total - 1)",
            f"several = _prefill({queries}[at], keys, values, first[{which}], {lengths}[{which}])",
        ]
        found.append(f"several.reshape({p * w}, heads * dim)")
    lines += [
        "# every packed row takes its result from its sequence's; rows that nobody owns are zero",
        "row = jnp.arange(total)",
        f"slot = jnp.sum(row[:, None] >= {starts}[None, 1:], axis=1)",
        "slot = jnp.minimum(slot, own.shape[0] - 1)",
        "place = row - begin[slot]",
    ]
    mine = f"(row >= {starts}[0]) & (slot < {active}) & (slot < {d + p}) & (place < own[slot])"
    lines.append(f"mine = {mine}")
    source = found[0] if len(found) == 1 else f"jnp.concatenate([{', '.join(found)}])"
    lines.append(f"results = {source}")
    if d and p:
        lines += [f"mine &= place < jnp.where(slot < {d}, 1, {w})",
                  f"index = jnp.where(slot < {d}, slot, {d} + (slot - {d}) * {w} + place)"]
    elif d:
        lines += ["mine &= place < 1", "index = slot"]
    else:
        lines += [f"mine &= place < {w}", f"index = slot * {w} + place"]
    return [
        *lines,
        "index = jnp.clip(index, 0, results.shape[0] - 1)",
        "return jnp.where(mine[:, None], results[index], 0).reshape(total, heads, dim)",
    ]
