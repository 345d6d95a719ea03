"""The exemplars shown to a model are right and compile for a TPU: a wrong example would be copied."""

import importlib.util
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from maxkernel_nb.knowledge.exemplars import EXEMPLARS, nearest


def load(name):
    path = resources.files("maxkernel_nb.knowledge").joinpath(f"exemplar_{name}.py")
    spec = importlib.util.spec_from_file_location(f"exemplar_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(*shape):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)


def rms(x, g):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def matmul(x, w, b):
    return jax.nn.relu(x @ w + b)


CASES = [
    ("matmul", "matmul_bias_relu", {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 128}, matmul,
     (draw(128, 200), draw(200, 256), draw(256))),
    ("rownorm", "rms_norm", {"BLOCK_ROWS": 32}, rms, (draw(80, 256), draw(256))),
    ("attention", "causal_attention", {"BLOCK_Q": 64, "BLOCK_K": 128}, attention,
     tuple(draw(1, 2, 256, 64) for _ in "qkv")),
]


@pytest.mark.parametrize("name, entry, blocks, reference, args", CASES, ids=[c[0] for c in CASES])
def test_an_exemplar_computes_what_it_says(name, entry, blocks, reference, args):
    module = load(name)
    for constant, value in blocks.items():
        assert hasattr(module, constant)
        setattr(module, constant, value)
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(uninitialized_memory="nan")):
        got = getattr(module, entry)(*args)
    np.testing.assert_allclose(got, reference(*args), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name, entry, blocks, reference, args", CASES, ids=[c[0] for c in CASES])
def test_the_nearest_exemplar_is_the_one_of_the_same_computation(name, entry, blocks, reference, args):
    assert nearest(jax.make_jaxpr(reference)(*args))[0].name == name


def test_every_exemplar_names_its_tunable_constants_in_the_form_the_tuner_reads():
    for exemplar in EXEMPLARS:
        assert "# tune: " in exemplar.source
