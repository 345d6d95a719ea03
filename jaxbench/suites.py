"""What the harness works on: our own tasks, or a folder of foreign ones in the field's layout.

A foreign task is a Python file with ``CONFIG``, ``create_inputs`` and ``workload`` (optionally ``get_flops``): either
``DIR/NAME.py`` or ``DIR/NAME/*.py``. Its code runs in a sandboxed worker only, where it becomes a ``KernelTask``.
"""

from __future__ import annotations

import ast
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from jaxbench import bridge, published
from jaxbench.registry import BenchTask, Size, task, tasks
from maxkernel_nb.errors import TaskError, UsageError
from maxkernel_nb.evaluate.calls import Caller
from maxkernel_nb.evaluate.executor import Job, JobRefused, Reply, WorkerKind
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import KernelTask

OWN = "jaxbench"
NEEDED = ("CONFIG", "create_inputs", "workload")


@dataclass(frozen=True)
class Facts:
    """What is known of a task beside its program. ``published``: (ms on a v6e, remark; no remark: it applies)."""

    tier: str = ""
    algebra: str = ""
    flops: float | None = None
    min_bytes: float | None = None
    published: tuple[float, str] | None = None
    notes: tuple[str, ...] = ()


class Item(Protocol):
    """One task of a suite. ``judged``: with check cases. ``timed``: reference, and its short form where it has one."""

    @property
    def id(self) -> str: ...

    @property
    def suite(self) -> str: ...

    async def judged(self, evaluator: LocalEvaluator, chip: str, inputs: bridge.Inputs) -> KernelTask: ...

    async def timed(self, evaluator: LocalEvaluator, chip: str, size: Size) -> tuple[KernelTask, KernelTask | None]: ...

    def facts(self, size: Size) -> Facts: ...


@dataclass(frozen=True)
class OwnItem:
    bench: BenchTask
    suite: str = OWN

    @property
    def id(self) -> str:
        return self.bench.id

    async def judged(self, evaluator: LocalEvaluator, chip: str, inputs: bridge.Inputs) -> KernelTask:
        return bridge.build(self.bench, evaluator.store, chip=chip, inputs=inputs).task

    async def timed(self, evaluator: LocalEvaluator, chip: str, size: Size) -> tuple[KernelTask, KernelTask | None]:
        reference = bridge.timing_task(self.bench, evaluator.store, chip, size)
        short = bridge.timing_task(self.bench, evaluator.store, chip, size, simplified=True)
        return reference, short if self.bench.simplified else None

    def facts(self, size: Size) -> Facts:
        bench = self.bench
        return Facts(
            tier=bench.tier, algebra=bench.algebra, flops=float(bench.flops(size)),
            min_bytes=float(bench.min_bytes(size)), published=published.v6e(bench.id) if size == "full" else None,
        )  # fmt: skip


@dataclass
class ForeignItem:
    id: str
    suite: str
    path: Path
    source: str = field(repr=False)
    _facts: Facts = field(default_factory=Facts, repr=False)

    async def judged(self, evaluator: LocalEvaluator, chip: str, inputs: bridge.Inputs) -> KernelTask:
        if inputs == "published":
            raise UsageError(f"--inputs published is for our own tasks; {self.id} makes its inputs itself.")
        args = {"source": self.source, "name": self.id, "chip": chip}
        job = Job(WorkerKind.CANDIDATE, "suite", args, seconds=evaluator.limits.trace_s)
        try:
            reply = await Caller(evaluator.executor).ask(job)
        except JobRefused as refusal:
            line = f" (line {refusal.line})" if refusal.line else ""
            raise TaskError(f"{self.path.name}{line} is no task: {refusal.message}") from refusal
        return self._received(reply, evaluator.store)

    def _received(self, reply: Reply, store: ObjectStore) -> KernelTask:
        for digest, data in zip(reply.data["digests"], reply.buffers, strict=True):
            if store.put(data) != digest:
                raise TaskError(f"{self.id}: the worker's answer is none.")
        built = KernelTask.from_dict(reply.data["task"])
        moved = sum(math.prod(a.shape) * _width(a.dtype) for a in built.timing_case.args)
        self._facts = Facts(flops=reply.data["flops"], min_bytes=float(moved), notes=tuple(reply.data["notes"]))
        return built

    def trusted_keywords(self) -> dict[str, Any]:
        """What ``maxkernel_nb.start`` needs. Runs the file in this process: for those who trust it."""
        spec = importlib.util.spec_from_file_location(f"jaxbench_suite_{self.id}", self.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return {"fn": module.workload, "source": self.source, "name": self.id, "inputs": module.create_inputs}

    async def timed(self, evaluator: LocalEvaluator, chip: str, size: Size) -> tuple[KernelTask, KernelTask | None]:
        if size != "full":
            raise UsageError(f"The tasks of {self.suite} have no smoke sizes; use --size full.")
        return await self.judged(evaluator, chip, "ours"), None

    def facts(self, size: Size) -> Facts:
        return self._facts


def own(names: Sequence[str]) -> list[Item]:
    """Our tasks of these names; all for none."""
    return [OwnItem(b) for b in ([task(n) for n in names] or tasks())]


def foreign(folder: Path, names: Sequence[str] = ()) -> list[ForeignItem]:
    """The tasks in ``folder``, in alphabetical order, or those of these names. Nothing of them is run here.

    Raises ``UsageError`` when there is no such folder, or nothing in the layout in it.
    """
    if not folder.is_dir():
        raise UsageError(f"--suite {folder} is no folder; pass the one that holds the tasks.")
    files = sorted([*folder.glob("*.py"), *folder.glob("*/*.py")])
    found: dict[str, ForeignItem] = {}
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        if all(name in _defined(text) for name in NEEDED):
            name = path.stem if path.parent == folder else path.parent.name
            found.setdefault(name, ForeignItem(name, folder.resolve().name, path, text))
    if not found:
        raise UsageError(
            f"{folder} holds no task with CONFIG, create_inputs and workload ({len(files)} Python files looked at)."
        )
    unknown = next((n for n in names if n not in found), None)
    if unknown is not None:
        raise UsageError(f"No task {unknown!r} in {folder}; it has {', '.join(found)}.")
    return [found[n] for n in (names or found)]


def _defined(text: str) -> set[str]:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return set()
    names = {n.name for n in body if isinstance(n, ast.FunctionDef)}
    targets = [t for n in body if isinstance(n, ast.Assign) for t in n.targets]
    targets += [n.target for n in body if isinstance(n, ast.AnnAssign)]
    return names | {t.id for t in targets if isinstance(t, ast.Name)}


def _width(dtype: str) -> int:
    from maxkernel_nb.evaluate.wire import dtype_named

    return dtype_named(dtype).itemsize
