"""One engine a process: a thread with an event loop that drives all runs, so that the notebook stays free."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from maxkernel_nb.evaluate.base import Evaluator
from maxkernel_nb.evaluate.executor import Executor
from maxkernel_nb.run import Run
from maxkernel_nb.store import Project


class Engine:
    """Owns the loop, one evaluator a project, and the runs that live in this process."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str], Run] = {}  # (project root, run id)
        self._evaluators: dict[str, Evaluator] = {}
        self._mutex = threading.Lock()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="maxkernel-engine", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def evaluator(self, project: Project, executor: str = "local", address: str | None = None) -> Evaluator:
        """``executor``: ``local``, or ``ray`` (at ``address``; raises ``UsageError`` where there is no cluster)."""
        from maxkernel_nb.evaluate.local import LocalEvaluator

        with self._mutex:
            key = f"{executor} {project.root}"
            if key not in self._evaluators:
                workers = max(1, (os.cpu_count() or 2) // 2)
                elsewhere = _ray(address) if executor == "ray" else None
                self._evaluators[key] = LocalEvaluator(project.objects, workers=workers, executor=elsewhere)
            return self._evaluators[key]

    def add(self, run: Run) -> None:
        with self._mutex:
            self.runs[str(run.project.root), run.id] = run

    def find(self, project: Project, run_id: str) -> Run | None:
        return self.runs.get((str(project.root), run_id))

    def close(self) -> None:
        """Kills every worker; runs in flight can be resumed from their journals."""
        with self._mutex:
            evaluators, self._evaluators = list(self._evaluators.values()), {}
        for evaluator in evaluators:
            evaluator.close()
        if self._thread.is_alive():
            self.submit(self._wind_down())
            self._thread.join(timeout=5)

    async def _wind_down(self) -> None:
        """Lets every run record that it was stopped, then ends the loop."""
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=3) if tasks else None
        self.loop.stop()


def _ray(address: str | None) -> Executor:
    from maxkernel_nb.evaluate.ray_executor import ray_executor

    return ray_executor(address)


_engine: Engine | None = None
_guard = threading.Lock()


def get_engine() -> Engine:
    """The process's engine, started on first use."""
    global _engine
    with _guard:
        if _engine is None:
            _engine = Engine()
        return _engine


def close_engine() -> None:
    """Ends the process's engine, if there is one (``%unload_ext`` and tests)."""
    global _engine
    with _guard:
        engine, _engine = _engine, None
    if engine is not None:
        atexit.unregister(engine.close)
        engine.close()
