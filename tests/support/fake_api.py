"""Stands in for ``maxkernel_nb.api`` under the magics: real runs and journals, a scripted author, no jax."""

from engine_bench import GOOD, Bench

from maxkernel_nb.api import versions
from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.engine.state import fold
from maxkernel_nb.errors import UsageError
from maxkernel_nb.journal import read_events


class FakeApi:
    """``calls`` holds the keywords of every ``start``. ``author`` and ``evaluator`` may be set before one."""

    def __init__(self, root):
        self.bench = Bench(root)
        self.calls = []
        self.live = {}
        self.author = self.evaluator = None
        self.versions = versions

    def start(self, fn, *, namespace, name, policy, mode="auto", on_created=None, **options):
        self.calls.append({"fn": fn, "name": name, "policy": policy, "mode": mode, **options})
        self.bench.namespace, self.bench.reference = namespace, fn
        self.bench.task = {"source": options["source"]} if options.get("source") else {}
        run = self.bench.run(self.author or ScriptedAuthor([GOOD]), self.evaluator,
                             folder=f"{name}-{len(self.calls)}", policy=policy, mode_name=mode)
        self.live[run.id] = run
        if on_created:
            on_created(run)
        return run

    def runs(self, project=None):
        return [Summary(run) for run in self.live.values()]

    def find_run(self, run_id, project=None):
        if run_id in self.live:
            return self.live[run_id]
        folder = self.bench.project.runs / run_id
        if not folder.is_dir():
            raise UsageError(f"There is no run {run_id!r}.")
        return fold(read_events(folder))

    def resume(self, run_id, fn=None, *, namespace, project=None, on_created=None, **options):
        self.calls.append({"run": run_id, **({"fn": fn} if fn else {}), **options})
        self.bench.namespace = namespace
        mode = fold(read_events(self.bench.project.runs / run_id)).mode
        run = self.bench.run(self.author or ScriptedAuthor([GOOD]), self.evaluator, folder=run_id, policy="propose",
                             mode_name=mode)
        self.live[run_id] = run
        if on_created:
            on_created(run)
        return run


    def take_over(self, run_id, *, namespace, project=None, on_created=None, **options):
        if (alive := self.live.get(run_id)) is not None and not alive.closed:
            alive.stop("taken over").wait_end(10).close()
        self.calls.append({"taken_over": run_id, **options})
        self.bench.namespace = namespace
        run = self.bench.run(self.author or ScriptedAuthor([GOOD]), self.evaluator, folder=run_id, taken_over=True)
        self.live[run_id] = run
        if on_created:
            on_created(run)
        return run


class Summary:
    def __init__(self, run):
        state = run.state
        self.id, self.mode, self.chip = run.id, state.mode, state.task.chip
        self.status, self.outcome, self.speedup = state.status.value, state.outcome or "", state.speedup
        self.live = not run.closed


def install(shell, root):
    """Loads the extension into ``shell`` over a fake engine; gives the fake."""
    shell.run_line_magic("load_ext", "maxkernel_nb")
    api = FakeApi(root)
    magics = shell.magics_manager.registry["MaxKernelMagics"]
    magics._api = magics.commands._api = lambda: api
    return api
