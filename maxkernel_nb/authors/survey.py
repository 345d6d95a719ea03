"""What the embedded engine can do for a function: every recipe's answer, with the reason of those that decline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxkernel_nb.authors.recipe_author import RecipeAuthor
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask
from maxkernel_nb.values import Value


class Answer(Value):
    """One recipe's. ``bound_ms``: least time of its algorithm on the task's chip; ``algebra``: what was rewritten."""

    recipe: str
    title: str
    serves: bool
    reason: str  # why it declined, or what it would do
    bound_ms: float | None = None
    algebra: tuple[str, ...] = ()


def survey(traces: Mapping[str, Any], task: KernelTask) -> tuple[Answer, ...]:
    """``traces``: case name -> closed jaxpr. Nothing is compiled or run."""
    from maxkernel_nb.tpu.chips import chip

    author = RecipeAuthor()
    matches, reasons = author.recognise(dict(traces), task)
    served = {recipe.name: (recipe, match) for recipe, match in matches}
    answers = []
    for recipe in author.recipes:
        if recipe.name in served:
            match = served[recipe.name][1]
            plan = recipe.plan(match, recipe.space(match).seeds[0])
            answers.append(Answer(
                recipe=recipe.name, title=recipe.title, serves=True, reason=plan.strategy, algebra=match.algebra,
                bound_ms=recipe.bound(match).milliseconds(chip(task.chip)),
            ))
        else:
            reason = reasons.get(recipe.name, "another recipe serves the whole function")
            answers.append(Answer(recipe=recipe.name, title=recipe.title, serves=False, reason=reason))
    return tuple(answers)


def known() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """(name, title, known limits) of every recipe, in the order they are asked."""
    return tuple((r.name, r.title, r.limits) for r in RecipeAuthor().recipes)


def chosen(answers: tuple[Answer, ...]) -> Answer:
    """The answer that a plan would follow. Raises ``Declined`` with every reason."""
    serving = [a for a in answers if a.serves]
    if not serving:
        raise Declined("; ".join(f"{a.recipe}: {a.reason}" for a in answers))
    return serving[0]
