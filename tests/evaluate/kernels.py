"""References and kernels, honest and not, that the tests of the ladder judge."""

import jax
import jax.numpy as jnp


def gemm(x, w, b):
    """A reference: product, bias, ReLU."""
    y = jnp.dot(x, w, preferred_element_type=jnp.float32) + b.astype(jnp.float32)
    return jax.nn.relu(y).astype(x.dtype)


def attention(q, k, v):
    """A reference: causal attention, [batch, heads, length, width]."""
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) * (q.shape[-1] ** -0.5)
    n = q.shape[2]
    s = jnp.where(jnp.tril(jnp.ones((n, n), bool)), s, -1e30)
    p = jax.nn.softmax(s, axis=-1).astype(q.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", p, v)


GEMM = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BM, BN, BK = 128, 128, 128


def _body(x_ref, w_ref, b_ref, o_ref, acc_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        y = acc_ref[...] + b_ref[...].astype(jnp.float32)
        o_ref[...] = jnp.maximum(y, 0.0).astype(o_ref.dtype)


def _pad(a, rows, columns):
    return jnp.pad(a, ((0, -a.shape[0] % rows), (0, -a.shape[1] % columns)))


def kernel(x, w, b):
    m, n = x.shape[0], w.shape[1]
    x, w, b = _pad(x, BM, BK), _pad(w, BK, BN), _pad(b[None, :], 1, BN)
    out = pl.pallas_call(
        _body,
        grid=(x.shape[0] // BM, w.shape[1] // BN, x.shape[1] // BK),
        in_specs=[
            pl.BlockSpec((BM, BK), lambda i, j, k: (i, k)),
            pl.BlockSpec((BK, BN), lambda i, j, k: (k, j)),
            pl.BlockSpec((1, BN), lambda i, j, k: (0, j)),
        ],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j, k: (i, j)),
        out_shape=jax.ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype),
        scratch_shapes=[pltpu.VMEM((BM, BN), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )(x, w, b)
    return out[:m, :n]
"""

ATTENTION = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

B = 128


def _body(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
    i, j = pl.program_id(2), pl.program_id(3)

    @pl.when(j == 0)
    def _():
        m_ref[...] = jnp.full_like(m_ref, -1e30)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(j <= i)
    def _():
        q, k, v = q_ref[0, 0], k_ref[0, 0], v_ref[0, 0]
        s = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
        s = s * (q.shape[-1] ** -0.5)
        rows = i * B + jax.lax.broadcasted_iota(jnp.int32, (B, B), 0)
        columns = j * B + jax.lax.broadcasted_iota(jnp.int32, (B, B), 1)
        s = jnp.where(rows >= columns, s, -1e30)
        m_old = m_ref[:, :1]
        m_new = jnp.maximum(m_old, jnp.max(s, axis=1, keepdims=True))
        p = jnp.exp(s - m_new)
        scale = jnp.exp(m_old - m_new)
        l_ref[...] = jnp.broadcast_to(l_ref[:, :1] * scale + jnp.sum(p, axis=1, keepdims=True), l_ref.shape)
        acc_ref[...] = acc_ref[...] * scale + jnp.dot(p.astype(v.dtype), v, preferred_element_type=jnp.float32)
        m_ref[...] = jnp.broadcast_to(m_new, m_ref.shape)

    @pl.when(j == pl.num_programs(3) - 1)
    def _():
        o_ref[0, 0] = (acc_ref[...] / l_ref[:, :1]).astype(o_ref.dtype)


def kernel(q, k, v):
    b, h, n, d = q.shape
    if n % B:
        raise ValueError(f"length {n} is not a multiple of {B}")
    row = pl.BlockSpec((1, 1, B, d), lambda b, h, i, j: (b, h, i, 0))
    column = pl.BlockSpec((1, 1, B, d), lambda b, h, i, j: (b, h, j, 0))
    return pl.pallas_call(
        _body,
        grid=(b, h, n // B, n // B),
        in_specs=[row, column, column],
        out_specs=row,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        scratch_shapes=[pltpu.VMEM((B, width), jnp.float32) for width in (128, 128, d)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "parallel", "arbitrary")),
    )(q, k, v)
"""


COPY = """
import jax
from jax.experimental import pallas as pl

def _body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2.0

def kernel(x):
    block = pl.BlockSpec((128, 128), lambda i, j: (i, j))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    grid = (pl.cdiv(x.shape[0], 128), pl.cdiv(x.shape[1], 128))
    return pl.pallas_call(_body, grid=grid, in_specs=[block], out_specs=block, out_shape=shape)(x)
"""


def double(x):
    """A reference: twice its input."""
    return x * 2.0


DMA = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def _body(x_hbm, o_ref, buffer, arrived):
    rows = pl.ds(pl.multiple_of(pl.program_id(0) * 128, 128), 128)
    copy = pltpu.make_async_copy(x_hbm.at[rows, :], buffer, arrived)
    copy.start()
    copy.wait()
    o_ref[...] = buffer[...] * 2.0

def kernel(x):
    m, n = x.shape
    if m % 128:
        raise ValueError(f"{m} rows are not a multiple of 128")
    return pl.pallas_call(
        _body,
        grid=(m // 128,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((128, n), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.VMEM((128, n), x.dtype), pltpu.SemaphoreType.DMA],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )(x)
"""
