"""The questions a human-in-the-loop run asks. Each is data in the journal: the kernel may die and it is still there."""

from __future__ import annotations

from maxkernel_nb import events as ev
from maxkernel_nb.agents.judge import speedup
from maxkernel_nb.agents.tester import draws_wanted
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.evaluate.base import Judged
from maxkernel_nb.patches import make_patch
from maxkernel_nb.task import Candidate, Plan

_COMMENT = ev.Choice(name="comment", label="Say what to change", takes_text="what to change")
_FINISH = ev.Choice(name="finish", label="Finish with the best so far")


def about_plan(plan: Plan, key: str) -> ev.QuestionAsked:
    return ev.QuestionAsked(
        question=key, title="Approve this plan?", text=plan_text(plan), editable=plan.summary, default="approve",
        on_reject="comment",
        choices=(ev.Choice(name="approve", label="Approve"),
                 ev.Choice(name="edit", label="Approve my text", takes_text="the whole plan"), _COMMENT, _FINISH),
    )


def plan_text(plan: Plan) -> str:
    """The plan in Markdown."""
    lines = [f"**{plan.strategy}**", "", plan.summary]
    facts = {"attacks": plan.attacks, "grid": plan.grid, "memory": plan.memory, "pipelining": plan.pipelining,
             "blocks": ", ".join(f"{k}={v}" for k, v in plan.tiling.items())}
    lines += [f"- {name}: {text}" for name, text in facts.items() if text]
    if plan.expected_gain is not None:
        why = f" ({plan.expected_gain_source})" if plan.expected_gain_source else ""
        lines.append(f"- expected gain: {plan.expected_gain:.2f}x, an estimate{why}")
    return "\n".join(lines)


def about_kernel(runtime: Runtime, candidate: Candidate, key: str, trouble: str = "") -> ev.QuestionAsked:
    """The patch is against the best kernel so far, or the reference."""
    state = runtime.run.state
    before = state.candidates[state.best].candidate.source if state.best else runtime.task.source
    text = f"{candidate.note}\n\n{trouble}".strip()
    return ev.QuestionAsked(
        question=key, title="Take this kernel on?", text=text, editable=candidate.source, default="approve",
        on_reject="comment", patch=make_patch(before, candidate.source),
        choices=(ev.Choice(name="approve", label="Take it"),
                 ev.Choice(name="edit", label="Take my text instead", takes_text="the whole kernel"), _COMMENT,
                 ev.Choice(name="plan", label="Back to the plan"), _FINISH),
    )


def about_next(runtime: Runtime, candidate: Candidate, judged: Judged | None, tuned: bool,
               key: str) -> ev.QuestionAsked:
    """What to do now, each with what it will cost. The default is the next sensible step."""
    choices = _steps(runtime, candidate, judged, tuned)
    return ev.QuestionAsked(
        question=key, title="What next?", text=_standing(runtime, candidate, judged), default=choices[0].name,
        on_reject="finish", choices=tuple(choices), editable=candidate.source,
    )


def _steps(runtime: Runtime, candidate: Candidate, judged: Judged | None, tuned: bool) -> list[ev.Choice]:
    talk, compiles = _talk_cost(runtime), runtime.settings.tuning_points
    steps: list[ev.Choice] = []
    if judged is None:
        asks = f"and unusual inputs: {talk} to think of them" if draws_wanted(runtime) else "no money"
        steps.append(ev.Choice(name="judge", label=f"Judge it in full (checks, compile, model; {asks})"))
        steps.append(ev.Choice(name="check", label="Check correctness only (no compiler, no money)"))
        steps.append(ev.Choice(name="compile", label="Compile and model only (no money)"))
    elif not judged.assessment.correct:
        steps.append(ev.Choice(name="repair", label=f"Have it repaired ({talk})", takes_text="a hint, if you have one"))
    elif not tuned and runtime.run.state.baseline is not None:
        steps.append(ev.Choice(name="tune", label=f"Tune its constants (up to {compiles} compiles, no money)"))
    if judged is not None and (not steps or steps[0].name != "repair"):
        steps.append(_FINISH)
        steps.append(ev.Choice(name="next", label=f"Read the profile, plan the next round ({talk})"))
    steps += [
        ev.Choice(name="review", label=f"Have it read for risks ({talk})"),
        ev.Choice(name="comment", label=f"Say what to change ({talk})", takes_text="what to change"),
        ev.Choice(name="edit", label="Edit it by hand", takes_text="the whole kernel"),
        ev.Choice(name="plan", label=f"Make a new plan ({talk})", takes_text="what you want, if anything"),
        ev.Choice(name="ask", label=f"Ask a question ({talk})", takes_text="your question"),
        ev.Choice(name="auto", label="Hand over to auto until it is done or you take it back"),
    ]
    return steps if _FINISH in steps else [*steps, _FINISH]


def _talk_cost(runtime: Runtime) -> str:
    """What a talk with the model has cost so far on average; nothing is promised."""
    state = runtime.run.state
    if not hasattr(runtime.author, "explain"):
        return "recipes, no money"
    if not state.spend.dollars or state.spend.unpriced_calls:
        return "model calls"
    talks = len({call.key for call in state.calls})
    return f"model calls, about ${state.spend.dollars / talks:.2f} as before"


def _standing(runtime: Runtime, candidate: Candidate, judged: Judged | None) -> str:
    state = runtime.run.state
    if judged is None:
        here = f"Kernel {candidate.id} ({candidate.note or 'no note'}) is not judged in full yet."
    elif judged.assessment.failed:
        failed = judged.assessment.failed[0]
        here = f"Kernel {candidate.id} failed {failed.gate}: {failed.summary}"
    else:
        gain = speedup(runtime, judged.assessment.modelled_ms)
        here = f"Kernel {candidate.id} passed" + (f", {gain:.2f}x over XLA, modelled." if gain is not None else ".")
    if state.best is not None and state.best != candidate.id:
        here += f" The best so far is {state.best}" + (f" ({state.speedup:.2f}x)." if state.speedup else ".")
    return here
