"""A front end outside the panel: versioned messages, each carried out at most once, each answered."""

import json

import jsonschema
import lab_messages
import pytest
from engine_bench import GOOD, Bench

from maxkernel_nb import contract
from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.magics import lab
from maxkernel_nb.magics.channel import Channel

CELL = "%%maxkernel hitl {}\ndef f(x):\n    return x\n"
GOLDEN = json.loads(lab_messages.MESSAGES.read_text())
SCHEMA = json.loads(lab_messages.SCHEMA.read_text())


# -- the golden files that both sides are tested with ------------------------------------------------------------------


def test_the_golden_files_are_what_this_version_says(tmp_path):
    rewrite = "contract changed: raise its version, or run tests/support/lab_messages.py"
    assert lab_messages.schema_text() == lab_messages.SCHEMA.read_text(), rewrite
    assert lab_messages.messages_text(tmp_path) == lab_messages.MESSAGES.read_text(), rewrite


@pytest.mark.parametrize("message", GOLDEN["commands"] + GOLDEN["notices"],
                         ids=lambda m: m.get("command", m.get("notice")))
def test_every_golden_message_fits_the_schema_and_is_read_back(message):
    jsonschema.Draft202012Validator(SCHEMA).validate(message)
    read = contract.command_from_dict if "command" in message else contract.notice_from_dict
    again = read(message).to_dict()
    assert {**again, **message} == again  # defaults may be added, nothing is lost


def test_the_golden_messages_show_every_kind():
    def kinds(union, field):
        return {SCHEMA["$defs"][ref["$ref"].rpartition("/")[2]]["properties"][field]["const"] for ref in union["oneOf"]}

    assert {m["command"] for m in GOLDEN["commands"]} == kinds(SCHEMA["$defs"]["Command"], "command")
    assert {m["notice"] for m in GOLDEN["notices"]} == kinds(SCHEMA["$defs"]["Notice"], "notice")


def test_the_target_is_the_contracts():
    assert lab.TARGET == contract.TARGET


# -- one channel -------------------------------------------------------------------------------------------------------


class Wire:
    """A front end that keeps what it hears. It is the comm that a kernel would hand over."""

    comm_id = "comm-1"

    def __init__(self, lab):
        self.lab, self.heard = lab, []

    def on_msg(self, callback):
        self._receive = callback

    def on_close(self, callback):
        self.leave = lambda: callback({})

    def close(self):
        self.leave()

    def receive(self, message):
        self._receive({"content": {"data": message}})

    def settle(self):
        for _, channel in self.lab._channels.values():
            channel.settle(10)

    def send(self, message):
        self.heard.append(message)

    def wish(self, command, **fields):
        number = len(self.heard) + 1
        message = {"version": 1, "id": f"id-{number}", "command": f"maxkernel:{command}", **fields}
        self.receive(message)
        return next(m for m in reversed(self.heard) if m["notice"] == "maxkernel:ack")

    def last(self, kind):
        return next((m for m in reversed(self.heard) if m["notice"] == f"maxkernel:{kind}"), None)


@pytest.fixture
def wire(api, shell):
    made = Wire(shell.magics_manager.registry["MaxKernelMagics"].lab)
    made.lab._opened(made, {})
    return made


def until(run, there):
    with run._changed:
        assert run._changed.wait_for(lambda: there(run.state), 10)
    return run.wait(10)


def test_from_hello_to_an_accepted_kernel(api, cell, shell, wire):
    ack = wire.wish("hello")
    assert ack["ok"] and {o["flag"] for o in ack["data"]["options"]} >= {"--chip", "--policy", "--author"}
    run = cell(CELL.format("")).wait(10)
    for number, choice in enumerate(("approve", "approve", "judge", "finish"), 1):
        until(run, lambda state, n=number: len(state.questions) == n)
        asked = run.state.open_question
        assert wire.wish("look", run=run.id)["ok"] and wire.last("question")["question"] == asked.question
        assert wire.wish("answer", run=run.id, question=asked.question, choice=choice)["ok"]
    until(run, lambda state: state.proposals)
    wire.wish("look", run=run.id)
    offer = wire.last("propose")
    assert offer["baseline"] == "def f(x):\n    return x\n" and offer["hunks"][0]["new"]
    assert wire.wish("decide", run=run.id, proposal=offer["proposal"], accepted=True)["ok"]
    run.wait_end(10)
    wire.wish("look", run=run.id)
    decided = wire.last("decided")
    assert decided["accepted"] and decided["via"] == "lab" and decided["source"] == GOOD
    assert shell.user_ns["f"].source == GOOD
    assert wire.wish("control", run=run.id, action="undo")["ok"]
    wire.wish("look", run=run.id)
    assert wire.last("decided")["undone"] and wire.last("decided")["source"] == ""
    assert wire.wish("report", run=run.id)["data"]["html"].lower().startswith("<!doctype html>")
    assert [r["id"] for r in wire.wish("runs")["data"]["runs"]] == [run.id]
    for message in wire.heard:
        jsonschema.Draft202012Validator(SCHEMA).validate(message)


def test_an_auto_run_goes_on_step_by_step_with_what_it_found(api, cell, shell, wire):
    run = cell(CELL.replace("hitl", "auto").format("")).wait(10)
    assert run.state.open_proposal is not None
    assert wire.wish("control", run=run.id, action="takeback")["ok"] and run.closed
    again = api.live[run.id].wait(10)
    assert (again.state.mode, again.state.open_question.title) == ("hitl", "What next?")
    assert again.state.open_question.editable == GOOD and len(again.state.candidates) == 1
    assert wire.wish("answer", run=run.id, question=again.state.open_question.question, choice="finish")["ok"]
    until(again, lambda state: state.open_question is None and state.settled)
    again.accept().wait_end(10)
    assert shell.user_ns["f"].source == GOOD


def test_a_new_runs_question_is_told_without_asking(api, cell, wire):
    run = cell(CELL.format("")).wait(10)
    wire.settle()
    assert wire.last("question")["title"] == "Approve this plan?"
    assert wire.last("run")["run"]["waits"] == "question"
    run.stop()


def test_the_same_id_is_carried_out_once(api, cell, wire):
    run = cell(CELL.format("")).wait(10)
    message = {"version": 1, "id": "twice", "command": "maxkernel:answer", "run": run.id, "question": "plan:1",
               "choice": "comment", "text": "again"}
    wire.receive(message)
    until(run, lambda state: len(state.questions) == 2)
    wire.receive(message)
    assert [m["ok"] for m in wire.heard if m["notice"] == "maxkernel:ack"] == [True, True]
    assert len(run.state.questions) == 2 and run.state.open_question is not None
    run.stop()


@pytest.mark.parametrize("message, says", [
    (None, "version None"), ({"version": 2, "id": "x", "command": "maxkernel:hello"}, "version 2"),
    ({"version": 1, "id": "x", "command": "maxkernel:shell"}, "maxkernel:shell"),
    ({"version": 1, "id": "x", "command": "maxkernel:decide", "run": "f-1"}, "Field required"),
    ({"version": 1, "id": "x", "command": "maxkernel:hello", "more": 1}, "more"),
    ({"version": 1, "id": 7, "command": "maxkernel:hello"}, "id"),
    ({"version": 1, "id": "x", "command": "maxkernel:control", "run": "f-1", "action": "delete"}, "action"),
])
def test_what_cannot_be_read_is_answered_with_a_sentence(wire, message, says):
    wire.receive(message)
    assert not wire.heard[-1]["ok"] and says in wire.heard[-1]["message"]


def test_a_stale_or_impossible_wish_changes_nothing(api, cell, wire):
    run = cell(CELL.format("")).wait(10)
    seen = run.state
    for command, fields, says in (
        ("answer", {"question": "kernel:9", "choice": "approve"}, "kernel:9 is no longer open"),
        ("answer", {"question": "plan:1", "choice": "maybe"}, "approve, edit, comment, finish"),
        ("decide", {"proposal": "p", "accepted": True}, "answer that first"),
        ("control", {"action": "takeback"}, "not handed over to auto"),
        ("control", {"action": "undo"}, "nothing applied to undo"),
        ("look", {"run": "g-9"}, "no run 'g-9'"),
    ):
        ack = wire.wish(command, **{"run": run.id, **fields})
        assert not ack["ok"] and says in ack["message"], ack
    assert run.state == seen
    run.stop()


def test_a_closed_channel_is_told_nothing_more(api, cell, wire):
    run = cell(CELL.format("")).wait(10)
    wire.wish("hello")
    wire.leave()
    seen = len(wire.heard)
    run.answer("finish").wait_end(10)
    assert len(wire.heard) == seen


def test_runs_started_from_python_are_found_by_the_channel_too(tmp_path):
    class House:
        def runs(self):
            return [run]

        def welcome(self):
            return contract.Welcome(package="0", modes=(), options=())

        def cell(self, run_id):
            return ""

    bench = Bench(tmp_path)
    run = bench.run(ScriptedAuthor([GOOD])).wait(10)
    heard = []
    channel = Channel(heard.append, House())
    channel.receive({"version": 1, "id": "1", "command": "maxkernel:hello"})
    channel.settle(10)
    assert [m["claim"][:14] for m in heard if m["notice"] == "maxkernel:propose"] == ["2.00x over XLA"]
    channel.close()
    bench.engine.close()


def test_a_persons_defaults_in_the_front_end_rank_below_everything_else(api, cell, wire, monkeypatch):
    assert wire.wish("configure", settings={"chip": "v5e", "policy": "propose", "budget": ""})["ok"]
    monkeypatch.setenv("MAXKERNEL_POLICY", "ask")
    shown = repr(cell("%maxkernel config"))
    assert "JupyterLab setting chip" in shown and "JupyterLab setting policy" not in shown
    refused = wire.wish("configure", settings={"chip": "v66"})
    assert not refused["ok"] and "JupyterLab setting chip got 'v66'" in refused["message"]
    assert "JupyterLab setting chip" in repr(cell("%maxkernel config"))  # what was said before still holds
    assert wire.wish("configure", settings={})["ok"]
    assert "JupyterLab setting" not in repr(cell("%maxkernel config"))
