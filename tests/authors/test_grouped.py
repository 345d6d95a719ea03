"""Grouped products, experts and losses at the edges of what they say they support."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxkernel_nb.errors import Declined
from maxkernel_nb.evaluate import quick
from maxkernel_nb.evaluate.capture import Program, capture
from maxkernel_nb.evaluate.interpret import Interpreter, Machine
from maxkernel_nb.task import ArgSpec, Case, CaseRole
from tests.authors.recipe_samples import BF16, F32, SAMPLES, cross_entropy, experts, grouped_product

TIMING = {"x": ((4096, 512), BF16), "w": ((8, 512, 1024), BF16), "sizes": ((8,), "int32")}
EDGES = {
    "nobody's tail and an empty group": [5, 0, 40, 20, 3],
    "one group owns everything": [0, 0, 0, 100, 0],
    "no row is owned": [0, 0, 0, 0, 0],
    "groups begin on tiles": [16, 32, 16, 32, 4],
    "the last block reaches back": [1, 1, 1, 1, 96],
}


@pytest.mark.parametrize("sizes", EDGES.values(), ids=EDGES)
def test_groups_of_any_size_anywhere(bench, sizes):
    small = {"x": ((100, 128), BF16), "w": ((5, 128, 256), BF16), "sizes": ((5,), "int32", lambda rng: np.array(sizes))}
    match = bench.recognise("grouped", grouped_product, TIMING, {k: v[:2] for k, v in small.items()})
    bench.assert_agrees(grouped_product, bench.kernel("grouped", match, BLOCK_M=32, BLOCK_N=128), small)


def test_stores_to_the_same_rows_come_one_after_another(bench):
    """The last block reaches back over the one before it, which may still be on its way."""
    args = (ArgSpec(name="x", shape=(112, 128), dtype=BF16), ArgSpec(name="w", shape=(3, 128, 128), dtype=BF16),
            ArgSpec(name="sizes", shape=(3,), dtype="int32"))  # fmt: skip
    shapes = {a.name: (a.shape, a.dtype) for a in args}
    match = bench.recognise("grouped", grouped_product, TIMING, shapes)
    program = Program(bench.kernel("grouped", match, BLOCK_M=32, BLOCK_N=128))
    case = Case(name="c", role=CaseRole.CHECK, args=args)
    quick.install()
    racing = Interpreter(capture(program, case, {}, "v6e"), Machine(order=1, cores=2, races=True))
    x, w = (np.zeros(a.shape, jnp.bfloat16) for a in args[:2])
    for _ in range(10):  # most runs show a race, where there is one
        racing.run([x, w, np.array([1, 11, 100], np.int32)])


def test_what_follows_a_grouped_product_stays_outside(bench):
    def function(x, w, sizes):
        return jnp.max(jax.lax.ragged_dot(x, w, sizes), axis=1)

    sizes = ((3,), "int32", lambda rng: np.array([9, 30, 25]))
    small = {"x": ((64, 128), BF16), "w": ((3, 128, 256), BF16), "sizes": sizes}
    match = bench.recognise("grouped", function, TIMING, {k: v[:2] for k, v in small.items()}, source="")
    bench.assert_agrees(function, bench.kernel("grouped", match), small)


def test_experts_that_nobody_chose_and_one_that_everybody_did(bench):
    def shapes(tokens, depth, width, count, router=None):
        up = ((count, depth, width), F32)
        given = ((depth, count), F32) if router is None else ((depth, count), F32, router)
        return {"x": ((2, tokens, depth), F32, lambda rng: np.abs(rng.standard_normal((2, tokens, depth)))),
                "router": given, "gate": up, "up": up, "down": ((count, width, depth), F32)}

    def decided(rng):
        return np.tile(np.array([3.0, -1.0, 2.0, -2.0]), (128, 1)) + 0.01 * rng.standard_normal((128, 4))

    plain = {k: v[:2] for k, v in shapes(512, 512, 1024, 8).items()}
    small = shapes(24, 128, 256, 4, decided)
    match = bench.recognise("experts", experts, plain, {k: v[:2] for k, v in small.items()})
    kernel = bench.kernel("experts", match, BLOCK_M=16, BLOCK_WIDTH=128, BLOCK_OUT=128)
    bench.assert_agrees(experts, kernel, small)


def test_a_dense_mixture_without_choices_is_declined(bench):
    def dense(x, weights, gate, down):
        hidden = jax.nn.silu(jnp.einsum("td,edm->tem", x, gate))
        return jnp.einsum("te,ted->td", weights, jnp.einsum("tem,emd->ted", hidden, down))

    arrays = {"x": ((256, 128), F32), "weights": ((256, 4), F32), "gate": ((4, 128, 256), F32),
              "down": ((4, 256, 128), F32)}
    with pytest.raises(Declined, match="one-hot"):
        bench.recognise("experts", dense, arrays, arrays)


def test_a_label_out_of_range_gives_what_the_reference_gives(bench):
    small = {"x": ((48, 128), BF16), "w": ((128, 300), BF16),
             "y": ((48,), "int32", lambda rng: np.where(np.arange(48) == 7, 300, rng.integers(-300, 300, 48)))}
    big = {"x": ((2048, 512), BF16), "w": ((512, 8192), BF16), "y": ((2048,), "int32")}
    match = bench.recognise("loss", cross_entropy, big, {k: v[:2] for k, v in small.items()})
    args = bench.draw(small)
    from jax.experimental.pallas import tpu as pltpu

    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams()):
        assert np.isnan(bench.kernel("loss", match)(*args)) and np.isnan(cross_entropy(*args))


@pytest.mark.parametrize("name", ["cross_entropy", "smoothed_loss"])
def test_statistics_kept_by_lane_give_the_same_loss(bench, name):
    recipe, function, timing, small = SAMPLES[name]
    [match] = bench.recipes[recipe].others(bench.recognise(recipe, function, timing, small))
    assert match.by_lane and bench.recipes[recipe].others(match) == ()
    for parts in (1, 2):  # 700 columns: the last block is cut off in the middle of a tile
        bench.assert_agrees(function, bench.kernel(recipe, match, BLOCK_M=32, BLOCK_N=512, PARTS=parts), small)


@pytest.mark.parametrize(("function", "reason"), [
    (lambda x, w, y: (x @ w)[:, :4].sum(), "reads the product other than by sums"),
    (lambda x, w, y: jnp.sum(jax.nn.softmax(x @ w, axis=0)), "down its columns"),
    (lambda x, w, y: jax.nn.log_softmax(x @ w, axis=-1), "returned"),
    (lambda x, w, y: jax.nn.softmax(x @ w, axis=-1), "reads the product other than by sums"),
    (lambda x, w, y: jnp.sum(x @ w, axis=1) + jnp.sum(y), "columns|product"),
])
def test_losses_that_need_more_than_a_few_numbers_a_row_are_declined(bench, function, reason):
    function.__name__ = "declined"
    shape = {"x": ((256, 256), BF16), "w": ((256, 512), BF16), "y": ((256,), "int32")}
    with pytest.raises(Declined, match=reason):
        bench.recognise("loss", function, shape, shape, source="")
