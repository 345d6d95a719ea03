"""The live world of a search: the run's author makes the candidates, every paid call is a durable step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxkernel_nb.agents.planner import plan as first_plan
from maxkernel_nb.agents.variants import other_plans
from maxkernel_nb.authors.kernel_text import make_candidate, set_constants, space_in
from maxkernel_nb.authors.model_errors import AttemptFailed
from maxkernel_nb.engine.graph import Graph
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import Declined
from maxkernel_nb.events import EdgeKind
from maxkernel_nb.modes.search.contract import Draw, Family, Preview
from maxkernel_nb.task import Assessment, Candidate, Plan

PERSON = "person"


class AuthorWorld:
    """``open`` asks for the plans and their first kernels; families that an author writes later are adopted."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.families: dict[str, Family] = {}
        author: Any = runtime.author
        self.refines = getattr(author, "next_attack", None) is not None
        self._plans: dict[str, Plan] = {}
        self._firsts: dict[str, Candidate] = {}
        self._previews: dict[tuple[Any, ...], Preview | None] = {}
        self._estimators: dict[str, Any] = {}

    async def open(self) -> None:
        """Raises ``Declined`` with the author's reasons when it knows no way at all."""
        plans = [await first_plan(self.runtime), *await other_plans(self.runtime)]
        reasons = []
        for plan in plans:
            try:
                await self._begin(plan)
            except (Declined, AttemptFailed) as error:
                reasons.append(str(error))
                self.runtime.note(f"Nothing came of the plan {plan.strategy!r}: {error}", "warning")
        if not self.families:
            raise Declined("no plan gave a kernel: " + "; ".join(reasons))

    async def _begin(self, plan: Plan) -> None:
        key = plan.recipe or f"plan {len(self.families) + 1}"
        if key in self.families:
            key = f"{key} {len(self.families) + 1}"
        first = await self.runtime.step(
            "implement" if not self.families else f"implement:{key}", "implementer", "Write the kernel",
            lambda: self.runtime.author.implement(self.runtime.view, plan), Candidate, lambda c: c.note,
        )
        self._plans[key], self._firsts[key] = plan, first
        space = self.runtime.author.tuning_space(self.runtime.view, plan, first)
        seeds = [first.params, *(s for s in space.seeds if s != first.params)]
        self.families[key] = Family(key, space.axes, tuple(seeds), plan.strategy)

    def adopt(self, candidate: Candidate, plan: Plan | None = None) -> str:
        """A kernel that an author or a person wrote begins a family of its own; its key."""
        if candidate.id in self.families:
            return candidate.id
        if candidate.author == PERSON or plan is None:
            space = space_in(candidate.source)
        else:
            space = self.runtime.author.tuning_space(self.runtime.view, plan, candidate)
        if not set(space.axes) <= set(candidate.params):
            space = space.model_copy(update={"axes": {}})
        self.families[candidate.id] = Family(candidate.id, space.axes, (), candidate.note)
        self._firsts[candidate.id] = candidate
        if plan is not None:
            self._plans[candidate.id] = plan
        return candidate.id

    def preview(self, family: str, params: Mapping[str, int]) -> Preview | None:
        place = (family, *sorted(params.items()))
        if place not in self._previews:
            made = self._made(family, params)
            self._previews[place] = None if made is None else Preview(
                made.id, made.bound_ms, self.estimate(family, params))
        return self._previews[place]

    def estimate(self, family: str, params: Mapping[str, int]) -> float | None:
        if family not in self._estimators:
            author, plan, first = self.runtime.author, self._plans.get(family), self._firsts[family]
            make: Any = getattr(author, "estimator", None)
            known = make is not None and plan is not None and plan.recipe and first.author != PERSON
            self._estimators[family] = make(self.runtime.view, plan, first) if known else None
        estimate = self._estimators[family]
        try:
            return None if estimate is None else estimate(dict(params))
        except (Declined, ArithmeticError, ValueError):  # a point half-way between the author's own need not work
            return None

    def _made(self, family: str, params: Mapping[str, int]) -> Candidate | None:
        try:
            return self.point(family, params)
        except Declined:
            return None

    def point(self, family: str, params: Mapping[str, int], parent: str | None = None) -> Candidate:
        """The kernel of these constants. Raises ``Declined`` for a point that cannot work."""
        first = self._firsts[family]
        if not params or dict(params) == first.params:
            return first
        plan = self._plans.get(family)
        if first.author == PERSON or plan is None:
            text = set_constants(first.source, dict(params))
            return make_candidate(self.runtime.task, text, PERSON, first.note, parent or first.id)
        made = self.runtime.author.retune(self.runtime.view, plan, first, dict(params))
        return made if parent is None else made.model_copy(update={"parent": parent})

    def plan_of(self, draw: Draw, graph: Graph) -> Plan:
        """What an author that writes is told: the idea, the parent's bottleneck and what siblings learned."""
        parent = graph.nodes[draw.parents[0]]
        known = self._plans.get(parent.family)
        lines = [draw.idea]
        if parent.ms is not None:
            floor = f"; no kernel of its kind can take less than {parent.floor_ms:.4g} ms" if parent.floor_ms else ""
            lines.append(f"The parent {parent.id} takes {parent.ms:.4g} ms, modelled, bound by "
                         f"{parent.bound_by or 'nothing in particular'}{floor}.")
        return Plan(strategy=draw.idea.split(":")[0][:120], summary="\n\n".join(lines), attacks=parent.bound_by,
                    memory=known.memory if known else "")

    async def write(self, number: int, draw: Draw, plan: Plan, remarks: str) -> Candidate:
        """A paid call: once a run, ever."""
        runtime, author = self.runtime, self.runtime.author
        parent = runtime.run.state.candidates[draw.parents[0]]
        options: Any = {"remarks": remarks} if remarks else {}

        async def work() -> Candidate:
            if draw.how is EdgeKind.REPAIR:
                told = Assessment(candidate=parent.candidate.id, verdicts=parent.verdicts)
                return await author.repair(runtime.view, plan, parent.candidate, told)
            return await author.implement(runtime.view, plan, base=parent.candidate, **options)  # type: ignore[call-arg]

        role = "debugger" if draw.how is EdgeKind.REPAIR else "implementer"
        return await runtime.step(f"draw:{number}", role, f"{str(draw.how).capitalize()}: {draw.idea[:80]}", work,
                                  Candidate, lambda c: c.note)
