"""Mode ``hitl``: a person approves, edits or comments each step, and may jump, hand over to auto, and take back.

The whole course follows from the recorded answers and steps, so that a resumed run comes to the same question again.
Under another policy than ``ask`` every question takes its default: the run goes straight through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maxkernel_nb import events as ev
from maxkernel_nb.agents.explainer import explain
from maxkernel_nb.agents.improver import improve, next_attack
from maxkernel_nb.agents.judge import judge, keep_if_better
from maxkernel_nb.agents.person import about_kernel, about_next, about_plan
from maxkernel_nb.agents.reviewer import as_assessment, review
from maxkernel_nb.agents.seat import seat
from maxkernel_nb.agents.tester import judge_fully
from maxkernel_nb.agents.tuner import tune
from maxkernel_nb.authors.kernel_text import NotAKernel, make_candidate
from maxkernel_nb.authors.model_errors import ModelError
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import BudgetExceeded, Declined
from maxkernel_nb.evaluate.base import TUNING_GATES, Judged
from maxkernel_nb.events import RunOutcome
from maxkernel_nb.modes.auto import prepare, propose, why_keep_reference
from maxkernel_nb.task import Assessment, Candidate, GateName, Plan
from maxkernel_nb.values import Value

_CHECK_GATES = (GateName.SCREEN, GateName.TRACE, GateName.CHECK)
_TAKEN_OVER = 1000
_REPAIRS_UNASKED = 3  # under a policy nobody says when to stop repairing


async def hitl(runtime: Runtime) -> tuple[RunOutcome, str]:
    seat(runtime)
    await prepare(runtime)
    try:
        await _Session(runtime).run()
    except BudgetExceeded as error:
        if runtime.run.state.best is None:
            raise
        runtime.note(f"{error} The best kernel so far is proposed.", "warning")
    if (reason := why_keep_reference(runtime)) is not None:
        return RunOutcome.KEPT_REFERENCE, reason
    return await propose(runtime)


@dataclass
class _Work:
    """The kernel on the table."""

    plan: Plan
    candidate: Candidate
    judged: Judged | None = None
    tuned: bool = False


class _OnTable(Value):
    candidate: str | None


class _Session:
    """One person's way through the steps. Every method that asks is named by a counter, the same after a resume."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.author: Any = runtime.author
        self.turns = 0
        self.plans = 0
        self.kernels = 0

    async def run(self) -> None:
        work = await self._taken_over() if "taken_over" in self.runtime.run.state.options else await self._begun()
        while work is not None:
            self.turns += 1
            given = await self.runtime.answer(
                about_next(self.runtime, work.candidate, work.judged, work.tuned, f"next:{self.turns}")
            )
            try:
                work = await self._do(work, given)
            except (ModelError, Declined, BudgetExceeded) as error:  # the person chooses again
                if self.runtime.settings.policy != "ask" and isinstance(error, BudgetExceeded):
                    raise
                self.runtime.note(f"{given.choice}: {error}", "warning")
                if self.runtime.settings.policy != "ask":
                    return

    async def _begun(self) -> _Work | None:
        plan = await self.plan("")
        return None if plan is None else await self.write(plan)

    async def _taken_over(self) -> _Work | None:
        """A person goes on with what another mode found: its best kernel of that moment is on the table, else its plan.
        Counters start anew far above that mode's own, so that no step or question is taken for one of it."""
        found, state = _OnTable(candidate=self.runtime.run.state.options["taken_over"] or None), self.runtime.run.state
        self.turns = self.plans = self.kernels = _TAKEN_OVER
        if state.plan is not None and found.candidate is not None:
            best = state.candidates[found.candidate]
            assessment = Assessment(candidate=found.candidate, verdicts=best.verdicts)
            judged = Judged(assessment=assessment, profile=best.profile)
            return _Work(state.plan, best.candidate, judged, tuned=True)
        plan = await self.plan("", state.plan)
        return None if plan is None else await self.write(plan)

    # -- plan and kernel, until approved ---------------------------------------------------------------------------

    async def plan(self, remarks: str, made: Plan | None = None) -> Plan | None:
        """None: the person finishes. ``made``: a plan that is there already and only wants approval."""
        previous: Plan | None = None
        while True:
            self.plans += 1
            if made is None:
                made = await self._make_plan(remarks, previous)
            self.runtime.run.emit(ev.PlanMade(plan=made))
            given = await self.runtime.answer(about_plan(made, f"plan:{self.plans}"))
            if given.choice == "finish":
                return None
            if given.choice == "edit" and given.text.strip():
                made = made.model_copy(update={"summary": given.text})
                self.runtime.run.emit(ev.PlanMade(plan=made))
            if given.choice != "comment":
                return made
            remarks, previous, made = given.text or "Plan it another way.", made, None

    async def _make_plan(self, remarks: str, previous: Plan | None) -> Plan:
        extra = (remarks, previous) if self._takes(remarks) else ()
        return await self.runtime.step(f"plan:{self.plans}", "planner", "Plan the kernel",
                                       lambda: self.author.plan(self.runtime.view, *extra), Plan, lambda p: p.strategy)

    async def write(self, plan: Plan, remarks: str = "", base: Candidate | None = None,
                    made: Candidate | None = None) -> _Work | None:
        """A kernel the person takes on, not judged yet; None: the person finishes."""
        trouble = ""
        while True:
            self.kernels += 1
            if made is None:
                made = await self._make_kernel(plan, remarks, base)
            self.runtime.run.emit(ev.CandidateAdded(candidate=made))
            question = about_kernel(self.runtime, made, f"kernel:{self.kernels}", trouble)
            given = await self.runtime.answer(question)
            trouble = ""
            if given.choice == "finish":
                return None
            if given.choice == "plan":
                again = await self.plan(given.text)
                if again is None:
                    return None
                plan, made, remarks = again, None, ""
            elif given.choice == "comment":
                remarks, base, made = given.text or "Write it another way.", made, None
            else:
                try:
                    return _Work(plan, self._as_given(question.question, given, made))
                except NotAKernel as error:
                    trouble = f"Your text was not taken: {error}."

    async def _make_kernel(self, plan: Plan, remarks: str, base: Candidate | None) -> Candidate:
        extra = (remarks, base) if self._takes(remarks) else ()
        return await self.runtime.step(f"implement:{self.kernels}", "implementer", "Write the kernel",
                                       lambda: self.author.implement(self.runtime.view, plan, *extra), Candidate,
                                       lambda c: c.note)

    def _as_given(self, question: str, given: ev.AnswerGiven, made: Candidate) -> Candidate:
        """The agent's kernel, or the person's: an edited text, or only some hunks of the patch as it was shown."""
        text = given.text if given.choice == "edit" else ""
        patch = self.runtime.run.state.questions[question].asked.patch
        if given.choice == "approve" and given.hunks is not None and patch is not None:
            text = patch.apply(given.hunks)
        if not text.strip() or text == made.source:
            return made
        edited = make_candidate(self.runtime.task, text, "person", "edited by hand", made.id)
        self.runtime.run.emit(ev.CandidateAdded(candidate=edited))
        return edited

    def _takes(self, remarks: str) -> bool:
        """Whether this author takes remarks; one of recipes alone does not, and then the person is told."""
        takes = hasattr(self.author, "explain")
        if remarks and not takes:
            self.runtime.note(f"Your words reach nobody: the author {self.author.name!r} takes no remarks. Edit by "
                              "hand, or start a run with --author claude.", "warning")
        return takes

    # -- the steps a person may choose -----------------------------------------------------------------------------

    async def _do(self, work: _Work, given: ev.AnswerGiven) -> _Work | None:
        return await getattr(self, f"_{given.choice}")(work, given.text)

    async def _finish(self, work: _Work, text: str) -> None:
        return None

    async def _judge(self, work: _Work, text: str) -> _Work:
        work.judged = await judge_fully(self.runtime, work.candidate)
        keep_if_better(self.runtime, work.candidate, work.judged)
        return work

    async def _check(self, work: _Work, text: str) -> _Work:
        await judge(self.runtime, work.candidate, _CHECK_GATES)
        return work

    async def _compile(self, work: _Work, text: str) -> _Work:
        await judge(self.runtime, work.candidate, TUNING_GATES)
        return work

    async def _repair(self, work: _Work, text: str) -> _Work | None:
        assert work.judged is not None
        if self.runtime.settings.policy != "ask" and self.kernels > _REPAIRS_UNASKED:
            return None
        assessment, extra = work.judged.assessment, (text,) if self._takes(text) else ()
        made = await self.runtime.step(
            f"repair:{self.turns}", "debugger", "Repair the kernel",
            lambda: self.author.repair(self.runtime.view, work.plan, work.candidate, assessment, *extra), Candidate,
            lambda c: c.note,
        )
        return await self.write(work.plan, made=made)

    async def _tune(self, work: _Work, text: str) -> _Work:
        async def work_on_it() -> _OnTable:
            await tune(self.runtime, work.plan, work.candidate)
            return _OnTable(candidate=self.runtime.run.state.best)

        best = await self.runtime.step(f"tune:{self.turns}", "tuner", "Tune its constants", work_on_it, _OnTable)
        work.tuned = True
        return self._on_table(work, best)

    async def _next(self, work: _Work, text: str) -> _Work | None:
        if not hasattr(self.author, "next_attack"):
            raise Declined("this author plans no further rounds; edit the kernel, or finish.")
        found = await next_attack(self.runtime, self.turns)
        if found.plan is None:
            self.runtime.note(f"Nothing worth trying is left: {found.stop}")
            return work
        plan = await self.plan("", found.plan)
        best = _OnTable(candidate=self.runtime.run.state.best)
        return None if plan is None else await self.write(plan, base=self._on_table(work, best).candidate)

    async def _review(self, work: _Work, text: str) -> _Work:
        found = await review(self.runtime, work.candidate)
        if found is None:
            raise Declined("this author has no reviewer.")
        risks = as_assessment(work.candidate, found).verdicts[0].diagnostics
        said = "; ".join(f"{r.kind} (line {r.line}): {r.message}" for r in risks) or "no risks named"
        self.runtime.note(f"Review of {work.candidate.id}: {said}")
        return work

    async def _comment(self, work: _Work, text: str) -> _Work | None:
        return await self.write(work.plan, text or "Write it another way.", work.candidate)

    async def _edit(self, work: _Work, text: str) -> _Work:
        try:
            made = make_candidate(self.runtime.task, text, "person", "edited by hand", work.candidate.id)
        except NotAKernel as error:
            raise Declined(f"your text was not taken: {error}.") from None
        self.runtime.run.emit(ev.CandidateAdded(candidate=made))
        return _Work(work.plan, made)

    async def _plan(self, work: _Work, text: str) -> _Work | None:
        plan = await self.plan(text)
        return None if plan is None else await self.write(plan)

    async def _ask(self, work: _Work, text: str) -> _Work:
        if not text.strip():
            raise Declined("write your question with it.")
        await explain(self.runtime, text, f"explain:next:{self.turns}")
        return work

    async def _auto(self, work: _Work, text: str) -> _Work:
        """Rounds of auto until it is done or the person takes the run back; then the best kernel is on the table."""
        key, run = f"auto:{self.turns}", self.runtime.run

        async def rounds() -> _OnTable:
            if work.judged is None:
                await self._judge(work, "")
            reason = await improve(self.runtime, first=100 * self.turns, wanted=lambda: run.state.control == "auto")
            self.runtime.note(reason or "This author looks for no faster kernel by itself.")
            return _OnTable(candidate=run.state.best)

        if not any(s.key == key for s in run.state.steps):
            run.emit(ev.ControlChanged(to="auto"))
        best = await self.runtime.step(key, "planner", "Auto goes on until it is done or taken back", rounds, _OnTable)
        if run.state.control == "auto":
            run.emit(ev.ControlChanged(to="person"))
        return self._on_table(work, best)

    def _on_table(self, work: _Work, best: _OnTable) -> _Work:
        """The best kernel of that moment, which is recorded: later ones must not change a resumed run's course."""
        if best.candidate is None or best.candidate == work.candidate.id:
            return work
        state = self.runtime.run.state.candidates[best.candidate]
        assessment = Assessment(candidate=best.candidate, verdicts=state.verdicts)
        return _Work(work.plan, state.candidate, Judged(assessment=assessment, profile=state.profile), tuned=True)
