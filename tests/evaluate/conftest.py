"""One pool of warm workers for all tests of the ladder; tasks small enough to be judged in seconds."""

import asyncio
import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from maxkernel_nb.evaluate.ground import Limits
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Candidate, GateName
from maxkernel_nb.tasks.build import build_task


def _kernels():
    spec = importlib.util.spec_from_file_location("evaluate_kernels", Path(__file__).with_name("kernels.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Bench:
    """The evaluator under test, its event loop, and the tasks."""

    def __init__(self, folder):
        self.kernels = _kernels()
        self.store = ObjectStore(folder)
        self.evaluator = LocalEvaluator(self.store)
        self.runner = asyncio.Runner()
        ks = self.kernels
        self.gemm = self._task(ks.gemm, "x: bf16[512,1024], w: bf16[1024,512], b: bf16[512]", ks.GEMM)
        shape = "bf16[2,4,512,128]"
        self.attention = self._task(ks.attention, f"q: {shape}, k: {shape}, v: {shape}", ks.ATTENTION)
        self.double = self._task(ks.double, "x: f32[512,1024]", ks.COPY)

    def _task(self, function, shapes, source):
        return build_task(function, shapes=shapes, source=source, store=self.store).task

    def judge(self, task, source, gates=(GateName.SCREEN, GateName.TRACE, GateName.CHECK), evaluator=None):
        candidate = Candidate(source=source, entry="kernel", author="test")
        judged = self.runner.run((evaluator or self.evaluator).judge(task, candidate, gates))
        return judged.assessment

    def traced(self, task, source, **limits):
        """Only the trace gate: what the sandbox holds when the screen lets everything through."""
        limited = LocalEvaluator(self.store, limits=replace(Limits(), **limits), executor=self.evaluator.executor)
        return self.judge(task, source, (GateName.TRACE,), limited).verdicts[-1]

    def run(self, coroutine):
        return self.runner.run(coroutine)

    def close(self):
        self.evaluator.close()
        self.runner.close()


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("objects"))
    yield bench
    bench.close()
