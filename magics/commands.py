"""``%maxkernel``: one method a command. Each returns a small object that shows itself, or None."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

from maxkernel_nb.config import Setting, values
from maxkernel_nb.errors import ApprovalRequired, UsageError
from maxkernel_nb.magics import helptext, questions
from maxkernel_nb.magics.failures import Interrupted
from maxkernel_nb.magics.host import is_batch
from maxkernel_nb.magics.panels import Panels
from maxkernel_nb.magics.parsing import CommandLine
from maxkernel_nb.magics.views import Bundle, Table, Tables, Text

_PATIENCE = 5.0  # seconds a command waits for the engine to carry a decision out; it goes on afterwards


class Commands:
    """``api`` is the module ``maxkernel_nb.api`` (anything with its functions), imported when first needed.

    ``project()`` is the folder whose runs the commands are about; ``created(run)`` is called with a resumed run.
    """

    def __init__(self, shell: Any, panels: Panels, settings: Callable[[], dict[str, Setting]],
                 api: Callable[[], Any], project: Callable[[], str], created: Callable[[Any], None]) -> None:
        self.shell, self.panels, self.settings = shell, panels, settings
        self._api, self._project, self._created = api, project, created

    def __call__(self, line: CommandLine) -> Any:
        if line.help:
            return Text(helptext.topic_help(line.command.name))
        return getattr(self, f"do_{line.command.name}")(line)

    # -- looking -----------------------------------------------------------------------------------------------------

    def do_list(self, line: CommandLine) -> Table:
        here = self.project
        rows = tuple(_row(s) for s in self._api().runs(project=here))
        for folder in dict.fromkeys(str(run.project.root) for run in _runs_of_this_process()):
            if folder != str(Path(here).resolve()):
                ours = [run.id for run in _runs_of_this_process() if str(run.project.root) == folder]
                listed = [s for s in self._api().runs(project=folder) if s.id in ours]
                rows += tuple((f"{s.id} in {_shown(folder)}", *_row(s)[1:]) for s in listed)
        empty = "No runs yet in this project; start one with %%maxkernel auto at the head of a cell."
        return Table(("Run", "Mode", "Chip", "Status", "Outcome", "Best"), rows, empty=empty)

    def do_show(self, line: CommandLine) -> Any:
        run = self._find(line)
        if not _is_live(run) or is_batch(self.shell):
            from maxkernel_nb.widgets.publisher import state_bundle

            return Bundle(state_bundle(_state(run), self._away(run)))
        if not hasattr(self.shell, "kernel"):
            from maxkernel_nb.document.build import document
            from maxkernel_nb.widgets.text import render_text

            return Text(render_text(document(run.state)))
        self.panels.show(run)
        return None

    def do_graph(self, line: CommandLine) -> Any:
        from maxkernel_nb.magics.graphs import graph_output

        return graph_output(_state(self._find(line)), line.options.get("node"))

    def do_continue(self, line: CommandLine) -> Any:
        from maxkernel_nb.magics.graphs import own_kernel

        run_id, project = self._locate(line)
        node = line.options.get("from")
        if not node:
            raise UsageError(f"%maxkernel continue lacks --from NODE; %maxkernel graph {run_id} shows the kernels.")
        run = self._api().continue_search(
            run_id, node, source=own_kernel(line.options.get("file")), namespace=self.shell.user_ns, project=project,
            on_created=self._created, policy=line.options.get("policy"), budget=line.options.get("budget"),
        )
        return self.finish(run) if is_batch(self.shell) else run

    def do_freeze(self, line: CommandLine) -> None:
        self.panels.freeze(self._live(line))

    def do_cost(self, line: CommandLine) -> Tables:
        from maxkernel_nb.magics.costs import cost_tables

        return cost_tables(_state(self._find(line)))

    def do_report(self, line: CommandLine) -> Bundle:
        from maxkernel_nb.document.build import document
        from maxkernel_nb.magics.reports import form_of, report_bytes
        from maxkernel_nb.store import Project, write_atomically

        run_id, project = self._locate(line)
        run = self._find(line)
        state, form = _state(run), form_of(line.options, line.extra)
        path = Path(line.extra) if line.extra else Project(project).reports / f"{run_id}.{form}"
        made = report_bytes(document(state, self._away(run)), form)
        try:
            write_atomically(path, made)
        except OSError as error:
            raise UsageError(
                f"The report cannot be written to {path} ({error.strerror}); pass another file: "
                f"%maxkernel report {state.run_id} FILE"
            ) from error
        return _link(f"Report of run {state.run_id}", path)

    def do_profile(self, line: CommandLine) -> Bundle:
        from maxkernel_nb.magics.profiling import profiled

        chip = self.settings()["chip"].value
        return profiled(line, lambda: self._run_id(line), self.shell.user_ns, self.project, self._api(), chip,
                        run_folders(self.project))

    def do_recipes(self, line: CommandLine) -> Table:
        from maxkernel_nb.magics.recipes import all_recipes, surveyed

        if not line.extra:
            return all_recipes()
        chip = self.settings()["chip"].value or self._api().default_chip()
        return surveyed(line, self.shell.user_ns, self.project, chip)

    def do_tune(self, line: CommandLine) -> Any:
        from maxkernel_nb.magics.recipes import tuned

        run = tuned(line, self.shell.user_ns, self.project, self._api(), self.settings(), self._created)
        return self.finish(run) if is_batch(self.shell) else run

    def do_explain(self, line: CommandLine) -> Text:
        from maxkernel_nb.magics.recipes import explained

        found = [_state(self._api().find_run(r, project=self.project)) for r in run_folders(self.project)]
        return explained(line.extra or self._run_id(line), found)

    def do_bench(self, line: CommandLine) -> Bundle | None:
        from maxkernel_nb.magics.bench import bench

        return bench(line.words, self.project, is_batch(self.shell))

    def do_config(self, line: CommandLine) -> Table:
        rows = tuple(
            (s.option.name, s.option.default_text if s.value is None else str(s.value), s.origin)
            for s in self.settings().values()
        )
        return Table(("Setting", "Value", "From"), rows)

    def do_version(self, line: CommandLine) -> Text:
        import IPython

        found = {**self._api().versions(), "IPython": IPython.__version__}
        return Text("\n".join(f"{name} {version}" for name, version in found.items()))

    def do_doctor(self, line: CommandLine) -> Table:
        from maxkernel_nb.magics.doctor import examine

        return examine(self.settings, self._project)

    def do_takechip(self, line: CommandLine) -> Text:
        from maxkernel_nb.evaluate.chip_place import give_chip_to_notebook
        from maxkernel_nb.tpu.chip.owner import decided

        owned = decided()
        if owned is None or owned.owner != "worker" or owned.rehearsal:
            why = owned.reason if owned is not None else "no run has taken a chip"
            return Text(f"There is nothing to take: {why}.")
        give_chip_to_notebook()
        return Text("The worker gave the TPU back; this notebook's jax looks for its devices anew. Make arrays again.")

    def do_help(self, line: CommandLine) -> Text:
        return Text(helptext.topic_help(line.extra) if line.extra else helptext.line_help())

    # -- deciding ----------------------------------------------------------------------------------------------------

    def do_accept(self, line: CommandLine) -> Text:
        run = self._live(line)
        asked = run.state.open_question
        run.accept(hunks=line.hunks, via="magic", uuid=uuid4().hex, comment=line.options.get("comment", ""))
        return questions.answered(run, asked) if asked is not None else self._decided(run)

    def do_reject(self, line: CommandLine) -> Text:
        run = self._live(line)
        asked = run.state.open_question
        run.reject(via="magic", uuid=uuid4().hex, comment=line.options.get("comment", ""))
        return questions.answered(run, asked) if asked is not None else self._decided(run)

    def do_answer(self, line: CommandLine) -> Text:
        run = self._live(line)
        asked = run.state.open_question
        run.answer(line.extra, questions.text_of(line.options), via="magic", uuid=uuid4().hex)
        return questions.answered(run, asked)

    def do_ask(self, line: CommandLine) -> Text:
        run = self._live(line)
        run.ask(line.extra)
        return Text(f"Run {run.id}: your question is on its way; the answer appears in the panel and under "
                    "state.explanations.")

    def do_takeback(self, line: CommandLine) -> Text:
        run = self.taken_back(line, self._created)
        return Text(f"Run {run.id} asks you again after its round in flight; %maxkernel wait {run.id} waits for it.")

    def taken_back(self, line: CommandLine, created: Callable[[Any], None]) -> Any:
        """A hitl run comes back from auto; a run of another mode goes on step by step from what it found."""
        state = _state(self._find(line))
        if state.mode == "hitl":
            return self._running(line, "take back").take_back()
        run_id, project = self._locate(line)
        return self._api().take_over(
            run_id, namespace=self.shell.user_ns, project=project, on_created=created, claude=self._claude(line),
        )

    def _decided(self, run: Any) -> Text:
        _until(run, lambda state: state.ended and state.open_proposal is None and state.outcome != "proposed")
        state = run.state
        if state.ended and state.outcome != "proposed":
            return Text(f"Run {run.id}: {state.reason}")
        return Text(f"Run {run.id}: your decision is recorded and being carried out; %maxkernel wait {run.id} waits.")

    def do_undo(self, line: CommandLine) -> Text:
        run = self._live(line)
        run.undo()
        return Text(f"Run {run.id}: undone; the reference is bound again.")

    # -- driving -----------------------------------------------------------------------------------------------------

    def do_stop(self, line: CommandLine) -> Text:
        run = self._live(line)
        if run.state.ended:
            return Text(f"Run {run.id} has ended already: {run.state.outcome}.")
        run.stop()
        _until(run, lambda state: state.ended)
        went = "stopped" if run.state.ended else "is stopping"
        return Text(f"Run {run.id} {went}; %maxkernel resume {run.id} continues it.")

    def do_pause(self, line: CommandLine) -> Text:
        run = self._running(line, "pause")
        run.pause()
        return Text(f"Run {run.id} pauses after the step in flight; %maxkernel unpause {run.id} lets it go on.")

    def do_unpause(self, line: CommandLine) -> Text:
        run = self._running(line, "unpause")
        run.unpause()
        return Text(f"Run {run.id} goes on.")

    def _running(self, line: CommandLine, verb: str) -> Any:
        run = self._live(line)
        if run.state.ended:
            raise UsageError(f"Run {run.id} has ended ({run.state.outcome}): there is nothing to {verb}.")
        return run

    def do_wait(self, line: CommandLine) -> Text:
        run = self._live(line)
        with self._watched(run):
            self.wait(run, line.options.get("timeout"))
        state = run.state
        if state.ended:
            return Text(f"Run {run.id} ended, {state.outcome}: {state.reason}")
        if state.open_question is not None:
            return Text(questions.how_to_answer(run.id, state.open_question))
        return Text(f"Run {run.id} waits for you: %maxkernel accept {run.id} or %maxkernel reject {run.id}.")

    def _watched(self, run: Any) -> AbstractContextManager[None]:
        if hasattr(self.shell, "kernel") or run.state.settled:
            return nullcontext()
        from maxkernel_nb.magics.terminal import watched

        return watched(run)

    def do_resume(self, line: CommandLine) -> Any:
        batch = is_batch(self.shell)
        run_id, project = self._locate(line)
        run = self._api().resume(
            run_id, namespace=self.shell.user_ns, project=project, on_created=self._created,
            policy=line.options.get("policy"), budget=line.options.get("budget"), claude=self._claude(line),
        )
        return self.finish(run) if batch else run

    def _claude(self, line: CommandLine) -> dict[str, Any]:
        """What is set for Claude now goes before what the run began with: a wrong model can be put right."""
        found = dict(values(self.settings()).get("claude", {}))
        return {**found, "model": line.options["claude_model"]} if "claude_model" in line.options else found

    def wait(self, run: Any, timeout: float | None = None) -> None:
        """Blocks until ``run`` ended or waits for a decision. An interrupt ends the waiting, never the run."""
        try:
            run.wait(timeout)
        except TimeoutError as error:
            raise UsageError(str(error)) from None
        except KeyboardInterrupt:
            raise Interrupted(
                f"Interrupted the waiting only: run {run.id} goes on; %maxkernel stop {run.id} ends it, "
                f"%maxkernel wait {run.id} waits again."
            ) from None

    def finish(self, run: Any) -> Any:
        """For batch clients: wait, leave the report as the cell's output, and fail where only a person could go on."""
        self.wait(run)
        self.panels.freeze(run)
        state = run.state
        if not state.ended and state.open_question is not None:
            raise ApprovalRequired(questions.nobody_answers(run.id, state.open_question))
        if not state.ended:
            raise ApprovalRequired(
                f"Run {run.id} waits for a decision that nobody can take here; pass --policy propose (leave it open) "
                "or --policy accept-verified."
            )
        if state.outcome == "failed":
            raise UsageError(f"Run {run.id} failed: {state.reason}")
        return run

    # -- for a front end outside the panel (see magics/lab.py) --------------------------------------------------------

    def live(self, line: CommandLine) -> Any:
        """The run that the command of ``line`` acts on. Raises ``UsageError`` when it cannot."""
        name = line.command.name
        return self._running(line, name) if name in ("pause", "unpause") else self._live(line)

    def summaries(self) -> list[Any]:
        return list(self._api().runs(project=self.project))

    def resumed(self, line: CommandLine, created: Callable[[Any], None]) -> None:
        run_id, project = self._locate(line)
        self._api().resume(
            run_id, namespace=self.shell.user_ns, project=project, on_created=created, claude=self._claude(line),
        )

    def report_page(self, line: CommandLine) -> str:
        from maxkernel_nb.document.build import document
        from maxkernel_nb.widgets.html import render_page

        run = self._find(line)
        return render_page(document(_state(run), self._away(run)))

    # -- finding runs ------------------------------------------------------------------------------------------------

    @property
    def project(self) -> str:
        return self._project()

    def _find(self, line: CommandLine) -> Any:
        run_id, project = self._locate(line)
        return self._api().find_run(run_id, project=project)

    def _away(self, run: Any) -> str:
        from maxkernel_nb.document.next_action import away
        from maxkernel_nb.journal import writer
        from maxkernel_nb.store import Project

        if _is_live(run):
            return ""
        return away(run, writer(Project(self.project).runs / run.run_id))

    def _locate(self, line: CommandLine) -> tuple[str, str]:
        """A run's id and its project folder: another one than the settings' after a cell with ``--project``."""
        shown = self.panels.live()
        if shown is not None and line.run in (None, shown.id):
            return shown.id, str(shown.project.root)
        run_id = self._run_id(line)
        ours = [run for run in _runs_of_this_process() if run.id == run_id]
        if run_id in run_folders(self.project):
            ours = [run for run in ours if not run.closed]
        return run_id, str(ours[-1].project.root) if ours else self.project

    def _live(self, line: CommandLine) -> Any:
        run = self._find(line)
        if _is_live(run):
            return run
        if run.ended and run.open_proposal is None and run.outcome not in ("stopped", "failed", "proposed"):
            raise UsageError(
                f"Run {run.run_id} ended in an earlier kernel, {run.outcome}: there is nothing to {line.command.name}; "
                f"%maxkernel show {run.run_id} shows it."
            )
        raise UsageError(
            f"Run {run.run_id} belongs to an earlier kernel; %maxkernel resume {run.run_id} takes it up here, then "
            f"%maxkernel {line.command.name} works."
        )

    def _run_id(self, line: CommandLine) -> str:
        if line.run or self.panels.latest:
            return line.run or self.panels.latest or ""
        known = run_folders(self.project)
        if not known:
            raise UsageError("This project has no runs yet; start one with %%maxkernel auto at the head of a cell.")
        return known[-1]


def run_folders(project: str | None) -> list[str]:
    """Run ids of a project by the time they last changed, oldest first. Cheap: completion calls it."""
    runs = Path(project or Path.cwd()) / ".maxkernel" / "runs"
    try:
        found = [(entry.stat().st_mtime, entry.name) for entry in os.scandir(runs) if entry.is_dir()]
    except OSError:
        return []
    return [name for _, name in sorted(found)]


def _runs_of_this_process() -> list[Any]:
    """The runs of this process in every folder, ended ones too, oldest first."""
    from maxkernel_nb.engine.loop import get_engine

    return list(get_engine().runs.values())


def _row(summary: Any) -> tuple[str, ...]:
    best = f"{summary.speedup:.2f}x modelled" if summary.speedup else ""
    return summary.id, summary.mode, summary.chip, summary.status, summary.outcome, best


def _shown(folder: str) -> str:
    """Relative to the working folder where that is shorter."""
    return min(os.path.relpath(folder), folder, key=len)


def _is_live(run: Any) -> bool:
    return hasattr(run, "subscribe")


def _state(run: Any) -> Any:
    return run.state if _is_live(run) else run


def _until(run: Any, done: Callable[[Any], bool]) -> None:
    """Waits for the engine, at most ``_PATIENCE`` seconds."""
    happened = threading.Event()
    unsubscribe = run.subscribe(lambda state: happened.set() if done(state) else None)
    try:
        if not done(run.state):
            happened.wait(_PATIENCE)
    finally:
        unsubscribe()


def _link(text: str, path: Path) -> Bundle:
    import html

    shown = os.path.relpath(path)
    return Bundle({
        "text/plain": f"{text}: {shown}",
        "text/html": f"{html.escape(text)}: <a href='{html.escape(shown, quote=True)}'>{html.escape(shown)}</a>",
    })
