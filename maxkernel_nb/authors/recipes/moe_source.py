"""The experts recipe's template: sort tokens by expert, two grouped products, and the weighted sum back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes import grouped_source
from maxkernel_nb.authors.recipes.around import uses_lax
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.signature import first_lines
from maxkernel_nb.authors.recipes.text import comment, erf_helper, fold_raises, indent

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.moe import MoeMatch

_TAKEN = {"jax", "jnp", "pl", "pltpu", "functools", "rows", "weight_refs"}


_EXPERTS_PRODUCT = '''
def _of_experts(body, rows, weights, first, block_m, block_n, dtype):
    """``rows`` [slots, k], each expert's from slot ``first[e] * block_m`` on; ``weights`` each [experts, k, n].

    A step of the grid holds a block of one expert's columns. Within it that expert's blocks of rows go past, however
    many there are: the next is fetched and the last is stored while one is worked on.
    """
    (slots, k), (experts, _, n) = rows.shape, weights[0].shape
    block_n = block_n if n % block_n == 0 else n

    def kernel(first_ref, rows_ref, *refs):
        *weight_refs, out_ref, rows_at, out_at, fetched, stored = refs
        j, expert = pl.program_id(0), pl.program_id(1)
        begin = first_ref[expert]
        count = first_ref[expert + 1] - begin

        def place(t):
            return pl.ds(pl.multiple_of((begin + t) * block_m, block_m), block_m)

        def fetch(t, slot):
            return pltpu.make_async_copy(rows_ref.at[place(t)], rows_at.at[slot], fetched.at[slot])

        def store(t, slot):
            columns = pl.ds(pl.multiple_of(j * block_n, block_n), block_n)
            return pltpu.make_async_copy(out_at.at[slot], out_ref.at[place(t), columns], stored.at[slot])

        @pl.when(count > 0)
        def _first():
            fetch(0, 0).start()

        def step(t, _):
            slot = jax.lax.rem(t, 2)

            @pl.when(t + 1 < count)
            def _next():
                fetch(t + 1, 1 - slot).start()

            @pl.when(t > 1)
            def _room():
                store(t - 2, slot).wait()

            fetch(t, slot).wait()
            out_at[slot] = body(weight_refs, rows_at[slot]).astype(dtype)
            store(t, slot).start()

        jax.lax.fori_loop(0, count, step, None)
        for left in (2, 1):
            @pl.when(count >= left)
            def _last(left=left):
                store(count - left, jax.lax.rem(count - left, 2)).wait()

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((slots, n), dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(n // block_n, experts),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)]
            + [pl.BlockSpec((1, k, block_n), lambda j, e, first: (e, 0, j))] * len(weights),
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            scratch_shapes=[
                pltpu.VMEM((2, block_m, k), rows.dtype), pltpu.VMEM((2, block_m, block_n), dtype),
                pltpu.SemaphoreType.DMA((2,)), pltpu.SemaphoreType.DMA((2,)),
            ],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
    )(first, rows, *weights)
'''
_SLOTS = '''
def _slots(expert, experts, block_m):
    """A place for each row, so that an expert's rows are neighbours and begin with a block of their own.

    Gives the slot of each row, the row of each slot (unused ones hold row 0) and each expert's first block.
    """
    rows = expert.shape[0]
    order = jnp.argsort(expert)
    sizes = jnp.sum(expert[:, None] == jnp.arange(experts), axis=0, dtype=jnp.int32)
    blocks = -(-sizes // block_m)
    first = jnp.append(0, jnp.cumsum(blocks)).astype(jnp.int32)
    own = expert[order]
    within = jnp.arange(rows, dtype=jnp.int32) - (jnp.cumsum(sizes) - sizes)[own]
    slot = jnp.zeros(rows, jnp.int32).at[order].set(first[own] * block_m + within)
    whole = (-(-rows // block_m) + experts) * block_m
    return slot, jnp.zeros(whole, jnp.int32).at[slot].set(jnp.arange(rows, dtype=jnp.int32)), first
'''


def render(match: MoeMatch, params: dict[str, int], bound_text: str, vmem_limit: int) -> str:
    header = comment(
        f"{match.signature.entry}: a mixture of experts as two grouped products in Pallas TPU kernels.",
        f"Each token is worked on by its {match.picks} chosen experts only, not by all {match.experts}: (token, pick) "
        "rows are laid out by expert, so that an expert's weights are fetched once for all of its rows.",
        f"Tiles: {params['BLOCK_M']} rows, {params['BLOCK_WIDTH']} columns of the hidden layer and "
        f"{params['BLOCK_OUT']} of the result, each of whole depth.",
        f"Bound for {match.tokens} tokens: {bound_text}.",
    )
    constants = [f"{name} = {value}" for name, value in params.items()]
    constants.append(f"VMEM_LIMIT = {vmem_limit // 2**20} * 2**20  # bytes")
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
        "picks = chosen.shape[1]",
        "block_m = min(BLOCK_M, -(-chosen.size // 16) * 16)",
        f"slot, row, first = _slots(chosen.reshape(-1), {match.down}.shape[0], block_m)",
        "rows = jnp.take(tokens, row // picks, axis=0)",
        f"hidden = _of_experts(_hidden_body, rows, {tuple_text}, first, block_m, BLOCK_WIDTH, jnp.{match.dtype})",
        f"answers = _of_experts(_down_body, hidden, ({match.down},), first, block_m, BLOCK_OUT, jnp.{match.dtype})",
        "answers = jnp.take(answers, slot, axis=0).reshape(*chosen.shape, -1)",
        "return jnp.sum(answers.astype(jnp.float32) * share[..., None], axis=1)",
    ])


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
