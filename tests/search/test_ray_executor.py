"""What a cluster can answer, without a cluster: a stand-in for the ray module runs the actor in this process."""

import signal
from types import SimpleNamespace

import pytest

from maxkernel_nb.errors import InfrastructureError, UsageError
from maxkernel_nb.evaluate import ray_executor
from maxkernel_nb.evaluate.executor import DeadlinePassed, Job, JobRefused, Reply, WorkerDied, WorkerKind
from maxkernel_nb.evaluate.process import WorkerTainted

JOB = Job(WorkerKind.JUDGE, "ping", {"a": 1}, (b"x",), 5.0)


class RayError(Exception):
    pass


class GetTimeoutError(RayError):
    pass


class FakeWorker:
    """In place of a worker process. ``script`` is what it does with one job after another."""

    script: list = []  # noqa: RUF012
    pid, spent = 7, False

    def __init__(self, kind, memory_bytes):
        self.gone = False

    def call(self, job):
        does = type(self).script.pop(0)
        if isinstance(does, Exception):
            raise does
        return does

    def dispose(self):
        self.gone = True


class FakeRay:
    exceptions = SimpleNamespace(RayError=RayError, GetTimeoutError=GetTimeoutError)

    def __init__(self, lost=0):
        self.lost, self.started, self.killed = lost, [], []

    def remote(self, cls):
        def made(*args):
            self.started.append(cls(*args))
            host = self.started[-1]
            return SimpleNamespace(call=SimpleNamespace(remote=lambda *a: lambda: host.call(*a)),
                                   pid=SimpleNamespace(remote=lambda: host.pid))

        return SimpleNamespace(options=lambda **o: SimpleNamespace(remote=made))

    def get(self, asked, timeout=None):
        if self.lost:
            self.lost -= 1
            raise RayError("the node is gone")
        return asked()

    def kill(self, actor):
        self.killed.append(actor)


@pytest.fixture
def worker(monkeypatch):
    def make(*script, lost=0):
        ray = FakeRay(lost)
        monkeypatch.setattr(ray_executor, "_ray", lambda: ray)
        monkeypatch.setattr(ray_executor, "WorkerProcess", FakeWorker)
        FakeWorker.script = list(script)
        return ray_executor.RemoteWorker(WorkerKind.JUDGE, 1), ray

    return make


def test_an_answer_comes_back_with_its_buffers(worker):
    remote, _ = worker(Reply({"ok": 1}, (b"y",)))
    assert remote.call(JOB) == Reply({"ok": 1}, (b"y",))
    assert remote.pid == 7


def test_a_lost_node_s_job_is_done_again_elsewhere(worker):
    remote, ray = worker(Reply({}), lost=2)
    assert remote.call(JOB) == Reply({})
    assert len(ray.started) == 3


def test_a_job_that_loses_every_node_is_our_fault(worker):
    remote, _ = worker(lost=99)
    with pytest.raises(InfrastructureError, match="lost 4 times"):
        remote.call(JOB)


@pytest.mark.parametrize("does, expected", [
    (JobRefused("trace", "no", 3, "try", case="c"), JobRefused), (DeadlinePassed(5.0), DeadlinePassed),
    (WorkerDied("gone", None, signal.SIGSEGV), WorkerDied), (WorkerTainted(JobRefused("x", "y")), WorkerTainted),
    (InfrastructureError("full"), InfrastructureError), (OSError("disk"), InfrastructureError),
])
def test_what_happened_there_is_raised_here(worker, does, expected):
    remote, _ = worker(does)
    with pytest.raises(expected) as raised:
        remote.call(JOB)
    if isinstance(does, JobRefused):
        assert (raised.value.line, raised.value.advice, raised.value.extra) == (3, "try", {"case": "c"})
    if isinstance(does, WorkerDied):
        assert raised.value.signal == signal.SIGSEGV


def test_a_killed_worker_s_job_is_not_done_again(worker):
    remote, ray = worker(lost=1)
    remote.kill()
    with pytest.raises(WorkerDied, match="cancelled"):
        remote.call(JOB)
    assert ray.killed and len(ray.started) == 1


def test_without_ray_or_a_cluster_one_sentence_says_what_to_do(monkeypatch):
    class NoCluster(FakeRay):
        def is_initialized(self):
            return False

        def init(self, **options):
            raise ConnectionError("nobody there")

    monkeypatch.setattr(ray_executor, "_ray", NoCluster)
    with pytest.raises(UsageError, match="ray start --head"):
        ray_executor.ray_executor("auto")
