"""Programs run with numpy: the same answers as jax's, for every rule, and jax where numpy is no help."""

import jax
import jax.experimental.pallas.tpu  # before anything of its interpreter is imported
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from maxkernel_nb.evaluate import numpy_jaxpr, numpy_memory, numpy_rules, quick
from maxkernel_nb.evaluate.capture import capture, load
from maxkernel_nb.evaluate.executor import JobRefused
from maxkernel_nb.evaluate.interpret import Interpreter, Machine
from maxkernel_nb.evaluate.numpy_jaxpr import Budget, Program, TooLong, spending
from maxkernel_nb.task import ArgSpec, Case, CaseRole

RNG = np.random.default_rng(0)
FLOATS = (np.float32, ml_dtypes.bfloat16)
X = RNG.standard_normal((4, 8))
ONE = [  # of one array of floats
    jnp.abs, jnp.sign, jnp.floor, jnp.ceil, jnp.round, jnp.exp, jnp.exp2, jnp.sin, jnp.cos, jnp.tanh, jax.nn.sigmoid,
    jnp.square, jnp.isfinite, jnp.cbrt, lax.erf, lambda x: x**3, lambda x: x**-2,
    lambda x: jnp.log(jnp.abs(x)), lambda x: jnp.log1p(jnp.abs(x)), jnp.expm1, lambda x: lax.rsqrt(jnp.abs(x)),
    lambda x: jnp.sqrt(jnp.abs(x)), lambda x: lax.round(x * 4, lax.RoundingMethod.AWAY_FROM_ZERO),
    lambda x: x.astype(jnp.int8), lambda x: (x * 1e12).astype(jnp.int32), lambda x: (x * jnp.inf).astype(jnp.int16),
    lambda x: x.T, lambda x: x[1:3, ::2], lambda x: x.reshape(2, 16), lambda x: x[None, :, None], lambda x: x[::-1],
    lambda x: jnp.broadcast_to(x[0], (3, 8)), lambda x: jnp.concatenate([x, x * 2], 1), lambda x: jnp.pad(x, 1),
    lambda x: lax.dynamic_slice(x, (jnp.int32(3), jnp.int32(-2)), (2, 4)), lambda x: jnp.split(x, 2, axis=1)[1],
    lambda x: lax.dynamic_update_slice(x, x[:2, :2] + 1, (jnp.int32(9), jnp.int32(1))),
    lambda x: x.sum(0), lambda x: x.max(1), lambda x: x.min(), lambda x: x.prod(1), lambda x: jnp.argmax(x, 1),
    lambda x: jnp.argmin(x, 0), lambda x: jnp.cumsum(x, 1), lambda x: lax.cumsum(x, 0, reverse=True),
    lambda x: lax.cummax(x, 1), lambda x: jnp.clip(x, -0.5, 0.5), lambda x: jnp.where(x > 0, x, 0.0),
    lambda x: (x > 0).any(1), lambda x: (x > 0).all(), lambda x: lax.select_n(jnp.int32([2, 0, 1, 1]), *x[:3, :4]),
    lambda x: jnp.sort(x, 1), lambda x: jnp.einsum("ij,kj->ik", x, x, preferred_element_type=jnp.float32),
    lambda x: jnp.einsum("bij,bjk->bik", x.reshape(2, 2, 8), x.reshape(2, 8, 2)), jax.nn.softmax, jax.nn.gelu,
]  # fmt: skip
TWO = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, lax.div, lax.rem, jnp.less, jnp.equal,
       jnp.not_equal, jnp.greater_equal]  # fmt: skip
WHOLE = [jnp.bitwise_and, jnp.bitwise_or, jnp.bitwise_xor, jnp.left_shift, jnp.right_shift]


def stepwise(function, *arguments, most=10_000):
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    budget = Budget(most)
    with spending(budget):
        results = Program(closed.jaxpr, closed.consts, budget)(*map(np.asarray, arguments))
    return jax.tree.unflatten(jax.tree.structure(shape), results)


def assert_as_jax(function, *arguments):
    for ours, theirs in zip(*map(jax.tree.leaves, (stepwise(function, *arguments), function(*arguments))), strict=True):
        theirs = np.asarray(theirs)
        assert ours.dtype == theirs.dtype and np.shape(ours) == theirs.shape
        close = 4 * ml_dtypes.finfo(theirs.dtype).eps if jnp.issubdtype(theirs.dtype, jnp.floating) else 0
        np.testing.assert_allclose(np.asarray(ours, np.float64), theirs.astype(np.float64), rtol=close, atol=close)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", range(len(ONE)))
def test_one_array(number, dtype):
    assert_as_jax(ONE[number], jnp.asarray(X.astype(dtype)))


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32])
@pytest.mark.parametrize("function", TWO)
def test_two_arrays(function, dtype):
    a, b = (10 * RNG.standard_normal((2, 4, 8))).astype(dtype)
    assert_as_jax(function, jnp.asarray(a), jnp.asarray(np.where(b == 0, dtype(1), b)))


@pytest.mark.parametrize("function", WHOLE)
def test_bits(function):
    assert_as_jax(function, jnp.asarray([-7, 5, 123, -1], jnp.int32), jnp.asarray([1, 3, 31, 40], jnp.int32))


def test_not_a_number_goes_through_maxima_and_comparisons():
    x = jnp.asarray([1.0, np.nan, -np.inf])
    assert_as_jax(lambda x: (jnp.maximum(x, 0), x.max(), x == x, jnp.argmax(x), lax.clamp(0.0, x, 2.0)), x)


def test_loops_branches_and_calls():
    def function(x):
        def body(n, carry):
            return lax.cond(n % 2 == 0, lambda c: c + n, jax.jit(lambda c: c * 0.5), carry)

        looped = lax.fori_loop(0, 5, body, x)
        carry, rows = lax.scan(lambda c, r: (c + r, c * r), x[0], x, reverse=True)
        return looped, carry, rows, lax.while_loop(lambda v: v[0] < 3, lambda v: (v[0] + 1, v[1] * 2), (0, x))[1]

    assert_as_jax(function, jnp.asarray(X, jnp.float32))


def test_what_has_no_rule_is_asked_of_jax():
    closed = jax.make_jaxpr(lax.lgamma)(1.5)
    assert numpy_rules.rule(closed.jaxpr.eqns[0]) is None
    assert_as_jax(lax.lgamma, jnp.float32(1.5))


def test_a_long_program_says_so():
    with pytest.raises(TooLong):
        stepwise(lambda x: lax.fori_loop(0, 1000, lambda n, c: c + n, x), jnp.float32(0), most=500)


KERNEL = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def _body(x_ref, o_ref, sum_ref):
    @pl.when(pl.program_id(1) == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)
    sum_ref[...] += jnp.sum(x_ref[...].astype(jnp.float32), axis=-1, keepdims=True)
    o_ref[...] = sum_ref[...]

def kernel(x):
    return pl.pallas_call(
        _body, grid=(x.shape[0] // 8, x.shape[1] // 128), in_specs=[pl.BlockSpec((8, 128), lambda i, j: (i, j{OFF}))],
        out_specs=pl.BlockSpec((8, 1), lambda i, j: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((x.shape[0], 1), jnp.float32),
        scratch_shapes=[pltpu.VMEM((8, 1), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")))(x)
"""
CASE = Case(name="c", role=CaseRole.CHECK, args=(ArgSpec(name="x", shape=(16, 256), dtype="bfloat16"),))


@pytest.fixture(scope="module")
def interpreting():
    quick.install()
    numpy_jaxpr.install()


def captured(off="", kernel=KERNEL):
    return capture(load(kernel.replace("{OFF}", off), "kernel"), CASE, {}, "v6e")


@pytest.mark.parametrize("cores", [1, 2])
def test_a_kernel_gives_the_same_run_either_way(interpreting, cores):
    x = RNG.standard_normal((16, 256)).astype(ml_dtypes.bfloat16)
    ways = [Interpreter(captured(), Machine(cores=cores)), Interpreter(captured(), Machine(cores=cores)).compile()]
    ours, theirs = (way.run([x])[0] for way in ways)
    assert ways[0].stepwise and not ways[1].stepwise
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(ours[:, 0], x.astype(np.float32).sum(1), rtol=1e-5)


ACCESSES = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def _body(x_ref, o_ref, n_ref):
    o_ref[...] = jnp.zeros_like(o_ref)
    n_ref[0, 1] = 3
    for i in range(2):
        row = n_ref[0, i] if i else 0
        o_ref[pl.ds(row, 4), pl.ds(128 * i, 128)] = x_ref[pl.ds(row + 8, 4), 0:128].astype(jnp.float32)
    o_ref[15, :] = x_ref[1, :].astype(jnp.float32) + o_ref[pl.ds(0, 2, stride=3), :].sum(0)
    o_ref[pl.ds(12, 2), :] += 1.0

def kernel(x):
    return pl.pallas_call(
        _body, out_shape=jax.ShapeDtypeStruct(x.shape, jnp.float32), scratch_shapes=[pltpu.SMEM((1, 2), jnp.int32)])(x)
"""


def test_loads_and_stores_come_straight_from_the_buffers(interpreting, monkeypatch):
    found, look = [], numpy_memory._found
    monkeypatch.setattr(numpy_memory, "_found", lambda *asked: found.append(look(*asked)) or found[-1])
    x = RNG.standard_normal((16, 256)).astype(ml_dtypes.bfloat16)
    program = captured(kernel=ACCESSES)
    ours, theirs = Interpreter(program, Machine()).run([x])[0], Interpreter(program, Machine()).compile().run([x])[0]
    np.testing.assert_array_equal(ours, theirs)
    assert np.isfinite(ours).all() and (ours[12:14] == 1).all()
    if numpy_memory._module() is None:  # jax 0.7: all of them are jax's own callbacks
        assert not found
    else:
        assert len(found) > 10 and all(found)


def test_cores_come_in_turn_the_last_one_first():
    order = []
    with spending(Budget(10)), numpy_jaxpr._executor(2) as cores:
        told = [cores.submit(order.append, 0), cores.submit(lambda: order.append(1) or 1 / 0)]
    assert order == [1, 0] and told[0].result() is None
    with pytest.raises(ZeroDivisionError):
        told[1].result()


def test_a_stray_read_is_refused_in_jax_s_words(interpreting):
    x = np.zeros((16, 256), ml_dtypes.bfloat16)
    stray = Interpreter(captured(" + 1"), Machine())
    with pytest.raises(JobRefused, match="Out-of-bounds"):
        stray.run([x])
    assert not stray.stepwise
