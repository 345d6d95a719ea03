"""Candidates through a Ray cluster of two nodes on this machine, while a worker is killed and a node removed, against
the local executor: `python tests/bench/search_ray.py [--candidates 100]`. Nothing may be lost, all answers be equal.
`--cheap`: without the compiler."""

import argparse
import asyncio
import itertools
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import jax.numpy as jnp
from ray_cluster import two_nodes

from maxkernel_nb.authors.base import TaskView
from maxkernel_nb.authors.recipe_author import RecipeAuthor
from maxkernel_nb.errors import Declined
from maxkernel_nb.evaluate.base import TUNING_GATES
from maxkernel_nb.evaluate.executor import WorkerKind
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.evaluate.ray_executor import ray_executor
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import GateName
from maxkernel_nb.tasks.build import build_task

PLACES = {WorkerKind.CANDIDATE: 2, WorkerKind.COMPILER: 2, WorkerKind.JUDGE: 1, WorkerKind.CHIP: 1}


def small_matmul(x, w):
    return jnp.maximum(x @ w, 0)


async def candidates(store, count):
    built = build_task(small_matmul, shapes="x: bf16[256,2048], w: bf16[2048,512]", chip="v6e", store=store)
    author, view = RecipeAuthor(), TaskView(task=built.task, trace=built.trace)
    plan = await author.plan(view)
    first, found = await author.implement(view, plan), {}
    for m, n, k in itertools.product((16, 32, 48, 64, 96, 128, 192, 256), (128, 256, 384, 512), range(128, 2049, 128)):
        try:
            made = author.retune(view, plan, first, {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k})
        except Declined:
            continue
        found[made.id] = made
        if len(found) == count:
            break
    return built.task, list(found.values())


async def judge_all(evaluator, task, made, gates, disturb=None):
    done = []

    async def one(candidate):
        judged = await evaluator.judge(task, candidate, gates)
        done.append(candidate.id)
        if disturb is not None:
            await asyncio.to_thread(disturb, len(done))
        return candidate.id, answer(judged)

    return dict(await asyncio.gather(*(one(c) for c in made)))


def answer(judged):
    assessment = judged.assessment
    return tuple((str(v.gate), str(v.outcome)) for v in assessment.verdicts), assessment.modelled_ms


class Disturbance:
    """Kills a worker process after a quarter of the answers, and takes a node away after half of them."""

    def __init__(self, count, pool, cluster, node):
        self.count, self.pool, self.cluster, self.node = count, pool, cluster, node
        self.happened, self.lock = set(), threading.Lock()

    def __call__(self, done):
        with self.lock:
            self.disturb(done)

    def disturb(self, done):
        if done >= self.count // 4 and "worker" not in self.happened:
            victim = next((pid for pid in self.pool.pids() if pid), None)
            if victim is not None:
                self.happened.add("worker")
                os.kill(victim, signal.SIGKILL)
                sys.stdout.write(f"after {done} answers: worker {victim} killed\n")
        if done >= self.count // 2 and "node" not in self.happened:
            self.happened.add("node")
            self.cluster.remove_node(self.node, allow_graceful=False)
            sys.stdout.write(f"after {done} answers: a node removed\n")


def judged_here(place, count, gates):
    task, made = asyncio.run(candidates(ObjectStore(place), count))
    evaluator, start = LocalEvaluator(ObjectStore(place), workers=1), time.monotonic()
    found = asyncio.run(judge_all(evaluator, task, made, gates))
    evaluator.close()
    sys.stdout.write(f"local: {len(found)} answers in {time.monotonic() - start:.0f} s\n")
    return task, made, found


def main(count, gates):
    with tempfile.TemporaryDirectory() as local, tempfile.TemporaryDirectory() as remote:
        asyncio.run(candidates(ObjectStore(Path(remote)), 1))  # the reference's exports
        task, made, expected = judged_here(Path(local), count, gates)
        cluster, second = two_nodes()
        pool = ray_executor(cluster.address, PLACES)
        disturb = Disturbance(count, pool, cluster, second)
        start = time.monotonic()
        evaluator = LocalEvaluator(ObjectStore(Path(remote)), executor=pool)
        found = asyncio.run(judge_all(evaluator, task, made, gates, disturb))
        evaluator.close()
        import ray

        ray.shutdown()  # a driver that is connected may not take its head node away
        cluster.shutdown()
        different = [c for c in expected if found.get(c) != expected[c]]
        sys.stdout.write(f"ray: {len(found)} answers in {time.monotonic() - start:.0f} s; "
                         f"lost {len(expected) - len(found)}, different {len(different)}\n")
        for c in different:
            sys.stdout.write(f"  {c}: {expected[c]} here, {found.get(c)} there\n")
        return 1 if different or len(found) != len(expected) or len(disturb.happened) != 2 else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--cheap", action="store_true")
    chosen = parser.parse_args()
    sys.exit(main(chosen.candidates, (GateName.SCREEN, GateName.TRACE) if chosen.cheap else TUNING_GATES))
