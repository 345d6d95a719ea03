"""Claude as an author: the sub-agents' conversations behind the author contract, and the roles beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from maxkernel_nb import events as ev
from maxkernel_nb.authors.base import TaskView, TuningSpace
from maxkernel_nb.authors.claude import prompts, render
from maxkernel_nb.authors.claude.client import ClaudeClient, ModelClient
from maxkernel_nb.authors.claude.desk import Desk
from maxkernel_nb.authors.claude.keys import Key, Redactor, need_key
from maxkernel_nb.authors.claude.models import model_table
from maxkernel_nb.authors.claude.roles.base import Role
from maxkernel_nb.authors.claude.roles.debugger import DEBUGGER, Repair
from maxkernel_nb.authors.claude.roles.explainer import EXPLAINER, Answer
from maxkernel_nb.authors.claude.roles.implementer import IMPLEMENTER, KernelDraft
from maxkernel_nb.authors.claude.roles.planner import PLANNER, PlanDraft
from maxkernel_nb.authors.claude.roles.profiler import PROFILER, Attack
from maxkernel_nb.authors.claude.roles.reviewer import REVIEWER, ReviewDraft
from maxkernel_nb.authors.claude.roles.tester import TESTER, StressPlan
from maxkernel_nb.authors.claude.roles.tuner import TUNER, SpaceDraft
from maxkernel_nb.authors.claude.settings import ClaudeSettings, settings_from_environment
from maxkernel_nb.authors.claude.talk import Conversation
from maxkernel_nb.authors.claude.tools import Bench, Refused
from maxkernel_nb.authors.kernel_text import make_candidate, set_constants, space_in, tunables
from maxkernel_nb.authors.pool import Next, Review, StressDraws
from maxkernel_nb.errors import UsageError
from maxkernel_nb.task import Assessment, Candidate, Diagnostic, Plan

A = TypeVar("A")


class ClaudeAuthor:
    """Works for one run at a time: a mode seats it at the run's desk with ``attach`` before the first call.

    ``client`` replaces the real one (a replayed run, a test). Without it a key is needed at once: ``NoKey`` otherwise.
    """

    name = "claude"

    def __init__(self, settings: ClaudeSettings | None = None, client: ModelClient | None = None,
                 key: Key | None = None) -> None:
        self.settings = settings or settings_from_environment()
        if key is None and client is None and self.settings.provider == "anthropic":
            key = need_key()
        self.redact = Redactor(key)
        self.client = client or ClaudeClient(self.settings, key, self.redact)
        self.table = model_table(self.settings.prices)
        self._desk: Desk | None = None

    def attach(self, desk: Desk) -> None:
        self._desk = desk
        used = {self.settings.model, *self.settings.models.values()}
        unpriced = sorted(m for m in used if self.table.find(m) is None)
        if unpriced:
            desk.record(ev.Noted(level="warning", text=(
                f"The price of {', '.join(unpriced)} is not known: tokens are counted, dollars are not and their cap "
                "does not bind; set a token cap with --budget, or a price table."
            )))

    @property
    def desk(self) -> Desk:
        if self._desk is None:
            raise UsageError("This author is not seated at a run; start it with maxkernel_nb.api.start(author=...).")
        return self._desk

    # -- the author contract -----------------------------------------------------------------------------------------

    async def plan(self, view: TaskView, remarks: str = "", previous: Plan | None = None) -> Plan:
        """Raises ``Declined`` when Claude sees nothing to win. ``remarks``: a person's, on the ``previous`` plan."""
        prompt = PLANNER.prompt(
            remarks=remarks, previous=previous.summary if previous else "", **self._history()
        )
        draft: PlanDraft = await self._talk(PLANNER, view, prompt, lambda submission: submission)
        return draft.plan()

    async def implement(self, view: TaskView, plan: Plan, remarks: str = "",
                        base: Candidate | None = None) -> Candidate:
        """``base``: the verified kernel to start from; ``remarks``: a person's, on it."""
        prompt = IMPLEMENTER.prompt(
            plan=plan, remarks=remarks, base=base.source if base else "", base_id=base.id if base else "",
            calls=IMPLEMENTER.max_calls, **self._history(),
        )
        return await self._kernel(IMPLEMENTER, view, prompt, base)

    async def repair(self, view: TaskView, plan: Plan, candidate: Candidate, assessment: Assessment,
                     remarks: str = "") -> Candidate:
        prompt = DEBUGGER.prompt(
            candidate=candidate, verdicts=render.verdicts_text(assessment.verdicts), plan=plan, remarks=remarks,
            lessons=render.lessons_text(self.desk.state), calls=DEBUGGER.max_calls,
        )
        return await self._kernel(DEBUGGER, view, prompt, candidate)

    def tuning_space(self, view: TaskView, plan: Plan, candidate: Candidate) -> TuningSpace:
        return space_in(candidate.source)

    def retune(self, view: TaskView, plan: Plan, candidate: Candidate, params: dict[str, int]) -> Candidate:
        text = set_constants(candidate.source, params)
        said = " ".join(f"{name}={value}" for name, value in sorted(params.items()))
        return make_candidate(view.task, text, self.name, said, candidate.id)

    # -- beyond it: see authors/pool.py ------------------------------------------------------------------------------

    async def next_attack(self, view: TaskView) -> Next:
        """Raises ``Declined`` with the reason when nothing worth trying is left."""
        attack: Attack = await self._talk(PROFILER, view, PROFILER.prompt(**self._best(), **self._history()),
                                          _attack_or_stop)
        if attack.plan is None or attack.stop:
            return Next(bottleneck=attack.bottleneck, stop=attack.stop or "no plan", lesson=attack.lesson)
        return Next(bottleneck=attack.bottleneck, plan=attack.plan.plan(), lesson=attack.lesson)

    async def propose_space(self, view: TaskView, plan: Plan, candidate: Candidate, points: int) -> TuningSpace:
        """The text's own space where it names one; Claude is asked only for constants without values to try."""
        own, constants = space_in(candidate.source), tunables(candidate.source)
        if own.axes or not constants:
            return own
        known = self.desk.state.candidates.get(candidate.id)
        prompt = TUNER.prompt(candidate=candidate, constants=", ".join(constants), points=points,
                              profile=render.profile_text(known.profile if known else None))
        draft: SpaceDraft = await self._talk(TUNER, view, prompt, _space_of(constants))
        return TuningSpace(axes={a.constant: tuple(dict.fromkeys((constants[a.constant], *a.values)))
                                 for a in draft.axes})

    async def stress_draws(self, view: TaskView) -> StressDraws:
        """Unusual draws of the floating-point arguments, named; empty when there are none to try."""
        floats = [a.name for a in view.task.timing_case.args if a.draw.kind == "normal"]
        if not floats or not self.settings.stress:
            return StressDraws()
        plan: StressPlan = await self._talk(TESTER, view, TESTER.prompt(arguments=", ".join(floats)), _known(floats))
        return StressDraws.of({s.name: {f.argument: (f.mean, f.std) for f in s.families} for s in plan.stresses})

    async def review(self, view: TaskView, candidate: Candidate) -> Review:
        draft: ReviewDraft = await self._talk(REVIEWER, view, REVIEWER.prompt(candidate=candidate), lambda d: d)
        risks = tuple(Diagnostic(kind=r.kind, message=r.why, line=r.line, advice=r.advice) for r in draft.risks)
        return Review(fix_first=draft.verdict == "fix first", risks=risks)

    async def explain(self, view: TaskView, question: str) -> str:
        prompt = EXPLAINER.prompt(question=question, attempts=render.attempts_text(self.desk.state), **self._best())
        answer: Answer = await self._talk(EXPLAINER, view, prompt, lambda submission: submission)
        return answer.text

    # -- private -----------------------------------------------------------------------------------------------------

    async def _kernel(self, role: Role, view: TaskView, prompt: str, parent: Candidate | None) -> Candidate:
        bench = self._bench(role, view)

        def understand(draft: KernelDraft) -> Candidate:
            made = bench.candidate(draft.source, draft.attempt, draft.note, parent.id if parent else None)
            if parent is not None and made.id == parent.id:
                raise Refused("That is the same kernel as before; hand in a changed one.")
            if isinstance(draft, Repair) and draft.lesson:
                self.desk.record(ev.LessonLearned(text=draft.lesson, evidence=draft.cause))
            return made

        return await self._talk(role, view, prompt, understand, bench)

    async def _talk(self, role: Role, view: TaskView, prompt: str, understand: Callable[[Any], A],
                    bench: Bench | None = None) -> A:
        prefix = prompts.prefix(self.desk, view, self.redact)
        bench = bench or self._bench(role, view)
        talk = Conversation(bench, self.client, self.settings, self.table, self.redact, prefix)
        return await talk.run(prompt, understand)

    def _bench(self, role: Role, view: TaskView) -> Bench:
        return Bench(desk=self.desk, view=view, role=role, key=f"{self.desk.step or 'talk'}/{role.name}")

    def _history(self) -> dict[str, str]:
        state = self.desk.state
        return {"attempts": render.attempts_text(state), "lessons": render.lessons_text(state)}

    def _best(self) -> dict[str, str]:
        state = self.desk.state
        if state.best is None:
            return {"best": "", "best_id": "", "speedup": "", "profile": ""}
        best = state.candidates[state.best]
        speedup = f"{state.speedup:.3f}x over XLA, modelled" if state.speedup is not None else "speed unknown"
        return {"best": best.candidate.source, "best_id": state.best, "speedup": speedup,
                "profile": render.profile_text(best.profile)}


def _attack_or_stop(attack: Attack) -> Attack:
    if attack.plan is None and not attack.stop:
        raise Refused("Give either a plan or the reason to stop.")
    return attack


def _space_of(constants: dict[str, int]) -> Callable[[SpaceDraft], SpaceDraft]:
    def understand(draft: SpaceDraft) -> SpaceDraft:
        unknown = [a.constant for a in draft.axes if a.constant not in constants]
        if unknown:
            raise Refused(f"The kernel has no constant {unknown[0]!r}; it has: {', '.join(constants)}.")
        return draft

    return understand


def _known(arguments: list[str]) -> Callable[[StressPlan], StressPlan]:
    def understand(plan: StressPlan) -> StressPlan:
        unknown = [f.argument for s in plan.stresses for f in s.families if f.argument not in arguments]
        if unknown:
            raise Refused(f"There is no floating-point argument {unknown[0]!r}; there are: {', '.join(arguments)}.")
        return plan

    return understand
