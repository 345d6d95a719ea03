"""Kernel files for 41k (``relu(x @ weight + bias)``) as people hand them in: right, wrong, cheating, broken."""

HEAD = '''import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def _body(x_ref, w_ref, b_ref, o_ref):
    y = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = {result}.astype(o_ref.dtype)


def _product(x, w, b):
    (m, k), n = x.shape, w.shape[1]
    rows, columns = min(m, 256), min(n, 512)
    return pl.pallas_call(
        _body,
        grid=(pl.cdiv(m, rows), pl.cdiv(n, columns)),
        in_specs=[
            pl.BlockSpec((rows, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, columns), lambda i, j: (0, j)),
            pl.BlockSpec((1, columns), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((rows, columns), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
    )(x, w, b.reshape(1, n))


'''
RIGHT = "jnp.maximum(y + b_ref[...].astype(jnp.float32), 0)"
HONEST = HEAD.format(result=RIGHT)

FILES = {
    "right": HONEST + "def reference(x, weight, bias):\n    return _product(x, weight, bias)\n",
    "foreign_layout": HONEST + "CONFIG = {'M': 4096}\n\n\ndef workload(a, b, c):\n    return _product(a, b, c)\n",
    "foreign_jitted": HONEST + "workload = jax.jit(_product)\n",
    "wrong_no_bias": HEAD.format(result="jnp.maximum(y, 0)") + "workload = _product\n",
    "wrong_dtype": HONEST + "def workload(x, w, b):\n    return _product(x, w, b).astype(jnp.float32)\n",
    "plain_jax": "import jax.numpy as jnp\n\n\ndef workload(x, w, b):\n    return jnp.maximum(x @ w + b, 0)\n",
    "cheat_environment": "import os\n" + HONEST + "workload = _product\n",
    "cheat_zeros": HEAD.format(result="jnp.zeros_like(y)") + "workload = _product\n",
    "crashing": HONEST + "def workload(x, w, b):\n    raise RuntimeError('not today')\n",
    "wrong_signature": HONEST + "def workload(x, w):\n    return _product(x, w, x[0])\n",
    "no_entry": HONEST,
    "no_python": "def workload(x, w, b:\n",
    "never_ends": HONEST + "def workload(x, w, b):\n    while True:\n        pass\n",
}

# File -> (status, exit code, gate that refuses it, words of the reason).
EXPECTED = {
    "right": ("ok", 0, "", ""),
    "foreign_layout": ("ok", 0, "", ""),
    "foreign_jitted": ("ok", 0, "", ""),
    "wrong_no_bias": ("refused", 1, "check", "Wrong values"),
    "wrong_dtype": ("refused", 1, "trace", "float32"),
    "plain_jax": ("refused", 1, "trace", "no Pallas kernel"),
    "cheat_environment": ("refused", 1, "screen", "imports os"),
    "cheat_zeros": ("refused", 1, "check", "Wrong values"),
    "crashing": ("refused", 1, "trace", "not today"),
    "wrong_signature": ("refused", 1, "screen", "must take the reference's parameters (x, weight, bias)"),
    "no_entry": ("refused", 1, "screen", "There is no function reference"),
    "no_python": ("refused", 1, "screen", "not Python"),
    "never_ends": ("refused", 1, "trace", "did not finish"),
}
