"""Algebra on the canonical graph: the work shrinks, the numbers stay, and what is no identity is left alone."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxkernel_nb.authors.recipes.algebra import contraction_flops, rewritten
from maxkernel_nb.authors.recipes.canonical import canonicalise
from maxkernel_nb.authors.recipes.numeric import agree

X, W, B = ((12, 16), (16, 24), (24,))


def trace(function, *shapes):
    return jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes])


def norm_of_one(x, w):
    h = (x @ w)[..., None]
    centred = h - h.mean(-1, keepdims=True)
    return (centred / jnp.sqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5))[..., 0] + 1.0


@pytest.mark.parametrize(("function", "shapes", "share"), [
    (lambda x, w: jnp.sum(x @ w, axis=1), (X, W), 0.0),
    (lambda x, w: jnp.sum(x @ w.T / 2, axis=1, keepdims=True) * 3, (X, (24, 16)), 0.0),
    (lambda x, w, b: jnp.mean(x @ w + b, axis=-1), (X, W, B), 0.0),
    (lambda x, w: jnp.sum(x @ w), (X, W), 0.0),
    (lambda x, w: jnp.sum((x @ w).T, axis=0), (X, W), 0.0),
    (lambda x, w, b: jnp.mean((x @ w + b).reshape(12, 6, 4), axis=-1), (X, W, B), 1 / 4),
    (lambda x, w: jnp.einsum("bij,bjk->bik", x, w).sum(-1), ((2, 3, 4), (2, 4, 5)), 1 / 5),
    (lambda x, w: jax.nn.logsumexp(jnp.sum(x @ w, 1, keepdims=True), axis=1), (X, W), 0.0),
    (norm_of_one, (X, W), 0.0),
])
def test_work_shrinks_and_numbers_stay(function, shapes, share):
    closed = trace(function, *shapes)
    before, after = canonicalise(closed), rewritten(closed)
    assert after.notes
    assert agree(before, after.graph)
    assert contraction_flops(after.graph) == pytest.approx(share * contraction_flops(before))


@pytest.mark.parametrize("function", [
    lambda x, w: jnp.sum(jax.nn.relu(x @ w), axis=1),
    lambda x, w: jnp.max(x @ w, axis=1),
    lambda x, w: (x @ w) / jnp.sum(x @ w, axis=1, keepdims=True),  # the product is needed anyway
    lambda x, w: x @ w,
])
def test_what_is_no_gain_or_no_identity_is_left(function):
    closed = trace(function, X, W)
    assert rewritten(closed).notes == ()
    assert contraction_flops(rewritten(closed).graph) == contraction_flops(canonicalise(closed))


STEPS = [lambda y, b: y + b, lambda y, b: y * 0.5, lambda y, b: y - 1.0, lambda y, b: -y, lambda y, b: y / 4,
         lambda y, b: b - y, lambda y, b: y * b]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(range(len(STEPS))), max_size=4), st.sampled_from([0, 1, (0, 1)]), st.booleans())
def test_drawn_sums_of_products_keep_their_value(steps, axis, transposed):
    def drawn(x, w, b):
        y = x @ w
        for step in steps:
            y = STEPS[step](y, b)
        return jnp.sum(y.T if transposed else y, axis=axis)

    closed = trace(drawn, X, W, B)
    assert agree(canonicalise(closed), rewritten(closed).graph)
