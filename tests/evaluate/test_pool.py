"""Workers that die, hang, are cancelled or orphaned: nothing is lost, nothing is blamed on a kernel, nothing stays."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate import wire
from maxkernel_nb.evaluate.calls import Caller
from maxkernel_nb.evaluate.executor import (
    DeadlinePassed,
    ExecutorClosed,
    Job,
    JobRefused,
    Reply,
    WorkerBabbled,
    WorkerDied,
    WorkerKind,
)
from maxkernel_nb.evaluate.pool import LocalPool
from maxkernel_nb.evaluate.process import FOLDER, sweep, unpack
from maxkernel_nb.task import Candidate, GateName, Outcome

JUDGE = Job(WorkerKind.JUDGE, "ping", {})


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        threading.Event().wait(0.02)
    return condition()


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def pool():
    pool = LocalPool({WorkerKind.CANDIDATE: 1, WorkerKind.JUDGE: 1, WorkerKind.COMPILER: 1})
    yield pool
    pool.close()


def test_close_kills_every_worker_at_once_and_removes_its_folder(pool):
    pool.submit(JUDGE).result(60)
    (pid,) = pool.pids()
    folder = Path(os.readlink(f"/proc/{pid}/cwd")).parent
    pool.close()
    assert until(lambda: gone(pid)) and until(lambda: not folder.exists())
    with pytest.raises(ExecutorClosed):
        pool.submit(JUDGE).result(5)


def test_a_running_job_is_cancelled_and_the_next_one_gets_a_fresh_worker(pool):
    pool.submit(JUDGE).result(60)
    (old,) = pool.pids()
    os.kill(old, signal.SIGSTOP)  # hangs like a deadlock would
    stuck = pool.submit(JUDGE)
    assert until(stuck.running)
    pool.cancel(stuck)
    with pytest.raises(ExecutorClosed):
        stuck.result(20)
    pool.submit(JUDGE).result(60)
    assert gone(old) and pool.pids() != [old]
    assert pool.drain(5)


def test_a_hanging_worker_is_killed_at_its_deadline(pool):
    pool.submit(JUDGE).result(60)
    (pid,) = pool.pids()
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(DeadlinePassed):
        pool.submit(Job(WorkerKind.JUDGE, "ping", {}, seconds=0.3)).result(20)
    assert until(lambda: gone(pid))


def test_workers_die_with_a_notebook_that_is_killed():
    program = (
        "import os\nfrom maxkernel_nb.evaluate.pool import LocalPool\n"
        "from maxkernel_nb.evaluate.executor import Job, WorkerKind\n"
        "pool = LocalPool({WorkerKind.JUDGE: 1})\n"
        "pool.submit(Job(WorkerKind.JUDGE, 'ping', {})).result(60)\n"
        "print(pool.pids()[0], flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert until(lambda: gone(int(done.stdout)))
    sweep.__wrapped__()
    assert not [f for f in Path(tempfile.gettempdir()).glob(f"{FOLDER}*") if not Path(f"/proc/{_owner(f)}").exists()]


def _owner(folder):
    return folder.name.removeprefix(FOLDER).split("-")[0]


def test_a_worker_killed_in_the_middle_of_a_check_gives_the_right_verdict_in_the_end(bench):
    evaluator, killed = bench.evaluator, []

    def kill_once(verdict):
        if verdict.gate is GateName.TRACE and not killed:
            busy = next(s for s in evaluator.executor._slots if s.kind is WorkerKind.CANDIDATE)
            timer = threading.Timer(0.2, lambda: busy.worker and os.kill(busy.worker.pid, signal.SIGKILL))
            timer.start()
            killed.append(timer)

    candidate = Candidate(source=bench.kernels.COPY + "\n# killed\n", entry="kernel", author="test")
    gates = (GateName.TRACE, GateName.CHECK)
    task = bench.double.model_copy(update={"seeds": (0,)})
    judged = bench.run(evaluator.judge(task, candidate, gates, kill_once))
    assert killed and judged.assessment.correct


NONSENSE = [
    {},
    {"status": "refused"},
    {"status": "refused", "refusal": "no"},
    {"status": "refused", "refusal": {"kind": "values"}},
    {"status": "refused", "refusal": {"kind": 1, "message": None}},
    {"status": "refused", "refusal": {"kind": "values", "message": "m", "line": "three"}},
    {"status": "refused", "refusal": {"kind": "values", "message": "m", "self": 1}},
    {"status": "ok", "data": [1]},
    {"status": ["ok"]},
    {"status": "fault", "message": 3},
]


@pytest.mark.parametrize("header", NONSENSE, ids=str)
def test_an_answer_that_is_none_is_told_apart_from_a_refusal(header):
    with pytest.raises(WorkerBabbled):
        unpack(wire.Message(header))


def scripted(monkeypatch, *answers):
    """Workers without a process: each call answers with the next header, or raises. Returns those disposed of."""
    left, disposed = list(answers), []

    class Worker:
        spent, pid = False, 0

        def __init__(self, kind, memory):
            self.kill = lambda: None
            self.dispose = lambda: disposed.append(self)

        def call(self, job):
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return unpack(wire.Message(answer))

    monkeypatch.setattr("maxkernel_nb.evaluate.pool.WorkerProcess", Worker)
    return disposed


BROKEN = [{"status": "refused"}, {"status": "ok", "data": [1]}, KeyError("ours"), MemoryError()]


@pytest.mark.parametrize("answer", BROKEN, ids=str)
def test_a_worker_that_speaks_nonsense_costs_neither_its_job_nor_its_place(pool, monkeypatch, answer):
    disposed = scripted(monkeypatch, answer, {"status": "ok", "data": {"after": 1}})
    with pytest.raises(InfrastructureError):
        pool.submit(JUDGE).result(10)
    assert len(disposed) == 1, "the worker is used again"
    assert pool.submit(JUDGE).result(10) == Reply({"after": 1})


def test_bytes_that_are_no_message_kill_the_worker_at_once(pool, monkeypatch):
    pool.submit(JUDGE).result(60)
    (pid,) = pool.pids()
    monkeypatch.setattr(wire, "receive", lambda fd, deadline: wire._header(b"[" * 100_000))
    with pytest.raises(WorkerBabbled):
        pool.submit(JUDGE).result(4)  # it is alive: nobody waits for its end
    assert until(lambda: gone(pid))


def test_a_job_cancelled_while_it_waits_costs_no_place(pool, monkeypatch):
    scripted(monkeypatch, {"status": "ok"}, {"status": "ok"})
    first = []
    monkeypatch.setattr(pool, "_add_slot", first.append)
    cancelled = pool.submit(JUDGE)
    assert cancelled.cancel()
    monkeypatch.undo()
    scripted(monkeypatch, {"status": "ok"})
    assert pool.submit(JUDGE).result(10) == Reply({}) and first
    assert pool.drain(5), "the cancelled job is still waited for"


def test_closing_kills_the_workers_though_a_waiting_job_was_cancelled(pool, monkeypatch):
    pool.submit(JUDGE).result(60)
    (pid,) = pool.pids()
    os.kill(pid, signal.SIGSTOP)
    running, cancelled, waiting = (pool.submit(JUDGE) for _ in range(3))
    assert until(running.running) and cancelled.cancel()
    pool.close()
    assert until(lambda: gone(pid))
    for future in (running, waiting):
        with pytest.raises(ExecutorClosed):
            future.result(10)


@pytest.fixture
def big_pool(monkeypatch):
    """On a machine of a hundred cores. Its workers answer when ``answer`` is set; ``started`` lists their kinds."""
    started, answer = [], threading.Event()

    class Worker:
        spent, pid, kill, dispose = False, 0, lambda self: None, lambda self: None

        def __init__(self, kind, memory):
            started.append(kind)

        def call(self, job):
            assert answer.wait(20)
            return Reply({})

    monkeypatch.setattr("maxkernel_nb.evaluate.pool.WorkerProcess", Worker)
    pool = LocalPool(dict.fromkeys(WorkerKind, 50))
    pool.started, pool.answer = started, answer
    yield pool
    answer.set()
    pool.close()


def test_a_machine_of_a_hundred_cores_starts_one_worker_of_each_kind_and_four_under_load(big_pool):
    big_pool.warm(*WorkerKind)
    big_pool.warm(*WorkerKind)  # a second run begins while the first workers start
    assert until(lambda: len(big_pool.started) == len(WorkerKind)) and sorted(big_pool.started) == sorted(WorkerKind)
    futures = [big_pool.submit(JUDGE) for _ in range(20)]
    assert until(lambda: big_pool.started.count(WorkerKind.JUDGE) == 4)
    big_pool.answer.set()
    assert [f.result(20) for f in futures] == [Reply({})] * 20
    assert big_pool.started.count(WorkerKind.JUDGE) == 4 and len(big_pool.started) == len(WorkerKind) + 3


def test_jobs_that_come_one_after_the_other_share_one_worker(big_pool):
    big_pool.answer.set()
    for _ in range(10):
        big_pool.submit(JUDGE).result(20)
    assert big_pool.started == [WorkerKind.JUDGE]


class Script:
    """An executor whose jobs end as a list says."""

    def __init__(self, *ends):
        self.ends, self.cancelled = list(ends), []

    def submit(self, job):
        from concurrent.futures import Future

        future = Future()
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            future.set_exception(end)
        elif end is not None:
            future.set_result(end)
        return future

    def cancel(self, future, kill=True):
        self.cancelled.append(kill)


SEGFAULT, KILLED = WorkerDied("crash", None, signal.SIGSEGV), WorkerDied("killed", None, signal.SIGKILL)
BABBLE = WorkerBabbled("nonsense")


@pytest.mark.parametrize(
    "kind, ends, raised",
    [
        ("candidate", (KILLED, "reply"), None),
        ("candidate", (SEGFAULT, "reply"), None),
        ("candidate", (SEGFAULT, SEGFAULT), JobRefused),
        ("candidate", (WorkerDied("exit", 0), WorkerDied("exit", 0)), JobRefused),
        ("candidate", (KILLED, KILLED), WorkerDied),
        ("candidate", (BABBLE, "reply"), None),
        ("candidate", (BABBLE, BABBLE), JobRefused),
        ("judge", (BABBLE, BABBLE), WorkerBabbled),
        ("candidate", (DeadlinePassed(1),), JobRefused),
        ("compiler", (SEGFAULT, SEGFAULT), JobRefused),
        ("judge", (SEGFAULT, SEGFAULT), WorkerDied),
        ("judge", (DeadlinePassed(1), "reply"), None),
        ("judge", (DeadlinePassed(1), DeadlinePassed(1)), DeadlinePassed),
    ],
)
def test_who_is_blamed_for_a_dead_worker(bench, kind, ends, raised):
    script = Script(*ends)
    work = Caller(script).ask(Job(WorkerKind(kind), "check", {}))
    if raised is None:
        assert bench.run(work) == "reply"
    else:
        with pytest.raises(raised):
            bench.run(work)
    assert not script.ends


def test_our_own_failure_is_a_verdict_of_its_own(bench):
    from maxkernel_nb.evaluate.local import LocalEvaluator

    evaluator = LocalEvaluator(bench.store, executor=Script(KILLED, KILLED))
    assessment = bench.judge(bench.double, bench.kernels.COPY, (GateName.SCREEN, GateName.TRACE), evaluator)
    assert assessment.verdicts[-1].outcome is Outcome.INFRASTRUCTURE
    assert not assessment.failed and not assessment.complete


def test_a_stopped_judgement_frees_its_worker(bench):
    import asyncio

    script = Script(None)
    caller = Caller(script)

    async def stop():
        task = asyncio.create_task(caller.ask(JUDGE))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    bench.run(stop())
    assert script.cancelled == [True]


def test_a_worker_answers_what_it_does_not_know_as_its_own_fault():
    from maxkernel_nb.evaluate.worker import answer

    message = answer({}, wire.Message({"op": "nothing", "args": {}}))
    assert message.header["status"] == "fault"
