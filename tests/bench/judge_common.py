"""What the judge's commands share: tasks, kernels, one evaluator, and verdicts in a line."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluate"))

import suite_honest
import suite_tasks
import suite_wrong

from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Assessment, Candidate, GateName, KernelTask

__all__ = ["CHECKED", "Bench", "faint", "suite_honest", "suite_tasks", "suite_wrong"]
CHECKED = (GateName.SCREEN, GateName.TRACE, GateName.CHECK)


def faint(task: KernelTask) -> KernelTask:
    """The last argument drawn so small that no drawn input shows whether it was used."""

    def changed(case: Any) -> Any:
        *others, last = case.args
        draw = last.draw.model_copy(update={"std": 1e-5, "mean": 0.0})
        return case.model_copy(update={"args": (*others, last.model_copy(update={"draw": draw}))})

    return task.model_copy(update={"cases": tuple(map(changed, task.cases))})


class Bench:
    """``folder``: keeps what is known between runs of a command; a new one each time by default."""

    def __init__(self, folder: str | None = None, workers: int = 1, **options: Any) -> None:
        self.store = ObjectStore(Path(folder or tempfile.mkdtemp(prefix="judge-bench-")))
        self.tasks = suite_tasks.build(self.store)
        self.evaluator = LocalEvaluator(self.store, workers=workers, **options)

    def task(self, name: str, weak: bool = False) -> KernelTask:
        return faint(self.tasks[name]) if weak else self.tasks[name]

    async def judge(
        self, task: KernelTask, source: str, gates: tuple[GateName, ...] = CHECKED, entry: str = "kernel"
    ) -> Assessment:
        return (
            await self.evaluator.judge(task, Candidate(source=source, entry=entry, author="bench"), gates)
        ).assessment

    def run(self, course: Any) -> Any:
        started = time.monotonic()
        try:
            return asyncio.run(course)
        finally:
            self.evaluator.close()
            sys.stdout.write(f"{time.monotonic() - started:.0f} s\n")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
