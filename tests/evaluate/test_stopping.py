"""A stopped judgement leaves no job behind: not the one it waits for, nor those it started beside it."""

import asyncio
from concurrent.futures import Future

import pytest

from maxkernel_nb.evaluate.calls import Caller
from maxkernel_nb.evaluate.compile_gates import recorded
from maxkernel_nb.evaluate.executor import Reply
from maxkernel_nb.evaluate.ground import Ground, Limits
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.evaluate.records import Records
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Candidate, GateName

CANDIDATE = Candidate(source="def kernel(x): ...", entry="kernel", author="test")
OUTPUTS = {"tree": "*", "leaves": []}
SAME = {"kind": "", "passed": True, "sentence": "Same.", "ratio": 0, "norm_ratio": 0, "max_abs_error": 0}
FACTS = {"outputs": OUTPUTS, "kernels": 1, "constant_bytes": 0, "vmem_bytes": 0, "fingerprint": "f",
         "copies": 0, "parallel": 1, "work": 0, "products": 0, "elements": 1, "used": [], "arithmetic": [], "kinds": []}


class Hanging:
    """An executor whose jobs are answered by ``answer``, or never. ``running``: (operation, future) of the others."""

    def __init__(self, answer=lambda job: None):
        self.answer, self.running, self.killed = answer, [], []

    def submit(self, job):
        future = Future()
        reply = self.answer(job)
        if reply is None:
            future.set_running_or_notify_cancel()
            self.running.append((job.op, future))
        else:
            future.set_result(reply)
        return future

    def cancel(self, future, kill=True):
        op = next(op for op, known in self.running if known is future)
        self.killed += [op] * kill


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to that")


def reaches_the_check(task):
    checks = []

    def answer(job):
        match job.op:
            case "trace":
                facts = {c.name: FACTS for c in task.cases}
                names = job.args["export"]
                return Reply({"cases": facts, "exports": names}, (b"program",) * len(names))
            case "outputs":
                return Reply({"outputs": [OUTPUTS] * len(job.buffers)})
            case "probes":
                return Reply({"probes": []})
            case "check" if not checks:
                checks.append(job)
                return Reply({"runs": [{"outputs": []}] * len(job.args["runs"])})
            case "compare":
                return Reply({"runs": [SAME] * len(job.args["runs"])})

    return answer


def test_stopping_a_judgement_kills_its_checks_and_what_compiles_ahead(bench, monkeypatch):
    monkeypatch.setattr("maxkernel_nb.tpu.availability.compiler_available", lambda: (True, ""))
    task, executor = bench.gemm, Hanging(reaches_the_check(bench.gemm))
    others = len(task.check_cases) - 1  # the smallest has been answered, the rest run
    evaluator = LocalEvaluator(bench.store, executor=executor)
    gates = (GateName.TRACE, GateName.CHECK, GateName.COMPILE)

    async def stop():
        judgement = asyncio.create_task(evaluator.judge(task, CANDIDATE, gates))
        await until(lambda: len(executor.running) >= others + 1)
        judgement.cancel()
        with pytest.raises(asyncio.CancelledError):
            await judgement
        await until(lambda: len(executor.killed) == len(executor.running))

    bench.run(stop())
    assert sorted(executor.killed) == sorted(op for op, _ in executor.running)
    assert executor.killed.count("profile") == 1 and executor.killed.count("check") == others


def test_a_compilation_that_somebody_still_waits_for_is_not_killed(bench, tmp_path):
    executor, store = Hanging(), ObjectStore(tmp_path)
    ground = Ground(bench.gemm, CANDIDATE, (), Caller(executor), store, Records(store), Limits())
    program = store.put(b"program")

    async def stop_one_after_the_other():
        first, second = (asyncio.create_task(recorded(ground, "profile", program)) for _ in range(2))
        await until(lambda: executor.running)
        first.cancel()
        await asyncio.wait([first])
        assert not executor.killed and not second.done()
        second.cancel()
        await until(lambda: executor.killed)
        again = asyncio.create_task(recorded(ground, "profile", program))
        await until(lambda: len(executor.running) == 2)
        executor.running[1][1].set_result(Reply({"profile": {}}))
        assert await again == {"profile": {}}

    bench.run(stop_one_after_the_other())
    assert executor.killed == ["profile"] and not ground.in_flight
