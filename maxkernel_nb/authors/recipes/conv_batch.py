"""Statistics over the batch of a convolution: what comes before them is the kernel's, the rest plain JAX."""

from __future__ import annotations

from maxkernel_nb.authors.recipes.expressions import Expression, Step
from maxkernel_nb.authors.recipes.rendering import Lines
from maxkernel_nb.errors import Declined

BATCH = "batch_"


def split_at_batch(body: Expression) -> tuple[Expression, Expression | None]:
    """The expression up to the one value that all statistics and the result are computed from, and from there on.

    Raises ``Declined`` where there is no such value. Without statistics over the batch nothing is split.
    """
    if not any(step.op.startswith(BATCH) for step in body.steps):
        return body, None
    for cut in _before(body):
        after = _from(body, cut)
        if after is not None:
            return trimmed(body, cut), after
    raise Declined("statistics over the batch are taken of several values of the convolution")


def _before(body: Expression) -> list[str]:
    """Values that need no statistics of the batch and are used by some that do, the last first."""
    needs: dict[str, bool] = {}
    for i, step in enumerate(body.steps):
        needs[f"%{i}"] = step.op.startswith(BATCH) or any(needs.get(a, False) for a in step.args)
    used = {a for i, step in enumerate(body.steps) if needs[f"%{i}"] for a in step.args}
    found = [a for a in used if a == "acc" or (a.startswith("%") and not needs[a])]
    return sorted(found, key=lambda a: int(a[1:]) if a != "acc" else -1, reverse=True)


def _from(body: Expression, cut: str) -> Expression | None:
    """The steps from ``cut`` to the result, with ``cut`` as ``acc``; None if they reach around it."""
    order, todo = set(), [body.result]
    while todo:
        argument = todo.pop()
        if argument == cut or not argument.startswith(("%", "acc")):
            continue
        if argument == "acc":
            return None
        step = body.steps[int(argument[1:])]
        if not step.op.startswith(BATCH) and step.op.split("_")[0] in ("pixels", "group", "image", "down"):
            return None
        order.add(int(argument[1:]))
        todo.extend(step.args)
    return _renumbered(body, sorted(order), {cut: "acc"}, body.result)


def trimmed(body: Expression, result: str) -> Expression:
    """What ``result`` needs: its steps and leaves."""
    order, todo = set(), [result]
    while todo:
        argument = todo.pop()
        if argument.startswith("%"):
            order.add(int(argument[1:]))
            todo.extend(body.steps[int(argument[1:])].args)
    return _renumbered(body, sorted(order), {}, result)


def _renumbered(body: Expression, order: list[int], names: dict[str, str], result: str) -> Expression:
    new = {**{f"%{i}": f"%{n}" for n, i in enumerate(order)}, **names}
    used = {a for i in order for a in body.steps[i].args if a.startswith("@")}
    kept = sorted(used, key=lambda a: int(a[1:]))
    new |= {leaf: f"@{n}" for n, leaf in enumerate(kept)}
    steps: list[Step] = [
        body.steps[i].model_copy(update={"args": tuple(new.get(a, a) for a in body.steps[i].args)}) for i in order
    ]
    leaves = tuple(body.leaves[int(leaf[1:])] for leaf in kept)
    return body.model_copy(update={"steps": tuple(steps), "leaves": leaves, "result": new.get(result, result)})


class BatchLines(Lines):
    """Plain JAX on whole arrays [images, channels, *space]."""

    def __init__(self, expression: Expression, names: dict[str, str], taken: set[str], rank: int) -> None:
        super().__init__(expression, names, taken)
        self.axes = (0, *range(2, rank))

    def special(self, step: Step) -> tuple[str, int] | None:
        if step.op.startswith(BATCH):
            what = step.op.removeprefix(BATCH)
            return f"jnp.{what}({self.text[step.args[0]][0]}, axis={self.axes}, keepdims=True)", 9
        return super().special(step)
