"""References for the suites of honest and of cheating kernels: small, so that a verdict takes seconds."""

import jax
import jax.numpy as jnp


def double(x):
    return x * 2.0


def both(x, y):
    return x + y, x * y


def update(x, y):
    return x * 0.9 + y


def affine(x, g, b):
    return x * g + b


def softmax(x):
    return jax.nn.softmax(x, axis=-1)


def rmsnorm(x, g):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def layernorm(x, g, b):
    mean = jnp.mean(x, -1, keepdims=True)
    spread = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(spread + 1e-5) * g + b


def rowsum(x):
    return jnp.sum(x, axis=-1)


def gelu_bias(x, b):
    return jax.nn.gelu(x + b)


def masked(x, m):
    return jnp.where(m, x, 0.0)


def gather(table, ids):
    return table[ids]


def dot(x, w):
    return jnp.dot(x, w, preferred_element_type=jnp.float32).astype(x.dtype)


def fine(x, w):
    return jnp.dot(x, w, precision=jax.lax.Precision.HIGHEST)


def gemm(x, w, b):
    y = jnp.dot(x, w, preferred_element_type=jnp.float32) + b.astype(jnp.float32)
    return jax.nn.relu(y).astype(x.dtype)


def causal(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) * (q.shape[-1] ** -0.5)
    n = q.shape[2]
    s = jnp.where(jnp.tril(jnp.ones((n, n), bool)), s, -1e30)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1).astype(q.dtype), v)


def longattention(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) * (q.shape[-1] ** -0.5)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1).astype(q.dtype), v)


def far(x, w):
    """As ``dot``; no check case has the timing case's shape."""
    return jnp.dot(x, w, preferred_element_type=jnp.float32).astype(x.dtype)


def farsoftmax(x):
    return jax.nn.softmax(x, axis=-1)


def farattention(q, k, v):
    return longattention(q, k, v)


F = "f32[256,512]"
LONG = "bf16[1,2,1024,128]"
HEADS = "bf16[1,2,512,128]"
SHAPES = {
    double: f"x: {F}",
    both: f"x: {F}, y: {F}",
    update: f"x: {F}, y: {F}",
    affine: f"x: {F}, g: f32[512], b: f32[512]",
    softmax: f"x: {F}",
    rmsnorm: "x: bf16[256,512], g: bf16[512]",
    layernorm: f"x: {F}, g: f32[512], b: f32[512]",
    rowsum: f"x: {F}",
    gelu_bias: f"x: {F}, b: f32[512]",
    masked: f"x: {F}, m: bool[256,512]",
    gather: "table: f32[512,256], ids: i32[64]",
    dot: "x: bf16[512,512], w: bf16[512,512]",
    fine: "x: f32[512,512], w: f32[512,512]",
    gemm: "x: bf16[512,512], w: bf16[512,512], b: bf16[512]",
    causal: f"q: {HEADS}, k: {HEADS}, v: {HEADS}",
    longattention: f"q: {HEADS}, k: {HEADS}, v: {HEADS}",
    far: "x: bf16[1024,1024], w: bf16[1024,512]",
    farsoftmax: "x: f32[1024,1024]",
    farattention: f"q: {LONG}, k: {LONG}, v: {LONG}",
}


def build(store, seeds=(0,)):
    """Tasks by the reference's name."""
    from maxkernel_nb.tasks.build import build_task

    tasks = {}
    for function, shapes in SHAPES.items():
        task = build_task(function, shapes=shapes, store=store).task
        tasks[function.__name__] = task.model_copy(update={"seeds": seeds})
    return tasks
