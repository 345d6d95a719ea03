"""Claude behind the author contract, through the real SDK, against a local server."""

import pytest
from claude_server import Script, call, fail, role_of, say, text, thinking, tool

from maxkernel_nb.events import RunOutcome, Status

PLAN = call("submit_plan", strategy="identity", summary="Copy **blocks**.", tiling={"BLOCK": 128})
GOOD = "def f(x):\n    return x + 0\n# time=1.0\n"
WRONG = "def f(x):\n    return x\n# wrong\n"


def kernel(source, note="a kernel", name="submit_kernel", **more):
    return call(name, source=source, note=note, **more)


def repaired(source):
    return kernel(source, "repaired", "submit_repair", cause="it was wrong", lesson="mask the ragged end")


def test_plan_and_kernel_through_the_real_sdk(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=kernel(GOOD)))
    run = bench.run(claude(server)).wait(30)
    assert run.state.status is Status.WAITING and run.state.speedup == 2.0
    assert run.state.plan.summary == "Copy **blocks**."
    assert [role_of(r) for r in server.requests] == ["planner", "implementer"]
    assert run.state.spend.calls == 2 and run.state.spend.dollars > 0
    billed = sum(u["input_tokens"] + u["cache_read_input_tokens"] + u["cache_creation_input_tokens"]
                 for u in server.usages)
    assert run.state.spend.input_tokens == billed and run.state.spend.output_tokens == 600


def test_a_refused_kernel_goes_to_the_debugger_with_the_judges_words_and_leaves_a_lesson(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=kernel(WRONG), debugger=repaired(GOOD)))
    run = bench.run(claude(server)).wait(30)
    assert run.state.status is Status.WAITING
    opening = server.requests[-1]["messages"][0]["content"][1]["text"]
    assert "check: fail" in opening and "# wrong" in opening
    assert run.state.lessons[0].text == "mask the ragged end"


def test_the_model_may_check_a_draft_and_hand_it_in_by_its_id(bench, serve, claude):
    def hand_in(body):
        result = body["messages"][-1]["content"][0]["content"]
        return call("submit_kernel", attempt=result.split()[1].rstrip(","), note="checked")

    server = serve(Script(planner=PLAN, implementer=[call("check_kernel", source=GOOD), hand_in]))
    run = bench.run(claude(server)).wait(30)
    assert run.state.candidates[run.state.best].candidate.source == GOOD
    assert "check: pass on c1, c2, c3" in server.requests[-1]["messages"][-1]["content"][0]["content"]


def test_a_name_jax_does_not_have_is_told_without_spending_the_judge(bench, serve, claude):
    invented = ("from jax.experimental.pallas import tpu as pltpu\n\n\ndef f(x):\n"
                "    return pltpu.TPUCompilerParams(x)\n")
    server = serve(Script(planner=PLAN, implementer=[call("check_kernel", source=invented), kernel(GOOD)]))
    run = bench.run(claude(server)).wait(60)
    told = server.requests[-1]["messages"][-1]["content"][0]["content"]
    assert "TPUCompilerParams does not exist" in told and "CompilerParams" in told
    assert run.state.spend.judged == 1


@pytest.mark.parametrize("bad", [
    call("submit_kernel", source="this is not code", note="n"),
    call("submit_kernel", source="def g(x):\n    return x\n", note="another function"),
    call("submit_kernel", source="def f(y):\n    return y\n", note="other parameters"),
    call("submit_kernel", source=GOOD),
    call("submit_kernel", attempt="0123", note="no such attempt"),
    say(text("The kernel is done and it is 10x faster.")),
    say(thinking("hm"), stop_reason="end_turn"),
])
def test_an_unusable_answer_is_charged_told_once_and_then_answered_rightly(bench, serve, claude, bad):
    server = serve(Script(planner=PLAN, implementer=[bad, kernel(GOOD)]))
    run = bench.run(claude(server)).wait(30)
    assert run.state.status is Status.WAITING
    assert run.state.spend.calls == 3


def test_unusable_twice_ends_in_one_sentence_and_keeps_the_meter(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=call("submit_kernel", source="nonsense here", note="n")))
    run = bench.run(claude(server)).wait(30)
    assert run.state.outcome is RunOutcome.KEPT_REFERENCE
    assert any("unusable twice" in n.text and "not Python" in n.text for n in run.state.notes)
    assert run.state.spend.calls == 3


def test_the_same_tool_call_again_and_again_is_stopped(bench, serve, claude):
    server = serve(Script(planner=call("look_up_api", name="pl.cdiv")))
    run = bench.run(claude(server)).wait(60)
    assert any("again and again" in n.text for n in run.state.notes)
    assert len(server.requests) == 3


def test_tools_outside_the_registry_or_the_role_do_nothing(bench, serve, claude):
    server = serve(Script(planner=[say(tool("bash", command="cat ~/.ssh/id_rsa"), tool("check_kernel", source=GOOD),
                                       stop_reason="tool_use"), PLAN], implementer=kernel(GOOD)))
    run = bench.run(claude(server)).wait(30)
    results = server.requests[1]["messages"][-1]["content"]
    assert all(r["is_error"] and "may not use" in r["content"] for r in results)
    assert run.state.status is Status.WAITING


def test_a_truncated_answer_is_charged_and_asked_for_with_more_room(bench, serve, claude):
    cut = say(text("so long ..."), stop_reason="max_tokens")
    server = serve(Script(planner=[cut, PLAN], implementer=kernel(GOOD)))
    run = bench.run(claude(server, max_tokens=5000)).wait(30)
    assert run.state.status is Status.WAITING
    assert [r["max_tokens"] for r in server.requests[:2]] == [5000, 10000]
    assert run.state.calls[0].problem == "cut off at 5000 tokens"


def test_a_refusal_is_one_clear_sentence(bench, serve, claude):
    server = serve(Script(planner=say(stop_reason="refusal")))
    run = bench.run(claude(server)).wait(30)
    assert any("declined to work as the planner" in n.text for n in run.state.notes)


def test_a_plan_with_nothing_to_win_declines_the_run(bench, serve, claude):
    server = serve(Script(planner=call("submit_plan", strategy="none", summary="-", nothing_to_win="at the roofline")))
    run = bench.run(claude(server)).wait(30)
    assert run.state.outcome is RunOutcome.DECLINED and "at the roofline" in run.state.reason


def test_every_request_has_the_same_prefix_and_reads_it_from_the_cache(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=[call("check_kernel", source=GOOD), kernel(WRONG)],
                          debugger=repaired(GOOD)))
    bench.run(claude(server)).wait(30)
    first = server.requests[0]
    for body in server.requests[1:]:
        assert body["tools"] == first["tools"] and body["system"] == first["system"]
        assert body["messages"][0]["content"][0] == first["messages"][0]["content"][0]
    later = server.usages[1:]
    read = sum(u["cache_read_input_tokens"] for u in later)
    assert read / sum(u["input_tokens"] + u["cache_read_input_tokens"] + u["cache_creation_input_tokens"]
                      for u in later) > 0.8


def test_what_the_model_says_is_shown_while_it_speaks(bench, serve, claude):
    said = []
    server = serve(Script(planner=say(text("First the roofline. " * 9), tool("submit_plan", strategy="s", summary="x"),
                                      stop_reason="tool_use"), implementer=kernel(GOOD)))
    run = bench.run(claude(server))
    run.subscribe(lambda state: said.extend(c.saying for c in state.conversations.values() if c.saying))
    run.wait(30)
    assert any(s.startswith("First the roofline.") for s in said)


def test_no_key_names_every_place_one_may_be_put():
    from maxkernel_nb.authors.claude.author import ClaudeAuthor
    from maxkernel_nb.authors.model_errors import NoKey

    with pytest.raises(NoKey, match=r"ANTHROPIC_API_KEY.*Colab.*keyring.*--author recipes"):
        ClaudeAuthor()


def test_an_unknown_model_counts_tokens_and_says_that_dollars_are_unknown(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=kernel(GOOD)))
    run = bench.run(claude(server, model="some-compatible-model")).wait(30)
    spend = run.state.spend
    assert spend.unpriced_calls == 2 and spend.dollars == 0 and spend.input_tokens > 1000
    assert any("price of some-compatible-model is not known" in n.text for n in run.state.notes)


def test_an_unknown_model_of_the_service_is_named(bench, serve, claude):
    server = serve(lambda body: fail(404, "not_found_error", "model: nope"))
    run = bench.run(claude(server, model="nope")).wait(30)
    assert run.state.outcome is RunOutcome.FAILED
    assert "no model 'nope'" in run.state.reason and len(server.requests) == 1
