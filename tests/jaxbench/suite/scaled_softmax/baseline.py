"""A task in the field's layout: softmax over rows of a scaled product."""

import jax
import jax.numpy as jnp

CONFIG = {"name": "scaled_softmax", "rows": 1024, "inner": 512, "columns": 1024, "scale": 0.5}


def create_inputs(dtype=jnp.bfloat16):
    first, second = jax.random.split(jax.random.key(42))
    x = jax.random.normal(first, (CONFIG["rows"], CONFIG["inner"]), dtype)
    w = jax.random.normal(second, (CONFIG["inner"], CONFIG["columns"]), dtype) * 0.1
    return x, w


def workload(x, w):
    return jax.nn.softmax(x @ w * CONFIG["scale"], axis=-1)


def get_flops():
    return 2 * CONFIG["rows"] * CONFIG["inner"] * CONFIG["columns"]
