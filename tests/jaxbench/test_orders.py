"""Another order of addition is a correct kernel: the original rule refuses it on four tasks, ours accepts it.

The same program on the same values, only the contracted axis permuted, at sizes with enough elements for the two or
three roundings in a million that fall apart to be met.
"""

from __future__ import annotations

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbench
from maxkernel_nb.compat import enable_x64
from maxkernel_nb.evaluate.numerics import compare
from maxkernel_nb.task import Tolerance
from maxkernel_nb.tasks.oracle import oracle

LIMIT = 1e-2
ORDERS = 12
CONTRACTED = {  # axis by argument
    "3p": {"x": 2, "q_down": 0, "kv_down": 0},
    "22k": {"x": 1, "weight": 1},
    "34k": {"x": 1, "conv_weight": 1},
    "45k": {"x": 1, "gemm_weight": 1},
}
SIZES = {
    "3p": {"seq_len": 256, "emb_dim": 1024, "q_lora_rank": 512},
    "22k": {"batch_size": 4, "height": 66, "width": 66},
    "34k": {"batch_size": 8, "height": 64, "width": 64},
    "45k": {"batch_size": 512, "in_features": 8192, "out_features": 1024},
}
WRONG = {"3p": "o_proj", "22k": "in_bias", "34k": "bn_bias", "45k": "multiply_weight"}


def permuted(bench, arrays, seed):
    axes = CONTRACTED[bench.number]
    length = arrays[bench.params.index("x")].shape[axes["x"]]
    order = np.random.default_rng(seed).permutation(length)
    pairs = zip(bench.params, arrays, strict=True)
    return [jnp.take(a, order, axis=axes[name]) if name in axes else a for name, a in pairs]


@pytest.mark.slow
@pytest.mark.parametrize("number", CONTRACTED)
def test_another_order_of_addition_is_refused_by_the_original_rule_and_accepted_by_ours(number):
    bench = jaxbench.task(number)
    dims = bench.smoke.but(**SIZES[number])
    kinds = inspect.signature(bench.reference).parameters.values()
    function = partial(bench.reference, **{p.name: dims[p.name] for p in kinds if p.kind is p.KEYWORD_ONLY})
    run = jax.jit(function, compiler_options={"xla_allow_excess_precision": False})
    arrays = [
        spec.published(spec.shape, spec.dtype_for(jnp.bfloat16), gain(spec, full))
        for spec, full in zip(bench.inputs(dims), bench.specs("full"), strict=True)
    ]
    own = np.asarray(run(*arrays))
    reordered = (np.asarray(run(*permuted(bench, arrays, seed))) for seed in range(ORDERS))
    refused = next((answer for answer in reordered if not original_rule(own, answer)), None)
    assert refused is not None, f"the original rule accepted all {ORDERS} orders"
    with enable_x64(True):
        exact = np.asarray(jax.jit(oracle(jax.make_jaxpr(function)(*arrays)))(*arrays)[0])
    assert compare([refused], [own], [exact], Tolerance()).passed
    at = bench.params.index(WRONG[number])
    wrong = np.asarray(run(*arrays[:at], arrays[at] + jnp.asarray(0.25, arrays[at].dtype), *arrays[at + 1 :]))
    assert not compare([wrong], [own], [exact], Tolerance()).passed


def gain(spec, full):
    """Keeps the spread of the full contraction."""
    return (full.fan_in / spec.fan_in) ** 0.5 if full.fan_in else 1.0


def original_rule(expected, answer):
    return np.allclose(expected.astype(np.float32), answer.astype(np.float32), atol=LIMIT, rtol=LIMIT)
