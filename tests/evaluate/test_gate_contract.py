"""Every gate under the one contract of ``ground.Gate``: what it says of an honest kernel, of a refusal, of an answer
that is none and of a fault of ours, and that a judgement can be stopped in it.
"""

import asyncio
import importlib.util
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate.calls import Caller
from maxkernel_nb.evaluate.executor import JobRefused, Reply, WorkerDied, WorkerKind
from maxkernel_nb.evaluate.local import GATES
from maxkernel_nb.evaluate.records import Records
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Candidate, GateName, Outcome
from maxkernel_nb.tasks.build import build_task

spec = importlib.util.spec_from_file_location("contract_honest", Path(__file__).with_name("suite_honest.py"))
honest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(honest)
_COMPILED = (GateName.COMPILE, GateName.MODEL)
EACH = [pytest.param(g, id=g.name, marks=pytest.mark.tpu_compiler if g.name in _COMPILED else ()) for g in GATES]
ASKING = [p for p in EACH if p.id != "screen"]  # those that ask a worker


def double(x):
    return x * 2.0


class Answering:
    """An executor whose workers of some kinds all do one thing; others are the real ones. Remembers what was asked."""

    def __init__(self, act, real=None, kinds=tuple(WorkerKind)):
        self.act, self.real, self.kinds = act, real, kinds
        self.pending, self.cancelled = [], []

    def submit(self, job):
        if job.kind not in self.kinds:
            return self.real.submit(job)
        future = Future()
        self.pending.append(future)
        self.act(future)
        return future

    def cancel(self, future, kill=True):
        self.cancelled.append(future)
        if self.real is not None and future not in self.pending:
            self.real.cancel(future, kill)


@pytest.fixture(scope="module")
def ground(bench):
    """Of an honest kernel, traced, with nothing known of it yet."""
    task = build_task(double, shapes="x: f32[64,128]", store=bench.store, gradient=True).task
    candidate = Candidate(source=honest.VJP, entry="kernel", author="test")
    made = bench.evaluator._ground(task.model_copy(update={"seeds": (0,)}), candidate, tuple(GateName))
    bench.run(collected(next(g for g in GATES if g.name is GateName.TRACE), made))
    return made


@pytest.fixture
def fresh(ground, tmp_path):
    """``fresh(act)``: the ground, its workers replaced by ones that do ``act``; without, the real ones."""

    def make(act=None, kinds=tuple(WorkerKind)):
        executor = ground.caller.executor if act is None else Answering(act, ground.caller.executor, kinds)
        records = Records(ObjectStore(tmp_path))
        return replace(ground, caller=Caller(executor), records=records, probes={}, in_flight={})

    return make


async def collected(gate, ground):
    return [verdict async for verdict in gate.run(ground)]


def test_the_gates_are_in_the_ladders_order():
    names = [g.name for g in GATES]
    assert names == [n for n in GateName if n in names] and set(GateName) - set(names) == {GateName.CHIP}


@pytest.mark.parametrize("gate", EACH)
def test_an_honest_kernel_gets_verdicts_of_the_gates_name_and_nothing_worse_than_declined(bench, fresh, gate):
    verdicts = bench.run(collected(gate, fresh()))
    assert verdicts and {v.gate for v in verdicts} == {gate.name}
    assert {v.outcome for v in verdicts} <= {Outcome.PASS, Outcome.DECLINED} and verdicts[0].outcome is Outcome.PASS
    assert all(v.summary and "\n" not in v.summary and v.seconds >= 0 for v in verdicts)
    places = [(v.case, v.seed, v.variant) for v in verdicts]
    assert len(set(places)) == len(places), "one verdict would replace another"


@pytest.mark.parametrize("gate", ASKING)
def test_a_refusal_is_the_candidates_and_the_last_word(bench, fresh, gate):
    def refuse(future):
        future.set_exception(JobRefused("odd", "It is odd.", line=3))

    try:
        verdicts = bench.run(collected(gate, fresh(refuse, (WorkerKind.CANDIDATE, WorkerKind.COMPILER))))
    except JobRefused as refusal:  # the ladder makes it a verdict
        assert (refusal.kind, refusal.line) == ("odd", 3)
        return
    assert [v.outcome for v in verdicts].count(Outcome.FAIL) == 1 and verdicts[-1].outcome is Outcome.FAIL
    assert "It is odd." in verdicts[-1].summary and verdicts[-1].diagnostics[0].line == 3


@pytest.mark.parametrize("gate", [p for p in ASKING if p.id not in _COMPILED])
def test_an_answer_that_is_none_is_the_candidates(bench, fresh, gate):
    def babble(future):
        future.set_result(Reply({"cases": "?", "runs": 7, "outputs": None}, (b"?",)))

    try:
        last = bench.run(collected(gate, fresh(babble, (WorkerKind.CANDIDATE,))))[-1]
    except JobRefused as refusal:
        assert refusal.kind == "crash"
        return
    assert last.outcome is Outcome.FAIL and last.diagnostics[0].kind == "crash"


@pytest.mark.parametrize("gate", ASKING)
def test_a_worker_that_somebody_else_kills_is_never_the_candidates(bench, fresh, gate):
    def die(future):
        future.set_exception(WorkerDied("killed", None, 9))

    with pytest.raises(InfrastructureError):
        bench.run(collected(gate, fresh(die)))


@pytest.mark.parametrize("gate", ASKING)
def test_a_judgement_can_be_stopped_in_it_and_leaves_no_job(bench, fresh, gate):
    async def stopped():
        asked = asyncio.Event()
        ground = fresh(lambda future: asked.set())
        running = asyncio.ensure_future(collected(gate, ground))
        await asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait([task])
        return ground.caller.executor

    executor = bench.run(stopped())
    assert executor.pending and set(executor.pending) <= set(executor.cancelled)
