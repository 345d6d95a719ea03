"""Searches of the real engine over made-up kernels: no jax, no compiler, and answers that come in any order."""

import asyncio
import math
import os
import random
import signal
from types import SimpleNamespace

from engine_bench import Bench

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.budget import Budget
from maxkernel_nb.engine.graph import graph_of
from maxkernel_nb.engine.state import fold
from maxkernel_nb.errors import Declined
from maxkernel_nb.evaluate.fake import FakeEvaluator
from maxkernel_nb.journal import read_events
from maxkernel_nb.task import Candidate

AXES = {"A": (16, 32, 64, 128, 256), "B": (16, 32, 64, 128, 256), "C": (1, 2, 4, 8)}


def made_up_ms(params):
    """A valley with its floor at A=128, B=64, C=4, crossed by a ridge."""
    a, b, c = (math.log2(params[k]) for k in "ABC")
    return round(0.7 * (1 + 0.3 * (a - 7) ** 2 + 0.2 * (b - 6) ** 2 + 0.1 * (c - 2) ** 2
                        + 0.1 * abs(a - b - 1)), 4)


class ValleyAuthor(ScriptedAuthor):
    """Writes kernels whose time is ``made_up_ms`` of their constants; every seventh text is wrong."""

    def __init__(self):
        super().__init__([""], axes=AXES)

    def _kernel(self, params, parent=None):
        ms = made_up_ms(params)
        wrong = "# wrong\n" if params["A"] * params["B"] * params["C"] % 7 == 2 else ""
        constants = "".join(f"{k} = {v}\n" for k, v in params.items())
        return Candidate(source=f"{wrong}# time={ms}\n{constants}", entry="f", author=self.name, parent=parent,
                         params=params, bound_ms=0.6)

    async def implement(self, view, plan):
        return self._kernel({"A": 16, "B": 16, "C": 1})

    async def repair(self, view, plan, candidate, assessment):
        raise Declined("it cannot mend this")

    def tuning_space(self, view, plan, candidate):
        return TuningSpace(axes=AXES, seeds=({"A": 16, "B": 16, "C": 1}, {"A": 256, "B": 256, "C": 8}))

    def retune(self, view, plan, candidate, params):
        return self._kernel(dict(params), candidate.id)


class WritingAuthor(ValleyAuthor):
    """Can rewrite too. ``times``: the ms of its rewrites, by how many rewrites lie above them."""

    def __init__(self, times=(0.9, 0.8, 0.75), slowness=0.0):
        super().__init__()
        self.times, self.slowness, self.told = times, slowness, []
        self.settings = SimpleNamespace(rounds=0, patience=0, stress=False, review=False)

    async def next_attack(self, view):
        raise AssertionError("a search makes its own plans")

    async def implement(self, view, plan, base=None, remarks=""):
        if base is None:
            return await super().implement(view, plan)
        self.told.append((plan, remarks))
        await asyncio.sleep(self.slowness)
        depth = base.source.count("# rewritten") + 1
        ms = self.times[min(depth, len(self.times)) - 1]
        text = f"# time={ms}\n" + "# rewritten\n" * depth + f"# {plan.strategy}\n"
        return Candidate(source=text, entry="f", author=self.name, parent=base.id)

    def tuning_space(self, view, plan, candidate):
        rewritten = "# rewritten" in candidate.source
        return TuningSpace(axes={}) if rewritten else super().tuning_space(view, plan, candidate)


class ShuffledEvaluator(FakeEvaluator):
    """Answers after a random time, so that what finishes first differs from run to run."""

    def __init__(self, seed=None, most_s=0.004):
        super().__init__()
        self.dice, self.most_s = random.Random(seed), most_s

    async def judge(self, task, candidate, gates=(), on_verdict=lambda verdict: None):
        await asyncio.sleep(self.dice.uniform(0, self.most_s))
        return await super().judge(task, candidate, gates, on_verdict)


def search(root, judged=30, author=None, evaluator=None, kill_at=None, **settings):
    """One search to its end, new or resumed. ``kill_at``: the process kills itself at that event of its own."""
    bench = Bench(root)
    try:
        settings = {"policy": "propose", "width": 3, **settings}
        run = bench.run(author or ValleyAuthor(), evaluator or ShuffledEvaluator(), mode_name="search",
                        budget=Budget(judged=judged), **settings)
        if kill_at is not None:
            left = [kill_at]

            def count(state):
                left[0] -= 1
                if left[0] <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            run.subscribe(count)
        return run.wait_end(60).state
    finally:
        bench.engine.close()


def killed_at(root, event, **options):
    """A child process that is killed at ``event``; True when it was, False when it ended before."""
    child = os.fork()
    if child == 0:
        try:
            search(root, kill_at=event, **options)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def recorded(root):
    return fold(read_events(root / ".maxkernel" / "runs" / "f-1"))


def shape(state):
    """All of a graph that a person can see."""
    graph = graph_of(state)
    nodes = {n.id: (n.draw, n.how, n.family, n.parents, n.idea, n.result, n.ms, n.cost, n.depth, n.lineage)
             for n in graph.nodes.values()}
    seen = {n: (o.candidate, o.result, o.modelled_ms, o.cost) for n, o in graph.observed.items()}
    return nodes, seen, graph.best, graph.curve





def recorded_task():
    from engine_bench import make_task

    return make_task()
