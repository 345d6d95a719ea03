"""Modelled times of every point of five kernels' tuning spaces: what the tuner is compared with. Resumable."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from maxkernel_nb.authors.base import TaskView, TuningSpace
from maxkernel_nb.authors.recipe_author import RecipeAuthor
from maxkernel_nb.errors import Declined, InfrastructureError
from maxkernel_nb.evaluate.base import TUNING_GATES
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.store import Project
from maxkernel_nb.task import Candidate, Outcome, Plan
from maxkernel_nb.tasks.build import build_task


def gelu(x, w, b):
    return jax.nn.gelu(x @ w + b)


def row_max(x, w, b):
    return jnp.max(jax.nn.silu(x @ w - b), axis=1)


def residual(x, w, r):
    return r + 0.5 * jax.nn.silu(x @ w)


def attention(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1), v)


def mlp(x, gate, up, down):
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


KERNELS: dict[str, tuple[Callable[..., Any], str]] = {
    "gelu": (gelu, "x: bf16[4096,4096], w: bf16[4096,4096], b: bf16[4096]"),
    "row_max": (row_max, "x: bf16[4096,2048], w: bf16[2048,4096], b: bf16[4096]"),
    "residual": (residual, "x: bf16[8192,1024], w: bf16[1024,2048], r: bf16[8192,2048]"),
    "attention": (attention, "q: bf16[2,4,2048,128], k: bf16[2,4,2048,128], v: bf16[2,4,2048,128]"),
    "mlp": (mlp, "x: bf16[4096,1024], gate: bf16[1024,4096], up: bf16[1024,4096], down: bf16[4096,1024]"),
}


MOST = 1024


@dataclass
class Grid:
    """One kernel's space. ``times``: text of a point -> modelled ms, None where it was refused."""

    name: str
    project: Project
    view: TaskView
    plan: Plan
    first: Candidate
    space: TuningSpace
    author: RecipeAuthor = field(default_factory=RecipeAuthor)
    times: dict[str, float | None] = field(default_factory=dict)

    def retune(self, params: dict[str, int]) -> Candidate:
        return self.author.retune(self.view, self.plan, self.first, params)

    def points(self) -> Iterator[tuple[dict[str, int], Candidate]]:
        """Every point that its own check lets through."""
        for values in itertools.product(*self.space.axes.values()):
            params = dict(zip(self.space.axes, values, strict=True))
            try:
                yield params, self.retune(params)
            except Declined:
                continue

    @property
    def file(self) -> Path:
        return self.project.root / f"{self.name}.json"


def grid(name: str, folder: Path) -> Grid:
    function, shapes = KERNELS[name]
    project = Project(folder / name).prepare()
    built = build_task(function, shapes=shapes, store=project.objects)
    view, author = TaskView(task=built.task, trace=built.trace), RecipeAuthor()
    plan = asyncio.run(author.plan(view))
    first = asyncio.run(author.implement(view, plan))
    made = Grid(name, project, view, plan, first, _small(author.tuning_space(view, plan, first)), author)
    if made.file.exists():
        made.times = json.loads(made.file.read_text())
    return made


def _small(space: TuningSpace) -> TuningSpace:
    """Without the largest blocks, whose compile takes minutes: they would be most of the grid's cost."""
    axes = {name: tuple(v for v in values if v <= MOST or name == "BLOCK_K") for name, values in space.axes.items()}
    seeds = tuple(p for p in space.seeds if all(p[name] in values for name, values in axes.items()))
    return TuningSpace(axes=axes, seeds=seeds)


def text_of(params: dict[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in params.items())


def fill(made: Grid, tell: Callable[[str], object]) -> None:
    """Compiles and models what the file does not know yet; each answer is kept at once."""
    todo = [(p, c) for p, c in made.points() if text_of(p) not in made.times]
    if not todo:
        return
    evaluator = LocalEvaluator(made.project.objects)

    async def all_of_them() -> None:
        for params, candidate in todo:
            judged = await evaluator.judge(made.view.task, candidate, TUNING_GATES)
            failed = judged.assessment.failed
            if any(v.outcome is Outcome.INFRASTRUCTURE for v in judged.assessment.verdicts):
                raise InfrastructureError(f"{made.name}: {text_of(params)}: {failed[0].summary if failed else '?'}")
            time = None if failed else judged.assessment.modelled_ms
            made.times[text_of(params)] = time
            made.file.write_text(json.dumps(made.times, indent=0))
            tell(f"{made.name}: {text_of(params)}: {failed[0].summary[:90] if failed else f'{time:.4f} ms'}")

    try:
        asyncio.run(all_of_them())
    finally:
        evaluator.close()
