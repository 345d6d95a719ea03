"""Template of a product whose rows are sorted by group, each group with its own weights; a module's frame."""

from __future__ import annotations

from collections.abc import Sequence

GROUPED = '''
def _grouped(rows, weights, sizes, dtype):
    """``rows`` [m, k] sorted by group, ``weights`` [groups, k, n], ``sizes`` [groups]: how many rows each group owns.

    A step of the grid holds a block of one group's columns; within it that group's rows go past, BLOCK_M at a time. A
    group may begin anywhere: its first block begins at the tile before and keeps the rows of earlier groups; what a
    block holds of later ones is written again by those. The group after the last one owns what nobody else does.
    """
    (m, k), (groups, _, n) = rows.shape, weights.shape
    whole = -(-m // TILE) * TILE
    block_m, block_n = min(BLOCK_M, whole), BLOCK_N if n % BLOCK_N == 0 else n
    starts = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(sizes), jnp.full(1, whole)]).astype(jnp.int32)
    owns = jnp.where(starts[1:] > starts[:-1], jnp.arange(groups + 1), groups)
    owners = jnp.append(jax.lax.cummin(owns, reverse=True), groups).astype(jnp.int32)  # the next group with rows

    def kernel(
        starts_ref, owners_ref, rows_ref, weights_ref, out_ref, rows_at, out_at, kept_at, visits, fetched, stored, kept
    ):
        j, group = pl.program_id(0), pl.program_id(1)
        columns = pl.ds(pl.multiple_of(j * block_n, block_n), block_n)

        def blocks(group):
            start, end = starts_ref[group], starts_ref[group + 1]
            return jnp.where(end > start, pl.cdiv(end - start // TILE * TILE, block_m), 0)

        def first_row(group, t):
            return jnp.minimum(starts_ref[group] // TILE * TILE + t * block_m, whole - block_m)

        def place(group, t):
            return pl.ds(pl.multiple_of(first_row(group, t), TILE), block_m)

        def overlaps(t):  # block t, moved back to end with the last row, writes rows of the block before it again
            return (t > 0) & (starts_ref[group] // TILE * TILE + t * block_m > whole - block_m)

        def fetch(group, t, slot):
            return pltpu.make_async_copy(rows_ref.at[place(group, t)], rows_at.at[slot], fetched.at[slot])

        def store(t):
            slot = jax.lax.rem(t, 2)
            return pltpu.make_async_copy(out_at.at[slot], out_ref.at[place(group, t), columns], stored.at[slot])

        def keep(first, i):
            tile, here = (pl.ds(pl.multiple_of(row + i * TILE, TILE), TILE) for row in (first, 0))
            return pltpu.make_async_copy(out_ref.at[tile, columns], kept_at.at[here], kept)

        start, count = starts_ref[group], blocks(group)

        @pl.when(group == 0)
        def _begin():
            visits[0] = 0
            fetch(owners_ref[0], 0, 0).start()

        def step(t, _):
            first, slot, last = first_row(group, t), jax.lax.rem(visits[0], 2), t + 1 == count
            foreign = pl.cdiv(jnp.maximum(start - first, 0), TILE)  # tiles with rows of earlier groups: mostly one
            jax.lax.fori_loop(0, foreign, lambda i, _: keep(first, i).start(), None)
            fetch(jnp.where(last, owners_ref[group + 1], group), jnp.where(last, 0, t + 1), 1 - slot).start()

            @pl.when(t > 1)
            def _room():
                store(t - 2).wait()

            fetch(group, t, slot).wait()
            product = jnp.dot(rows_at[slot], weights_ref[0], preferred_element_type=jnp.float32)
            product = jnp.where(group < groups, product, 0.0)
            row = first + jax.lax.broadcasted_iota(jnp.int32, product.shape, 0)
            jax.lax.fori_loop(0, foreign, lambda i, _: keep(first, i).wait(), None)
            out_at[jax.lax.rem(t, 2)] = jnp.where(row < start, kept_at[...].astype(jnp.float32), product).astype(dtype)

            @pl.when(overlaps(t))
            def _in_turn():
                store(t - 1).wait()

            store(t).start()
            visits[0] += 1

        jax.lax.fori_loop(0, count, step, None)
        @pl.when((count >= 2) & ~overlaps(count - 1))
        def _last_but_one():
            store(count - 2).wait()

        @pl.when(count >= 1)
        def _last():
            store(count - 1).wait()

        @pl.when(group == groups)
        def _nobody_uses():
            fetch(groups, 0, jax.lax.rem(visits[0], 2)).wait()

    out = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((whole, n), dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(n // block_n, groups + 1),
            in_specs=[
                pl.BlockSpec(memory_space=pl.ANY),
                pl.BlockSpec((1, k, block_n), lambda j, g, starts, owners: (jnp.minimum(g, groups - 1), 0, j)),
            ],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            scratch_shapes=[
                pltpu.VMEM((2, block_m, k), rows.dtype), pltpu.VMEM((2, block_m, block_n), dtype),
                pltpu.VMEM((block_m, block_n), dtype), pltpu.SMEM((1,), jnp.int32), pltpu.SemaphoreType.DMA((2,)),
                pltpu.SemaphoreType.DMA((2,)), pltpu.SemaphoreType.DMA,
            ],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
    )(starts, owners, jnp.pad(rows, ((0, whole - m), (0, 0))) if whole > m else rows, weights)
    return out[:m] if whole > m else out
'''
IMPORTS = (
    "{functools}import jax\nimport jax.numpy as jnp\n{lax}"
    "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import tpu as pltpu"
)


def module(header: str, constants: Sequence[str], parts: Sequence[str], lax: bool) -> str:
    functools = "import functools\n\n" if any("functools." in part for part in parts) else ""
    imports = IMPORTS.format(lax="from jax import lax\n" if lax else "", functools=functools)
    head = "\n\n".join((header, imports, "\n".join(constants)))
    return head + "\n\n\n" + "\n\n\n".join(p.strip("\n") for p in parts) + "\n"
