"""What an author may do beyond the basic contract, and authors made of several.

Modes ask for these by name and do without where an author has none: see ``maxkernel_nb.agents``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

from pydantic import Field

from maxkernel_nb.authors.base import Author, TaskView, TuningSpace
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import Assessment, Candidate, Diagnostic, Draw, KernelTask, Plan
from maxkernel_nb.values import Value


class Next(Value):
    """What to attack after reading the best kernel's profile: a plan, or why to ``stop``."""

    bottleneck: str
    plan: Plan | None = None
    stop: str = ""
    lesson: str = ""


class Review(Value):
    fix_first: bool
    risks: tuple[Diagnostic, ...] = ()


class StressDraws(Value):
    """Unusual draws by name; each replaces the draws of some arguments in every check case."""

    draws: dict[str, dict[str, Draw]] = Field(default_factory=dict)

    @classmethod
    def of(cls, families: dict[str, dict[str, tuple[float, float]]]) -> Self:
        """From ``{name: {argument: (mean, std)}}``."""
        return cls(draws={name: {a: Draw(mean=m, std=s) for a, (m, s) in family.items()}
                          for name, family in families.items()})

    def task(self, task: KernelTask, name: str) -> KernelTask:
        """The task with the check cases drawn that way. Case names stay, so the stored references still serve."""
        cases = tuple(
            case if case.role == "timing" else case.model_copy(update={"args": tuple(
                arg.model_copy(update={"draw": self.draws[name][arg.name]}) if arg.name in self.draws[name] else arg
                for arg in case.args
            )}) for case in task.cases
        )
        return task.model_copy(update={"cases": cases})


class PoolAuthor(Author, Protocol):
    """An author that can do all of it."""

    async def next_attack(self, view: TaskView) -> Next: ...

    async def propose_space(self, view: TaskView, plan: Plan, candidate: Candidate, points: int) -> TuningSpace: ...

    async def stress_draws(self, view: TaskView) -> StressDraws: ...

    async def review(self, view: TaskView, candidate: Candidate) -> Review: ...

    async def explain(self, view: TaskView, question: str) -> str: ...


class BothAuthors:
    """Recipes give the first kernel at no cost; Claude plans what they cannot, repairs, and looks for faster ones.

    A candidate is tuned and retuned by the author that wrote it.
    """

    name = "both"

    def __init__(self, recipes: Author, claude: Any) -> None:
        self.recipes, self.claude = recipes, claude
        self.settings = claude.settings

    def attach(self, desk: Any) -> None:
        self.claude.attach(desk)

    async def plan(self, view: TaskView, remarks: str = "", previous: Plan | None = None) -> Plan:
        """A remark means that the person wants something else than what a recipe gave."""
        if not remarks:
            try:
                return await self.recipes.plan(view)
            except Declined:
                pass
        return await self.claude.plan(view, remarks, previous)

    async def implement(self, view: TaskView, plan: Plan, remarks: str = "",
                        base: Candidate | None = None) -> Candidate:
        if plan.recipe and not remarks and base is None:
            return await self.recipes.implement(view, plan)
        return await self.claude.implement(view, plan, remarks, base)

    async def repair(self, view: TaskView, plan: Plan, candidate: Candidate, assessment: Assessment,
                     remarks: str = "") -> Candidate:
        if candidate.author == self.recipes.name and not remarks:
            try:
                return await self.recipes.repair(view, plan, candidate, assessment)
            except Declined:
                pass
        return await self.claude.repair(view, plan, candidate, assessment, remarks)

    def _writer(self, candidate: Candidate) -> Any:
        return self.recipes if candidate.author == self.recipes.name else self.claude

    async def other_plans(self, view: TaskView) -> tuple[Plan, ...]:
        """Of the recipes; what Claude would do otherwise it is asked kernel by kernel."""
        other: Any = getattr(self.recipes, "other_plans", None)
        try:
            return () if other is None else await other(view)
        except Declined:
            return ()

    def estimator(self, view: TaskView, plan: Plan, candidate: Candidate) -> Callable[[dict[str, int]], float] | None:
        make: Any = getattr(self._writer(candidate), "estimator", None)
        return None if make is None else make(view, plan, candidate)

    def tuning_space(self, view: TaskView, plan: Plan, candidate: Candidate) -> TuningSpace:
        return self._writer(candidate).tuning_space(view, plan, candidate)

    def retune(self, view: TaskView, plan: Plan, candidate: Candidate, params: dict[str, int]) -> Candidate:
        return self._writer(candidate).retune(view, plan, candidate, params)

    async def propose_space(self, view: TaskView, plan: Plan, candidate: Candidate, points: int) -> TuningSpace:
        if self._writer(candidate) is self.recipes:
            return self.recipes.tuning_space(view, plan, candidate)
        return await self.claude.propose_space(view, plan, candidate, points)

    async def next_attack(self, view: TaskView) -> Next:
        return await self.claude.next_attack(view)

    async def stress_draws(self, view: TaskView) -> StressDraws:
        return await self.claude.stress_draws(view)

    async def review(self, view: TaskView, candidate: Candidate) -> Review:
        return await self.claude.review(view, candidate)

    async def explain(self, view: TaskView, question: str) -> str:
        return await self.claude.explain(view, question)
