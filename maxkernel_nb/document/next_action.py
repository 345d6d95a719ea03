"""The next action: the one thing to do now, and every action that is possible now."""

from __future__ import annotations

from maxkernel_nb.document import model as m
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.events import QuestionAsked, RunOutcome, Status

_LABELS = {
    "accept": "Accept",
    "reject": "Reject",
    "stop": "Stop",
    "pause": "Pause",
    "unpause": "Continue",
    "undo": "Undo",
    "takeback": "Take back from auto",
    "ask": "Ask a question",
}
_ANSWERING = ("claude", "both")  # authors that can be asked


def _action(state: RunState, intent: str, primary: bool = False, label: str = "") -> m.Action:
    return m.Action(
        intent=intent, label=label or _LABELS[intent], command=f"%maxkernel {intent} {state.run_id}", primary=primary
    )


def next_action(state: RunState) -> m.NextAction:
    if state.open_question is not None and not state.ended:
        return _ask(state, state.open_question)
    if state.open_proposal is not None and (state.status is Status.WAITING or state.outcome is RunOutcome.PROPOSED):
        return _decide(state)
    if state.ended:
        return _afterwards(state)
    stop = _action(state, "stop")
    beside = (*_take_back(state), *_ask_beside(state))
    if state.status is Status.PAUSED:
        go_on = _action(state, "unpause", primary=True)
        return m.NextAction(text="Paused before the next step.", actions=(go_on, *beside, stop))
    step = next((s.title for s in reversed(state.steps) if not s.done), "")
    doing = f"Working: {step}." if step else "Working."
    return m.NextAction(
        text=f"{doing} Nothing to do yet; the notebook stays free.", actions=(*beside, _action(state, "pause"), stop)
    )


def away(state: RunState, process: str = "") -> str:
    """What to do about a run that this kernel does not drive; empty where nothing is left to do.

    ``process``: the id of the one that drives it, as its journal says; empty: the kernel that did is gone.
    """
    run = state.run_id
    if process:
        return f"Another kernel (process {process}) works on this run: decide in its notebook, or stop it there first."
    if not state.ended:
        return (f"The kernel that worked on this run is gone; everything found so far is kept. %maxkernel resume {run} "
                "goes on in this kernel without repeating finished steps.")
    if state.outcome is RunOutcome.STOPPED:
        return f"%maxkernel resume {run} goes on in this kernel without repeating finished steps."
    if state.outcome is RunOutcome.PROPOSED and state.open_proposal is not None:
        return (f"The proposal is still open, and its kernel is gone: %maxkernel resume {run}, then accept or reject.")
    if any(p.bound and not p.undone for p in state.proposals.values()):
        return f"It was accepted in an earlier kernel: %maxkernel resume {run} binds {function_name(state)} here again."
    return ""


def _take_back(state: RunState) -> tuple[m.Action, ...]:
    return (_action(state, "takeback"),) if state.control == "auto" else ()


def _ask_beside(state: RunState) -> tuple[m.Action, ...]:
    """A person's own question, at any time, where the author can answer it."""
    if state.author not in _ANSWERING:
        return ()
    command = f'%maxkernel ask {state.run_id} "..."'
    return (m.Action(intent="ask", label=_LABELS["ask"], command=command, takes_text="your question"),)


def _ask(state: RunState, asked: QuestionAsked) -> m.NextAction:
    answers = tuple(
        m.Action(
            intent="answer",
            label=c.label,
            choice=c.name,
            takes_text=c.takes_text,
            command=_answer_command(state, asked, c.name),
            primary=c.name == asked.default,
        )
        for c in asked.choices
    )
    question = m.QuestionView(id=asked.question, title=asked.title, text=asked.text, editable=asked.editable)
    beside = () if any(c.name == "ask" for c in asked.choices) else _ask_beside(state)
    return m.NextAction(text=asked.title, actions=(*answers, *beside, _action(state, "stop")), question=question)


def _answer_command(state: RunState, asked: QuestionAsked, choice: str) -> str:
    """What does the same without the panel."""
    text = next((c.takes_text for c in asked.choices if c.name == choice), "")
    return f"%maxkernel answer {state.run_id} {choice}" + (' --text "..."' if text else "")


def _decide(state: RunState) -> m.NextAction:
    proposal = state.open_proposal
    assert proposal is not None
    accept, reject = _action(state, "accept", primary=True, label="Accept kernel"), _action(state, "reject")
    stop = () if state.ended else (*_ask_beside(state), _action(state, "stop"))
    return m.NextAction(
        text="Accept or reject the proposed kernel.",
        effect=f"Accepting binds {function_name(state)} to the kernel (the reference stays in its .reference) and "
        "writes its source under .maxkernel/. Rejecting leaves everything as it is.",
        actions=(accept, reject, *stop),
    )


def _afterwards(state: RunState) -> m.NextAction:
    run = state.run_id
    if any(p.bound and not p.undone for p in state.proposals.values()):
        undo = _action(state, "undo")
        return m.NextAction(
            text=f"Nothing left to do: {function_name(state)} is the kernel now.",
            effect=f"Undo binds {function_name(state)} to the reference again.",
            actions=(undo,),
        )
    if state.outcome in (RunOutcome.STOPPED, RunOutcome.FAILED):
        return m.NextAction(text=f"%maxkernel resume {run} continues without repeating finished steps.")
    return m.NextAction(text=f"Nothing to do: {function_name(state)} is unchanged.")


def function_name(state: RunState) -> str:
    return state.task.entry if state.task else "the function"
