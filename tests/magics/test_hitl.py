"""A human-in-the-loop run from the notebook: questions are answered by commands, and by the panel, alike."""

import pytest
from engine_bench import TIMES, TunableAuthor
from fake_api import GOOD

from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.errors import ApprovalRequired, UsageError
from maxkernel_nb.widgets.panel import RunPanel

CELL = "%%maxkernel hitl {}\ndef f(x):\n    return x\n"
BY_HAND = "def f(x):\n    return x * 1\n# time=0.5\n"


@pytest.fixture
def asking(api, cell):
    run = cell(CELL.format("")).wait(10)
    yield run
    run.stop()


def after(run, questions):
    """The run with that many questions asked: an answer is recorded at once, the next question comes later."""
    with run._changed:
        assert run._changed.wait_for(lambda: len(run.state.questions) == questions or run.state.proposals, 10)
    return run.wait(10)


def test_the_whole_way_by_commands(asking, api, cell, shell):
    assert api.calls[0]["mode"] == "hitl"
    assert repr(cell("%maxkernel answer approve")).startswith("Run f-1: Approve this plan? Approve.")
    after(asking, 2)
    assert "Take this kernel on? Take it." in repr(cell("%maxkernel accept"))
    after(asking, 3)
    cell("%maxkernel answer f-1 judge")
    after(asking, 4)
    cell("%maxkernel answer finish")
    after(asking, 5)
    assert "Accepted: f is bound to the kernel" in repr(cell("%maxkernel accept"))
    given = [(q.answer.choice, q.answer.via) for q in asking.state.questions.values()]
    assert given == [("approve", "magic"), ("approve", "magic"), ("judge", "magic"), ("finish", "magic")]


def test_wait_lists_the_answers_as_they_are_typed(asking, cell):
    said = repr(cell("%maxkernel wait"))
    assert said.splitlines()[0] == "Run f-1 asks: Approve this plan?"
    assert '%maxkernel answer f-1 comment --text "what to change": Say what to change' in said


def test_a_wrong_answer_names_the_right_ones(asking, cell):
    with pytest.raises(UsageError, match="approve, edit, comment, finish"):
        cell("%maxkernel answer aprove")
    cell("%maxkernel answer finish")
    asking.wait_end(10)
    with pytest.raises(UsageError, match="asks nothing now; it is kept reference"):
        cell("%maxkernel answer approve")


def test_a_kernel_written_by_hand_comes_from_a_file(asking, cell, tmp_path):
    (tmp_path / "mine.py").write_text(BY_HAND)
    cell("%maxkernel accept")
    after(asking, 2)
    with pytest.raises(UsageError, match="keep one of them"):
        cell("%maxkernel answer edit --text x --file mine.py")
    with pytest.raises(UsageError, match="cannot be read"):
        cell("%maxkernel answer edit --file yours.py")
    cell("%maxkernel answer edit --file mine.py")
    after(asking, 3)
    made = list(asking.state.candidates.values())[-1].candidate
    assert (made.source, made.author) == (BY_HAND, "person")


def test_a_question_of_the_persons_is_answered_beside_the_run(asking, cell):
    assert "on its way" in repr(cell('%maxkernel ask "What is VMEM?"'))
    with asking._changed:
        assert asking._changed.wait_for(lambda: asking.state.explanations, 10)
    assert asking.state.explanations[0].question == "What is VMEM?"
    assert asking.state.open_question.title == "Approve this plan?"


def test_what_was_not_handed_over_cannot_be_taken_back(asking, cell):
    with pytest.raises(UsageError, match="not handed over to auto"):
        cell("%maxkernel takeback")


def test_taking_back_asks_again(asking, cell):
    from maxkernel_nb import events as ev

    asking.emit(ev.ControlChanged(to="auto"))
    assert "asks you again" in repr(cell("%maxkernel takeback f-1"))
    assert asking.state.control == "person"


# -- batch clients: nobody can answer ----------------------------------------------------------------------------------


@pytest.fixture
def batch(monkeypatch):
    for module in ("magic", "commands", "panels"):
        monkeypatch.setattr(f"maxkernel_nb.magics.{module}.is_batch", lambda shell: True)


def test_a_batch_run_takes_every_default_and_ends(batch, api, cell):
    api.author = TunableAuthor([GOOD], axes=TIMES)
    run = cell(CELL.format(""))
    assert run.state.outcome == "proposed" and run.state.speedup > 5
    assert {q.answer.via for q in run.state.questions.values()} == {"policy"}


def test_a_batch_run_may_bind_what_is_verified(batch, api, cell):
    assert cell(CELL.format("--policy accept-verified")).state.outcome == "accepted"


def test_a_batch_run_that_asks_goes_red_and_names_the_option(batch, api, cell):
    with pytest.raises(ApprovalRequired) as caught:
        cell(CELL.format("--policy ask"))
    said = str(caught.value)
    assert "'Approve this plan?'" in said and "--policy propose" in said and "%maxkernel answer f-1 CHOICE" in said
    api.live["f-1"].stop()


# -- one journal, whichever way the answers came -----------------------------------------------------------------------


def by_magic(shell):
    def give(run, choice, text):
        shell.run_cell(f"%maxkernel answer {run.id} {choice} --text '{text}'").raise_error()

    return give


def by_panel(shell):
    def give(run, choice, text):
        asked = run.state.open_question.question
        ack = RunPanel(run)._answer({
            "id": f"click-{asked}", "intent": "answer", "proposal": asked, "choice": choice, "comment": text})
        assert ack.ok, ack.message

    return give


def by_python(shell):
    return lambda run, choice, text: run.answer(choice, text)


ROUTES = {"magic": by_magic, "button": by_panel, "python": by_python}
WAY = (("approve", ""), ("comment", "another way"), ("approve", ""), ("judge", ""), ("finish", ""))


def journal(run):
    kept = ("plan-made", "candidate-added", "verdict-reached", "question-asked", "answer-given", "proposal-made")
    from maxkernel_nb.journal import read_events

    events = [e.to_dict() for e in read_events(run.project.runs / run.id) if e.kind in kept]
    return [{k: v for k, v in e.items() if k not in ("via", "uuid")} for e in events]


def test_buttons_commands_and_python_leave_the_same_journal(api, cell, shell):
    journals = {}
    for name, route in ROUTES.items():
        api.author = ScriptedAuthor([GOOD])
        run = cell(CELL.format("")).wait(10)
        for number, (choice, text) in enumerate(WAY):
            route(shell)(run, choice, text)
            after(run, number + 2)
        assert {q.answer.via for q in run.state.questions.values()} == {name}
        journals[name] = journal(run)
        run.stop()
    assert journals["magic"] == journals["button"] == journals["python"]
