"""Whole functions that people have: one part in a kernel, the rest in plain JAX around it."""

import jax
import jax.numpy as jnp


def _normed(x, g):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6) * g).astype(x.dtype)


def transformer_layer(x, g1, packed, out, g2, gate, up, down, heads=4):
    batch, length, width = x.shape
    qkv = (_normed(x, g1) @ packed).reshape(batch, length, 3, heads, width // heads)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) / (width // heads) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
    read = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(x.dtype), v)
    x = x + read.transpose(0, 2, 1, 3).reshape(batch, length, width) @ out
    h = _normed(x, g2)
    return x + (jax.nn.silu(h @ gate) * (h @ up)) @ down


def mamba_block(x, gate, value, b, c, step, step_bias, rate, g, out, heads=4, state=128):
    batch, length, width = x.shape
    values = jax.nn.silu(x @ value).reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)
    keys, queries = (jnp.broadcast_to((x @ w)[:, None], (batch, heads, length, state)) for w in (b, c))
    steps = jax.nn.softplus((x @ step).astype(jnp.float32) + step_bias).transpose(0, 2, 1)
    travelled = jnp.cumsum(-jnp.exp(rate)[None, :, None] * steps, -1)
    decay = jnp.exp(travelled[..., :, None] - travelled[..., None, :])
    decay = jnp.where(jnp.tril(jnp.ones((length, length), bool)), decay, 0.0)
    weights = jnp.einsum("bhqd,bhkd->bhqk", queries, keys, preferred_element_type=jnp.float32) * decay
    y = jnp.einsum("bhqk,bhkd->bhqd", weights.astype(x.dtype), values).transpose(0, 2, 1, 3)
    return x + _normed(y.reshape(batch, length, width) * jax.nn.silu(x @ gate), g) @ out


def _weights(*shape):
    return shape, "bfloat16", lambda rng: rng.standard_normal(shape) * shape[0] ** -0.5


def _block_shapes(length, width):
    return {"x": ((1, length, width), "bfloat16"), "gate": _weights(width, width), "value": _weights(width, width),
            "b": _weights(width, 128), "c": _weights(width, 128), "step": _weights(width, 4),
            "step_bias": ((4,), "float32"), "rate": ((4,), "float32"), "g": ((width,), "float32"),
            "out": _weights(width, width)}


def _shapes(length, width, inner):
    return {"x": ((1, length, width), "bfloat16"), "g1": ((width,), "float32"), "packed": _weights(width, 3 * width),
            "out": _weights(width, width), "g2": ((width,), "float32"), "gate": _weights(width, inner),
            "up": _weights(width, inner), "down": _weights(inner, width)}


def test_a_transformer_layer_gets_its_attention_as_a_kernel(bench):
    small = _shapes(128, 256, 384)
    match = bench.recognise("parts", transformer_layer, _shapes(4096, 2048, 5632), small, static={"heads": 4})
    assert (match.part, len(match.arguments)) == ("attention", 3)
    bench.assert_agrees(transformer_layer, bench.kernel("parts", match), small)


def test_a_mamba_block_gets_its_recurrence_as_a_kernel_in_chunks(bench):
    small = _block_shapes(256, 256)
    match = bench.recognise("parts", mamba_block, _block_shapes(4096, 2048), small, static={"heads": 4, "state": 128})
    assert match.part == "recurrence"
    bench.assert_agrees(mamba_block, bench.kernel("parts", match, CHUNK=128), small)


def gated_sum(x, w, b, r):
    return jax.nn.gelu(x @ w + b) * r + x[:, :1]


def test_a_slice_read_beside_a_product_is_taken_before_the_kernel(bench):
    def shapes(m, k, n):
        return {"x": ((m, k), "bfloat16"), "w": ((k, n), "bfloat16"), "b": ((n,), "bfloat16"),
                "r": ((m, n), "bfloat16")}

    match = bench.recognise("parts", gated_sum, shapes(2048, 4096, 4096), shapes(48, 256, 384))
    assert match.part == "matmul" and len(match.before) == 1 and not match.after
    bench.assert_agrees(gated_sum, bench.kernel("parts", match), shapes(48, 256, 384))
