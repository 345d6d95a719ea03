"""The experts recipe's template: sort tokens by expert, two grouped products, and the weighted sum back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes import grouped_source
from maxkernel_nb.authors.recipes.around import uses_lax
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import comment, erf_helper, fold_raises, indent, vmem_line

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.moe import MoeMatch

_TAKEN = {"jax", "jnp", "pl", "pltpu", "functools", "rows", "weight_refs"}


_EXPERTS_PRODUCT = '''
def _of_experts(body, rows, weights, expert, used, block_m, block_n, dtype):
    """``rows`` [slots, k] in blocks of ``block_m``: block b is all ``expert[b]``'s; ``weights`` each [experts, k, n].

    A block of rows stays in VMEM while all columns of its expert's weights go past. Blocks from ``used[0]`` on hold no
    rows: nothing is multiplied for them.
    """
    (slots, k), n = rows.shape, weights[0].shape[2]
    block_n = block_n if n % block_n == 0 else n

    def kernel(expert_ref, used_ref, rows_ref, *refs):
        *weight_refs, out_ref = refs

        @pl.when(pl.program_id(0) < used_ref[0])
        def _product():
            out_ref[...] = body(weight_refs, rows_ref[...]).astype(dtype)

    def columns(b, j, expert, used):
        return expert[b], 0, jnp.where(b < used[0], j, 0)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((slots, n), dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(slots // block_m, n // block_n),
            in_specs=[pl.BlockSpec((block_m, k), lambda b, j, expert, used: (b, 0))]
            + [pl.BlockSpec((1, k, block_n), columns)] * len(weights),
            out_specs=pl.BlockSpec((block_m, block_n), lambda b, j, expert, used: (b, j)),
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
    )(expert, used, rows, *weights)
'''
_SLOTS = '''
def _slots(chosen, experts, block_m):
    """A place for each row, so that an expert's rows are neighbours and begin with a block of their own.

    Rows are sorted by expert together with fillers, as many for each expert as its last block leaves places empty.
    Gives the slot of each row, the row of each slot (of a filler: a number past the last row), each block's expert and
    how many blocks are used: up to ``experts - 1`` more than full ones.
    """
    rows, known = chosen.shape[0], jnp.arange(experts)
    blocks = -(-rows // block_m) + experts - 1
    sizes = jnp.sum(chosen[:, None] == known, axis=0, dtype=jnp.int32)
    own = -(-sizes // block_m)
    fillers = jnp.arange(blocks * block_m - rows, dtype=jnp.int32)
    filled = jnp.sum(fillers[:, None] >= jnp.cumsum(own * block_m - sizes), axis=1, dtype=jnp.int32)
    row = jnp.argsort(jnp.concatenate([chosen.astype(jnp.int32), filled]))
    ends = jnp.cumsum(own).astype(jnp.int32)  # of each expert's blocks
    used = ends[-1:]
    block = jnp.minimum(jnp.arange(blocks, dtype=jnp.int32), used - 1)
    expert = jnp.sum(block[:, None] >= ends, axis=1, dtype=jnp.int32)
    return jnp.argsort(row)[:rows], row, expert, used
'''


def render(match: MoeMatch, params: dict[str, int], bound_text: str, vmem_limit: int) -> str:
    header = comment(
        f"{match.signature.entry}: a mixture of experts as two grouped products in Pallas TPU kernels.",
        f"Each token is worked on by its {match.picks} chosen experts only, not by all {match.experts}: (token, pick) "
        "rows are laid out by expert, so that a block of rows meets one expert's weights.",
        f"Tiles: {params['BLOCK_M']} rows, {params['BLOCK_WIDTH']} columns of the hidden layer and "
        f"{params['BLOCK_OUT']} of the result, each of whole depth.",
        f"Bound for {match.tokens} tokens: {bound_text}.",
    )
    constants = [f"{name} = {value}" for name, value in params.items()]
    blocks = max(1, round(match.tokens * match.picks / match.experts / params["BLOCK_M"]))
    constants.append(f"BLOCKS = {blocks}  # of rows for each expert on average, at any size")
    constants.append(vmem_line(vmem_limit))
    hidden = _hidden(match)
    down = _body("_down_body", [match.down], [], f"jnp.dot(rows, {match.down}_ref[0], "
                 "preferred_element_type=jnp.float32)", "The last product for a block of one expert's rows.")
    parts = [*erf_helper(hidden), hidden, down, _EXPERTS_PRODUCT, _SLOTS, _experts(match), _entry(match)]
    lax = uses_lax(match.before + match.after) or "lax." in hidden.replace("jax.lax.", "")
    return fold_raises(grouped_source.module(header, constants, parts, lax))


def _body(name: str, weights: list[str], lines: list[str], result: str, doc: str) -> str:
    refs = ", ".join(f"{w}_ref" for w in weights) + ("," if len(weights) == 1 else "")
    return f"def {name}(weight_refs, rows):\n" + indent([
        f'"""{doc}"""', f"{refs} = weight_refs" if len(weights) > 1 else f"({refs}) = weight_refs", *lines,
        f"return {result}",
    ])


def _hidden(match: MoeMatch) -> str:
    refs = list(match.ups)
    names = {f"acc{i}": f"{ref}_product" for i, ref in enumerate(refs)}
    dot = "jnp.dot(rows, {ref}_ref[0], preferred_element_type=jnp.float32)"
    body = [f"{ref}_product = {dot.format(ref=ref)}" for ref in refs]
    lines, result = Lines(match.hidden, names, set(_TAKEN)).render()
    return _body("_hidden_body", refs, [*body, *lines], result, "The hidden layer for a block of one expert's rows.")


def _experts(match: MoeMatch) -> str:
    ups = ", ".join(match.ups)
    tuple_text = f"({ups},)" if len(match.ups) == 1 else f"({ups})"
    return f"def _experts(tokens, chosen, share, {ups}, {match.down}):\n" + indent([
        '"""tokens [t, d]; chosen [t, picks], whole numbers; share [t, picks], float32. Gives [t, out] in float32."""',
        f"experts, picks = {match.down}.shape[0], chosen.shape[1]",
        "mean = -(-chosen.size // experts)  # rows of an expert",
        "block_m = min(BLOCK_M, -(-mean // (16 * BLOCKS)) * 16)",
        "slot, row, expert, used = _slots(chosen.reshape(-1), experts, block_m)",
        'rows = jnp.take(tokens, row // picks, axis=0, mode="clip")',
        *_call("hidden", f"_hidden_body, rows, {tuple_text}", "BLOCK_WIDTH", match.dtype),
        *_call("answers", f"_down_body, hidden, ({match.down},)", "BLOCK_OUT", match.dtype),
        "slot = slot.reshape(chosen.shape).T.reshape(-1)  # all first picks, then all second ones ...",
        "picked = jnp.take(answers, slot, axis=0).reshape(picks, *tokens.shape[:1], -1)",
        "return jnp.sum(picked.astype(jnp.float32) * share.T[:, :, None], axis=0)",
    ])


def _call(name: str, arguments: str, columns: str, dtype: str) -> list[str]:
    line = f"{name} = _of_experts({arguments}, expert, used, block_m, {columns}, jnp.{dtype})"
    if len(line) <= 112:
        return [line]
    return [f"{name} = _of_experts(", f"    {arguments}, expert, used, block_m, {columns}, jnp.{dtype}", ")"]


def _entry(match: MoeMatch) -> str:
    call = (
        f"out = _experts(\n    {match.x}.reshape(-1, {match.x}.shape[-1]), {match.chosen}.reshape(-1, {match.picks}),\n"
        f"    {match.share}.reshape(-1, {match.picks}), {', '.join(match.ups)}, {match.down},\n)"
    )
    lines = [
        *first_lines(match.signature), *match.before, call, f"out = out.reshape(*{match.x}.shape[:-1], -1)",
        *match.after, f"return {match.result}",
    ]
    return f"def {match.signature.entry}({match.signature.header}):\n" + indent("\n".join(lines))
