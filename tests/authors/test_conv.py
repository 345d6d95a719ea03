"""What the convolution recipe reads of a function, and what it leaves alone."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from maxkernel_nb.errors import Declined
from tests.authors.recipe_samples import BF16

SHAPES = {"x": ((4, 8, 16, 16), BF16), "w": ((8, 8, 3, 3), BF16), "b": ((8,), BF16)}


def convolve(x, w, stride=1, **how):
    return lax.conv_general_dilated(x, w, (stride, stride), ((0, 0), (0, 0)), **how)


@pytest.mark.parametrize(("function", "reason"), [
    (lambda x, w, b: convolve(x, w, 2), "strided"),
    (lambda x, w, b: convolve(x, w, lhs_dilation=(2, 2)), "transposed"),
    (lambda x, w, b: convolve(x, w[:, :1], feature_group_count=8), "grouped or depthwise"),
    (lambda x, w, b: convolve(jnp.tanh(x), w), "image is computed on the way"),
    (lambda x, w, b: convolve(convolve(x, w), w), "2 convolutions"),
    (lambda x, w, b: (y := convolve(x, w)).max(axis=(2, 3)) - y.mean(axis=(0, 2, 3)), "several values"),
    (lambda x, w, b: (y := convolve(x, w)) - y.mean(axis=(0, 1), keepdims=True), "along the channels|reduces"),
    (lambda x, w, b: jnp.cumsum(convolve(x, w), axis=-1), "cumsum"),
    (lambda x, w, b: convolve(x, w)[:, :, ::-1], "rev|along the channels"),
    (lambda x, w, b: convolve(x, w).transpose(0, 2, 3, 1), "neither the convolution's"),
])
def test_declines_with_the_reason(bench, function, reason):
    function.__name__ = "declined"
    with pytest.raises(Declined, match=reason):
        bench.recognise("conv", function, SHAPES, SHAPES, source="")


def test_what_needs_the_whole_batch_follows_the_kernel(bench):
    def normed(x, w, b):
        y = jax.nn.relu(convolve(x, w) + b[:, None, None])
        return y - y.mean(axis=(0, 2, 3), keepdims=True)

    one = {name: ((1, *shape[1:]) if name == "x" else shape, dtype) for name, (shape, dtype) in SHAPES.items()}
    match = bench.recognise("conv", normed, SHAPES, one)  # also where a check case has one image
    assert [step.op for step in match.body.steps] == ["add", "max"] and match.kernel_dtype == "float32"
    assert [step.op for step in match.after.steps] == ["batch_sum", "div", "sub"] and match.out_dtype == "bfloat16"


@pytest.mark.parametrize(("function", "kind", "passes"), [
    (lambda x, w, b: jax.nn.relu(convolve(x, w) + b[:, None, None]), "full", 1),
    (lambda x, w, b: convolve(x, w).max(axis=(2, 3)), "col", 1),
    (lambda x, w, b: jax.nn.logsumexp(convolve(x, w), axis=1), "row", 1),
    (lambda x, w, b: jnp.square(convolve(x, w)).mean(axis=(1, 2, 3)), "one", 1),
    (lambda x, w, b: (y := convolve(x, w)) - y.mean(axis=(2, 3), keepdims=True), "full", 2),
    (lambda x, w, b: convolve(x, w).var(axis=(2, 3)), "col", 2),
])
def test_an_image_is_passed_over_once_for_each_statistic_that_needs_another(bench, function, kind, passes):
    function.__name__ = "read"
    match = bench.recognise("conv", function, SHAPES, SHAPES, source="")
    assert (match.out_kind, match.passes) == (kind, passes)
