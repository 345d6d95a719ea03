"""The experts recipe's template: sort tokens by expert, two grouped products, and the weighted sum back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes import grouped_source
from maxkernel_nb.authors.recipes.around import uses_lax
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.authors.recipes.signature import static_guards
from maxkernel_nb.authors.recipes.text import comment, erf_helper, fold_raises, indent

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.moe import MoeMatch

_TAKEN = {"jax", "jnp", "pl", "pltpu", "functools", "step", "group", "first", "row", "mine", "result", "groups", "rows"}


def render(match: MoeMatch, params: dict[str, int], bound_text: str, vmem_limit: int) -> str:
    header = comment(
        f"{match.signature.entry}: a mixture of experts as two grouped products in Pallas TPU kernels.",
        f"Each token is worked on by its {match.picks} chosen experts only, not by all {match.experts}: (token, pick) "
        "rows are sorted by expert, so that an expert's rows are neighbours and its weights are fetched once.",
        f"Tiles: {params['BLOCK_M']} rows, {params['BLOCK_WIDTH']} columns of the hidden layer and "
        f"{params['BLOCK_OUT']} of the result, each of whole depth.",
        f"Bound for {match.tokens} tokens: {bound_text}.",
    )
    constants = [f"{name} = {value}" for name, value in params.items()]
    constants.append(f"VMEM_LIMIT = {vmem_limit // 2**20} * 2**20  # bytes")
    hidden = _hidden(match)
    down = grouped_source.kernel(
        "_down_kernel", [match.down], [],
        f"jnp.dot(rows_ref[...], {match.down}_ref[0], preferred_element_type=jnp.float32)",
        "The last product of one expert's share of a block of rows.",
    )
    parts = [*erf_helper(hidden), grouped_source.VISITS, hidden, down, grouped_source.GROUPED, _experts(match),
             _entry(match)]
    lax = uses_lax(match.before + match.after) or "lax." in hidden.replace("jax.lax.", "")
    return fold_raises(grouped_source.module(header, constants, parts, lax))


def _hidden(match: MoeMatch) -> str:
    refs = list(match.ups)
    names = {f"acc{i}": f"{ref}_product" for i, ref in enumerate(refs)}
    dot = "jnp.dot(rows_ref[...], {ref}_ref[0], preferred_element_type=jnp.float32)"
    body = [f"{ref}_product = {dot.format(ref=ref)}" for ref in refs]
    lines, result = Lines(match.hidden, names, set(_TAKEN)).render()
    return grouped_source.kernel(
        "_hidden_kernel", refs, [*body, *lines], result, "The hidden layer of one expert's share of a block of rows.")


def _experts(match: MoeMatch) -> str:
    ups = ", ".join(match.ups)
    tuple_text = f"({ups},)" if len(match.ups) == 1 else f"({ups})"
    return f"def _experts(tokens, chosen, share, {ups}, {match.down}):\n" + indent([
        '"""tokens [t, d]; chosen [t, picks], whole numbers; share [t, picks], float32. Gives [t, out] in float32."""',
        f"picks, experts = chosen.shape[1], {match.down}.shape[0]",
        "expert = chosen.reshape(-1)",
        "order = jnp.argsort(expert)",
        "sizes = jnp.sum(expert[:, None] == jnp.arange(experts), axis=0, dtype=jnp.int32)",
        "rows = jnp.take(tokens, order // picks, axis=0)",
        f"hidden = _grouped(_hidden_kernel, rows, {tuple_text}, sizes, BLOCK_M, BLOCK_WIDTH, jnp.{match.dtype})",
        f"answers = _grouped(_down_kernel, hidden, ({match.down},), sizes, BLOCK_M, BLOCK_OUT, jnp.{match.dtype})",
        "answers = jnp.take(answers, jnp.argsort(order), axis=0).reshape(*chosen.shape, -1)",
        "return jnp.sum(answers.astype(jnp.float32) * share[..., None], axis=1)",
    ])


def _entry(match: MoeMatch) -> str:
    call = (
        f"out = _experts(\n    {match.x}.reshape(-1, {match.x}.shape[-1]), {match.chosen}.reshape(-1, {match.picks}),\n"
        f"    {match.share}.reshape(-1, {match.picks}), {', '.join(match.ups)}, {match.down},\n)"
    )
    lines = [
        *static_guards(match.signature), *match.before, call, f"out = out.reshape(*{match.x}.shape[:-1], -1)",
        *match.after, f"return {match.result}",
    ]
    return f"def {match.signature.entry}({match.signature.header}):\n" + indent("\n".join(lines))
