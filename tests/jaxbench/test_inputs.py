"""Our own inputs: new for every key, and they exercise what the tasks promise to handle."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbench

KEYS = [jax.random.key(seed) for seed in range(4)]
each_task = pytest.mark.parametrize("bench", jaxbench.tasks(), ids=[t.id for t in jaxbench.tasks()])


def named(number, key, size="smoke"):
    bench = jaxbench.task(number)
    arrays = bench.create_inputs(key, size=size)
    return dict(zip(bench.params, map(np.asarray, arrays), strict=True)), bench.dims(size)


@each_task
def test_a_key_decides_the_values_and_nothing_is_constant(bench):
    first, again, other = (bench.create_inputs(k, size="smoke") for k in (KEYS[0], KEYS[0], KEYS[1]))
    for spec, a, b, c in zip(bench.specs("smoke"), first, again, other, strict=True):
        assert a.shape == spec.shape and a.dtype == spec.dtype_for(jnp.bfloat16)
        np.testing.assert_array_equal(a, b)
        if spec.name not in ("cu_q_lens", "num_seqs"):  # fixed by the contract, or drawn from two values
            assert not np.array_equal(a, c), spec.name
            assert a.size == 1 or np.unique(np.asarray(a).astype(np.float64)).size > 1, spec.name


@each_task
def test_floats_follow_the_dtype_asked_for(bench):
    made = jax.eval_shape(lambda key: bench.create_inputs(key, jnp.float32, "smoke"), KEYS[0])
    for spec, array in zip(bench.specs("smoke"), made, strict=True):
        assert array.dtype == (jnp.float32 if spec.dtype in ("float", "float32") else jnp.int32)


@pytest.mark.parametrize("key", KEYS)
def test_paged_decoding_has_ragged_lengths_and_a_shuffled_page_table(key):
    got, d = named("6p", key)
    assert got["kv_lens"].min() == 1 and got["kv_lens"].max() == d.max_seq_len
    pages = got["page_indices"].ravel()
    assert sorted(pages) == list(range(pages.size)) and list(pages) != sorted(pages)
    assert list(got["cu_q_lens"]) == list(range(d.num_seqs + 1))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("size", ["smoke", "full"])
def test_the_serving_step_keeps_its_contract(key, size):
    bench = jaxbench.task("7p")
    d = bench.dims(size)
    made = {s.name: s.ours(key, s.shape, s.dtype_for("bfloat16")) for s in bench.specs(size) if s.dtype == "int32"}
    got = {name: np.asarray(a) for name, a in made.items()}
    active = int(got["num_seqs"][0])
    q_lens = np.diff(got["cu_q_lens"])
    assert active in (d.decode_seqs + d.prefill_seqs - 1, d.decode_seqs + d.prefill_seqs)
    assert got["cu_q_lens"][0] == 0 and got["cu_q_lens"][-1] <= d.max_num_batched_tokens
    assert (q_lens[: d.decode_seqs] == 1).all() and (q_lens[active:] == 0).all()
    prefills = q_lens[d.decode_seqs : active]
    assert prefills.min() >= 1 and prefills.max() <= d.max_q_len
    kv_lens = got["kv_lens"]
    assert (kv_lens[:active] >= q_lens[:active]).all() and (kv_lens[active:] == 0).all()
    assert kv_lens.max() == d.pages_per_seq * d.page_size and kv_lens[0] == 1
    assert sorted(got["page_indices"].ravel()) == list(range(got["page_indices"].size))


@pytest.mark.parametrize("key", KEYS)
def test_groups_are_ragged_with_an_empty_one(key):
    got, _ = named("11p", key)
    sizes = got["group_sizes"]
    rows = len(got["lhs"])
    assert sizes.min() == 0 and sizes.sum() <= rows and sizes.sum() > rows * 0.9
    assert np.unique(sizes).size > 2


@pytest.mark.parametrize("key", KEYS)
def test_no_token_stands_between_two_experts(key):
    got, d = named("10p", key)
    x, router = (got[n].astype(np.float64) for n in ("x", "router_weights"))
    ranked = np.sort(x @ router, axis=-1)
    assert (ranked[..., -d.num_experts_per_tok] - ranked[..., -d.num_experts_per_tok - 1]).min() > 0.2
    chosen = np.argmax(x @ router, axis=-1)
    assert np.unique(chosen).size == d.num_experts


def test_the_published_recipe_differs_from_ours_and_never_changes():
    first, again = (jaxbench.published_inputs("8p", "smoke") for _ in range(2))
    ours = jaxbench.task("8p").create_inputs(jax.random.key(42), size="smoke")
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], ours[0])


def test_a_task_file_can_be_used_like_an_original_one():
    from jaxbench.production import p08_gemm

    arrays = p08_gemm.create_inputs(jax.random.key(0), jnp.bfloat16, **p08_gemm.SMOKE)
    assert p08_gemm.reference(*arrays).shape == (256, 896)
