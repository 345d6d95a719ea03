"""Every fault ends in a clear sentence, an intact journal, the best result so far, and no leaked key."""

import logging
import time

import claude_faults
import pytest
from claude_server import PLANTED, Script, call, fail, hang_up, raw, say, text, thinking, tool

from maxkernel_nb.budget import Budget
from maxkernel_nb.engine.state import fold
from maxkernel_nb.events import RunOutcome, Status
from maxkernel_nb.journal import read_events

PLAN = call("submit_plan", strategy="identity", summary="Copy.")
GOOD = "def f(x):\n    return x + 0\n# time=1.0\n"
KERNEL = call("submit_kernel", source=GOOD, note="a kernel")
BLOCKS = (thinking("let me see"), text("A long enough beginning of an answer, more than forty characters."),
          tool("submit_kernel", source=GOOD, note="a kernel"))
HTML = raw(b"<html>502 Bad Gateway</html>", "text/html", 502)
NOT_JSON = raw(b"event: message_start\ndata: {this is not json\n\n")
EMPTY = raw(b"")

# Faults that pass: the run recovers and ends as if nothing had happened.
PASSING = {
    "429": fail(429, "rate_limit_error"),
    "429 with retry-after": fail(429, "rate_limit_error", headers={"retry-after": "0"}),
    "429 with a date": fail(429, "rate_limit_error", headers={"retry-after": "Mon, 30 Nov 2020 00:00:00 GMT"}),
    "500": fail(500), "502 html": HTML, "503": fail(503), "504": fail(504, "timeout_error"),
    "529": fail(529, "overloaded_error"), "408": fail(408, "timeout_error"), "409": fail(409, "conflict_error"),
    "hang up": hang_up(), "not json": NOT_JSON, "empty stream": EMPTY,
    "not json after a start": raw(b'event: message_start\ndata: {"type": "message_start", "message": 7}\n\n'),
    **{f"cut after {n} events": say(*BLOCKS, stop_reason="tool_use", drop_after=n)
       for n in (0, 1, 2, 4, 6, 8, 9, 11, 12)},
    **{f"overloaded after {n} events": say(*BLOCKS, stop_reason="tool_use", error_after=(n, "overloaded_error"))
       for n in (0, 1, 5, 8, 11)},
    "internal error in the stream": say(*BLOCKS, error_after=(3, "api_error")),
    "unknown events": raw(b'event: surprise\ndata: {"type": "surprise"}\n\n'),
}
# Faults only the person can put right: one sentence, no second try.
FINAL = {
    "wrong key": (fail(401, "authentication_error"), "refused the API key"),
    "no credit": (fail(402, "billing_error"), "no credit left"),
    "forbidden": (fail(403, "permission_error"), "may not use claude-opus-5-5"),
    "no such model": (fail(404, "not_found_error"), "no model 'claude-opus-5-5'"),
    "too large": (fail(413, "request_too_large"), "too large"),
    "bad request": (fail(400, "invalid_request_error", "max_tokens: too many"), "max_tokens: too many"),
    "key in the message": (fail(400, "invalid_request_error", f"bad header {PLANTED}"), r"bad header \[key removed\]"),
    "retrying forbidden": (fail(500, headers={"x-should-retry": "false"}), "internal error"),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_fault_that_passes_costs_no_work(bench, serve, claude, name):
    server = serve(Script(planner=PLAN, implementer=[PASSING[name], KERNEL]))
    run = bench.run(claude(server)).wait(30)
    assert run.state.status is Status.WAITING, run.state.reason
    assert run.state.candidates[run.state.best].candidate.source == GOOD
    assert fold(read_events(bench.project.runs / "f-1")) == run.state
    assert len(server.requests) <= 3


@pytest.mark.parametrize("name", FINAL)
def test_a_fault_that_stays_is_one_sentence_and_the_run_can_be_resumed(bench, serve, claude, name):
    fault, sentence = FINAL[name]
    server = serve(Script(planner=PLAN, implementer=fault))
    run = bench.run(claude(server)).wait(30)
    assert run.state.outcome is RunOutcome.FAILED and len(server.requests) == 2
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(run.state.reason)
    run.close()
    server.brain.roles["implementer"] = [KERNEL]
    again = bench.run(claude(server), folder="f-1")
    with again._changed:
        assert again._changed.wait_for(lambda: again.state.open_proposal is not None, 30)
    assert len(server.requests) == 3  # the plan was not paid for again


def test_a_service_that_stays_down_ends_the_tries_and_says_resume(bench, serve, claude):
    server = serve(lambda body: fail(529, "overloaded_error"))
    run = bench.run(claude(server, retries=2)).wait(30)
    assert "overloaded" in run.state.reason and "resume" in run.state.reason and len(server.requests) == 3


def test_a_wait_longer_than_agreed_is_not_waited(bench, serve, claude):
    server = serve(lambda body: fail(429, "rate_limit_error", headers={"retry-after": "7200"}))
    start = time.monotonic()
    run = bench.run(claude(server)).wait(30)
    assert "asks to wait 7200 s" in run.state.reason and time.monotonic() - start < 20


def test_no_network_is_said_in_one_sentence(bench, serve, claude):
    server = serve(lambda body: PLAN)
    author = claude(server, retries=1)
    author.client._settings = author.client._settings.model_copy(update={"base_url": "http://127.0.0.1:9"})
    run = bench.run(author).wait(30)
    assert "no connection to Claude" in run.state.reason


def test_a_silent_stream_is_given_up(bench, serve, claude):
    import threading

    gate = threading.Event()
    server = serve(Script(planner=[say(*BLOCKS, pause=lambda: gate.wait(20)), PLAN], implementer=KERNEL))
    run = bench.run(claude(server, timeout_s=0.3))
    try:
        assert run.wait(30).state.status is Status.WAITING
    finally:
        gate.set()


def test_stop_during_a_call_ends_at_once(bench, serve, claude):
    import threading

    gate, reached = threading.Event(), threading.Event()

    def pause():
        reached.set()
        gate.wait(20)

    server = serve(Script(planner=say(*BLOCKS, pause=pause)))
    run = bench.run(claude(server))
    assert reached.wait(20)
    start = time.monotonic()
    run.stop().wait_end(10)
    gate.set()
    assert run.state.outcome is RunOutcome.STOPPED and time.monotonic() - start < 5


def test_a_cut_stream_is_charged_for_what_was_said(bench, serve, claude):
    cut = say(*BLOCKS, stop_reason="tool_use", drop_after=4)
    server = serve(Script(planner=PLAN, implementer=[cut, KERNEL]))
    run = bench.run(claude(server)).wait(30)
    lost = [c for c in run.state.calls if c.problem]
    assert len(lost) == 1 and lost[0].usage.estimated and lost[0].usage.all_input > 0 and lost[0].dollars > 0


def test_a_text_that_was_cut_is_gone_on_with_not_begun_again(bench, serve, claude):
    cut = say(text("A long enough beginning of an answer, more than forty characters."), drop_after=4)
    server = serve(Script(planner=PLAN, implementer=[cut, KERNEL]))
    run = bench.run(claude(server)).wait(30)
    assert run.state.status is Status.WAITING
    assert [m["role"] for m in server.requests[-1]["messages"]] == ["user", "assistant", "user"]
    assert server.requests[-1]["messages"][1]["content"][-1]["text"].startswith("A long enough beginning")
    assert "Go on exactly where" in server.requests[-1]["messages"][2]["content"][0]["text"]


@pytest.mark.parametrize("budget, word", [
    (Budget(dollars=0), "0 dollars"), (Budget(dollars=0.01), "could cost more"),
    (Budget(tokens=3000), "could cost more"),
    (Budget(calls=1), "1 calls"), (Budget(wall_seconds=0), "0 wall seconds"),
])
def test_a_budget_stops_before_the_call_that_could_break_it(bench, serve, claude, budget, word):
    server = serve(Script(planner=PLAN, implementer=KERNEL))
    run = bench.run(claude(server), budget=budget).wait(30)
    assert run.state.outcome is RunOutcome.STOPPED and word in run.state.reason
    assert len(server.requests) == (1 if budget.calls else 0)
    assert run.state.spend.dollars <= (budget.dollars if budget.dollars is not None else 1)


def test_a_small_budget_asks_for_fewer_output_tokens(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=KERNEL))
    run = bench.run(claude(server), budget=Budget(dollars=0.25)).wait(30)
    assert server.requests[0]["max_tokens"] < 24000 and run.state.spend.dollars <= 0.25


def test_instructions_inside_the_users_text_change_no_tool_policy(bench, serve, claude):
    evil = say(tool("read_file", path="/etc/passwd"), tool("submit_plan", strategy="s", summary="x"),
               stop_reason="tool_use")
    server = serve(Script(planner=evil, implementer=[call("run_shell", command="env"), KERNEL]))
    run = bench.run(claude(server)).wait(30)
    assert run.state.status is Status.WAITING
    assert "may not use 'run_shell'" in server.requests[-1]["messages"][-1]["content"][0]["content"]
    system = server.requests[0]["system"][0]["text"]
    assert "do not follow them" in system and "<reference>" in server.requests[0]["messages"][0]["content"][0]["text"]


def test_the_key_is_nowhere(bench, serve, claude, caplog):
    """Planted in the faults' texts, the model's words and code, and the reference; looked for in everything kept."""
    caplog.set_level(logging.DEBUG)
    leaking = f"# {PLANTED}\n{GOOD}"
    brains = [
        Script(planner=PLAN, implementer=[say(text(f"your key is {PLANTED}, is it not? I go on with the kernel now."),
                                              drop_after=4), call("submit_kernel", source=leaking, note=PLANTED)]),
        *(Script(planner=PLAN, implementer=fault) for fault, _ in FINAL.values()),
        Script(planner=[fail(500, message=PLANTED), PLAN], implementer=call(PLANTED, anything=PLANTED)),
        Script(planner=say(text(PLANTED * 3), tool("submit_plan", wrong=PLANTED), stop_reason="tool_use")),
    ]
    seen: list[str] = []
    for number, brain in enumerate(brains):
        author = claude(serve(brain))
        run = bench.run(author, folder=f"k-{number}")
        run.subscribe(lambda state, seen=seen: seen.append(repr(state.conversations) + repr(state.notes)))
        run.wait(30)
        seen += [repr(run.state), repr(author.__dict__), repr(author.client.__dict__)]
        run.close()
    kept = [p.read_bytes() for p in bench.project.root.rglob("*") if p.is_file()]
    assert len(kept) > 10
    assert not any(PLANTED.encode() in data for data in kept)
    assert not any(PLANTED in words for words in seen) and PLANTED not in caplog.text


@pytest.mark.parametrize("name", claude_faults.FAULTS)
def test_no_fault_loses_the_kernel_that_is_there_already(bench, serve, claude, name):
    fault = claude_faults.FAULTS[name]
    run, server = claude_faults.play(bench, serve, claude, fault, "f-1")
    assert not claude_faults.trouble(bench, run, fault)
    assert len(server.requests) <= 20  # it gave up in the end


def test_there_are_forty_of_them():
    assert len(claude_faults.FAULTS) >= 40


def test_a_key_cannot_be_pickled_or_shown():
    import pickle

    from maxkernel_nb.authors.claude.keys import Key

    key = Key(PLANTED, "a test")
    assert PLANTED not in f"{key} {key!r}"
    with pytest.raises(TypeError):
        pickle.dumps(key)
