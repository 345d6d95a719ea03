"""Search against auto with the same number of judgements, recipes alone: `python tests/bench/search_vs_auto.py`.

Auto runs first, under a budget it does not use up; search gets exactly the judgements that auto made. Both use the same
judge, whose answers about the same program are kept between them.
"""

import argparse
import sys
import tempfile

import jax
import jax.numpy as jnp

from maxkernel_nb import api
from maxkernel_nb.budget import Budget
from maxkernel_nb.engine.loop import close_engine


def attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) / 8.0
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1).astype(v.dtype), v)




def fused_cross_entropy(x, w, labels):
    logits = (x @ w).astype(jnp.float32)
    return jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]


def gemm_chain(x, w, b, r):
    return jax.nn.gelu(x @ w + b) * r + x[:, :1]


TASKS = {
    "attention": (attention, "q: bf16[1,4,1536,64], k: bf16[1,4,1536,64], v: bf16[1,4,1536,64]"),
    "fused_cross_entropy": (fused_cross_entropy, "x: bf16[1024,1024], w: bf16[1024,8192], labels: i32[1024]"),
    "gemm_chain": (gemm_chain, "x: bf16[1024,2048], w: bf16[2048,2048], b: bf16[2048], r: bf16[1024,2048]"),
    "long_k": (lambda x, w: jnp.maximum(x @ w, 0), "x: bf16[256,8192], w: bf16[8192,512]"),
}


def run(name, mode, budget, folder):
    fn, shapes = TASKS[name]
    started = api.start(fn, mode=mode, shapes=shapes, chip="v6e", policy="propose", budget=budget, project=folder,
                        author="recipes", name=name,
                        source=None if fn.__name__ != "<lambda>" else f"def {name}(x, w):\n    return max(x @ w, 0)\n")
    return started.wait(3000).state


def main(names, budget):
    won = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            auto = run(name, "auto", Budget(judged=budget, wall_seconds=None), folder)
            if auto.spend.judged == 0 or auto.best_ms is None:
                sys.stdout.write(f"{name}: not served: {auto.reason[:300]}\n")
                continue
            search = run(name, "search", Budget(judged=auto.spend.judged, wall_seconds=None), folder)
        ratio = auto.best_ms / search.best_ms
        won += ratio > 1.005
        sys.stdout.write(f"{name}: {auto.spend.judged} judgements each: auto {auto.best_ms:.5g} ms, search "
                         f"{search.best_ms:.5g} ms ({search.spend.judged} used), search {ratio:.3f}x as fast; XLA "
                         f"{auto.baseline.modelled_ms:.5g} ms; all modelled\n")
        sys.stdout.flush()
    sys.stdout.write(f"search is better on {won} of {len(names)}\n")
    close_engine()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--budget", type=int, default=40)
    chosen = parser.parse_args()
    main(chosen.tasks, chosen.budget)
