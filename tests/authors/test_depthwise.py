"""What the depthwise recipe reads of a function, and what it leaves alone."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from maxkernel_nb.errors import Declined
from tests.authors.recipe_samples import BF16

SHAPES = {"x": ((2, 48, 64), BF16), "w": ((4, 64), BF16), "b": ((64,), BF16)}


def causal(x, w, first=3):
    padded = jnp.pad(x, ((0, 0), (first, 0), (0, 0)))
    return sum(padded[:, i : i + x.shape[1]] * w[i] for i in range(4))


def convolved(x, w, **how):
    return lax.conv_general_dilated(
        x, w[:, None], how.pop("stride", (1,)), ((3, 0),), dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=how.pop("groups", x.shape[-1]), **how,
    )


@pytest.mark.parametrize(("function", "reason"), [
    (lambda x, w, b: jax.nn.silu(x + b), "nothing and has no convolution"),
    (lambda x, w, b: causal(jnp.exp(x), w), "computed on the way"),
    (lambda x, w, b: causal(x, w) / causal(x, w).sum(-1, keepdims=True), "reduction"),
    (lambda x, w, b: convolved(x, w, rhs_dilation=(1,), stride=(2,)), "strided"),
    (lambda x, w, b: convolved(x, w[:, :32].repeat(2, axis=1).reshape(4, 64), rhs_dilation=(1,)), "window|neither"),
    (lambda x, w, b: jnp.pad(x, ((0, 0), (1, 0), (0, 0)), constant_values=1)[:, :-1] * b, "other than zeros"),
    (lambda x, w, b: causal(x, w).sum(), "no places"),
    (lambda x, w, b: jnp.pad(x, ((1, 0), (0, 0), (0, 0)))[:-1] * x[:, ::-1], "rev|neither"),
])
def test_declines_with_the_reason(bench, function, reason):
    function.__name__ = "declined"
    with pytest.raises(Declined, match=reason):
        bench.recognise("depthwise", function, SHAPES, SHAPES, source="")


@pytest.mark.parametrize(("function", "leaves"), [
    (lambda x, w, b: causal(x, w), ["at 0 -3 0", "at 0 -2 0", "at 0 -1 0", "at 0 0 0"]),
    (lambda x, w, b: convolved(x, w), ["at 0 -3 0", "at 0 -2 0", "at 0 -1 0", "at 0 0 0"]),
    (lambda x, w, b: x * b + jnp.pad(x, ((0, 0), (0, 2), (0, 0)))[:, 2:] * (1 - b), ["at 0 0 0", "at 0 2 0"]),
])
def test_one_reading_for_every_spelling(bench, function, leaves):
    function.__name__ = "read"
    match = bench.recognise("depthwise", function, SHAPES, SHAPES, source="")
    assert sorted(leaf.kind for leaf in match.body.leaves if leaf.kind.startswith("at")) == sorted(leaves)
    assert (match.space, match.channels, match.batch) == ((48,), 64, 2)


def test_a_gate_beside_it_and_blocks_that_meet(bench):
    """Several blocks along the places, the last one cut off: what a tap sees comes from the neighbour."""

    def token_shift(x, m, z):
        behind = jnp.pad(x, ((0, 0), (0, 1), (0, 0)))[:, 1:]
        return (x * m + behind * (1 - m)) * jax.nn.sigmoid(z)

    shapes = {"x": ((1, 75, 96), BF16), "m": ((96,), BF16), "z": ((1, 75, 96), BF16)}
    match = bench.recognise("depthwise", token_shift, shapes, shapes)
    bench.assert_agrees(token_shift, bench.kernel("depthwise", match, BLOCK_T=32, BLOCK_C=128), shapes)
