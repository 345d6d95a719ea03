"""Attention over more keys than the VMEM holds: what the embedded engine makes of it.

    python -m tests.bench.long_attention [--project FOLDER] [--points N] [NAME ...]

As tests.bench.ten_functions: each goes through the whole job, and is printed with its modelled gain over XLA.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp

from tests.bench.ten_functions import Functions, main


def prefill_chunk(q, k, v):
    """The last 1,024 queries of a long prompt: two query heads read one key head, causal to the end."""
    groups = q.shape[1] // k.shape[1]
    k, v = jnp.repeat(k, groups, axis=1), jnp.repeat(v, groups, axis=1)
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool), k.shape[2] - q.shape[2]), s, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1).astype(v.dtype), v)


FUNCTIONS: Functions = {
    "prefill_chunk": (prefill_chunk, "q: bf16[1,2,1024,128], k: bf16[1,1,262144,128], v: bf16[1,1,262144,128]"),
}

if __name__ == "__main__":
    sys.exit(main(functions=FUNCTIONS, folder="maxkernel-long", description=__doc__))
