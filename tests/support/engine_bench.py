"""Runs of the real engine with the shipped fakes: no jax, no compiler, milliseconds each."""

from maxkernel_nb import events as ev
from maxkernel_nb.api import versions
from maxkernel_nb.approvals import NamespaceBinder
from maxkernel_nb.authors.base import TaskView
from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.engine.loop import Engine
from maxkernel_nb.engine.runtime import RunSettings, Runtime
from maxkernel_nb.evaluate.fake import FakeEvaluator
from maxkernel_nb.journal import Journal, read_events
from maxkernel_nb.modes import drive_of
from maxkernel_nb.run import Run
from maxkernel_nb.store import Project
from maxkernel_nb.task import ArgSpec, Case, CaseRole, KernelTask

REFERENCE = "def f(x):\n    return x\n"
TIMES = {"A": (1, 2, 3, 4)}
GOOD = "def f(x):\n    return x + 0\n# time=1.0\n"


def make_task(**changes):
    cases = [Case(name="full", role=CaseRole.TIMING, args=(ArgSpec(name="x", shape=(4096,), dtype="float32"),))]
    cases += [
        Case(name=f"c{n}", role=CaseRole.CHECK, args=(ArgSpec(name="x", shape=(128 * n,), dtype="float32"),))
        for n in (1, 2, 3)
    ]
    fields = {"name": "f", "source": REFERENCE, "entry": "f", "params": ("x",), "cases": tuple(cases), **changes}
    return KernelTask(**fields)


class Bench:
    """One engine, one project; starts and resumes runs of fakes."""

    def __init__(self, root):
        self.engine = Engine()
        self.project = Project(root).prepare()
        self.namespace = {}
        self.task = {}  # fields of the task that differ from make_task's
        self.reference = lambda x: x

    def run(self, author=None, evaluator=None, folder="f-1", mode_name="auto", drive=None, taken_over=False,
            **settings):
        author = author or ScriptedAuthor([GOOD])
        path = self.project.runs / folder
        fresh = not path.exists()
        path.mkdir(exist_ok=True)
        past = [] if fresh else read_events(path)
        run = Run(self.project, Journal(path), past)
        task = make_task(**self.task)
        if fresh:
            run.emit(ev.RunCreated(run_id=folder, mode=mode_name, author=author.name, task=task, versions=versions()))
        else:
            run.emit(ev.StatusChanged(status=ev.Status.RUNNING, reason="resumed"))
        if taken_over:
            run.emit(ev.OptionsChanged(options={"taken_over": run.state.best or ""}))
            mode_name = run.state.mode
        self.namespace.setdefault("f", self.reference)
        runtime = Runtime(
            run, loop=self.engine.loop, author=author, evaluator=evaluator or FakeEvaluator(),
            view=TaskView(task=task, trace=lambda case: None), settings=RunSettings(**settings),
            binder=NamespaceBinder(self.namespace, self.reference),
        )
        run.work = self.engine.submit(runtime.drive(drive or drive_of(mode_name)))
        return run


class TunableAuthor(ScriptedAuthor):
    """The larger A, the faster the kernel; A=4 is wrong, which only the check gate sees."""

    def retune(self, view, plan, candidate, params):
        made = super().retune(view, plan, candidate, params)
        wrong = "# wrong\n" if params["A"] == 4 else ""
        return made.model_copy(update={"source": f"{wrong}# time={1 / params['A']:.3f}\n{candidate.source}"})
