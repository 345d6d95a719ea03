"""Search against auto with the same number of judgements, recipes alone: `python tests/bench/search_vs_auto.py`.

Auto runs first and ends by itself (or with its budget); search gets exactly the judgements that auto made. Both use the
same judge, whose answers about the same program are kept in FOLDER, with what auto found; a second call repeats only
the searches, and what they judge anew.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

from maxkernel_nb import api
from maxkernel_nb.budget import Budget
from maxkernel_nb.engine.loop import close_engine


def attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) / q.shape[-1] ** 0.5
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1).astype(v.dtype), v)


def fused_cross_entropy(x, w, labels):
    logits = (x @ w).astype(jnp.float32)
    return jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]


def gemm_chain(x, w, b, r):
    return jax.nn.gelu(x @ w + b) * r + x[:, :1]


def two_gemms(x, w1, b1, w2):
    return jax.nn.gelu(x @ w1 + b1) @ w2


TASKS = {
    "attention": (attention, "q: bf16[1,8,4096,128], k: bf16[1,8,4096,128], v: bf16[1,8,4096,128]"),
    "fused_cross_entropy": (fused_cross_entropy, "x: bf16[2048,2048], w: bf16[2048,32768], labels: i32[2048]"),
    "gemm_chain": (gemm_chain, "x: bf16[2048,4096], w: bf16[4096,4096], b: bf16[4096], r: bf16[2048,4096]"),
    "two_gemms": (two_gemms, "x: bf16[2048,2048], w1: bf16[2048,8192], b1: bf16[8192], w2: bf16[8192,2048]"),
    "small_attention": (attention, "q: bf16[1,4,1536,64], k: bf16[1,4,1536,64], v: bf16[1,4,1536,64]"),
    "small_cross_entropy": (fused_cross_entropy, "x: bf16[1024,1024], w: bf16[1024,8192], labels: i32[1024]"),
    "small_chain": (gemm_chain, "x: bf16[1024,2048], w: bf16[2048,2048], b: bf16[2048], r: bf16[1024,2048]"),
}
THREE = ("attention", "fused_cross_entropy", "gemm_chain")


def run(name, mode, budget, folder, points=None):
    fn, shapes = TASKS[name]
    run = api.start(fn, mode=mode, shapes=shapes, chip="v6e", policy="propose", project=folder, author="recipes",
                    budget=Budget(judged=budget, wall_seconds=None), name=name, tuning_points=points)
    return run.wait(6000).state


def auto_found(name, budget, folder, points=None):
    """What auto found, kept from an earlier call where there was one."""
    path = folder / f"auto-{budget}-{points}.json"
    if not path.exists():
        state = run(name, "auto", budget, folder, points)
        if state.spend.judged == 0 or state.best_ms is None:
            raise SystemExit(f"{name} is not served: {state.reason[:300]}")
        found = {"judged": state.spend.judged, "ms": state.best_ms, "reference_ms": state.baseline.modelled_ms,
                 "params": dict(state.candidates[state.best].candidate.params)}
        path.write_text(json.dumps(found))
    return json.loads(path.read_text())


def compare(name, budget, folder, points=None):
    """How many times as fast search's kernel is."""
    folder.mkdir(parents=True, exist_ok=True)
    auto = auto_found(name, budget, folder, points)
    search = run(name, "search", auto["judged"], folder)
    ratio = auto["ms"] / search.best_ms
    params = dict(search.candidates[search.best].candidate.params)
    sys.stdout.write(f"{name}: {auto['judged']} judgements each: auto {auto['ms']:.5g} ms {auto['params']}, search "
                     f"{search.best_ms:.5g} ms {params} ({search.spend.judged} used), search {ratio:.3f}x as fast; XLA "
                     f"{auto['reference_ms']:.5g} ms; all modelled\n")
    sys.stdout.flush()
    return ratio


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(THREE), help=", ".join(TASKS))
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--points", type=int, help="constants that auto's tuner may try; by default it stops early")
    parser.add_argument("--folder", type=Path, help="kept; without it a temporary one")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        place = chosen.folder or Path(passing)
        ratios = [compare(name, chosen.budget, place / name, chosen.points) for name in chosen.tasks]
        close_engine()
    better, worse = sum(r > 1.003 for r in ratios), sum(r < 0.997 for r in ratios)
    sys.stdout.write(f"search is better on {better} of {len(ratios)}, worse on {worse}\n")
    sys.exit(1 if worse else 0)
