"""Templates for products whose rows are sorted by group, each group with its own weights: alone, and inside a MoE."""

from __future__ import annotations

from collections.abc import Sequence

from maxkernel_nb.authors.recipes.text import indent

VISITS = '''
def _visits(sizes, rows, block_m):
    """Which group works on which block of rows, step by step: a block that two groups share is visited twice.

    The group after the last one owns the rows that nobody else does. Returns group and block of each step, and where
    each group's rows start (with the end of the last one).
    """
    groups, blocks = sizes.shape[0], pl.cdiv(rows, block_m)
    ends = jnp.append(jnp.cumsum(sizes.astype(jnp.int32)), rows).astype(jnp.int32)
    starts = jnp.append(0, ends).astype(jnp.int32)
    visits = jnp.where(ends > starts[:-1], (ends - 1) // block_m - starts[:-1] // block_m + 1, 0)
    until = jnp.cumsum(visits)
    step = jnp.arange(blocks + groups, dtype=jnp.int32)
    group = jnp.minimum(jnp.sum(step[:, None] >= until, axis=1, dtype=jnp.int32), groups)
    block = starts[group] // block_m + step - (until - visits)[group]
    return group, jnp.minimum(block, blocks - 1).astype(jnp.int32), starts
'''
GROUPED = '''
def _grouped(kernel, rows, weights, sizes, block_m, block_n, dtype):
    """``rows`` [m, k] sorted by group, ``weights`` each [groups, k, n], ``sizes`` [groups]: how many rows each owns.

    A group's weights are fetched once for each block of columns; rows once for each block of columns too.
    """
    (m, k), (groups, _, n) = rows.shape, weights[0].shape
    block_m, block_n = min(block_m, -(-m // 16) * 16), min(block_n, n)
    group, block, starts = _visits(sizes, m, block_m)
    of_group = pl.BlockSpec((1, k, block_n), lambda j, s, group, *_: (jnp.minimum(group[s], groups - 1), 0, j))
    return pl.pallas_call(
        functools.partial(kernel, groups=groups),
        out_shape=jax.ShapeDtypeStruct((m, n), dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(pl.cdiv(n, block_n), group.shape[0]),
            in_specs=[pl.BlockSpec((block_m, k), lambda j, s, group, block, starts: (block[s], 0))]
            + [of_group] * len(weights),
            out_specs=pl.BlockSpec((block_m, block_n), lambda j, s, group, block, starts: (block[s], j)),
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
    )(group, block, starts, rows, *weights)
'''


def kernel(name: str, weights: Sequence[str], body: Sequence[str], result: str, doc: str) -> str:
    """A kernel function. ``weights``: names, each of which becomes ``<name>_ref``; ``body``: lines that compute
    ``result`` [block_m, block_n] in float32.
    """
    refs = ", ".join(["group_ref, block_ref, starts_ref, rows_ref", *(f"{w}_ref" for w in weights), "out_ref"])
    lines = [
        f'"""{doc}"""',
        "step = pl.program_id(1)",
        "group = group_ref[step]",
        "first = block_ref[step] * rows_ref.shape[0]",
        "row = first + jax.lax.broadcasted_iota(jnp.int32, out_ref.shape, 0)",
        "mine = (row >= starts_ref[group]) & (row < starts_ref[group + 1])",
        "",
        "@pl.when(group < groups)",
        "def _owned():",
        indent([*body, f"result = {result}",
                "out_ref[...] = jnp.where(mine, result, out_ref[...].astype(jnp.float32)).astype(out_ref.dtype)"]),
        "",
        "@pl.when(group == groups)",
        "def _nobodys():",
        "    out_ref[...] = jnp.where(mine, 0.0, out_ref[...].astype(jnp.float32)).astype(out_ref.dtype)",
    ]
    return f"def {name}({refs}, *, groups):\n" + indent(lines)


IMPORTS = (
    "{functools}import jax\nimport jax.numpy as jnp\n{lax}"
    "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu"
)


def module(header: str, constants: Sequence[str], parts: Sequence[str], lax: bool) -> str:
    functools = "import functools\n\n" if any("functools." in part for part in parts) else ""
    imports = IMPORTS.format(lax="from jax import lax\n" if lax else "", functools=functools)
    head = "\n\n".join((header, imports, "\n".join(constants)))
    return head + "\n\n\n" + "\n\n\n".join(p.strip("\n") for p in parts) + "\n"
