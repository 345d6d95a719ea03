"""The graph hides jax's spelling: what recognisers rely on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxkernel_nb.authors.recipes.canonical import canonicalise
from maxkernel_nb.authors.recipes.expressions import number_text, unify
from maxkernel_nb.authors.recipes.views import base_of, evaluate, is_positional, sample_points
from maxkernel_nb.errors import Declined


def graph(function, *specs):
    return canonicalise(jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct(s, d) for s, d in specs]))


def ops(g):
    return sorted(g[n].op for n in g.reachable())


def test_calls_casts_and_neutral_operations_vanish():
    @jax.jit
    def inner(x):
        return jax.lax.stop_gradient(x).astype(jnp.float32) * 1.0 + 0.0

    g = graph(lambda x: jax.checkpoint(inner)(x).reshape(4, 8).T.T.reshape(32), ((32,), "bfloat16"))
    assert ops(g) == ["param"]
    assert g.output_dtypes == ("float32",)


def test_two_spellings_of_one_sum_are_one_node():
    g = graph(lambda x, b: (x + b[None, :]) - (x + jnp.broadcast_to(b, (4, 8))), ((4, 8), "float32"), ((8,), "float32"))
    difference = g[g.outputs[0]]
    assert difference.op == "sub"


@pytest.mark.parametrize("mask", [
    lambda n: jnp.tril(jnp.ones((n, n), bool)),
    lambda n: jnp.arange(n)[:, None] >= jnp.arange(n)[None, :],
    lambda n: ~jnp.triu(jnp.ones((n, n), bool), k=1),
    lambda n: jnp.tril(jnp.ones((n, n))) == 1.0,
    lambda n: jax.lax.broadcasted_iota(jnp.int32, (n, n), 1) <= jax.lax.broadcasted_iota(jnp.int32, (n, n), 0),
    lambda n: jnp.asarray(np.tril(np.ones((n, n), bool))),
])
def test_any_spelling_of_a_causal_mask_evaluates_to_the_triangle(mask):
    g = graph(lambda x: jnp.where(mask(16), x, 0.0), ((16, 16), "float32"))
    predicate = g[g.outputs[0]].inputs[0]
    assert is_positional(g, predicate)
    q, k = sample_points((16, 16))
    assert (evaluate(g, predicate, (q, k)) == (k <= q)).all()


@pytest.mark.parametrize("repeat", [
    lambda k: jnp.repeat(k, 4, axis=0),
    lambda k: jnp.broadcast_to(k[:, None], (2, 4, 8)).reshape(8, 8),
    lambda k: k[jnp.newaxis].swapaxes(0, 1).repeat(4, 1).reshape(8, 8),
])
def test_repeated_heads_lead_back_to_the_head_they_came_from(repeat):
    g = graph(repeat, ((2, 8), "bfloat16"))
    head, d = sample_points((8, 8))
    base, at = base_of(g, g.outputs[0], (head, d))
    assert g[base].op == "param"
    assert (at[0] == head // 4).all() and (at[1] == d).all()


def test_tiled_heads_lead_back_round_robin():
    g = graph(lambda k: jnp.tile(k, (4, 1)), ((2, 8), "bfloat16"))
    head, d = sample_points((8, 8))
    base, at = base_of(g, g.outputs[0], (head, d))
    assert g[base].op == "param" and (at[0] == head % 2).all() and (at[1] == d).all()


def test_constants_read_as_they_were_written():
    assert number_text(float(jnp.bfloat16(0.1)), "bfloat16") == "0.1"
    assert number_text(float(np.float32(1e-5)), "float32") == "1e-05"
    assert number_text(float("-inf"), "float32") == "-jnp.inf"


def test_a_constant_that_follows_the_shapes_becomes_a_formula():
    sizes = [{"head_dim": 128}, {"head_dim": 64}]
    assert unify([128**-0.5, 64**-0.5], "float32", sizes) == "head_dim**-0.5"
    assert unify([0.125, 0.125], "float32", sizes) == "0.125"
    with pytest.raises(Declined, match="follows the shapes"):
        unify([0.3, 0.7], "float32", sizes)
