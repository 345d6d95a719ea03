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


def _shapes(length, width, inner):
    def weights(*shape):
        return shape, "bfloat16", lambda rng: rng.standard_normal(shape) * shape[0] ** -0.5

    return {"x": ((1, length, width), "bfloat16"), "g1": ((width,), "float32"), "packed": weights(width, 3 * width),
            "out": weights(width, width), "g2": ((width,), "float32"), "gate": weights(width, inner),
            "up": weights(width, inner), "down": weights(inner, width)}


def test_a_transformer_layer_gets_its_attention_as_a_kernel(bench):
    small = _shapes(256, 512, 384)
    match = bench.recognise("parts", transformer_layer, _shapes(4096, 2048, 5632), small, static={"heads": 4})
    assert (match.part, len(match.arguments)) == ("attention", 3)
    bench.assert_agrees(transformer_layer, bench.kernel("parts", match), small)
