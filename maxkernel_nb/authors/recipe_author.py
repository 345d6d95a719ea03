"""The embedded author: recognises the computation, writes it from a recipe, tunes it. Needs no key and no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from maxkernel_nb.authors.base import TaskView, TuningSpace
from maxkernel_nb.authors.recipes.base import Match, Recipe
from maxkernel_nb.authors.recipes.registry import all_recipes, recipe_named
from maxkernel_nb.authors.recipes.returns import with_results
from maxkernel_nb.authors.recipes.tidy import tidied
from maxkernel_nb.errors import Declined, TaskError
from maxkernel_nb.task import Assessment, Candidate, GateName, KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named

_OTHERS = 3  # other kernels proposed for one function: each costs a search a judgement at least


class RecipeAuthor:
    """An :class:`~maxkernel_nb.authors.base.Author`. Deterministic; after ``plan`` it works from the plan alone."""

    name = "recipes"

    def __init__(self, recipes: Sequence[Recipe] | None = None) -> None:
        self.recipes = tuple(recipes) if recipes is not None else all_recipes()

    async def plan(self, view: TaskView) -> Plan:
        """Raises ``Declined`` with each recipe's reason when none fits."""
        matches, reasons = self.recognise(traces_of(view), view.task)
        if not matches:
            raise Declined("no recipe fits this function: " + "; ".join(f"{n}: {r}" for n, r in reasons.items()))
        plans = [recipe.plan(match, recipe.space(match).seeds[0]) for recipe, match in matches]
        plans = [_with_gain(plan, recipe, match, view) for plan, (recipe, match) in zip(plans, matches, strict=True)]
        return max(plans, key=lambda p: p.expected_gain or 0.0)

    async def other_plans(self, view: TaskView) -> tuple[Plan, ...]:
        """Other kernels than ``plan``'s for the same computation, each with its own first point, for a mode that
        compares several. Matches of further recipes that serve the whole function come first."""
        chosen = await self.plan(view)
        matches, _ = self.recognise(traces_of(view), view.task)
        found = [(recipe, match) for recipe, match in matches if match.to_dict() != chosen.spec]
        found += [(recipe, other) for recipe, match in matches for other in recipe.others(match)]
        return tuple(_with_gain(recipe.plan(match, recipe.space(match).seeds[0]), recipe, match, view)
                     for recipe, match in found[:_OTHERS])

    def recognise(
        self, traces: dict[str, Any], task: KernelTask
    ) -> tuple[list[tuple[Recipe, Match]], dict[str, str]]:
        """Every recipe that fits, with its match, and the reasons of those that do not."""
        matches: list[tuple[Recipe, Match]] = []
        reasons: dict[str, str] = {}
        for recipe in self.recipes:
            if matches and recipe.last_resort:
                continue
            try:
                match = recipe.recognise(traces, task)
                recipe.space(match)  # a match nothing of which fits the chip is no match
                matches.append((recipe, match))
            except Declined as reason:
                reasons[recipe.name] = str(reason)
        return matches, reasons

    async def implement(self, view: TaskView, plan: Plan) -> Candidate:
        recipe, match = _restore(plan)
        return self._candidate(recipe, match, plan.tiling or recipe.space(match).seeds[0])

    async def repair(self, view: TaskView, plan: Plan, candidate: Candidate, assessment: Assessment) -> Candidate:
        """The next smaller known-good point, where memory was the fault. Other faults are beyond a recipe."""
        recipe, match = _restore(plan)
        failed = assessment.failed
        gate = failed[0].gate if failed else None
        if gate not in (GateName.COMPILE, GateName.TRACE):
            why = failed[0].summary if failed else "nothing failed"
            raise Declined(f"the {recipe.name} recipe cannot mend this: {why}")
        for params in _smaller(recipe, match, candidate.params):
            return self._candidate(recipe, match, params, parent=candidate.id)
        raise Declined(f"the {recipe.name} recipe has no smaller blocks to try")

    def tuning_space(self, view: TaskView, plan: Plan, candidate: Candidate) -> TuningSpace:
        recipe, match = _restore(plan)
        return recipe.space(match)

    def estimator(
        self, view: TaskView, plan: Plan, candidate: Candidate
    ) -> Callable[[dict[str, int]], float]:
        """Cheap times in ms of other constants, to rank them by before anything is compiled."""
        recipe, match = _restore(plan)
        return lambda params: recipe.estimate_ms(match, {**candidate.params, **params})

    def retune(self, view: TaskView, plan: Plan, candidate: Candidate, params: dict[str, int]) -> Candidate:
        recipe, match = _restore(plan)
        return self._candidate(recipe, match, {**candidate.params, **params}, parent=candidate.id)

    def _candidate(self, recipe: Recipe, match: Match, params: dict[str, int], parent: str | None = None) -> Candidate:
        recipe.check(match, params)
        return Candidate(
            source=tidied(with_results(recipe.render(match, params), match.signature)), entry=match.signature.entry,
            author=self.name, parent=parent, params=params, note=recipe.title,
            bound_ms=recipe.bound_with(match, params).milliseconds(chip_named(match.chip)),
        )


def traces_of(view: TaskView) -> dict[str, Any]:
    """The jaxpr of every case. A case that cannot be traced is left out, unless it is the timing case."""
    traces = {}
    for case in view.task.cases:
        try:
            traces[case.name] = view.trace(case.name)
        except TaskError:
            if case == view.task.timing_case:
                raise
    return traces


def _restore(plan: Plan) -> tuple[Recipe, Match]:
    recipe = recipe_named(plan.recipe)
    return recipe, recipe.match_type.from_dict(plan.spec)


def _with_gain(plan: Plan, recipe: Recipe, match: Match, view: TaskView) -> Plan:
    """The most that can be gained: the reference's modelled time over the roofline of this algorithm."""
    if view.baseline is None:
        return plan
    chip = chip_named(match.chip)
    gain = view.baseline.modelled_ms / max(recipe.bound(match).milliseconds(chip), 1e-9)
    source = f"upper limit: modelled reference {view.baseline.modelled_ms:.3f} ms over the roofline bound"
    return plan.model_copy(update={"expected_gain": gain, "expected_gain_source": source})


def _smaller(recipe: Recipe, match: Any, params: dict[str, int]) -> list[dict[str, int]]:
    """Known-good points that need at most 70 % of the VMEM, largest first."""
    need = recipe.vmem_bytes(match, params)
    points = [dict(s) for s in recipe.space(match).seeds]
    halved = dict(params)
    for _ in range(4):
        largest = max(halved, key=lambda name: halved[name])
        halved = {**halved, largest: halved[largest] // 2}
        points.append(halved)
    fitting = []
    for point in points:
        try:
            recipe.check(match, point)
        except Declined:
            continue
        if recipe.vmem_bytes(match, point) <= 0.7 * need:
            fitting.append(point)
    return sorted(fitting, key=lambda p: -recipe.vmem_bytes(match, p))
