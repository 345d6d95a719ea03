"""The paged attention recipe: decoding, a serving step that decodes and prefills, and honest declines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from maxkernel_nb.errors import Declined
from tests.authors.recipe_samples import BF16, _cache, paged_decode

DECODE, PREFILL, WIDTH = 3, 2, 128


def step(queries, pages, lengths, table, starts, active):
    """Slots of one query, then slots of up to WIDTH, the last tokens of their contexts; packed rows."""
    dim = queries.shape[2]
    rows = jnp.pad(queries, ((0, WIDTH), (0, 0), (0, 0)))
    counts = jnp.where(jnp.arange(lengths.shape[0]) < active[0], starts[1:] - starts[:-1], 0)

    def attend(out, s, width):
        q = lax.dynamic_slice_in_dim(rows, starts[s], width)
        kv = pages[table[s]].reshape(-1, pages.shape[2], dim)
        k, v = kv[:, 0::2], kv[:, 1::2]
        grouped = q.reshape(width, k.shape[1], -1, dim)
        scores = jnp.einsum("qngd,tnd->ngqt", grouped, k, preferred_element_type=jnp.float32) * dim**-0.5
        last = lengths[s] - counts[s] + jnp.arange(width)
        scores = jnp.where(jnp.arange(k.shape[0]) <= last[:, None], scores, -1e30)
        mixed = jnp.einsum("ngqt,tnd->qngd", jax.nn.softmax(scores, -1).astype(v.dtype), v).reshape(q.shape)
        mine = (jnp.arange(width) < counts[s])[:, None, None]
        kept = jnp.where(mine, mixed, lax.dynamic_slice_in_dim(out, starts[s], width))
        return lax.dynamic_update_slice_in_dim(out, kept, starts[s], 0), None

    out, _ = lax.scan(lambda o, s: attend(o, s, 1), jnp.zeros_like(rows), jnp.arange(DECODE))
    out, _ = lax.scan(lambda o, s: attend(o, s, WIDTH), out, jnp.arange(DECODE, DECODE + PREFILL))
    return out[:-WIDTH]


def serving(heads, kv_heads, pages, dim=128, slots=6):
    counts = np.array([1, 1, 1, 100, 37, 0])

    def lengths(rng):
        return rng.integers(np.maximum(counts, 1), pages * 16 + 1)

    return {
        "queries": ((160, heads, dim), BF16), "pages": ((slots * pages, 16, 2 * kv_heads, dim), BF16),
        "lengths": ((slots,), "int32", lengths),
        "table": ((slots, pages), "int32", lambda rng: rng.permutation(slots * pages).reshape(slots, pages)),
        "starts": ((slots + 1,), "int32", lambda rng: np.r_[0, np.cumsum(counts)]),
        "active": ((1,), "int32", lambda rng: np.array([5])),
    }


def test_serving_step_is_recognised_and_the_kernels_agree(bench):
    small = serving(4, 2, 9)
    match = bench.recognise("paged", step, serving(16, 2, 64), small)
    assert (match.decode_count, match.prefill_count, match.prefill_width) == (DECODE, PREFILL, WIDTH)
    assert match.values == -1 and match.scaled
    bench.assert_agrees(step, bench.kernel("paged", match, PAGES=4, BLOCK_K=128), small)


def test_pages_after_the_end_are_not_read(bench):
    small = _cache(3, 8, 2, 9)
    match = bench.recognise("paged", paged_decode, _cache(8, 16, 2, 64), small)
    bench.assert_agrees(paged_decode, bench.kernel("paged", match, PAGES=4), small, seed=1)


def unscaled(q, k_pages, v_pages, lengths, table):
    return paged_decode(q * q.shape[-1] ** 0.5, k_pages, v_pages, lengths, table)


def test_scale_is_found_by_trial(bench):
    assert not bench.recognise("paged", unscaled, _cache(8, 16, 2, 64), _cache(3, 8, 2, 9)).scaled


def one_short(q, k_pages, v_pages, lengths, table):
    return paged_decode(q, k_pages, v_pages, jnp.maximum(lengths - 9, 1), table)


def capped(q, k_pages, v_pages, lengths, table):
    return jnp.tanh(paged_decode(q, k_pages, v_pages, lengths, table))


@pytest.mark.parametrize("function", [one_short, capped])
def test_what_gives_other_values_is_declined(bench, function):
    with pytest.raises(Declined, match="something other than attention"):
        bench.recognise("paged", function, _cache(8, 16, 2, 64), _cache(3, 8, 2, 9))
