"""Honest kernels: name -> (task, source). Each must pass."""

HEAD = """
import functools
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
"""


def elementwise(params, expression, block=(128, 128), order="(i, j)", extra="", vectors=(), grid="m, n", outs=1):
    """A kernel over blocks of equal arrays; ``vectors`` are broadcast along rows."""
    refs = ", ".join(f"{p}_ref" for p in params)
    named = {p: f"{p}_ref[...]" for p in params}
    bm, bn = block
    specs = ", ".join("row" if p in vectors else "tile" for p in params)
    values = ", ".join(f"{p}[None, :]" if p in vectors else p for p in params)
    names = [f"o{k}_ref" for k in range(outs)]
    body = "\n".join(
        f"    {o}[...] = ({e}).astype({o}.dtype)"
        for o, e in zip(names, expression.format(**named).split(";"), strict=True)
    )
    index = "lambda i, j: (i, j)" if grid == "m, n" else "lambda j, i: (i, j)"
    vector = "lambda i, j: (0, j)" if grid == "m, n" else "lambda j, i: (0, j)"
    sizes = "pl.cdiv(x.shape[0], BM), pl.cdiv(x.shape[1], BN)"
    if grid != "m, n":
        sizes = "pl.cdiv(x.shape[1], BN), pl.cdiv(x.shape[0], BM)"
    shape = "jax.ShapeDtypeStruct(x.shape, x.dtype)"
    return f"""{HEAD}
BM, BN = {bm}, {bn}

def _body({refs}, {", ".join(names)}):
{body}

def kernel({", ".join(params)}):
    tile = pl.BlockSpec((BM, BN), {index})
    row = pl.BlockSpec((1, BN), {vector})
    return pl.pallas_call(
        _body,
        grid=({sizes}),
        in_specs=[{specs}],
        out_specs={"tile" if outs == 1 else "[" + ", ".join(["tile"] * outs) + "]"},
        out_shape={shape if outs == 1 else "[" + ", ".join([shape] * outs) + "]"},
        {extra}
    )({values})
"""


def rows(
    params,
    lines,
    result,
    block=64,
    vectors=(),
    out="x.shape",
    out_spec="pl.BlockSpec((BM, n), lambda i: (i, 0))",
    after="",
    extra="",
):
    """A kernel over whole rows."""
    refs = ", ".join(f"{p}_ref" for p in params)
    specs = ", ".join("row" if p in vectors else "tile" for p in params)
    values = ", ".join(f"{p}[None, :]" if p in vectors else p for p in params)
    body = "\n".join(f"    {line}" for line in lines)
    return f"""{HEAD}
BM = {block}

def _body({refs}, o_ref):
{body}
    o_ref[...] = ({result}).astype(o_ref.dtype)

def kernel({", ".join(params)}):
    m, n = x.shape
    tile = pl.BlockSpec((BM, n), lambda i: (i, 0))
    row = pl.BlockSpec((1, n), lambda i: (0, 0))
    out = pl.pallas_call(
        _body,
        grid=(pl.cdiv(m, BM),),
        in_specs=[{specs}],
        out_specs={out_spec},
        out_shape=jax.ShapeDtypeStruct({out}, x.dtype),
        {extra}
    )({values})
    return out{after}
"""


SOFTMAX = ["x = x_ref[...]", "e = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))"]
RMS = ["x = x_ref[...].astype(jnp.float32)", "r = lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)"]
LAYER = [
    "x = x_ref[...]",
    "d = x - jnp.mean(x, axis=-1, keepdims=True)",
    "r = lax.rsqrt(jnp.mean(d * d, axis=-1, keepdims=True) + 1e-5)",
]
PARALLEL = 'compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),'


def matmul(bm, bn, bk, bias=False, precision="", order="ijk", parallel=True):
    """Padded to tiles; the last grid axis adds up."""
    grid = {"ijk": "(m // BM, n // BN, k // BK)", "jik": "(n // BN, m // BM, k // BK)"}[order]
    i, j = ("i", "j") if order == "ijk" else ("j", "i")
    semantics = '("parallel", "parallel", "arbitrary")' if parallel else '("arbitrary", "arbitrary", "arbitrary")'
    y = "jnp.maximum(acc_ref[...] + b_ref[...].astype(jnp.float32), 0.0)" if bias else "acc_ref[...]"
    return f"""{HEAD}
BM, BN, BK = {bm}, {bn}, {bk}

def _body(x_ref, w_ref, {"b_ref, " if bias else ""}o_ref, acc_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32{precision})

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = ({y}).astype(o_ref.dtype)

def _pad(a, rows, columns):
    return jnp.pad(a, ((0, -a.shape[0] % rows), (0, -a.shape[1] % columns)))

def kernel(x, w{", b" if bias else ""}):
    rows, columns = x.shape[0], w.shape[1]
    x, w = _pad(x, BM, BK), _pad(w, BK, BN)
    m, k, n = x.shape[0], x.shape[1], w.shape[1]
    out = pl.pallas_call(
        _body,
        grid={grid},
        in_specs=[
            pl.BlockSpec((BM, BK), lambda {i}, {j}, k: (i, k)),
            pl.BlockSpec((BK, BN), lambda {i}, {j}, k: (k, j)),
            {"pl.BlockSpec((1, BN), lambda " + f"{i}, {j}" + ", k: (0, j))," if bias else ""}
        ],
        out_specs=pl.BlockSpec((BM, BN), lambda {i}, {j}, k: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        scratch_shapes=[pltpu.VMEM((BM, BN), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics={semantics}),
    )(x, w{", _pad(b[None, :], 1, BN)" if bias else ""})
    return out[:rows, :columns]
"""


def attention(bq, bk, causal=True):
    mask = (
        """
        rows = i * BQ + lax.broadcasted_iota(jnp.int32, (BQ, BK), 0)
        columns = j * BK + lax.broadcasted_iota(jnp.int32, (BQ, BK), 1)
        s = jnp.where(rows >= columns, s, -1e30)"""
        if causal
        else ""
    )
    when = "j * BK < (i + 1) * BQ" if causal else "j >= 0"
    return f"""{HEAD}
BQ, BK = {bq}, {bk}

def _body(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
    i, j = pl.program_id(2), pl.program_id(3)

    @pl.when(j == 0)
    def _():
        m_ref[...] = jnp.full_like(m_ref, -1e30)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when({when})
    def _():
        q, k, v = q_ref[0, 0], k_ref[0, 0], v_ref[0, 0]
        s = lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
        s = s * (q.shape[-1] ** -0.5){mask}
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
    if n % BQ or n % BK:
        raise ValueError(f"length {{n}} is no multiple of {{BQ}} and {{BK}}")
    row = pl.BlockSpec((1, 1, BQ, d), lambda b, h, i, j: (b, h, i, 0))
    column = pl.BlockSpec((1, 1, BK, d), lambda b, h, i, j: (b, h, j, 0))
    return pl.pallas_call(
        _body,
        grid=(b, h, n // BQ, n // BK),
        in_specs=[row, column, column],
        out_specs=row,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        scratch_shapes=[pltpu.VMEM((BQ, width), jnp.float32) for width in (128, 128, d)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "parallel", "arbitrary")),
    )(q, k, v)
"""


DMA = (
    HEAD
    + """
def _body(x_hbm, o_ref, buffer, arrived):
    rows = pl.ds(pl.multiple_of(pl.program_id(0) * 64, 64), 64)
    copy = pltpu.make_async_copy(x_hbm.at[rows, :], buffer, arrived)
    copy.start()
    copy.wait()
    o_ref[...] = buffer[...] * 2.0

def kernel(x):
    m, n = x.shape
    if m % 64:
        raise ValueError(f"{m} rows are no multiple of 64")
    return pl.pallas_call(
        _body,
        grid=(m // 64,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((64, n), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.VMEM((64, n), x.dtype), pltpu.SemaphoreType.DMA],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )(x)
"""
)

BUFFERED = (
    HEAD
    + """
B = 64

def _body(x_hbm, o_ref, buffer, arrived):
    i, count = pl.program_id(0), pl.num_programs(0)

    def copy(step, slot):
        rows = pl.ds(pl.multiple_of(step * B, B), B)
        return pltpu.make_async_copy(x_hbm.at[rows, :], buffer.at[slot], arrived.at[slot])

    @pl.when(i == 0)
    def _():
        copy(0, 0).start()

    @pl.when(i + 1 < count)
    def _():
        copy(i + 1, (i + 1) % 2).start()

    copy(i, i % 2).wait()
    o_ref[...] = buffer[i % 2] * 2.0

def kernel(x):
    m, n = x.shape
    if m % B:
        raise ValueError(f"{m} rows are no multiple of {B}")
    return pl.pallas_call(
        _body,
        grid=(m // B,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((B, n), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.VMEM((2, B, n), x.dtype), pltpu.SemaphoreType.DMA((2,))],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
    )(x)
"""
)

GATHER = (
    HEAD
    + """
def _body(ids_ref, table_ref, o_ref):
    o_ref[...] = table_ref[...]

def kernel(table, ids):
    width = table.shape[1]
    return pl.pallas_call(
        _body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(ids.shape[0],),
            in_specs=[pl.BlockSpec((1, 1, width), lambda i, ids: (ids[i], 0, 0))],
            out_specs=pl.BlockSpec((1, 1, width), lambda i, ids: (i, 0, 0)),
        ),
        out_shape=jax.ShapeDtypeStruct((ids.shape[0], 1, width), table.dtype),
    )(ids, table[:, None, :])[:, 0]
"""
)

GATHER_MASKED = GATHER.replace(
    "o_ref[...] = table_ref[...]", "o_ref[...] = jnp.where(ids_ref[pl.program_id(0)] >= 0, table_ref[...], 0.0)"
)

PIPELINE = (
    HEAD
    + """
def _outer(x_hbm, o_hbm):
    def inner(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2.0

    m, n = x_hbm.shape
    block = pl.BlockSpec((64, n), lambda i: (i, 0))
    pltpu.emit_pipeline(inner, grid=(m // 64,), in_specs=[block], out_specs=[block])(x_hbm, o_hbm)

def kernel(x):
    if x.shape[0] % 64 or x.shape[1] % 128:
        raise ValueError(f"{x.shape} is no multiple of (64, 128)")
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(_outer, in_specs=[anywhere], out_specs=anywhere, out_shape=shape)(x)
"""
)

LOOP = (
    HEAD
    + """
def _body(x_ref, o_ref):
    def step(k, _):
        rows = pl.ds(pl.multiple_of(k * 8, 8), 8)
        o_ref[rows, :] = x_ref[rows, :] * 2.0
        return 0

    lax.fori_loop(0, x_ref.shape[0] // 8, step, 0)

def kernel(x):
    if x.shape[0] % 64:
        raise ValueError(f"{x.shape[0]} rows are no multiple of 64")
    block = pl.BlockSpec((64, x.shape[1]), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(_body, grid=(x.shape[0] // 64,), in_specs=[block], out_specs=block, out_shape=shape)(x)
"""
)

SCOPED = (
    HEAD
    + """
def _body(x_ref, o_ref):
    def inner(kept):
        kept[...] = x_ref[...]
        o_ref[...] = kept[...] + kept[...]

    pl.run_scoped(inner, pltpu.VMEM(x_ref.shape, x_ref.dtype))

def kernel(x):
    block = pl.BlockSpec((64, 128), lambda i, j: (i, j))
    grid = (pl.cdiv(x.shape[0], 64), pl.cdiv(x.shape[1], 128))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(_body, grid=grid, in_specs=[block], out_specs=block, out_shape=shape)(x)
"""
)

VJP = (
    elementwise(["x"], "{x} * 2.0").replace("def kernel(x):", "def _forward(x):")
    + """

@jax.custom_vjp
def _doubled(x):
    return _forward(x)

_doubled.defvjp(lambda x: (_forward(x), None), lambda kept, g: (_forward(g),))

def kernel(x):
    return _doubled(x)
"""
)

VMAPPED = (
    HEAD
    + """
def _body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2.0

def kernel(x):
    row = jax.ShapeDtypeStruct((1, x.shape[1]), x.dtype)
    return jax.vmap(lambda r: pl.pallas_call(_body, out_shape=row)(r))(x[:, None])[:, 0]
"""
)

TWO_CALLS = (
    elementwise(["x"], "{x} + {x}").replace("def kernel(x):", "def _once(x):")
    + """
def kernel(x):
    return _once(_once(x)) * 0.5
"""
)

SPLIT_K = (
    HEAD
    + """
def _body(x_ref, w_ref, o_ref):
    x, w = x_ref[...], w_ref[...]
    half = x.shape[1] // 2
    first = jnp.dot(x[:, :half], w[:half], preferred_element_type=jnp.float32)
    second = jnp.dot(x[:, half:], w[half:], preferred_element_type=jnp.float32)
    o_ref[...] = (second + first).astype(o_ref.dtype)

def kernel(x, w):
    m, k, n = *x.shape, w.shape[1]
    if k % 2:
        raise ValueError("odd")
    return pl.pallas_call(
        _body, grid=(pl.cdiv(m, 128),),
        in_specs=[pl.BlockSpec((128, k), lambda i: (i, 0)), pl.BlockSpec((k, n), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((128, n), lambda i: (i, 0)), out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
    )(x, w)
"""
)

JAX_MATMUL = (
    HEAD
    + """
from jax.experimental.pallas.ops.tpu.matmul import matmul

def kernel(x, w):
    if any(n % 128 for n in (*x.shape, *w.shape)):
        raise ValueError("sizes must be multiples of 128")
    return matmul(x, w, block_shape=(128, 128), block_k=128)
"""
)

JAX_FLASH = (
    HEAD
    + """
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

def kernel(q, k, v):
    blocks = BlockSizes(block_q=128, block_k_major=128, block_k=128, block_b=1)
    return flash_attention(q, k, v, causal=CAUSAL, sm_scale=q.shape[-1] ** -0.5, block_sizes=blocks)
"""
)

JAX_GMM = (
    HEAD
    + """
from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm

def kernel(x, w):
    if x.shape[0] % 128:
        raise ValueError(f"{x.shape[0]} rows are no multiple of 128")
    sizes = jnp.full((1,), x.shape[0], jnp.int32)
    return gmm(x, w[None], sizes, preferred_element_type=x.dtype, tiling=(128, 128, 128))
"""
)

JAX_SPLASH = (
    HEAD
    + """
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

def kernel(q, k, v):
    n = q.shape[2]
    if n % 128:
        raise ValueError(f"length {n} is no multiple of 128")
    heads = splash_attention_mask.MultiHeadMask([splash_attention_mask.CausalMask((n, n))] * q.shape[1])
    blocks = splash_attention_kernel.BlockSizes(block_q=128, block_kv=128, block_kv_compute=128)
    run = splash_attention_kernel.make_splash_mha(heads, head_shards=1, q_seq_shards=1, block_sizes=blocks)
    wide = [a.astype(jnp.float32) for a in (q, k, v)]
    return jax.vmap(run)(wide[0] * q.shape[-1] ** -0.5, *wide[1:]).astype(q.dtype)
"""
)

ONLINE = (
    HEAD
    + """
def _body(x_ref, o_ref):
    x = x_ref[...]
    m, n = x.shape
    top = jnp.full((m, 1), -jnp.inf, jnp.float32)
    total = jnp.zeros((m, 1), jnp.float32)
    for start in range(0, n, 128):
        part = x[:, start : start + 128]
        new = jnp.maximum(top, jnp.max(part, axis=-1, keepdims=True))
        total = total * jnp.exp(top - new) + jnp.sum(jnp.exp(part - new), axis=-1, keepdims=True)
        top = new
    o_ref[...] = jnp.exp(x - top) / total

def kernel(x):
    m, n = x.shape
    block = pl.BlockSpec((32, n), lambda i: (i, 0))
    return pl.pallas_call(_body, grid=(pl.cdiv(m, 32),), in_specs=[block], out_specs=block,
                          out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
"""
)

TILES = [(128, 128), (64, 128), (32, 256), (256, 128), (8, 128), (128, 256)]
# jnp.diagonal is one program for a TPU and another elsewhere.
DIAGONAL = elementwise(["x"], "{x} * 1.0").replace("def kernel(", "def once(") + """

def kernel(x):
    return once(x) * jnp.diagonal(2.0 * jnp.eye(x.shape[1], dtype=x.dtype))
"""


HONEST = {
    **{f"double {b}": ("double", elementwise(["x"], "{x} * 2.0", b)) for b in TILES},
    "double by adding": ("double", elementwise(["x"], "{x} + {x}")),
    "double, columns first": ("double", elementwise(["x"], "{x} * 2.0", grid="n, m")),
    "double, parallel": ("double", elementwise(["x"], "{x} * 2.0", extra=PARALLEL)),
    "double, in place": ("double", elementwise(["x"], "{x} * 2.0", extra="input_output_aliases={0: 0},")),
    "double by its own copies": ("double", DMA),
    "double, two buffers": ("double", BUFFERED),
    "double, an emitted pipeline": ("double", PIPELINE),
    "double, a loop in the kernel": ("double", LOOP),
    "double, scoped memory": ("double", SCOPED),
    "double, custom_vjp": ("double", VJP),
    "double, under vmap": ("double", VMAPPED),
    "double, under jit": ("double", elementwise(["x"], "{x} * 2.0").replace("def kernel", "@jax.jit\ndef kernel")),
    "double, two calls": ("double", TWO_CALLS),
    "double, by a diagonal": ("double", DIAGONAL),
    **{f"both {b}": ("both", elementwise(["x", "y"], "{x} + {y};{x} * {y}", b, outs=2)) for b in TILES[:3]},
    **{f"update {b}": ("update", elementwise(["x", "y"], "{x} * 0.9 + {y}", b)) for b in TILES[:2]},
    "update, in place": ("update", elementwise(["x", "y"], "{x} * 0.9 + {y}", extra="input_output_aliases={1: 0},")),
    "update, parallel": ("update", elementwise(["x", "y"], "{y} + 0.9 * {x}", extra=PARALLEL)),
    **{
        f"affine {b}": ("affine", elementwise(["x", "g", "b"], "{x} * {g} + {b}", b, vectors=("g", "b")))
        for b in TILES[:3]
    },
    "affine, columns first": (
        "affine",
        elementwise(["x", "g", "b"], "{b} + {g} * {x}", vectors=("g", "b"), grid="n, m"),
    ),
    **{
        f"softmax {b}": ("softmax", rows(["x"], SOFTMAX, "e / jnp.sum(e, axis=-1, keepdims=True)", b))
        for b in (8, 64, 128)
    },
    "softmax by reciprocal": ("softmax", rows(["x"], SOFTMAX, "e * (1.0 / jnp.sum(e, axis=-1, keepdims=True))")),
    "softmax, online": ("softmax", ONLINE),
    **{
        f"rmsnorm {b}": ("rmsnorm", rows(["x", "g"], RMS, "(x * r).astype(o_ref.dtype) * g_ref[...]", b, ("g",)))
        for b in (16, 64)
    },
    "rmsnorm in float32 to the end": (
        "rmsnorm",
        rows(["x", "g"], RMS, "x * r * g_ref[...].astype(jnp.float32)", 32, ("g",)),
    ),
    **{
        f"layernorm {b}": ("layernorm", rows(["x", "g", "b"], LAYER, "d * r * g_ref[...] + b_ref[...]", b, ("g", "b")))
        for b in (8, 64)
    },
    "layernorm, one pass": (
        "layernorm",
        rows(
            ["x", "g", "b"],
            [
                "x = x_ref[...]",
                "mean = jnp.mean(x, axis=-1, keepdims=True)",
                "r = lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) - mean * mean + 1e-5)",
            ],
            "(x - mean) * r * g_ref[...] + b_ref[...]",
            32,
            ("g", "b"),
        ),
    ),
    "rowsum": (
        "rowsum",
        rows(
            ["x"],
            [],
            "jnp.sum(x_ref[...], axis=-1, keepdims=True)",
            64,
            (),
            "(m, 1)",
            "pl.BlockSpec((BM, 1), lambda i: (i, 0))",
            "[:, 0]",
        ),
    ),
    "rowsum in halves": (
        "rowsum",
        rows(
            ["x"],
            ["h = x_ref.shape[1] // 2"],
            "jnp.sum(x_ref[:, :h], axis=-1, keepdims=True) + jnp.sum(x_ref[:, h:], axis=-1, keepdims=True)",
            64,
            (),
            "(m, 1)",
            "pl.BlockSpec((BM, 1), lambda i: (i, 0))",
            "[:, 0]",
        ),
    ),
    "gelu_bias": ("gelu_bias", elementwise(["x", "b"], "jax.nn.gelu({x} + {b})", vectors=("b",))),
    "gelu_bias by hand": (
        "gelu_bias",
        elementwise(
            ["x", "b"],
            "0.5 * ({x} + {b}) * (1.0 + jnp.tanh(0.7978845608028654 * (({x} + {b}) + 0.044715 * ({x} + {b}) ** 3)))",
            vectors=("b",),
        ),
    ),
    "masked": ("masked", elementwise(["x", "m"], "jnp.where({m}, {x}, 0.0)")),
    "masked, columns first": ("masked", elementwise(["x", "m"], "jnp.where({m}, {x}, 0.0)", (64, 256), grid="n, m")),
    "gather": ("gather", GATHER),
    "gather, ids read in the kernel": ("gather", GATHER_MASKED),
    **{f"dot {t}": ("dot", matmul(*t)) for t in ((128, 128, 128), (256, 128, 256), (64, 256, 128))},
    "dot, columns first": ("dot", matmul(128, 128, 128, order="jik")),
    "dot, no parallel axis": ("dot", matmul(128, 128, 256, parallel=False)),
    "dot, split": ("dot", SPLIT_K),
    "dot of jax": ("dot", JAX_MATMUL),
    "dot by megablox": ("dot", JAX_GMM),
    "fine": ("fine", matmul(128, 128, 128, precision=", precision=lax.Precision.HIGHEST")),
    "fine, other tiles": ("fine", matmul(64, 128, 256, precision=", precision=lax.Precision.HIGHEST")),
    **{f"gemm {t}": ("gemm", matmul(*t, bias=True)) for t in ((128, 128, 128), (256, 256, 128), (64, 128, 256))},
    "gemm, columns first": ("gemm", matmul(128, 128, 128, bias=True, order="jik")),
    "attention 128 128": ("causal", attention(128, 128)),
    "attention 64 128": ("causal", attention(64, 128)),
    "attention of jax": ("causal", JAX_FLASH.replace("CAUSAL", "True")),
    "attention by splash": ("causal", JAX_SPLASH),
    "long attention": ("longattention", attention(128, 128, causal=False)),
    "long attention of jax": ("longattention", JAX_FLASH.replace("CAUSAL", "False")),
}
