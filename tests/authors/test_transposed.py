"""What the transposed recipe reads of a function, and what it leaves alone."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from maxkernel_nb.errors import Declined
from tests.authors.recipe_samples import BF16

SHAPES = {"x": ((2, 16, 8, 16), BF16), "w": ((16, 24, 4, 4), BF16), "b": ((24,), BF16)}


def upsampled(x, w, window=lambda w: jnp.flip(w, (2, 3)).swapaxes(0, 1), pads=(2, 2), stride=2, **how):
    return lax.conv_general_dilated(x, window(w), (1, 1), (pads, pads), lhs_dilation=(stride, stride), **how)


@pytest.mark.parametrize(("function", "reason"), [
    (lambda x, w, b: upsampled(x, w, stride=1, pads=(1, 2)), "not transposed"),
    (lambda x, w, b: upsampled(x, w, pads=(1, 1)), r"\[8, 16\] becomes \[14, 30\]"),
    (lambda x, w, b: upsampled(jnp.tanh(x), w), "image is computed on the way"),
    (lambda x, w, b: upsampled(x, w, window=lambda w: w.transpose(1, 0, 3, 2)), "window"),
    (lambda x, w, b: upsampled(x, jnp.exp(w)), "window"),
    (lambda x, w, b: upsampled(x, w, rhs_dilation=(2, 2), pads=(3, 4)), "strided or dilated"),
    (lambda x, w, b: upsampled(x, w).mean(axis=(2, 3)), "has not the convolution's shape"),
    (lambda x, w, b: (y := upsampled(x, w)) - y.mean(axis=1, keepdims=True), "last axis"),
    (lambda x, w, b: upsampled(x, w)[..., ::-1], "rev|last axis"),
])
def test_declines_with_the_reason(bench, function, reason):
    function.__name__ = "declined"
    with pytest.raises(Declined, match=reason):
        bench.recognise("transposed", function, SHAPES, SHAPES, source="")


def test_a_window_is_read_through_mirrors_and_swaps(bench):
    def as_torch(x, w, b):
        return jax.nn.relu(upsampled(x, w) + b[:, None, None])

    def as_lax(x, w, b):
        return jax.nn.relu(upsampled(x, w, window=lambda w: w.swapaxes(0, 1)) + b[:, None, None])

    first, second = (bench.recognise("transposed", f, SHAPES, SHAPES) for f in (as_torch, as_lax))
    assert (first.swapped, first.flipped, second.swapped, second.flipped) == (True, True, True, False)
    assert first.body == second.body and first.body.leaves[0].kind == "channel"


def test_phases_and_the_zeros_of_the_spread_window_are_counted(bench):
    def plain(x, w, b):
        return upsampled(x, w) + b[:, None, None]

    match = bench.recognise("transposed", plain, SHAPES, SHAPES)
    recipe = bench.recipes["transposed"]
    assert (match.phases, match.taps, match.width) == (2, (1, 2), 32)
    met = (8 * 4 - 2) * (16 * 4 - 2)  # pairs of values and taps: at each edge one tap falls over it
    assert recipe.bound(match).flops == 2.0 * 2 * 16 * 24 * met
    point = recipe.space(match).seeds[0]
    assert recipe.bound_with(match, point).flops > recipe.bound(match).flops
