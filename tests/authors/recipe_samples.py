"""Functions that each recipe has to serve: name -> (recipe, function, timing shapes, small shapes)."""

import jax
import jax.numpy as jnp
import numpy as np

BF16, F32, F8 = "bfloat16", "float32", "float8_e4m3fn"


def rms_norm(x, g):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6) * g


def residual_layer_norm(x, r, g, b):
    y = x + 0.5 * r
    centred = y - y.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + 1e-5) * g + b


def scaled_softmax(x, t):
    return jax.nn.softmax(x * t[:, None], axis=-1)


def row_logsumexp(x):
    return jax.scipy.special.logsumexp(x, axis=-1)


def cube_norm(x):
    """A row is the last two axes."""
    return x / jnp.sqrt(jnp.sum(x * x, axis=(-2, -1), keepdims=True) + 1.0)


def gelu_product(x, w, b):
    return jax.nn.gelu(x @ w + b)


def scaled_int8(x, w, s, t):
    """A quantised layer: whole numbers, a scale of each row and of each column."""
    whole = jax.lax.dot(x, w, preferred_element_type=jnp.int32)
    return jax.nn.relu(whole.astype(jnp.float32) * s[:, None] * t).astype(jnp.bfloat16)


def int8_weights(x, w, s):
    """Weights of eight bits, activations of sixteen."""
    return (x @ w.astype(x.dtype)) * s


def scaled_float8(x, w, s):
    return (jax.lax.dot(x, w, preferred_element_type=jnp.float32) * s).astype(jnp.bfloat16)


def gated_halves(x, gate, up, b, r):
    """SwiGLU with a bias and a residual: two products of the same rows in one kernel."""
    return jax.nn.silu(x @ gate + b) * (x @ up) + r


def gated_norm_product(x, y, g, w, v):
    """The end of a triangle multiplication: normalised rows times a weight, gated by other rows times another."""
    return rms_norm(x, g) @ w * jax.nn.sigmoid(y @ v)


def grouped_norm(x, w):
    y = (x @ w).reshape(x.shape[0], -1, 32)
    y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.reshape(x.shape[0], -1)


def attention(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1), v)


def summed_product(x, w, b):
    return jnp.sum(x @ w + b, axis=1, keepdims=True) * 0.5


def pooled_product(x, w):
    y = jnp.mean((x @ w).reshape(x.shape[0], -1, 8), axis=-1)
    return jnp.max(jax.nn.gelu(y), axis=1)


def mlp(x, gate, up, down):
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


def normed_product(x, g, w):
    y = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * g
    return jax.nn.relu(y @ w)


def projected_attention(x, wq, wk, wv):
    q, k, v = (x @ w * x.shape[-1] ** -0.5 for w in (wq, wk, wv))
    s = jnp.einsum("bqd,bkd->bqk", q, k) * q.shape[-1] ** -0.5
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(s, axis=-1), v)


def batched_product(x, w, b, r):
    return jax.nn.relu(jnp.einsum("abmk,abnk->abmn", x, w) + b) + r


def _convolved(x, w):
    return jax.lax.conv_general_dilated(x, w, (1,) * (x.ndim - 2), "VALID")


def group_norm_over_channels(x, w, b, g):
    """Group norm of a 2-D convolution, then a softmax's denominator over the channels."""
    y = _convolved(x, w) + b[:, None, None]
    groups = y.reshape(y.shape[0], 4, -1, *y.shape[2:])
    centred = groups - groups.mean(axis=(2, 3, 4), keepdims=True)
    scale = jnp.sqrt(jnp.square(centred).mean(axis=(2, 3, 4), keepdims=True) + 1e-5)
    return jax.nn.logsumexp(jnp.tanh((centred / scale).reshape(y.shape) * g[:, None, None]) + y, axis=1, keepdims=True)


def padded_convolution(x, w, b):
    y = jax.lax.conv_general_dilated(x, w, (1, 1, 1), ((1, 1), (0, 2), (1, 0)))
    return jnp.tanh(jax.nn.silu(y + b[:, None, None, None]))


def pooled_convolution(x, w, b):
    return jnp.mean(jax.nn.relu(_convolved(x, w) + b[:, None, None]), axis=(2, 3))


def batch_norm_after(x, w, b, g):
    y = jnp.tanh(_convolved(x, w) + b[:, None, None])
    centred = y - y.mean(axis=(0, 2, 3), keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(axis=(0, 2, 3), keepdims=True) + 1e-5) * g[:, None, None]


def causal_depthwise(x, w, b):
    """Mamba's short convolution, written as shifted slices."""
    padded = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
    return jax.nn.silu(sum(padded[:, i : i + x.shape[1]] * w[i] for i in range(4)) + b)


def depthwise_image(x, w, r):
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=x.shape[1])
    return jnp.tanh(y) * r


def upsampled_norm(x, w, b, g):
    """A transposed convolution as PyTorch defines it, then a norm over the last axis."""
    y = jax.lax.conv_general_dilated(
        x, jnp.flip(w, (2, 3, 4)).swapaxes(0, 1), (1, 1, 1), [(2, 2)] * 3, lhs_dilation=(2, 2, 2)
    ) + b[:, None, None, None]
    return jax.nn.silu((y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5) * g)


def upsampled_image(x, w, b):
    y = jax.lax.conv_general_dilated(x, w, (1, 1), ((2, 2), (2, 2)), lhs_dilation=(3, 3))
    return jax.nn.softmax(y * b[:, None, None], axis=-1)


def retention(q, k, v):
    steps = jnp.arange(q.shape[2])
    rate = jnp.log1p(-(2.0 ** (-5 - np.arange(q.shape[1]))))[:, None, None]
    s = jnp.einsum("bhid,bhjd->bhij", q.astype(jnp.float32), k.astype(jnp.float32))
    s = jnp.where(steps[:, None] >= steps, s * jnp.exp(rate * (steps[:, None] - steps)), 0.0)
    s = s / jnp.maximum(jnp.abs(s).sum(-1, keepdims=True), 1.0)
    return jnp.einsum("bhij,bhjd->bhid", s.astype(v.dtype), v)


def state_space(q, k, v, travelled):
    between = travelled[..., :, None] - travelled[..., None, :]
    steps = jnp.arange(q.shape[2])
    decay = jnp.exp(jnp.where(steps[:, None] >= steps, between, -jnp.inf))
    s = jnp.einsum("bhid,bhjd->bhij", q.astype(jnp.float32), k.astype(jnp.float32)) * decay
    s = s / jnp.maximum(jnp.abs(s.sum(-1, keepdims=True)), 1.0)
    return jnp.einsum("bhij,bhjd->bhid", s.astype(v.dtype), v)


def delta_rule(q, k, v, g, b):
    """Gated, as a loop over time."""
    def step(state, now):
        q, k, v, g, b = now
        state = state * jnp.exp(g)[..., None, None]
        error = b[..., None] * (v - jnp.einsum("bhkv,bhk->bhv", state, k))
        state = state + jnp.einsum("bhk,bhv->bhkv", k, error)
        return state, jnp.einsum("bhkv,bhk->bhv", state, q) * q.shape[-1] ** -0.5

    moving = tuple(jnp.moveaxis(x.astype(jnp.float32), 2, 0) for x in (q, k, v, g, b))
    _, out = jax.lax.scan(step, jnp.zeros((*q.shape[:2], q.shape[3], v.shape[3])), moving)
    return jnp.moveaxis(out, 0, 2).astype(v.dtype)


def paged_decode(q, k_pages, v_pages, lengths, table):
    """One query a sequence; heads share keys in groups."""
    sequences, _, dim = q.shape
    k, v = (p[table].reshape(sequences, -1, p.shape[2], dim) for p in (k_pages, v_pages))
    grouped = q.reshape(sequences, k.shape[2], -1, dim)
    s = jnp.einsum("sngd,stnd->sngt", grouped, k) * dim**-0.5
    s = jnp.where((jnp.arange(k.shape[1]) < lengths[:, None])[:, None, None], s, -1e30)
    return jnp.einsum("sngt,stnd->sngd", jax.nn.softmax(s, axis=-1), v).reshape(q.shape)


def _positions(batch, heads, length, dim, decay=False):
    shapes = dict.fromkeys("qkv", ((batch, heads, length, dim), BF16))
    if decay:
        shapes["travelled"] = ((batch, heads, length), F32, lambda rng: -np.cumsum(
            rng.random((batch, heads, length)) / 30, axis=-1))
    return shapes


def _gated(batch, heads, length, dim):
    lead = (batch, heads, length)
    key = ((*lead, dim), BF16, lambda rng: rng.standard_normal((*lead, dim)) * dim**-0.5)
    return {"q": key, "k": key, "v": ((*lead, dim), BF16), "g": (lead, F32, lambda rng: -rng.random(lead) / 5),
            "b": (lead, F32, lambda rng: rng.random(lead))}


def _cache(sequences, heads, kv_heads, pages, page=16, dim=128):
    pool = ((sequences * pages, page, kv_heads, dim), BF16)
    return {
        "q": ((sequences, heads, dim), BF16), "k_pages": pool, "v_pages": pool,
        "lengths": ((sequences,), "int32", lambda rng: rng.integers(1, pages * page + 1, sequences)),
        "table": ((sequences, pages), "int32", lambda rng: rng.permutation(sequences * pages).reshape(-1, pages)),
    }


def cross_entropy(x, w, y):
    chances = jax.nn.log_softmax(x @ w, axis=-1)
    return -jnp.mean(jnp.take_along_axis(chances, y[:, None], axis=-1).astype(jnp.float32))


def smoothed_loss(x, w, y):
    """Soft cap, label smoothing and a z-loss."""
    z = 30.0 * jnp.tanh((x @ w).astype(jnp.float32) / 30.0)
    lse = jax.nn.logsumexp(z, axis=-1)
    wanted = jax.nn.one_hot(y, w.shape[-1]) * 0.9 + 0.1 / w.shape[-1]
    return jnp.mean(-jnp.sum(wanted * (z - lse[:, None]), axis=-1) + 1e-4 * jnp.square(lse))


def grouped_product(x, w, sizes):
    owned = jnp.arange(x.shape[0]) < jnp.sum(sizes)
    return jnp.where(owned[:, None], jax.lax.ragged_dot(x, w, sizes), 0)


def gated_groups(x, w, sizes, b):
    return jax.nn.silu(jax.lax.ragged_dot(x * 0.5, w, sizes)) + b


def experts(x, router, gate, up, down):
    best, chosen = jax.lax.top_k(x @ router, 2)
    share = jax.nn.softmax(best, axis=-1)
    weights = jnp.einsum("bske,bsk->bse", jax.nn.one_hot(chosen, router.shape[-1], dtype=share.dtype), share)
    hidden = jax.nn.silu(jnp.einsum("bsd,edm->bsem", x, gate)) * jnp.einsum("bsd,edm->bsem", x, up)
    return jnp.einsum("bse,bsed->bsd", weights, jnp.einsum("bsem,emd->bsed", hidden, down))


def _groups(m, n, k, groups, **more):
    def sizes(rng):
        found = rng.multinomial(m - m // 8, [1 / groups] * groups)
        found[groups // 2] = 0
        return found

    return {"x": ((m, k), BF16), "w": ((groups, k, n), BF16), "sizes": ((groups,), "int32", sizes), **more}


def _experts(tokens, depth, width, count):
    up = ((count, depth, width), F32)
    return {"x": ((2, tokens, depth), F32), "router": ((depth, count), F32), "gate": up, "up": up,
            "down": ((count, width, depth), F32)}


def _labelled(m, n, k):
    return {"x": ((m, k), BF16), "w": ((k, n), BF16), "y": ((m,), "int32")}


def _images(n, c, o, space, window=3, dtype=BF16, **more):
    size = (window,) * len(space)
    return {"x": ((n, c, *space), dtype), "w": ((o, c, *size), dtype), "b": ((o,), dtype),
            **dict.fromkeys(more, ((o,), dtype))}


def _rows(m, n, **more):
    return {"x": ((m, n), BF16), **{k: (tuple({"m": m, "n": n}[a] for a in s), BF16) for k, s in more.items()}}


def _product(m, n, k, **more):
    extra = {name: (tuple({"m": m, "n": n, "k": k}[a] for a in s), BF16) for name, s in more.items()}
    return {"x": ((m, k), BF16), "w": ((k, n), BF16), **extra}


SAMPLES = {
    "rms_norm": ("rows", rms_norm, _rows(4096, 2048, g="n"), _rows(40, 384, g="n")),
    "residual_layer_norm": (
        "rows", residual_layer_norm, _rows(4096, 2048, r="mn", g="n", b="n"), _rows(33, 250, r="mn", g="n", b="n"),
    ),
    "gated_norm_product": (
        "rows", gated_norm_product,
        {**_rows(8192, 256, y="mn", g="n"), **dict.fromkeys("wv", ((256, 256), BF16))},
        {**_rows(40, 128, y="mn", g="n"), **dict.fromkeys("wv", ((128, 128), BF16))},
    ),
    "scaled_softmax": ("rows", scaled_softmax, _rows(4096, 2048, t="m"), _rows(48, 130, t="m")),
    "row_logsumexp": ("rows", row_logsumexp, _rows(4096, 2048), _rows(48, 256)),
    "cube_norm": ("rows", cube_norm, {"x": ((512, 16, 128), F32)}, {"x": ((6, 4, 130), F32)}),
    "gelu_product": ("matmul", gelu_product, _product(2048, 1024, 1024, b="n"), _product(96, 256, 128, b="n")),
    "grouped_norm": ("matmul", grouped_norm, _product(2048, 1024, 1024), _product(40, 256, 128)),
    "scaled_int8": (
        "matmul", scaled_int8,
        {"x": ((2048, 1024), "int8"), "w": ((1024, 1024), "int8"), "s": ((2048,), F32), "t": ((1024,), F32)},
        {"x": ((40, 256), "int8"), "w": ((256, 256), "int8"), "s": ((40,), F32), "t": ((256,), F32)},
    ),
    "int8_weights": (
        "matmul", int8_weights, {"x": ((2048, 1024), BF16), "w": ((1024, 1024), "int8"), "s": ((1024,), BF16)},
        {"x": ((40, 256), BF16), "w": ((256, 256), "int8"), "s": ((256,), BF16)},
    ),
    "scaled_float8": (
        "matmul", scaled_float8, {"x": ((2048, 1024), F8), "w": ((1024, 1024), F8), "s": ((1024,), F32)},
        {"x": ((40, 256), F8), "w": ((256, 256), F8), "s": ((256,), F32)},
    ),
    "gated_halves": (
        "matmul", gated_halves,
        {"x": ((2048, 1024), BF16), "gate": ((1024, 1024), BF16), "up": ((1024, 1024), BF16), "b": ((1024,), BF16),
         "r": ((2048, 1024), BF16)},
        {"x": ((40, 128), BF16), "gate": ((128, 256), BF16), "up": ((128, 256), BF16), "b": ((256,), BF16),
         "r": ((40, 256), BF16)},
    ),
    "batched_product": (
        "matmul", batched_product,
        {"x": ((2, 4, 512, 512), BF16), "w": ((2, 4, 1024, 512), BF16), "b": ((1024,), BF16),
         "r": ((2, 4, 512, 1024), BF16)},
        {"x": ((2, 3, 40, 130), BF16), "w": ((2, 3, 256, 130), BF16), "b": ((256,), BF16),
         "r": ((2, 3, 40, 256), BF16)},
    ),
    "group_norm_over_channels": (
        "conv", group_norm_over_channels, _images(8, 8, 16, (64, 64), g=1), _images(2, 6, 16, (11, 13), g=1),
    ),
    "padded_convolution": (
        "conv", padded_convolution, _images(4, 32, 64, (16, 32, 32), dtype=F32),
        _images(2, 3, 16, (5, 6, 9), dtype=F32),
    ),
    "pooled_convolution": (
        "conv", pooled_convolution, _images(8, 8, 64, (64, 64)), _images(3, 5, 16, (12, 20)),
    ),
    "batch_norm_after": (
        "conv", batch_norm_after, _images(8, 8, 16, (64, 64), g=1), _images(2, 2, 8, (9, 10), g=1),
    ),
    "causal_depthwise": (
        "depthwise", causal_depthwise, {"x": ((4, 4096, 1024), BF16), "w": ((4, 1024), BF16), "b": ((1024,), BF16)},
        {"x": ((2, 70, 200), BF16), "w": ((4, 200), BF16), "b": ((200,), BF16)},
    ),
    "depthwise_image": (
        "depthwise", depthwise_image,
        {"x": ((8, 64, 56, 56), BF16), "w": ((64, 1, 3, 5), BF16), "r": ((8, 64, 56, 56), BF16)},
        {"x": ((2, 24, 9, 13), BF16), "w": ((24, 1, 3, 5), BF16), "r": ((2, 24, 9, 13), BF16)},
    ),
    "upsampled_norm": (
        "transposed", upsampled_norm,
        {"x": ((8, 32, 8, 32, 32), BF16), "w": ((32, 64, 4, 4, 4), BF16), "b": ((64,), BF16), "g": ((64,), BF16)},
        {"x": ((1, 2, 2, 5, 8), BF16), "w": ((2, 8, 4, 4, 4), BF16), "b": ((8,), BF16), "g": ((16,), BF16)},
    ),
    "upsampled_image": (
        "transposed", upsampled_image, _images(16, 64, 64, (32, 32), dtype=F32), _images(1, 2, 3, (3, 8), dtype=F32),
    ),
    "attention": (
        "attention", attention, dict.fromkeys("qkv", ((2, 4, 1024, 128), BF16)),
        dict.fromkeys("qkv", ((1, 2, 256, 128), BF16)),
    ),
    "retention": ("recurrence", retention, _positions(2, 4, 1024, 128), _positions(1, 2, 300, 128)),
    "state_space": (
        "recurrence", state_space, _positions(2, 8, 1024, 64, decay=True), _positions(2, 4, 300, 64, decay=True),
    ),
    "delta_rule": ("delta", delta_rule, _gated(1, 4, 1024, 128), _gated(1, 1, 140, 64)),
    "paged_decode": ("paged", paged_decode, _cache(8, 16, 2, 64), _cache(3, 8, 2, 9)),
    "grouped_product": ("grouped", grouped_product, _groups(4096, 1024, 512, 8), _groups(100, 256, 128, 5)),
    "gated_groups": (
        "grouped", gated_groups, _groups(4096, 1024, 512, 8, b=((1024,), BF16)),
        _groups(100, 256, 128, 5, b=((256,), BF16)),
    ),
    "experts": ("experts", experts, _experts(512, 512, 1024, 8), _experts(24, 128, 256, 4)),
    "cross_entropy": ("loss", cross_entropy, _labelled(2048, 8192, 512), _labelled(48, 700, 128)),
    "smoothed_loss": ("loss", smoothed_loss, _labelled(2048, 8192, 512), _labelled(48, 700, 128)),
    "summed_product": ("parts", summed_product, _product(2048, 1024, 512, b="n"), _product(48, 256, 128, b="n")),
    "pooled_product": ("parts", pooled_product, _product(2048, 1024, 512), _product(48, 256, 128)),
    "mlp": (
        "parts", mlp,
        {"x": ((2048, 512), BF16), "gate": ((512, 1024), BF16), "up": ((512, 1024), BF16), "down": ((1024, 512), BF16)},
        {"x": ((40, 128), BF16), "gate": ((128, 256), BF16), "up": ((128, 256), BF16), "down": ((256, 128), BF16)},
    ),
    "normed_product": (
        "parts", normed_product, {"x": ((2048, 512), BF16), "g": ((512,), BF16), "w": ((512, 1024), BF16)},
        {"x": ((40, 128), BF16), "g": ((128,), BF16), "w": ((128, 256), BF16)},
    ),
    "projected_attention": (
        "parts", projected_attention,
        {"x": ((2, 1024, 256), BF16), **dict.fromkeys(("wq", "wk", "wv"), ((256, 128), BF16))},
        {"x": ((1, 256, 64), BF16), **dict.fromkeys(("wq", "wk", "wv"), ((64, 128), BF16))},
    ),
}  # fmt: skip
