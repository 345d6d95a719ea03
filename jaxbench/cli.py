"""``python -m jaxbench``: list and show tasks, admit them, run references, judge kernel files, find kernels, report.

Exit codes: 0 done (``evaluate``: the kernel is right); 1 something was found wanting (a kernel refused, a task not
admitted, a reference that does not compile, a run without a kernel); 2 what was asked for does not exist or cannot be
read; 3 our own machinery failed, which says nothing about a kernel; 130 interrupted, what was done is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from jaxbench.harness import RESULTS, Done, Harness, line
from jaxbench.listing import description, facts, listing
from jaxbench.progress import Bar, Progress, Silent
from jaxbench.registry import task, tasks
from jaxbench.results import Result, ResultFile, Status, summary
from jaxbench.suites import Item, foreign, own
from maxkernel_nb.compat import prepare_host_backend
from maxkernel_nb.errors import InfrastructureError, MaxKernelError, UsageError
from maxkernel_nb.store import Project

OK, WANTING, USAGE, FAULT, INTERRUPTED = 0, 1, 2, 3, 130
Run = Callable[[argparse.Namespace], int]


@dataclass(frozen=True)
class Console:
    """Where a command tells what it finds, and how it shows progress: a terminal, or a notebook's output.

    ``page``: takes a report as HTML; None where only text can be shown.
    """

    write: Callable[[str], object]
    progress: Callable[[int], Progress]
    page: Callable[[str], object] | None = None


def _terminal(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


TERMINAL = Console(_terminal, Bar)


def _list(options: argparse.Namespace) -> int:
    if options.suite:
        options.console.write("\n".join(f"{item.id:58} {item.path}" for item in foreign(options.suite)))
        return OK
    chosen = [t for t in tasks() if options.tier in ("", t.tier)]
    text = json.dumps([facts(t) for t in chosen], indent=1) if options.json else listing(chosen)
    options.console.write(text)
    return OK


def _show(options: argparse.Namespace) -> int:
    bench = task(options.id)
    options.console.write(json.dumps(facts(bench), indent=1) if options.json else description(bench))
    return OK


def _admit(options: argparse.Namespace) -> int:
    from jaxbench.admission import admit

    chosen = [task(name) for name in options.ids] or list(tasks())
    clean, passing = 0, []
    for bench in chosen:
        admission = admit(bench, tuple(range(options.seeds)))
        options.console.write(json.dumps(admission.to_dict()) if options.json else admission.describe())
        clean += admission.admitted
        passing += [bench.number] if admission.original_passes else []
    if not options.json:
        options.console.write(
            f"{clean} of {len(chosen)} admitted under our rule; the original rule accepts a wrong answer to "
            f"{len(passing)}: {', '.join(passing) or 'none'}"
        )
    return OK if clean == len(chosen) else WANTING


def _run(options: argparse.Namespace) -> int:
    with _harness(options) as harness:
        return _told(harness.run(_items(options), options.size, options.evidence), harness, options)


def _evaluate(options: argparse.Namespace) -> int:
    options.ids = [options.id]
    with _harness(options) as harness:
        result = harness.evaluate(_items(options)[0], options.kernel, options.salt)
        harness.results.append(result)
    options.console.write(json.dumps(_with_verdicts(result), indent=1) if options.json else _judgement(result))
    return _code([result])


def _optimize(options: argparse.Namespace) -> int:
    with _harness(options) as harness:
        done = harness.optimize(_items(options), author=options.author, mode=options.mode, budget=options.budget,
                                trust=options.trust)
        return _told(done, harness, options)


def _rivals(options: argparse.Namespace) -> int:
    with _harness(options) as harness:
        return _told(harness.rivals(_items(options)), harness, options)


def _report(options: argparse.Namespace) -> int:
    from jaxbench.report import fragment, text_report, write_report

    file = ResultFile(_results_path(options))
    results = file.read()
    if not results:
        raise UsageError(f"There are no results in {file.path}; make some with python -m jaxbench run --all.")
    if options.json:
        options.console.write("\n".join(json.dumps(summary(r)) for r in results))
        return OK
    written = write_report(results, options.out or file.path.parent)
    if options.console.page is not None:
        options.console.page(fragment(results))
    options.console.write(text_report(results))
    options.console.write("Written: " + ", ".join(str(os.path.relpath(p)) for p in written))
    return OK


# -- what several commands share -------------------------------------------------------------------------------------


def _items(options: argparse.Namespace) -> list[Item]:
    ids = list(options.ids)
    if not ids and not getattr(options, "all", False):
        raise UsageError("Name tasks (8p 20k ...), or pass --all.")
    return [*foreign(options.suite, ids)] if options.suite else own(ids)


def _harness(options: argparse.Namespace) -> Harness:
    return Harness(
        Project(options.project), ResultFile(_results_path(options)), chip=options.chip, inputs=options.inputs,
        resume=getattr(options, "resume", False), progress=_progress(options),
    )  # fmt: skip


def _progress(options: argparse.Namespace) -> Callable[[int], Progress]:
    silent = options.json or getattr(options, "quiet", False)
    return (lambda total: Silent()) if silent else options.console.progress


def _results_path(options: argparse.Namespace) -> Path:
    return options.results or Project(options.project).folder / RESULTS


def _told(done: Done, harness: Harness, options: argparse.Namespace) -> int:
    if options.json:
        options.console.write("\n".join(json.dumps(summary(r)) for r in done.results))
    else:
        known = f", {done.skipped} known already" if done.skipped else ""
        stopped = " Interrupted; --resume goes on." if done.interrupted else ""
        kept = os.path.relpath(harness.results.path)
        told = f"{len(done.results)} done{known}; results in {kept}.{stopped}"
        options.console.write(f"{told} `report` sums them up.")
    return INTERRUPTED if done.interrupted else _code(done.results)


def _code(results: Iterable[Result]) -> int:
    states = {r.status for r in results}
    if Status.INFRASTRUCTURE in states:
        return FAULT
    return OK if states <= {Status.OK} else WANTING


def _with_verdicts(result: Result) -> dict[str, object]:
    return {**summary(result), "verdicts": [v.to_dict() for v in result.verdicts]}


def _judgement(result: Result) -> str:
    marks = {"pass": "ok", "fail": "FAIL", "declined": "declined", "infrastructure": "our fault"}
    steps = [f"  {marks[v.outcome]:9} {v.gate:8} {v.summary}" for v in result.verdicts]
    return "\n".join([line(result), *steps])


class _Parser(argparse.ArgumentParser):
    """argparse that raises one sentence instead of leaving the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see {self.prog} --help.")


def parser() -> argparse.ArgumentParser:
    top = _Parser(
        prog="python -m jaxbench", description="50 JAX tasks for TPU kernels.",
        epilog="Exit codes: 0 done, 1 found wanting (kernel refused, task not admitted ...), 2 no such thing, "
        "3 our own machinery failed, 130 interrupted (what was done is kept).",
    )  # fmt: skip
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Run, help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        sub.add_argument("--json", action="store_true", help="machine-readable output")
        return sub

    listed = command("list", _list, "all tasks, one a line")
    listed.add_argument("--tier", choices=("production", "fusion"), default="", help="only this group")
    _suite(listed)
    command("show", _show, "one task: sizes, inputs, work, source").add_argument("id", help="8p or 8p_GEMM")
    help = "cheap wrong answers each task accepts, under the original rule and under ours (CPU, smoke sizes)"
    admitting = command("admit", _admit, help)
    admitting.add_argument("ids", nargs="*", metavar="ID", help="8p or 8p_GEMM; all tasks when none is given")
    admitting.add_argument("--seeds", type=int, default=2, help="draws an answer has to pass (default 2)")

    running = command("run", _run, "compile the references for a chip and model their time; at smoke size run them too")
    running.add_argument("--size", choices=("full", "smoke"), default="full")
    running.add_argument("--evidence", choices=("modelled", "measured"), default="modelled",
                         help="measured: also timed on this machine's TPU (MAXKERNEL_MEASURE=cpu: a rehearsal)")
    judging = command("evaluate", _evaluate, "judge a kernel file")
    judging.add_argument("id", metavar="ID")
    judging.add_argument("--kernel", type=Path, required=True, metavar="FILE",
                         help="defines reference, kernel or workload(*inputs)")
    judging.add_argument("--salt", default="", metavar="TEXT",
                         help="draws of an earlier judgement, whose result names it (default: fresh ones)")
    help = "have agents look for faster kernels, one task after another"
    finding = command("optimize", _optimize, help)
    finding.add_argument("--author", choices=("recipes", "claude", "both"), help="who writes (default as in notebooks)")
    finding.add_argument("--mode", choices=("auto", "search"), default="auto")
    finding.add_argument("--budget", metavar="TEXT", help='per task: "20 candidates, 10m, $2"')
    finding.add_argument("--trust", action="store_true", help="let a foreign suite's own code run in this process")
    finding.add_argument("--size", choices=("full",), default="full", help="kernels are timed at full size")
    rival = command("rivals", _rivals, "compile and model jax's own kernels with tuned blocks, where a task has one")
    for several in (running, finding, rival):
        several.add_argument("ids", nargs="*", metavar="ID")
        several.add_argument("--all", action="store_true", help="every task of the suite")
        several.add_argument("--resume", action="store_true", help="skip what the results file answers already")
        several.add_argument("--quiet", action="store_true", help="no progress")
    for worker in (running, judging, finding, rival):
        _suite(worker)
        worker.add_argument("--chip", default="v6e")
        worker.add_argument("--inputs", choices=("ours", "published"), default="ours",
                            help="how check inputs are drawn: anew for each seed, or the original's fixed recipe")
    reporting = command("report", _report, "table, statistics and pictures of all results, as Markdown and HTML")
    reporting.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: beside the results)")
    for user in (running, judging, finding, rival, reporting):
        user.add_argument("--results", type=Path, metavar="FILE", help="default: .maxkernel/bench/results.jsonl")
        user.add_argument("--project", default=None, metavar="FOLDER", help="the folder that holds .maxkernel")
    return top


def _suite(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--suite", type=Path, metavar="DIR",
                     help="a folder of foreign tasks (CONFIG, create_inputs, workload); their code runs in a sandbox")


def execute(arguments: Sequence[str], console: Console = TERMINAL, project: str | None = None) -> int:
    """Runs one command and gives its exit code (see the module's text). ``project``: the folder where none is named.

    Raises ``MaxKernelError`` for what cannot be done, and ``SystemExit`` after ``--help``.
    """
    options = parser().parse_args(arguments)
    options.console = console
    options.project = getattr(options, "project", None) or project
    prepare_host_backend()
    return options.run(options)


def main(arguments: Sequence[str] | None = None) -> int:
    """``execute`` for a terminal: an error is one sentence on standard error, and an exit code."""
    try:
        return execute(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except InfrastructureError as error:
        sys.stderr.write(f"{error}\n")
        return FAULT
    except MaxKernelError as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
