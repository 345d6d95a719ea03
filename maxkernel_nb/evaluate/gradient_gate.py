"""The gradient gate: a kernel that will be differentiated must have the reference's gradient, not only its values."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from maxkernel_nb.evaluate import wire
from maxkernel_nb.evaluate.executor import Job, JobRefused, WorkerKind
from maxkernel_nb.evaluate.gates import ready_cases
from maxkernel_nb.evaluate.ground import Ground, numbers, reading, refused
from maxkernel_nb.evaluate.numerics import CONTESTED
from maxkernel_nb.evaluate.ops_gradient import NONE
from maxkernel_nb.task import Case, GateName, Outcome, Verdict

NO_GRADIENT = "gradient-missing"


class GradientGate:
    """Only where a task asks for it, or the notebook differentiates the function. Each check case on one draw of inputs
    and of the cotangents of its results, the first on every seed: the candidate's vector-Jacobian product, traced from
    its function (so that its ``custom_vjp`` counts) and run with TPU semantics, against the reference's, for each float
    argument. One verdict for each case and seed. Declines a task that does not ask for it, cases whose reference has no
    exported gradient, and draws on which that is not finite itself. Where only the notebook asks, a kernel that has no
    gradient is declined, not refused: an accepted kernel is then differentiated as the reference is.
    """

    name = GateName.GRADIENT

    async def run(self, ground: Ground) -> AsyncIterator[Verdict]:
        task = ground.task
        if not task.gradient and not task.differentiated:
            told = "The task does not ask for a gradient."
            yield Verdict(gate=self.name, outcome=Outcome.DECLINED, summary=told)
            return
        for number, case in enumerate(ready_cases(ground)):
            for seed in task.seeds if number == 0 else task.seeds[:1]:
                verdict = await self._verdict(ground, case, seed)
                if not task.gradient and any(d.kind == NO_GRADIENT for d in verdict.diagnostics):
                    yield _none(task.differentiated)
                    return
                yield _asked_by(verdict, task.differentiated)
                if verdict.outcome is Outcome.FAIL:
                    return

    async def _verdict(self, ground: Ground, case: Case, seed: int) -> Verdict:
        started, task = time.monotonic(), ground.task
        place: dict[str, Any] = {"case": case.name, "seed": seed}
        draw = {"case": case.to_dict(), "seed": task.draws(seed)}
        try:
            reply = await ground.ask(ground.job("gradient", ground.limits.check_s, **draw))
            with reading():
                wire.arrays(reply.data["outputs"], reply.buffers)
        except JobRefused as refusal:
            refusal.message = f"In its gradient: {refusal.message} ({case.name}, seed {seed})"
            return refused(self.name, refusal, started, **place)
        args = {
            **draw,
            "outputs": reply.data["outputs"],
            "tolerance": task.tolerance.to_dict(),
            "wide": task.reference(case.name).oracle_dtype == "float64",
        }
        buffers = (*ground.reference(case), *reply.buffers)
        told = (await ground.ask(Job(WorkerKind.JUDGE, "gradient", args, buffers, ground.limits.compare_s))).data
        where = f"{told['sentence']} (gradient on {case.name}, seed {seed})"
        if not told["passed"] and told["kind"] not in (CONTESTED, NONE):
            return refused(self.name, JobRefused("gradient", where), started, **place)
        outcome = Outcome.PASS if told["passed"] else Outcome.DECLINED
        return Verdict(
            gate=self.name,
            outcome=outcome,
            summary=f"The gradient is right: {where}" if told["passed"] else where,
            numbers=numbers(told) if told["passed"] else {},
            seconds=time.monotonic() - started,
            **place,
        )


def _none(where: str) -> Verdict:
    told = (
        f"The notebook differentiates it ({where}); the kernel has no gradient of its own: once accepted, it is "
        "differentiated as the reference is."
    )
    return Verdict(gate=GateName.GRADIENT, outcome=Outcome.DECLINED, summary=told)


def _asked_by(verdict: Verdict, where: str) -> Verdict:
    """The verdict, with the call of the notebook for which it was asked."""
    if not where:
        return verdict
    return verdict.model_copy(update={"summary": f"{verdict.summary} The notebook differentiates it: {where}."})
