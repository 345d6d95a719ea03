"""A person in the loop: every answer is data, every route gives the same journal, a killed run asks the same again."""

import pytest
from claude_server import Script, call
from engine_bench import GOOD as SCRIPTED
from engine_bench import TIMES, TunableAuthor

from maxkernel_nb import api
from maxkernel_nb.authors.claude.costs import cost_table
from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.budget import Budget
from maxkernel_nb.errors import ApprovalRequired, UsageError
from maxkernel_nb.events import RunOutcome
from maxkernel_nb.journal import Journal, read_events

GOOD = "def f(x):\n    return x + 0\n# time=1.0\n"
FASTER = "def f(x):\n    return x + 0.0\n# time=0.8\n"
WRONG = "def f(x):\n    return x\n# wrong\n"


def plan(summary):
    return call("submit_plan", strategy="tiled", summary=summary)


def kernel(source, note="a kernel"):
    return call("submit_kernel", source=source, note=note)


def asked(run, title):
    """Waits until the run asks ``title`` (or ends)."""
    run.wait(30)
    assert run.state.open_question is not None, run.state.reason
    assert run.state.open_question.title == title
    return run.state.open_question


def opening(server, number=-1):
    return server.requests[number]["messages"][0]["content"][1]["text"]


def answer(run, choice, text="", **more):
    """Answers and waits for the next question, or the end."""
    return run.answer(choice, text, **more).wait(30)


def test_each_step_is_approved_and_the_last_proposal_is_the_persons_too(bench, serve, claude):
    server = serve(Script(planner=plan("Copy."), implementer=kernel(GOOD)))
    run = bench.run(claude(server), mode_name="hitl")
    assert asked(run, "Approve this plan?").editable == "Copy."
    assert asked(answer(run, "approve"), "Take this kernel on?").patch.proposed == GOOD
    question = asked(answer(run, "approve"), "What next?")
    assert question.default == "judge" and "no money" in question.choices[0].label
    assert "2.00x over XLA, modelled" in asked(answer(run, "judge"), "What next?").text
    answer(run, "finish")
    assert run.state.open_proposal is not None
    run.accept().wait_end(10)
    assert run.state.outcome is RunOutcome.ACCEPTED


def test_comments_and_edits_reach_the_agents_word_for_word(bench, serve, claude):
    server = serve(Script(planner=[plan("Big blocks."), plan("Small blocks.")],
                          implementer=[kernel(GOOD), kernel(FASTER)]))
    run = bench.run(claude(server), mode_name="hitl")
    asked(run, "Approve this plan?")
    asked(answer(run, "comment", "smaller blocks, keep fp32 accumulation"), "Approve this plan?")
    assert "smaller blocks, keep fp32 accumulation" in opening(server) and "Big blocks." in opening(server)
    asked(answer(run, "edit", "Small blocks, 128 rows."), "Take this kernel on?")
    assert "Small blocks, 128 rows." in opening(server)
    asked(answer(run, "comment", "no addition please"), "Take this kernel on?")
    assert "no addition please" in opening(server) and GOOD in opening(server)


def test_a_kernel_edited_by_hand_is_judged_like_any_other(bench, serve, claude):
    server = serve(Script(planner=plan("x"), implementer=kernel(GOOD)))
    run = bench.run(claude(server), mode_name="hitl")
    asked(run, "Approve this plan?")
    asked(answer(run, "approve"), "Take this kernel on?")
    trouble = asked(answer(run, "edit", "def g(x): pass"), "Take this kernel on?")
    assert "must define a function 'f'" in trouble.text
    asked(answer(run, "edit", WRONG), "What next?")
    assert "failed check" in asked(answer(run, "judge"), "What next?").text
    assert run.state.best is None
    answer(run, "edit", FASTER)
    answer(run, "judge")
    assert run.state.candidates[run.state.best].candidate.author == "person" and run.state.speedup == 2.5


def test_hunks_of_a_kernel_can_be_taken_one_by_one(bench, serve, claude):
    two = "import jax\ndef f(x):\n    return x\n# time=1.0\n"
    server = serve(Script(planner=plan("x"), implementer=kernel(two)))
    run = bench.run(claude(server), mode_name="hitl")
    asked(run, "Approve this plan?")
    asked(answer(run, "approve"), "Take this kernel on?")
    with pytest.raises(UsageError, match="no hunk 7"):
        run.answer("approve", hunks=[7])
    answer(run, "approve", hunks=[1])
    made = list(run.state.candidates.values())[-1].candidate
    assert made.source == "def f(x):\n    return x\n# time=1.0\n" and made.author == "person"


def test_a_question_at_any_time_is_answered_beside_the_run(bench, serve, claude):
    server = serve(Script(planner=plan("x"), implementer=kernel(GOOD),
                          explainer=call("submit_answer", text="VMEM is the fast memory.")))
    run = bench.run(claude(server), mode_name="hitl")
    asked(run, "Approve this plan?")
    run.ask("What is VMEM?")
    with run._changed:
        assert run._changed.wait_for(lambda: run.state.explanations, 20)
    assert run.state.explanations[0].answer == "VMEM is the fast memory."
    assert run.state.open_question.title == "Approve this plan?"


def test_handing_over_to_auto_and_coming_back_with_its_best(bench, serve, claude):
    attack = call("submit_attack", bottleneck="memory", plan={"strategy": "better", "summary": "half the bytes"})
    stop = call("submit_attack", bottleneck="memory", stop="nothing left")
    server = serve(Script(planner=plan("x"), implementer=[kernel(GOOD), kernel(FASTER)], profiler=[attack, stop]))
    run = bench.run(claude(server, rounds=3), mode_name="hitl")
    for choice in ("approve", "approve", "judge", "auto"):
        run.wait(30)
        answer(run, choice)
    assert run.state.speedup == 2.5 and run.state.control == "person"
    assert run.state.best in run.state.open_question.text
    assert any("nothing left" in n.text for n in run.state.notes)
    rounds = [(line.name, line.calls) for line in cost_table(run.state).by_round]
    assert rounds == [("round 1", 2), ("round 2", 2), ("round 3", 1)]


def test_taking_back_asks_the_person_after_the_round_in_flight(bench, serve, claude):
    import threading

    reached, gate = threading.Event(), threading.Event()

    def attacking(body):
        reached.set()
        gate.wait(20)
        return call("submit_attack", bottleneck="memory", plan={"strategy": "better", "summary": "half the bytes"})

    server = serve(Script(planner=plan("x"), implementer=[kernel(GOOD), kernel(FASTER)], profiler=attacking))
    run = bench.run(claude(server, rounds=9), mode_name="hitl")
    for choice in ("approve", "approve", "judge"):
        run.wait(30)
        answer(run, choice)
    seen = len(run.wait(30).state.questions)
    run.answer("auto")
    assert reached.wait(20) and run.state.control == "auto"
    run.take_back()
    gate.set()
    with run._changed:
        assert run._changed.wait_for(lambda: len(run.state.questions) > seen, 30)
    assert run.state.control == "person" and run.state.speedup == 2.5
    assert sum(r.get("messages", [{}])[0]["content"][1]["text"].startswith("You are the profiler")
               for r in server.requests) == 1
    assert any("handed back" in n.text for n in run.state.notes)
    with pytest.raises(UsageError, match="nothing to take back"):
        run.take_back()


def test_without_money_a_person_still_works_by_hand(bench, serve, claude):
    server = serve(Script(planner=plan("x"), implementer=kernel(WRONG)))
    run = bench.run(claude(server), mode_name="hitl", budget=Budget(calls=2))
    for choice in ("approve", "approve", "judge", "repair"):
        run.wait(30)
        answer(run, choice)
    assert asked(run, "What next?") and "2 calls is used up" in run.state.notes[-1].text
    answer(run, "edit", GOOD)
    answer(run, "judge")
    assert run.state.speedup == 2.0
    answer(run, "finish")
    assert run.state.open_proposal is not None and len(server.requests) == 2


def test_two_questions_at_once_get_an_answer_each_and_an_impossible_one_says_why(bench, serve, claude):
    def explain(body):
        said = body["messages"][0]["content"][1]["text"]
        return call("submit_answer", text="fast memory" if "VMEM" in said else "slow memory")

    server = serve(Script(planner=plan("x"), implementer=kernel(GOOD), explainer=explain))
    run = bench.run(claude(server), mode_name="hitl")
    asked(run, "Approve this plan?")
    run.ask("What is VMEM?")
    run.ask("What is HBM?")
    with run._changed:
        assert run._changed.wait_for(lambda: len(run.state.explanations) == 2, 20)
    assert {(x.question, x.answer) for x in run.state.explanations} == {
        ("What is VMEM?", "fast memory"), ("What is HBM?", "slow memory")}
    with pytest.raises(UsageError, match="question is empty"):
        run.ask("  ")
    run.pause()
    with run._changed:
        assert run._changed.wait_for(lambda: run.state.status == "paused", 20)
    with pytest.raises(UsageError, match="unpause"):
        run.ask("And now?")


def test_the_agent_may_ask_the_person(bench, serve, claude):
    server = serve(Script(planner=[call("ask_person", question="Is k always even?"), plan("x")],
                          implementer=kernel(GOOD)))
    run = bench.run(claude(server), mode_name="hitl")
    assert asked(run, "A question from the agent").text == "Is k always even?"
    asked(answer(run, "answer", "Yes, always."), "Approve this plan?")
    assert server.requests[1]["messages"][-1]["content"][0]["content"] == "Yes, always."


def test_in_auto_there_is_nobody_to_ask(bench, serve, claude):
    server = serve(Script(planner=[call("ask_person", question="?"), plan("x")], implementer=kernel(GOOD)))
    bench.run(claude(server)).wait(30)
    assert "Nobody can be asked" in server.requests[1]["messages"][-1]["content"][0]["content"]


def test_a_policy_goes_straight_through_with_no_person(bench):
    run = bench.run(TunableAuthor([SCRIPTED], axes=TIMES), mode_name="hitl", policy="propose").wait(30)
    assert run.state.outcome is RunOutcome.PROPOSED and run.state.speedup > 5
    assert all(q.answer.via == "policy" for q in run.state.questions.values())


def test_optimize_does_not_hang_on_a_question_but_says_how_to_answer(bench, monkeypatch):
    def start(fn, *, policy, mode, **options):
        return bench.run(ScriptedAuthor([SCRIPTED]), mode_name=mode, policy=policy)

    monkeypatch.setattr(api, "start", start)
    with pytest.raises(ApprovalRequired, match="pass policy='accept-verified'"):
        api.optimize(lambda x: x, mode="hitl", policy="ask")


def test_it_works_without_claude(bench):
    run = bench.run(ScriptedAuthor([WRONG, SCRIPTED]), mode_name="hitl")
    for choice in ("approve", "approve", "judge", "repair", "approve", "judge", "finish"):
        run.wait(30)
        answer(run, choice)
    assert run.state.open_proposal is not None


def test_words_that_no_author_takes_are_said_to_be_lost(bench):
    run = bench.run(ScriptedAuthor([SCRIPTED]), mode_name="hitl")
    asked(run, "Approve this plan?")
    answer(run, "comment", "smaller blocks")
    assert "takes no remarks" in run.state.notes[-1].text


def test_accept_and_reject_answer_the_open_question(bench, serve, claude):
    server = serve(Script(planner=[plan("One."), plan("Two.")], implementer=kernel(GOOD)))
    run = bench.run(claude(server), mode_name="hitl")
    asked(run, "Approve this plan?")
    run.reject(comment="another way", uuid="u1")
    run.reject(comment="another way", uuid="u1")
    with run._changed:
        assert run._changed.wait_for(lambda: len(run.state.questions) == 2, 30)
    assert "another way" in opening(server)
    with pytest.raises(UsageError, match="approve, edit, comment, finish"):
        run.answer("perhaps")


ROUTES = {
    "python": lambda run, choice, text: run.answer(choice, text, via="button"),
    "decide": lambda run, choice, text: (run.reject if choice == "comment" else run.accept)(via="button", comment=text),
}


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_leaves_the_same_answers(bench, serve, claude, route):
    server = serve(Script(planner=[plan("One."), plan("Two.")], implementer=kernel(GOOD)))
    run = bench.run(claude(server), mode_name="hitl")
    for choice, text in (("comment", "another way"), ("approve", ""), ("approve", ""), ("judge", "")):
        seen = len(run.wait(30).state.questions)
        ROUTES[route](run, choice, text)
        with run._changed:
            assert run._changed.wait_for(lambda seen=seen: len(run.state.questions) > seen, 30)
    given = [(q.answer.choice, q.answer.text, q.answer.via) for q in run.state.questions.values() if q.answer]
    assert given == [("comment", "another way", "button"), ("approve", "", "button"), ("approve", "", "button"),
                     ("judge", "", "button")]


def test_cut_after_every_event_the_same_questions_come_and_nothing_is_paid_twice(bench, serve, claude):
    def script():
        return Script(planner=plan("x"), implementer=[call("check_kernel", source=WRONG), kernel(WRONG)],
                      debugger=call("submit_repair", source=GOOD, note="r", cause="c", lesson="l"))

    run = bench.run(claude(serve(script())), mode_name="hitl", folder="whole")
    for choice in ("approve", "approve", "judge", "repair", "approve", "judge", "finish"):
        run.wait(30)
        answer(run, choice)
    run.close()
    events = read_events(bench.project.runs / "whole")
    cuts = [n for n in range(2, len(events)) if events[n - 1].kind not in ("status-changed", "model-said")]
    for cut in cuts[::3]:
        _resumed_to_the_same_end(bench, serve(script()), claude, events, cut, run)


def _resumed_to_the_same_end(bench, server, claude, events, cut, whole):
    folder = bench.project.runs / f"cut-{cut}"
    folder.mkdir()
    journal = Journal(folder)
    for event in events[:cut]:
        journal.append(event, at=0.0)
    journal.close()
    paid = sum(e.kind == "model-replied" for e in events[:cut])
    server.brain.roles["implementer"] = server.brain.roles["implementer"][max(0, min(paid - 1, 1)):]
    run = bench.run(claude(server), mode_name="hitl", folder=folder.name)
    while (run.wait(30), run.state.open_proposal is None)[1]:
        question = run.state.open_question.question
        given = next(e for e in events if e.kind == "answer-given" and e.question == question)
        answer(run, given.choice, given.text)
    assert len(server.requests) == 4 - paid, f"cut after {cut}"
    assert (run.state.best, list(run.state.questions)) == (whole.state.best, list(whole.state.questions))
    assert run.state.spend.calls == 4
    run.close()
