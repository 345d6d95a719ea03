"""A human-in-the-loop run from the notebook: questions are answered by commands, and by the panel, alike."""

import json

import pytest
from engine_bench import TIMES, TunableAuthor
from fake_api import GOOD

from maxkernel_nb.errors import ApprovalRequired, UsageError
from maxkernel_nb.journal import read_events
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


class ByMagic:
    def __init__(self, shell):
        self.shell = shell

    def answer(self, run, choice, text):
        self.shell.run_cell(f"%maxkernel answer {run.id} {choice} --text '{text}'").raise_error()

    def accept(self, run):
        self.shell.run_cell(f"%maxkernel accept {run.id}").raise_error()


class ByPanel(ByMagic):
    def _click(self, run, **message):
        ack = RunPanel(run)._answer({"id": f"click-{run.state.seq}", **message})
        assert ack.ok, ack.message

    def answer(self, run, choice, text):
        self._click(run, intent="answer", proposal=run.state.open_question.question, choice=choice, comment=text)

    def accept(self, run):
        self._click(run, intent="accept", proposal=run.state.open_proposal.id)


class ByLab(ByMagic):
    """The commands of the lab extension's contract, over the kernel's side of its comm."""

    def _send(self, run, command, **fields):
        from maxkernel_nb.magics.channel import Channel

        heard = []
        channel = Channel(heard.append, self.shell.magics_manager.registry["MaxKernelMagics"].lab)
        channel.receive({"version": 1, "id": f"lab-{run.state.seq}", "command": f"maxkernel:{command}", "run": run.id,
                         **fields})
        channel.close()
        assert heard[-1]["ok"], heard[-1]["message"]

    def answer(self, run, choice, text):
        self._send(run, "answer", question=run.state.open_question.question, choice=choice, text=text)

    def accept(self, run):
        self._send(run, "decide", proposal=run.state.open_proposal.id, accepted=True)


class ByPython(ByMagic):
    def answer(self, run, choice, text):
        run.answer(choice, text)

    def accept(self, run):
        run.accept()


ROUTES = {"magic": ByMagic, "button": ByPanel, "lab": ByLab, "python": ByPython}
WAY = (("approve", ""), ("comment", "another way"), ("approve", ""), ("judge", ""), ("finish", ""))
DEFAULTS = (("approve", ""), ("approve", ""), ("judge", ""), ("tune", ""), ("finish", ""))


def journal(run):
    """Every event but the changes of status (a policy does not wait), without who answered, ids and times."""
    events = [e.to_dict() for e in read_events(run.project.runs / run.id) if e.kind != "status-changed"]
    for event in events:
        for name in ("via", "uuid", "seconds", "run_id"):
            event.pop(name, None)
        event.get("options", {}).pop("policy", None)
        event.get("amount", {}).pop("wall_seconds", None)
    return sorted(events[:5], key=lambda e: json.dumps(e, sort_keys=True)) + events[5:]  # two steps run side by side


def driven(api, cell, shell, name, way):
    """A run answered all the way by one route, and its journal."""
    api.author = TunableAuthor([GOOD], axes=TIMES)
    run, route = cell(CELL.format("")).wait(10), ROUTES[name](shell)
    for number, (choice, text) in enumerate(way):
        route.answer(run, choice, text)
        after(run, number + 2)
    route.accept(run)
    run.wait_end(10)
    assert run.state.outcome == "accepted"
    assert {q.answer.via for q in run.state.questions.values()} == {name}
    assert {p.decision.via for p in run.state.proposals.values()} == {name}
    return journal(run)


def test_buttons_commands_lab_messages_and_python_leave_the_same_journal(api, cell, shell):
    journals = {name: driven(api, cell, shell, name, WAY) for name in ROUTES}
    assert journals["magic"] == journals["button"] == journals["lab"] == journals["python"]
    assert len(journals["magic"]) > 30


def test_a_policy_leaves_the_journal_of_a_person_who_takes_every_default(api, cell, shell):
    journals = {name: driven(api, cell, shell, name, DEFAULTS) for name in ROUTES}
    api.author = TunableAuthor([GOOD], axes=TIMES)
    run = cell(CELL.format("--policy accept-verified")).wait_end(10)
    assert {q.answer.via for q in run.state.questions.values()} == {"policy"}
    by_policy = journal(run)
    for name, by_person in journals.items():
        assert by_person == by_policy, name
