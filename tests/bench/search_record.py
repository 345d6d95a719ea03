"""Records real verdicts over a lattice of candidates: `python tests/bench/search_record.py TASK FOLDER`.

Every candidate is written by the embedded author and judged by the gates screen, trace, compile and model (no values
are checked: the landscape is one of times). Nothing is repeated: a line a candidate in FOLDER/TASK.jsonl, and the
judge's own records in FOLDER. `--store` writes tests/search/data/TASK.json.gz from the lines, `--estimate` adds to it
what the author estimates of each point before anything is compiled.
"""

import argparse
import asyncio
import gzip
import itertools
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from maxkernel_nb.authors.base import TaskView
from maxkernel_nb.authors.recipe_author import RecipeAuthor
from maxkernel_nb.errors import Declined
from maxkernel_nb.evaluate.base import TUNING_GATES
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.tasks.build import build_task

DATA = Path(__file__).parents[1] / "search" / "data"
CHIP = "v6e"


def gelu_linear(x, w, b):
    return jax.nn.gelu(x @ w + b)


def attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) / 8.0
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1).astype(v.dtype), v)


def long_k(x, w):
    return jnp.maximum(x @ w, 0)


def lattice(low, high, unit):
    """The powers of two and the points half-way between them."""
    found, step = set(), low
    while step <= high:
        found |= {step, step + step // 2}
        step *= 2
    return sorted(v for v in found if v <= high and v % unit == 0)


def wide_n(x, w):
    return jax.nn.silu(x @ w)


# Small enough that most compiles take a second or two.
TASKS = {
    "matmul_gelu": (gelu_linear, "x: bf16[1024,2048], w: bf16[2048,2048], b: bf16[2048]",
                    {"BLOCK_M": lattice(64, 1024, 16), "BLOCK_N": lattice(128, 1024, 128),
                     "BLOCK_K": lattice(256, 2048, 128)}),
    "attention": (attention, "q: bf16[1,4,1536,64], k: bf16[1,4,1536,64], v: bf16[1,4,1536,64]",
                  {axis: list(range(128, 1537, 128)) for axis in ("BLOCK_Q", "BLOCK_K", "ROWS")}),
    "wide_n": (wide_n, "x: bf16[128,2048], w: bf16[2048,8192]",
               {"BLOCK_M": lattice(16, 128, 16), "BLOCK_N": lattice(128, 4096, 128),
                "BLOCK_K": lattice(256, 2048, 128)}),
    "long_k": (long_k, "x: bf16[256,8192], w: bf16[8192,512]",
               {"BLOCK_M": lattice(32, 256, 16), "BLOCK_N": lattice(128, 512, 128),
                "BLOCK_K": lattice(256, 8192, 128)}),
}


async def record(name, folder, most, seconds):
    fn, shapes, axes = TASKS[name]
    store = ObjectStore(folder / "objects")
    built = build_task(fn, shapes=shapes, chip=CHIP, store=store)
    evaluator = LocalEvaluator(store, workers=1)
    author = RecipeAuthor()
    view = TaskView(task=built.task, trace=built.trace, baseline=await evaluator.baseline(built.task))
    plan = await author.plan(view)
    first = await author.implement(view, plan)
    path, started = folder / f"{name}.jsonl", time.monotonic()
    known = {tuple(sorted(json.loads(line)["params"].items())) for line in _lines(path)}
    head = {"task": name, "chip": CHIP, "shapes": shapes, "baseline": view.baseline.to_dict(),
            "axes": {k: list(v) for k, v in author.tuning_space(view, plan, first).axes.items()},
            "lattice": axes, "seeds": [dict(s) for s in author.tuning_space(view, plan, first).seeds],
            "versions": {"jax": jax.__version__}, "plan": plan.strategy}
    head["baseline"].pop("ops")
    (folder / f"{name}.head.json").write_text(json.dumps(head))
    points = [dict(zip(axes, p, strict=True)) for p in itertools.product(*axes.values())]
    random.Random(0).shuffle(points)
    points = [dict(s) for s in head["seeds"]] + points
    try:
        with path.open("a") as file:
            for params in points:
                if len(known) >= most or time.monotonic() - started > seconds:
                    break
                key = tuple(sorted(params.items()))
                if key in known:
                    continue
                try:
                    candidate = author.retune(view, plan, first, params)
                except Declined:
                    continue
                known.add(key)
                file.write(json.dumps(await judged(evaluator, built.task, candidate)) + "\n")
                file.flush()
    finally:
        evaluator.close()
    sys.stdout.write(f"{name}: {len(known)} candidates recorded\n")


async def judged(evaluator, task, candidate):
    judgement = await evaluator.judge(task, candidate, TUNING_GATES)
    assessment, profile = judgement.assessment, judgement.profile
    failed = assessment.failed
    line = {"id": candidate.id, "params": candidate.params, "bound_ms": candidate.bound_ms,
            "ms": None if failed else assessment.modelled_ms,
            "failed": f"{failed[0].gate}: {failed[0].summary[:120]}" if failed else "",
            "seconds": {str(v.gate): round(v.seconds, 3) for v in assessment.verdicts}}
    if profile is not None:
        longest = max(profile.ops, key=lambda op: op.modelled_ms, default=None)
        line |= {"bound_by": profile.bound_by, "roofline_ms": profile.roofline_ms, "vmem_bytes": profile.vmem_bytes,
                 "hbm_bytes": profile.hbm_bytes, "spills": longest.spills if longest else 0,
                 "use": {k: round(v, 3) for k, v in (longest.utilisation if longest else {}).items()}}
    return line


async def estimate(name):
    """Puts the author's cheap estimate beside every recorded point; nothing is compiled."""
    fn, shapes, _ = TASKS[name]
    path = DATA / f"{name}.json.gz"
    head = json.loads(gzip.decompress(path.read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        built = build_task(fn, shapes=shapes, chip=CHIP, store=ObjectStore(Path(folder)))
        author, view = RecipeAuthor(), TaskView(task=built.task, trace=built.trace)
        plan = await author.plan(view)
        about = author.estimator(view, plan, await author.implement(view, plan))
    for known in head["candidates"]:
        known["estimate_ms"] = about(known["params"])
    path.write_bytes(gzip.compress(json.dumps(head, separators=(",", ":")).encode(), mtime=0))
    sys.stdout.write(f"{name}: {len(head['candidates'])} estimates\n")


def store(name, folder):
    head = json.loads((folder / f"{name}.head.json").read_text())
    head["candidates"] = [json.loads(line) for line in _lines(folder / f"{name}.jsonl")]
    DATA.mkdir(parents=True, exist_ok=True)
    target = DATA / f"{name}.json.gz"
    target.write_bytes(gzip.compress(json.dumps(head, separators=(",", ":")).encode(), mtime=0))
    times = [c["ms"] for c in head["candidates"] if c["ms"]]
    sys.stdout.write(f"{name}: {len(head['candidates'])} candidates, {len(times)} with a time, best {min(times):.4g} "
                     f"ms, {target.stat().st_size / 1e3:.0f} kB\n")


def _lines(path):
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--store", action="store_true", help="write the small file for the tests")
    parser.add_argument("--estimate", action="store_true", help="add the author's estimates to the small file")
    chosen = parser.parse_args()
    if chosen.estimate:
        asyncio.run(estimate(chosen.task))
        sys.exit(0)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if chosen.store:
        store(chosen.task, chosen.folder)
    else:
        asyncio.run(record(chosen.task, chosen.folder, chosen.most, chosen.seconds))
