"""Every accepted kernel judged once more, each by a judge of its own in a fresh process on draws nobody has seen.

    python -m tests.bench.accepted_again --project FOLDER [--project FOLDER ...] [--seconds 600] [NAME ...]

FOLDER is one of `jaxbench optimize` or of `tests.bench.ten_functions`: what its runs verified is read from their
journals. A source is first executed where importing this package fails, then judged by all gates at the task's full
shapes. A line each tells the verdict, the modelled time beside the run's, and how the text reads: its lines, how many
of them say something about it, and its longest function. Answers are kept in FOLDER, so an interrupted run goes on;
the exit code is 1 where one did not pass.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxbench.harness import FULL_SIZE, RESULTS
from jaxbench.results import Kind, ResultFile
from maxkernel_nb import compat
from maxkernel_nb.engine.state import fold
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.journal import read_events
from maxkernel_nb.store import ObjectStore, Project
from maxkernel_nb.task import Candidate, KernelTask, Outcome
from maxkernel_nb.values import content_hash
from tests.bench import long_attention, loops, ten_models

FUNCTIONS = {**ten_models.FUNCTIONS, **loops.FUNCTIONS, **long_attention.FUNCTIONS}
ANSWERS = "accepted_again.json"
ALONE = """
import sys
sys.modules["maxkernel_nb"] = sys.modules["jaxbench"] = None  # importing them would raise
space = {"__name__": "kernel"}
exec(compile(sys.stdin.read(), "kernel", "exec"), space)
assert callable(space[sys.argv[1]])
"""


@dataclass(frozen=True)
class Accepted:
    """``ms``: modelled by the run that found it."""

    name: str
    entry: str
    source: str
    ms: float | None


def accepted(project: Project) -> Iterator[Accepted]:
    """What the runs of a project verified, where their journals are there: of a task its last verified result."""
    for name, run in _runs(project):
        if not (project.runs / run).is_dir():  # a result that was copied from another project
            continue
        state = fold(read_events(project.runs / run))
        if state.best is not None:
            candidate = state.candidates[state.best].candidate
            yield Accepted(name, candidate.entry, candidate.source, state.best_ms)


def _runs(project: Project) -> Iterator[tuple[str, str]]:
    results = ResultFile(project.folder / RESULTS).read()
    last = {r.task: r.run for r in results if r.kind is Kind.OPTIMIZED and r.ok}
    yield from last.items()
    known = project.root / "ten.json"
    for name in json.loads(known.read_text()) if known.exists() else ():
        yield from ((name, folder.name) for folder in sorted(project.runs.glob(f"{name}-*"))[-1:])


def task_of(name: str, store: ObjectStore) -> KernelTask:
    if name in FUNCTIONS:
        from maxkernel_nb.tasks.build import build_task

        function, shapes = FUNCTIONS[name]
        return build_task(function, shapes=shapes, chip="v6e", store=store).task
    from jaxbench import bridge
    from jaxbench.registry import task

    return bridge.build(task(name), store).task


def judged_here(name: str, entry: str, source: str) -> dict[str, Any]:
    """In this process's own workers, in an empty folder."""
    compat.prepare_host_backend()
    with tempfile.TemporaryDirectory() as folder:
        evaluator = LocalEvaluator(ObjectStore(Path(folder)), limits=FULL_SIZE)
        try:
            task = task_of(name, evaluator.store).model_copy(update={"salt": secrets.token_hex(8)})
            judged = asyncio.run(evaluator.judge(task, Candidate(source=source, entry=entry, author="again")))
        finally:
            evaluator.close()
    verdicts = judged.assessment.verdicts
    wrong = [f"{v.gate}: {v.summary}" for v in verdicts if v.outcome in (Outcome.FAIL, Outcome.INFRASTRUCTURE)]
    return {
        "correct": judged.assessment.correct, "ms": judged.assessment.modelled_ms, "verdicts": len(verdicts),
        "passed": sum(v.outcome is Outcome.PASS for v in verdicts), "why": "".join(wrong[:1]),
    }  # fmt: skip


def again(item: Accepted, seconds: float) -> dict[str, Any]:
    """Both processes' answers and how the text reads."""
    alone = subprocess.run([sys.executable, "-c", ALONE, item.entry], input=item.source, text=True, capture_output=True,
                           env={**os.environ, "JAX_PLATFORMS": "cpu"}, timeout=seconds, check=False)
    found: dict[str, Any] = {"alone": alone.returncode == 0, **reading(item.source), "before_ms": item.ms,
                             "source": content_hash(item.source)}
    words = [sys.executable, "-m", "tests.bench.accepted_again", "--one", item.name, item.entry]
    try:
        told = subprocess.run(words, input=item.source, text=True, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return found | {"correct": False, "why": f"not judged within {seconds:.0f} s"}
    if told.returncode:
        return found | {"correct": False, "why": told.stderr.strip().splitlines()[-1]}
    return found | json.loads(told.stdout.splitlines()[-1])


def reading(source: str) -> dict[str, Any]:
    """``told``: lines of comments and docstrings; ``longest``: lines of the longest function; ``foreign``: imports."""
    tree, lines = ast.parse(source), source.splitlines()
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    docs = [n.body[0] for n in functions if ast.get_docstring(n) is not None]
    imports = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imports |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    return {
        "lines": len(lines), "widest": max(map(len, lines)),
        "told": sum("#" in x for x in lines) + sum((d.end_lineno or d.lineno) - d.lineno + 1 for d in docs),
        "longest": max((f.end_lineno or f.lineno) - f.lineno + 1 for f in functions),
        "foreign": sorted({i.split(".")[0] for i in imports} - {"jax", "functools", "math", "numpy"}),
    }  # fmt: skip


def passed(found: dict[str, Any]) -> bool:
    return bool(found["correct"] and found["alone"] and not found["foreign"])


def line(name: str, found: dict[str, Any]) -> str:
    text = f"{found['lines']} lines, {found['told']} of them words, longest function {found['longest']}"
    if not passed(found):
        why = found["why"] or (f"imports {', '.join(found['foreign'])}" if found["foreign"] else "not alone")
        return f"{name:58} NOT passed: {why[:300]}; {text}"
    both = found["ms"] and found["before_ms"]
    times = f"{found['ms']:.4g} ms (before {found['before_ms']:.4g})" if both else "no time"
    return f"{name:58} passed {found['passed']} of {found['verdicts']} verdicts, {times}; {text}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="8p_GEMM ...; all that there are when none is given")
    parser.add_argument("--project", type=Path, action="append", default=[])
    parser.add_argument("--seconds", type=float, default=600.0, help="for each (default 600)")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "ENTRY"), help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.one:
        found = judged_here(*given.one, sys.stdin.read())
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    every: list[bool] = []
    for project in map(Project, given.project):
        every += list(_course(project, given.names, given.seconds))
    sys.stdout.write(f"{sum(every)} of {len(every)} accepted sources passed again, alone and in a fresh process\n")
    return 0 if every and all(every) else 1


def _course(project: Project, names: Sequence[str], seconds: float) -> Iterator[bool]:
    file = project.root / ANSWERS
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for item in accepted(project):
        if names and item.name not in names:
            continue
        if known.get(item.name, {}).get("source") != content_hash(item.source):
            known[item.name] = again(item, seconds)
            file.write_text(json.dumps(known, indent=1))
        sys.stdout.write(line(item.name, known[item.name]) + "\n")
        sys.stdout.flush()
        yield passed(known[item.name])


if __name__ == "__main__":
    sys.exit(main())
