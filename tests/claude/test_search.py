"""Auto over rounds: the best honest kernel wins, a plateau, the roofline or the budget ends it, and it says which."""

import itertools

import pytest
from claude_server import Script, call, fail, role_of, say, text
from engine_bench import make_task

from maxkernel_nb.authors.claude.costs import cost_table
from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.authors.pool import BothAuthors
from maxkernel_nb.budget import Budget
from maxkernel_nb.evaluate.fake import FakeEvaluator
from maxkernel_nb.events import RunOutcome, Status
from maxkernel_nb.journal import Journal, read_events

PLAN = call("submit_plan", strategy="identity", summary="Copy.")


def source(time, extra=""):
    return f"def f(x):\n    return x + 0\n# time={time}\n{extra}"


def kernel(time, extra="", note="a kernel"):
    return call("submit_kernel", source=source(time, extra), note=note)


def attack(number):
    return call("submit_attack", bottleneck=f"memory {number}", lesson=f"rule {number}",
                plan={"strategy": f"attack {number}", "summary": "fewer bytes"})


ATTACKS = [attack(n) for n in range(2, 12)]
STOP = call("submit_attack", bottleneck="mxu", stop="the MXU is full")


def best_time(run):
    return run.state.best_ms


def test_rounds_go_on_from_the_best_until_nothing_is_left(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=[kernel(1.5), kernel(1.2), kernel(0.9)],
                          profiler=[*ATTACKS[:2], STOP]))
    run = bench.run(claude(server, rounds=5)).wait(30)
    assert best_time(run) == 0.9 and run.state.status is Status.WAITING
    assert any("the MXU is full" in n.text for n in run.state.notes)
    last = server.requests[-1]["messages"][0]["content"][1]["text"]
    assert "# time=0.9" in last and "rule 2" in last and "# time=1.5" not in last  # pruned: only the best in full


def test_a_plateau_ends_it_and_says_so(bench, serve, claude):
    server = serve(Script(planner=PLAN, profiler=ATTACKS,
                          implementer=[kernel(1.0), *(kernel(1.0, f"# {n}\n") for n in range(9))]))
    run = bench.run(claude(server, rounds=9, patience=2)).wait(30)
    assert any("levelled off: 2 rounds" in n.text for n in run.state.notes)
    assert len(run.state.candidates) == 3


def test_the_roofline_ends_it_without_a_further_call(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=kernel(0.62)))
    run = bench.run(claude(server, rounds=9)).wait(30)
    assert any("of the roofline" in n.text for n in run.state.notes) and len(server.requests) == 2


def test_the_budget_ends_it_with_the_best_so_far(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=[kernel(1.5), kernel(1.2)], profiler=ATTACKS))
    run = bench.run(claude(server, rounds=9), budget=Budget(calls=4)).wait(30)
    assert run.state.open_proposal is not None and best_time(run) == 1.2
    assert any("4 calls" in n.text for n in run.state.notes)


def test_a_tie_goes_to_the_simpler_code(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=[kernel(1.0, "# a\n# b\n"), kernel(1.001), kernel(0.999, "# c\n")],
                          profiler=ATTACKS))
    run = bench.run(claude(server, rounds=2, patience=9)).wait(30)
    assert best_time(run) == 1.001


QUALITIES = {
    "right": kernel(1.0), "slow": kernel(1.9, "# slow\n"), "wrong but fast": kernel(0.61, "# wrong\n"),
    "malformed": call("submit_kernel", source="no code at all", note="n"),
    "only words": say(text("It is done and 40x faster, I promise you that it is.")),
    "another function": call("submit_kernel", source="def g(x):\n    return x\n", note="n"),
}


@pytest.mark.parametrize("order", list(itertools.permutations(QUALITIES, 6))[::60])
def test_of_mixed_kernels_the_best_honest_one_wins(bench, serve, claude, order):
    def implement(body):
        served = implement.served
        if body["messages"][-1] == body["messages"][0]:  # a new conversation
            implement.served = served = served + 1
        return QUALITIES[order[min(served, 5)]]

    implement.served = -1
    give_up = call("submit_repair", source=source(1.7, "# repaired\n"), note="r", cause="c")
    server = serve(Script(planner=PLAN, implementer=implement, debugger=give_up, profiler=ATTACKS))
    run = bench.run(claude(server, rounds=6, patience=9)).wait(60)
    assert best_time(run) == 1.0, run.state.reason
    assert "# wrong" not in run.state.open_proposal.patch.proposed


def test_at_most_five_calls_a_round_and_four_fifths_from_the_cache(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=[kernel(1.5), kernel(1.2), kernel(0.9)],
                          profiler=[*ATTACKS[:2], STOP]))
    run = bench.run(claude(server, rounds=3)).wait(30)
    costs = cost_table(run.state)
    rounds = {line.name: line for line in costs.by_round}
    assert set(rounds) == {"round 1", "round 2", "round 3", "round 4"}
    assert all(line.calls <= 5 for line in costs.by_round)
    assert all(line.cached_share >= 0.8 for name, line in rounds.items() if name != "round 1")
    assert costs.total.calls == len(server.requests) == 7
    print(*(f"{x.name}: {x.calls} calls, {x.input_tokens} in, {x.cached_share:.0%} cached" for x in costs.by_round),
          sep="\n")


def test_recipes_give_the_first_kernel_at_no_cost_and_claude_goes_on_from_it(bench, serve, claude):
    class Recipes(ScriptedAuthor):
        name = "recipes"

        async def plan(self, view):
            return (await super().plan(view)).model_copy(update={"recipe": "copy"})

    server = serve(Script(profiler=[ATTACKS[0], STOP], implementer=kernel(0.9)))
    author = BothAuthors(Recipes([source(1.4)]), claude(server, rounds=3))
    run = bench.run(author).wait(30)
    assert [role_of(r) for r in server.requests] == ["profiler", "implementer", "profiler"]
    assert best_time(run) == 0.9
    assert "# time=1.4" in server.requests[1]["messages"][0]["content"][1]["text"]


def test_what_no_recipe_knows_is_claudes_from_the_start(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=kernel(1.0)))
    run = bench.run(BothAuthors(ScriptedAuthor([]), claude(server))).wait(30)
    assert best_time(run) == 1.0


def test_claude_gone_in_the_middle_leaves_the_recipes_kernel_proposed(bench, serve, claude):
    class Recipes(ScriptedAuthor):
        name = "recipes"

        async def plan(self, view):
            return (await super().plan(view)).model_copy(update={"recipe": "copy"})

    server = serve(lambda body: fail(401, "authentication_error"))
    run = bench.run(BothAuthors(Recipes([source(1.0)]), claude(server, rounds=3, stress=True))).wait(30)
    assert run.state.open_proposal is not None and best_time(run) == 1.0
    assert any("refused the API key" in n.text for n in run.state.notes)


class Picky:
    """The fake judge, for which kernels marked ``# unsafe`` are wrong where a check is drawn with a large mean."""

    def __init__(self):
        inner = self.inner = FakeEvaluator()
        self.baseline, self.admit, self.close, self.stressed = inner.baseline, inner.admit, inner.close, []

    async def judge(self, task, candidate, *args, **more):
        if task.check_cases[0].args[0].draw.mean > 10:
            self.stressed.append(task)
            wrong = "# wrong\n" if "# unsafe" in candidate.source else ""
            candidate = candidate.model_copy(update={"source": candidate.source + wrong})
        return await self.inner.judge(task, candidate, *args, **more)


STRESSES = call("submit_stresses", stresses=[
    {"name": "large mean", "why": "cancellation", "families": [{"argument": "x", "mean": 100.0, "std": 1.0}]},
    {"name": "tiny", "why": "underflow", "families": [{"argument": "x", "std": 0.001}]},
])


def test_a_kernel_that_is_wrong_on_unusual_inputs_is_refused_and_repaired_from_that_verdict(bench, serve, claude):
    server = serve(Script(planner=PLAN, implementer=kernel(0.9, "# unsafe\n"), tester=STRESSES,
                          debugger=call("submit_repair", source=source(1.0), note="r", cause="cancellation")))
    run = bench.run(claude(server, stress=True), Picky()).wait(30)
    assert best_time(run) == 1.0 and "# unsafe" not in run.state.open_proposal.patch.proposed
    unsafe, safe = run.state.candidates.values()
    assert [v.variant for v in unsafe.verdicts if v.outcome == "fail"] == ["large mean"]
    assert {v.variant for v in safe.verdicts if v.gate == "check"} == {"", "large mean", "tiny"}
    told = next(r for r in server.requests if role_of(r) == "debugger")["messages"][0]["content"][1]["text"]
    assert "On large mean: check fail" in told
    assert [role_of(r) for r in server.requests] == ["planner", "implementer", "tester", "debugger"]


def test_a_kernel_that_stays_wrong_on_unusual_inputs_is_never_proposed(bench, serve, claude):
    repairs = [call("submit_repair", source=source(0.9, f"# unsafe {n}\n"), note="r", cause="c") for n in range(4)]
    server = serve(Script(planner=PLAN, implementer=kernel(0.9, "# unsafe\n"), tester=STRESSES, debugger=repairs))
    run = bench.run(claude(server, stress=True), Picky(), policy="accept-verified").wait(30)
    assert run.state.outcome is RunOutcome.KEPT_REFERENCE and "On large mean" in run.state.reason
    assert bench.namespace["f"] is bench.reference


def test_some_hunks_of_a_proposal_face_the_unusual_inputs_too(bench, serve, claude):
    safe = "import jax\n\n\ndef f(x):\n    return x\n\n\n# time=1.0\n"
    server = serve(Script(planner=PLAN, implementer=call("submit_kernel", source=safe, note="k"), tester=STRESSES))

    class Picky2(Picky):
        async def judge(self, task, candidate, *args, **more):
            if "import jax" not in candidate.source:  # the merged text
                candidate = candidate.model_copy(update={"source": candidate.source + "# unsafe\n"})
            return await super().judge(task, candidate, *args, **more)

    run = bench.run(claude(server, stress=True), Picky2()).wait(30)
    run.accept(hunks=[1])
    with run._changed:
        assert run._changed.wait_for(lambda: any("together they fail" in n.text for n in run.state.notes), 20)
    assert "On large mean" in run.state.notes[-1].text and run.state.open_proposal is not None


def test_tuned_winners_face_the_unusual_inputs_too(bench, serve, claude):
    text = "BLOCK = 1  # tune: 1, 2\n" + source(1.0)
    author = claude(serve(Script(planner=PLAN, tester=STRESSES,
                                 implementer=call("submit_kernel", source=text, note="t"))), stress=True)
    retune = author.retune

    def faster_but_unsafe(*args):
        made = retune(*args)
        return made.model_copy(update={"source": made.source.replace("time=1.0", "time=0.5") + "# unsafe\n"})

    author.retune = faster_but_unsafe
    run = bench.run(author, Picky()).wait(30)
    assert best_time(run) == 1.0
    verdicts = [v for c in run.state.candidates.values() for v in c.verdicts]
    assert any(v.variant == "large mean" and v.outcome == "fail" for v in verdicts)


def test_no_tester_or_no_money_for_one_leaves_the_verified_kernel(bench, serve, claude):
    for fault, budget in ((fail(401, "authentication_error"), Budget()), (STRESSES, Budget(calls=2))):
        server = serve(Script(planner=PLAN, implementer=kernel(1.0), tester=fault))
        run = bench.run(claude(server, stress=True), Picky(), folder=f"f-{budget.calls}", budget=budget).wait(30)
        assert best_time(run) == 1.0 and run.state.open_proposal is not None
        assert any("No unusual inputs were tried" in n.text for n in run.state.notes)


def test_stress_draws_keep_the_cases_names_and_the_timing_case():
    from maxkernel_nb.authors.pool import StressDraws

    task = make_task()
    drawn = StressDraws.of({"big": {"x": (5.0, 2.0)}}).task(task, "big")
    assert [c.name for c in drawn.cases] == [c.name for c in task.cases]
    assert drawn.timing_case == task.timing_case
    assert all(c.args[0].draw.mean == 5.0 and c.args[0].draw.std == 2.0 for c in drawn.check_cases)


def test_a_reviewer_may_send_a_kernel_back_before_it_is_judged(bench, serve, claude):
    review = call("submit_review", verdict="fix first", risks=[{"kind": "ragged tail", "line": 2, "why": "no mask"}])
    server = serve(Script(planner=PLAN, implementer=[kernel(1.5), kernel(1.4)], profiler=[ATTACKS[0], STOP],
                          reviewer=review, debugger=call("submit_repair", source=source(1.1), note="r", cause="c")))
    run = bench.run(claude(server, rounds=2, review=True)).wait(30)
    assert best_time(run) == 1.1
    assert "ragged tail (line 2): no mask" in next(
        r for r in server.requests if role_of(r) == "debugger")["messages"][0]["content"][1]["text"]


def test_constants_without_values_are_the_tuners_to_choose(bench, serve, claude):
    space = call("submit_space", axes=[{"constant": "BLOCK", "values": [128, 256]}], reason="powers of two")
    tunable = "BLOCK = 64  # tune: 64\n" + source(1.0)
    server = serve(Script(planner=PLAN, implementer=call("submit_kernel", source=tunable, note="t"), tuner=space))
    run = bench.run(claude(server)).wait(30)
    assert {c.candidate.params["BLOCK"] for c in run.state.candidates.values()} == {64, 128, 256}


def test_cut_after_every_event_a_search_ends_the_same_and_pays_once(bench, serve, claude):
    def implementer(body):
        later = "attack 2" in body["messages"][0]["content"][1]["text"]
        if len(body["messages"]) == 1:
            return call("check_kernel", source=source(1.2 if later else 1.5))
        return kernel(1.2 if later else 1.5)

    def profiler(body):
        return STOP if "# time=1.2" in body["messages"][0]["content"][1]["text"] else ATTACKS[0]

    def brain():
        return Script(planner=PLAN, profiler=profiler, implementer=implementer)

    whole = bench.run(claude(serve(brain()), rounds=3), folder="whole").wait(30)
    events = read_events(bench.project.runs / "whole")
    calls = sum(e.kind == "model-replied" for e in events)
    for cut in range(2, len(events), 5):
        folder = bench.project.runs / f"cut-{cut}"
        folder.mkdir()
        journal = Journal(folder)
        for event in events[:cut]:
            journal.append(event, at=0.0)
        journal.close()
        server = serve(brain())
        run = bench.run(claude(server, rounds=3), folder=folder.name).wait(30)
        paid = sum(e.kind == "model-replied" for e in events[:cut])
        assert len(server.requests) == calls - paid, f"cut after {cut}"
        assert (run.state.best, run.state.spend.calls) == (whole.state.best, calls)
        run.close()


def test_a_recorded_run_is_replayed_without_key_or_network_and_judged_anew(bench, serve, claude):
    from maxkernel_nb.authors.claude.replay import replay_author
    from maxkernel_nb.evaluate.fake import FakeEvaluator

    server = serve(Script(planner=PLAN, implementer=[kernel(1.5), kernel(1.2)], profiler=[ATTACKS[0], STOP]))
    author = claude(server, rounds=3)
    first = bench.run(author, folder="recorded").wait(30)
    evaluator = FakeEvaluator()
    replay = replay_author(bench.project.runs / "recorded", author.settings)
    again = bench.run(replay, evaluator, folder="again").wait(30)
    assert again.state.best == first.state.best and len(evaluator.judged) == 2
    assert again.state.spend.dollars == 0 and len(server.requests) == 5


def test_a_recording_is_exported_small_and_chosen_by_a_variable(bench, serve, claude, tmp_path, monkeypatch):
    from maxkernel_nb.authors.choose import choose_author
    from maxkernel_nb.authors.claude.replay import export
    from maxkernel_nb.errors import JournalError

    cut = say(text("A beginning that is long enough to be paid for and then thrown away"), drop_after=1)
    server = serve(Script(planner=[cut, PLAN], implementer=kernel(1.5)))
    first = bench.run(claude(server), folder="recorded").wait(30)
    file = tmp_path / "recording.jsonl"
    assert export(bench.project.runs / "recorded", file) == 3
    monkeypatch.setenv("MAXKERNEL_REPLAY", str(file))
    author, note = choose_author("claude")
    author.settings = author.settings.model_copy(update={"rounds": 0, "stress": False})
    assert "recording" in note and bench.run(author, folder="again").wait(30).state.best == first.state.best
    both, _ = choose_author("both")
    assert both.name == "both" and both.recipes.name == "recipes"
    file.write_text("nonsense")
    with pytest.raises(JournalError, match="cannot be read"):
        choose_author()


def test_a_recording_of_another_run_says_what_is_missing(bench, serve, claude):
    from maxkernel_nb.authors.claude.author import ClaudeAuthor
    from maxkernel_nb.authors.claude.replay import Recording
    from maxkernel_nb.authors.claude.settings import ClaudeSettings

    run = bench.run(ClaudeAuthor(ClaudeSettings(), client=Recording([]))).wait(30)
    assert "holds no further reply for 'plan/planner'" in run.state.reason


def test_lessons_go_on_to_the_projects_next_run_only_when_asked_for(bench, serve, claude):
    def author(**settings):
        server = serve(Script(planner=PLAN, implementer=kernel(1.5), profiler=[ATTACKS[0], STOP]))
        return claude(server, rounds=2, **settings)

    bench.run(author(), folder="quiet").wait(30)
    assert not (bench.project.folder / "lessons.jsonl").exists()
    bench.run(author(share_lessons=True), folder="first").wait(30)
    later = author(share_lessons=True)
    run = bench.run(later, folder="second").wait(30)
    told = [x.evidence for x in run.state.lessons if x.text == "rule 2"]
    assert any(e.startswith("run first: ") for e in told)
    assert len((bench.project.folder / "lessons.jsonl").read_text().splitlines()) == 1
