"""The 50 tasks again, in numpy float64 and written differently: loops for masks, taps for convolutions.

Each function takes the task's arrays (floats in float64) and its dimensions, and gives the result in float64.
"""

from __future__ import annotations

import math

import numpy as np

EPS = 1e-5


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def swish(x):
    return x * sigmoid(x)


def gelu(x):
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))  # (1 + tanh z) / 2 = sigmoid(2 z)


def mish(x):
    e = np.exp(x)
    return x * ((1 + e) ** 2 - 1) / ((1 + e) ** 2 + 1)  # tanh(log s) = (s^2 - 1) / (s^2 + 1)


def softmax_row(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def log_sum_exp(x, axis):
    top = x.max(axis=axis)
    return top + np.log(np.exp(x - np.expand_dims(top, axis)).sum(axis=axis))


def normalised(x, eps=EPS):
    """A flat group of values, its mean taken off, divided by its spread."""
    return (x - x.sum() / x.size) / math.sqrt(((x - x.sum() / x.size) ** 2).sum() / x.size + eps)


def attend(q, k, v, scale, bias=None):
    """Causal attention of one head, query by query over its own past."""
    out = np.empty((len(q), v.shape[1]))
    for i in range(len(q)):
        scores = k[: i + 1] @ q[i] * scale + (0 if bias is None else bias[i, : i + 1])
        out[i] = softmax_row(scores) @ v[: i + 1]
    return out


def conv(x, w):
    """Tap by tap."""
    space = [n - w.shape[2] + 1 for n in x.shape[2:]]
    out = np.zeros((x.shape[0], w.shape[0], *space))
    for tap in np.ndindex(*w.shape[2:]):
        part = x[(slice(None), slice(None), *(slice(t, t + n) for t, n in zip(tap, space, strict=True)))]
        out += np.moveaxis(np.tensordot(w[(slice(None), slice(None), *tap)], part, (1, 1)), 0, 1)
    return out


def channels(values, x):
    return np.asarray(values).reshape(1, -1, *[1] * (x.ndim - 2))


def group_norm(x, groups, scale, shift):
    out = np.empty_like(x)
    width = x.shape[1] // groups
    for n in range(x.shape[0]):
        for g in range(groups):
            out[n, g * width : (g + 1) * width] = normalised(x[n, g * width : (g + 1) * width])
    return out * channels(scale, x) + channels(shift, x)


def batch_norm(x, scale, shift):
    out = np.stack([normalised(x[:, c]) for c in range(x.shape[1])], axis=1)
    return out * channels(scale, x) + channels(shift, x)


def t1p(q, k, v, d):
    return heads(lambda b, h: attend(q[b, h], k[b, h], v[b, h], d.head_dim**-0.5), *q.shape[:2])


def heads(one, batch, count):
    return np.stack([np.stack([one(b, h) for h in range(count)]) for b in range(batch)])


def t2p(q, k, v, d):
    share = d.num_query_heads // d.num_kv_heads

    def one(b, h):
        return attend(q[b, :, h], k[b, :, h // share], v[b, :, h // share], d.head_dim**-0.5)

    return heads(one, d.batch, d.num_query_heads).transpose(0, 2, 1, 3)


def t3p(x, q_down, q_up, kv_down, k_up, v_up, o_proj, d):
    nope, rope, width = d.qk_nope_head_dim, d.qk_rope_head_dim, d.qk_nope_head_dim + d.qk_rope_head_dim
    turn = np.exp(1j * np.outer(np.arange(d.seq_len), d.rope_theta ** (-2 * np.arange(rope // 2) / rope)))

    def rotate(u):
        turned = (u[:, : rope // 2] + 1j * u[:, rope // 2 :]) * turn
        return np.concatenate([turned.real, turned.imag], axis=1)

    rows = []
    for b in range(d.batch):
        q, c = x[b] @ q_down @ q_up, x[b] @ kv_down
        latent, shared = c[:, : d.kv_lora_rank], rotate(c[:, d.kv_lora_rank :])
        outs = []
        for h in range(d.num_heads):
            qh = q[:, h * width : (h + 1) * width]
            qh = np.concatenate([qh[:, :nope], rotate(qh[:, nope:])], axis=1)
            kh = np.concatenate([latent @ k_up[:, h * nope : (h + 1) * nope], shared], axis=1)
            vh = latent @ v_up[:, h * d.v_head_dim : (h + 1) * d.v_head_dim]
            outs.append(attend(qh, kh, vh, width**-0.5))
        rows.append(np.concatenate(outs, axis=1) @ o_proj)
    return np.stack(rows)


def t4p(q, k, v, d):
    share = d.num_query_heads // d.num_kv_heads
    return heads(lambda b, h: attend(q[b, h], k[b, h // share], v[b, h // share], 1.0), *q.shape[:2])


def t5p(q, k, v, bias, d):
    return heads(lambda b, h: attend(q[b, h], k[b, h], v[b, h], d.head_dim**-0.5, bias[h]), *q.shape[:2])


def t6p(queries, k_pages, v_pages, kv_lens, pages, cu, d):
    out = np.zeros_like(queries)
    for s in range(d.num_seqs):
        k = np.concatenate([k_pages[p] for p in pages[s]])[: kv_lens[s]]
        v = np.concatenate([v_pages[p] for p in pages[s]])[: kv_lens[s]]
        for h in range(d.num_query_heads):
            kv = h // (d.num_query_heads // d.num_kv_heads)
            out[s, h] = softmax_row(k[:, kv] @ queries[cu[s], h] / math.sqrt(d.head_dim)) @ v[:, kv]
    return out


def t7p(queries, kv_pages, kv_lens, pages, cu, num_seqs, d):
    out = np.zeros_like(queries)
    for s in range(num_seqs[0]):
        kv = np.concatenate([kv_pages[p] for p in pages[s]])
        count = cu[s + 1] - cu[s]
        for r in range(count):
            seen = kv_lens[s] - count + r + 1
            for h in range(d.num_q_heads):
                head = h // (d.num_q_heads // d.num_kv_heads)
                k, v = kv[:seen, 2 * head], kv[:seen, 2 * head + 1]
                out[cu[s] + r, h] = softmax_row(k @ queries[cu[s] + r, h] / math.sqrt(d.head_dim)) @ v
    return out


def t8p(a, b, d):
    return np.einsum("mk,kn->mn", a, b)


def t9p(x, gate, up, down, d):
    flat = x.reshape(-1, d.emb_dim)
    return ((swish(flat @ gate) * (flat @ up)) @ down).reshape(x.shape)


def t10p(x, router, gates, ups, downs, d):
    out = np.zeros_like(x)
    for b, s in np.ndindex(*x.shape[:2]):
        token = x[b, s]
        logits = token @ router
        best = sorted(range(d.num_experts), key=lambda e: (-logits[e], e))[: d.num_experts_per_tok]
        for e, share in zip(best, softmax_row(logits[best]), strict=True):
            out[b, s] += share * ((swish(token @ gates[e]) * (token @ ups[e])) @ downs[e])
    return out


def t11p(lhs, rhs, sizes, d):
    out, start = np.zeros((len(lhs), d.moe_mlp_dim)), 0
    for e, size in enumerate(sizes):
        out[start : start + size] = lhs[start : start + size] @ rhs[e]
        start += size
    return out


def t12p(x, scale, d):
    return x * scale / np.sqrt((x**2).sum(-1, keepdims=True) / d.emb_dim + d.epsilon)


def t13p(hidden, weight, labels, d):
    logits = hidden @ weight
    return np.float64(
        sum(log_sum_exp(row, 0) - row[label] for row, label in zip(logits, labels, strict=True)) / len(labels)
    )


def t14p(x, weights, d):
    return np.stack([x[g] @ weights[g] for g in range(d.num_groups)])


def t15p(q, k, v, d):
    def one(b, h):
        out, decay = np.empty_like(v[b, h]), 1 - 2.0 ** (-5 - h)
        for i in range(d.seq_len):
            w = k[b, h, : i + 1] @ q[b, h, i] * decay ** np.arange(i, -1, -1)
            out[i] = w @ v[b, h, : i + 1] / max(np.abs(w).sum(), 1)
        return out

    return heads(one, d.batch, d.num_heads)


def t16p(q, k, v, a_log, d):
    """As the recurrence it is: a state of key-value products that decays."""

    def one(b, h):
        out, state, total = np.empty_like(v[b, h]), np.zeros((d.head_dim, d.head_dim)), np.zeros(d.head_dim)
        for i in range(d.seq_len):
            decay = sigmoid(a_log[b, h, i]) + 1e-8
            state = decay * state + np.outer(k[b, h, i], v[b, h, i])
            total = decay * total + k[b, h, i]
            out[i] = q[b, h, i] @ state / max(abs(q[b, h, i] @ total), 1)
        return out

    return heads(one, d.batch, d.num_heads)


def t17p(pair, mask, lp, rp, lg, rg, center, op, og, d):
    masked = pair * mask
    left = np.einsum("ikc,cd->ikd", masked, lp) * sigmoid(np.einsum("ikc,cd->ikd", masked, lg))
    right = np.einsum("ikc,cd->ikd", masked, rp) * sigmoid(np.einsum("ikc,cd->ikd", masked, rg))
    joined = np.stack([left[..., c] @ right[..., c].T for c in range(d.C)], axis=-1)
    joined = joined / np.sqrt((joined**2).sum(-1, keepdims=True) / d.C + d.epsilon) * center
    return np.einsum("ijc,cd->ijd", joined, op) * sigmoid(np.einsum("ijc,cd->ijd", pair, og))


def t18k(x, w, conv_bias, bias, d):
    y = conv(x, w)
    return np.maximum(y + channels(conv_bias, y), 0) + channels(bias.ravel(), y)


def t19k(x, w, b, d):
    return np.maximum(d.multiply_value * (x @ w + b - d.subtract_value), 0)


def t20k(x, w, b, d):
    y = d.multiplier * (x @ w + b)
    return np.maximum(y, 0) + d.negative_slope * np.minimum(y, 0)


def t21k(x, w, d):
    return (np.einsum("bi,oi->b", x, w) * d.scaling_factor / 2)[:, None]


def t22k(x, w, conv_bias, scale, shift, d):
    y = conv(x, w)
    return group_norm(y + channels(conv_bias, y), d.out_channels, scale, shift) / d.divide_by


def t23k(x, w, b, d):
    return np.einsum("bi,oi->b", x, w)[:, None] + b.sum()


def t24k(x, w, b, d):
    y = np.minimum(np.maximum(2 * d.scale_factor * (x @ w.T + b), d.clamp_min), d.clamp_max)
    s = log_sum_exp(y, 1)
    return (s * mish(s))[:, None]


def t25k(x, w, conv_bias, gamma, beta, d):
    y = conv(x, w)
    y = group_norm(y + channels(conv_bias, y), d.num_groups, gamma, beta)
    return y.reshape(len(y), -1).sum(1) / y[0].size


def t26k(x, y, w, b, in_weight, in_bias, d):
    return y * y + in_bias * y


def t27k(x, w, b, d):
    return mish(mish(x @ w + b))


def t28k(x, w, conv_bias, scale, shift, d):
    """Every input value adds its taps where they land; what lands outside is cut off."""
    size = [d.stride * n for n in x.shape[2:]]
    y = np.zeros((len(x), d.out_channels, *(n + 2 * d.kernel_size for n in size)))
    for tap in np.ndindex(*w.shape[2:]):
        part = np.moveaxis(np.tensordot(w[(slice(None), slice(None), *tap)], x, (0, 1)), 0, 1)
        y[(slice(None), slice(None), *(slice(t, t + n, d.stride) for t, n in zip(tap, size, strict=True)))] += part
    y = y[(slice(None), slice(None), *(slice(d.padding, d.padding + n) for n in size))] + channels(conv_bias, y)
    out = np.apply_along_axis(normalised, -1, y, d.eps)
    return gelu(out * scale + shift) * d.scaling_factor


def t29k(x, w, b, scale, shift, d):
    return group_norm(swish(x @ w) + b, d.num_groups, scale, shift)


def t30k(x, w, b, d):
    return (1 + d.scaling_factor) * (x @ w + b)


def t31k(x, w, b, scale, shift, d):
    return np.maximum(gelu(batch_norm(x @ w.T + b, scale, shift)), 0)


def t32k(x, w1, b1, w2, b2, d):
    return log_sum_exp(sigmoid(x @ w1.T + b1) @ w2.T + b2, 1)


def t33k(x, w, b, d):
    y = conv(x, w)
    return np.tanh(mish(y + channels(b, y)))


def t34k(x, w, b, scale, shift, d):
    y = conv(x, w)
    return batch_norm(mish(y + channels(b, y)), scale, shift)


def t35k(x, w, b, d):
    return gelu(np.minimum(np.maximum(d.scaling_factor * (x @ w + b), d.hardtanh_min), d.hardtanh_max))


def t36k(x, w, b, d):
    return sigmoid(x @ w + b).sum(1)[:, None]


def t37k(x, w, b, d):
    return d.scaling_factor * swish(x @ w + b)


def t38k(x, w, b, d):
    return np.stack([softmax_row(row) for row in x @ w.T + b])


def t39k(x, w, b, d):
    y = conv(x, w)
    return gelu(y + channels(b, y)).reshape(*y.shape[:2], -1).sum(-1) / y[0, 0].size


def t40k(x, w, b, scale, shift, bias, d):
    lowest = group_norm(x @ w.T + b, d.num_groups, scale, shift).min(1)
    return (bias.ravel()[:, None] + lowest)[None, :, :, None]


def t41k(x, w, b, d):
    return np.maximum(x @ w + b, 0)


def t42k(x, w, b, d):
    return np.stack([gelu(row - row.max()) for row in x @ w + b])


def t43k(x, w, b, scale, shift, mean, variance, factor, d):
    y = (x @ w + b - mean) * (scale / np.sqrt(variance + d.bn_eps)) + shift
    return np.stack([softmax_row(row * factor[0]) for row in y])


def t44k(x, w, b, d):
    return gelu((x @ w + b) / d.divisor)


def t45k(x, w, b, scale, shift, factor, d):
    return swish(factor * swish(group_norm(x @ w.T + b, d.num_groups, scale, shift)))


def t46k(x, w, b, scale, shift, d):
    y = conv(x, w)
    y = y + channels(b, y)
    t = np.tanh(group_norm(y, d.groups, scale, shift))
    return log_sum_exp(y + t * (t + 3) / 6, 1)[:, None]


def t47k(x, w, b, add, d):
    return gelu(np.tanh(swish(x @ w + (b + add))))


def t48k(x, w, b, scale, shift, mean, variance, bias, d):
    y = (x @ w + b - mean) * (scale / np.sqrt(variance + d.bn_eps)) + shift
    return swish((y + bias[0]) / d.divide_value)


def t49k(x, w, b, d):
    y = x @ w + b
    runs = [
        y[:, i : i + d.pool_kernel_size].sum(1) / d.pool_kernel_size for i in range(0, y.shape[1], d.pool_kernel_size)
    ]
    return (d.scale_factor * gelu(np.stack(runs, axis=1))).max(1)


def t50k(x, w, b, d):
    return np.stack([softmax_row(row) for row in gelu(x @ w + b)])
