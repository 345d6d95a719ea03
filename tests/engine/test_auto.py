import pytest
from engine_bench import GOOD, TIMES, TunableAuthor

from maxkernel_nb.approvals import bind_again
from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.budget import Budget
from maxkernel_nb.engine.binding import BoundKernel
from maxkernel_nb.engine.state import fold
from maxkernel_nb.errors import JournalError, UsageError
from maxkernel_nb.evaluate.base import ALL_GATES
from maxkernel_nb.evaluate.fake import FakeEvaluator
from maxkernel_nb.events import RunOutcome, Status, VerdictReached
from maxkernel_nb.journal import read_events


def test_a_faster_verified_kernel_waits_for_the_person_and_nothing_is_bound_before(bench):
    run = bench.run().wait(10)
    assert run.state.status is Status.WAITING
    assert run.state.speedup == 2.0
    assert bench.namespace["f"] is bench.reference
    assert "2.00x over XLA" in run.state.open_proposal.claim and "modelled" in run.state.open_proposal.claim


def test_accepting_binds_the_kernel_and_writes_its_file(bench):
    run = bench.run().wait(10)
    run.accept(via="button", uuid="u1").wait_end(10)
    assert run.state.outcome is RunOutcome.ACCEPTED
    bound = bench.namespace["f"]
    assert isinstance(bound, BoundKernel) and bound.reference is bench.reference and bound.run is run
    assert (bench.project.kernels / "f.py").read_text() == GOOD


def test_after_a_restart_an_accepted_kernel_is_bound_again_from_the_journal(bench):
    bench.run().wait(10).accept().wait_end(10).close()
    bench.namespace.clear()  # what a kernel restart leaves
    (bench.project.kernels / "f.py").write_text("# edited since\n")
    again = bench.run(drive=bind_again).wait_end(10)
    assert again.state.outcome is RunOutcome.ACCEPTED and bench.namespace["f"].run is again
    assert (bench.project.kernels / "f.py").read_text() == GOOD
    assert "# edited since\n" in [p.read_text() for p in bench.project.kernels.iterdir()]


def test_undo_gives_the_reference_back(bench):
    run = bench.run().wait(10)
    run.accept().wait_end(10)
    run.undo()
    assert bench.namespace["f"] is bench.reference
    with pytest.raises(UsageError, match="nothing applied"):
        run.undo()


def test_rejecting_changes_nothing(bench):
    run = bench.run().wait(10)
    run.reject().wait_end(10)
    assert run.state.outcome is RunOutcome.REJECTED
    assert bench.namespace["f"] is bench.reference and not list(bench.project.kernels.iterdir())


def test_the_same_click_twice_decides_once(bench):
    run = bench.run().wait(10)
    run.accept(uuid="same")
    run.accept(uuid="same").wait_end(10)
    assert sum(e.kind == "decision-taken" for e in read_events(bench.project.runs / "f-1")) == 1


def test_a_second_decision_is_refused_in_one_sentence(bench):
    run = bench.run().wait(10)
    run.reject(uuid="1").wait_end(10)
    with pytest.raises(UsageError, match="no open proposal to accept; it is rejected"):
        run.accept(uuid="2")


def test_some_hunks_are_judged_as_a_new_candidate_before_they_are_applied(bench):
    source = "import jax\ndef f(x):\n    return x\n# more\n"
    evaluator = FakeEvaluator()
    run = bench.run(ScriptedAuthor([source]), evaluator).wait(10)
    run.accept(hunks=[0]).wait_end(10)
    merged = run.state.candidates[evaluator.judged[-1][0]].candidate
    assert merged.author == "person"
    assert (bench.project.kernels / "f.py").read_text() == merged.source


def test_a_kernel_no_faster_than_xla_keeps_the_reference_and_says_so(bench):
    run = bench.run(ScriptedAuthor(["# time=1.99\n"])).wait(10)
    assert run.state.outcome is RunOutcome.KEPT_REFERENCE
    assert "reference is kept" in run.state.reason


def test_a_wrong_kernel_is_repaired_and_the_repaired_one_proposed(bench):
    author = ScriptedAuthor(["# wrong\n", GOOD])
    run = bench.run(author).wait(10)
    assert author.asked == ["plan", "implement", "repair"]
    assert run.state.candidates[run.state.best].candidate.source == GOOD


def test_a_kernel_that_the_judge_failed_on_is_not_repaired_and_the_run_says_whose_fault_it_is(bench):
    author = ScriptedAuthor(["# unjudged\n", GOOD])
    run = bench.run(author).wait(10)
    assert author.asked == ["plan", "implement"]
    assert run.state.outcome is RunOutcome.FAILED and "could not be judged" in run.state.reason


def test_a_wrong_kernel_is_never_the_best(bench):
    run = bench.run(ScriptedAuthor(["# wrong\n# time=0.1\n"])).wait(10)
    assert run.state.best is None and run.state.outcome in (RunOutcome.KEPT_REFERENCE, RunOutcome.DECLINED)


def test_the_tuner_takes_the_fastest_point_that_passes_every_check(bench):
    run = bench.run(TunableAuthor([GOOD], axes=TIMES)).wait(10)
    assert run.state.candidates[run.state.best].candidate.params == {"A": 3}
    assert run.state.speedup == pytest.approx(2.0 / 0.333)


def test_an_author_that_knows_no_way_ends_the_run_with_its_reason(bench):
    run = bench.run(ScriptedAuthor([])).wait(10)
    assert run.state.outcome is RunOutcome.DECLINED and "holds no kernel" in run.state.reason


def test_without_a_compiler_the_claim_says_that_the_speed_is_unknown(bench):
    run = bench.run(evaluator=FakeEvaluator(baseline_ms=None)).wait(10)
    assert "speed is unknown: no TPU compiler here" in run.state.open_proposal.claim


def test_a_reference_that_does_not_compile_is_not_taken_for_a_missing_compiler(bench):
    run = bench.run(evaluator=FakeEvaluator(no_baseline="it took longer than 900 s.")).wait(10)
    assert "the reference did not compile (it took longer than 900 s)" in run.state.open_proposal.claim


def test_policy_accept_verified_needs_no_person_but_needs_evidence_of_speed(bench):
    assert bench.run(policy="accept-verified").wait(10).state.outcome is RunOutcome.ACCEPTED
    blind = bench.run(evaluator=FakeEvaluator(baseline_ms=None), folder="f-2", policy="accept-verified").wait(10)
    assert blind.state.outcome is RunOutcome.PROPOSED


def test_policy_propose_leaves_the_proposal_open_and_a_later_accept_works(bench):
    run = bench.run(policy="propose").wait(10)
    assert run.state.outcome is RunOutcome.PROPOSED
    run.accept()
    with run._changed:
        assert run._changed.wait_for(lambda: run.state.outcome is RunOutcome.ACCEPTED, 10)
    assert isinstance(bench.namespace["f"], BoundKernel)


def test_a_budget_ends_the_search_and_proposes_the_best_so_far(bench):
    run = bench.run(TunableAuthor([GOOD], axes=TIMES), budget=Budget(judged=3)).wait(10)
    assert run.state.open_proposal is not None and run.state.spend.judged <= 3
    assert any("budget of 3 candidates judged" in n.text for n in run.state.notes)


def test_stop_ends_the_run_at_once_and_the_journal_says_why(bench):
    run = bench.run(evaluator=FakeEvaluator(delay_s=60))
    run.stop().wait(10)
    assert fold(read_events(bench.project.runs / "f-1")).outcome is RunOutcome.STOPPED
    assert "stopped by the person" in run.state.reason


def test_pause_holds_before_the_next_step_and_unpause_goes_on(bench):
    run = bench.run(evaluator=FakeEvaluator(delay_s=0.02))
    run.pause()
    with run._changed:
        assert run._changed.wait_for(lambda: run.state.status is Status.PAUSED, 10)
    run.unpause()
    assert run.wait(10).state.status is Status.WAITING


def test_a_view_that_fails_does_not_stop_the_run(bench, caplog):
    run = bench.run(evaluator=FakeEvaluator(delay_s=0.02))
    run.subscribe(lambda state: 1 / 0)
    assert run.wait(10).state.status is Status.WAITING
    assert "a view of run f-1 failed" in caplog.text


class HopelessAuthor(TunableAuthor):
    """Knows beforehand that every point but A=2 is no better than 1.5 ms."""

    def retune(self, view, plan, candidate, params):
        made = super().retune(view, plan, candidate, params)
        return made.model_copy(update={"bound_ms": 0.4 if params["A"] == 2 else 1.5})


def test_points_that_cannot_be_better_are_never_judged(bench):
    evaluator = FakeEvaluator()
    bench.run(HopelessAuthor([GOOD], axes=TIMES), evaluator).wait(10)
    assert len(evaluator.judged) == 3  # the first, the one point worth trying, and that one's full check


def test_the_search_ends_when_nothing_gets_better(bench):
    evaluator = FakeEvaluator()
    author = ScriptedAuthor([GOOD], axes={"A": tuple(range(30))})
    bench.run(author, evaluator, tuning_points=30, patience=4).wait(10)
    assert len(evaluator.judged) == 5


def test_a_task_that_lets_wrong_answers_pass_is_flagged_weak(bench):
    evaluator = FakeEvaluator()
    evaluator.weak = ("all zeros",)
    run = bench.run(evaluator=evaluator).wait(10)
    assert run.state.task.weak == ("all zeros",)


def test_a_policy_does_not_accept_what_a_weak_task_verified(bench):
    evaluator = FakeEvaluator()
    evaluator.weak = ("all zeros",)
    run = bench.run(evaluator=evaluator, policy="accept-verified").wait(10)
    assert run.state.outcome is RunOutcome.PROPOSED and "all zeros" in run.state.reason


def test_a_decision_after_the_end_is_waited_for_like_any_other(bench):
    run = bench.run(policy="propose").wait_end(10)
    run.reject()
    assert run.wait_end(10).state.outcome is RunOutcome.REJECTED


def test_an_ended_run_lets_another_kernel_write_its_journal(bench):
    run = bench.run(policy="propose").wait_end(10)
    _until_closed(run)
    other = bench.run(policy="ask").wait(10)
    assert other.state.status is Status.WAITING
    other.stop().wait_end(10)
    _until_closed(other)
    with pytest.raises(JournalError, match="continued elsewhere"):
        run.accept()


def _until_closed(run):
    run.work.result(10)


def test_pause_and_unpause_while_a_proposal_waits_still_waits(bench):
    run = bench.run().wait(10)
    run.pause()
    _reach(run, Status.PAUSED)
    run.unpause()
    _reach(run, Status.WAITING)


def _reach(run, status):
    with run._changed:
        assert run._changed.wait_for(lambda: run.state.status is status, 10)


def test_a_journal_that_fails_at_the_end_is_told_to_whoever_waits(bench, monkeypatch):
    run = bench.run(evaluator=FakeEvaluator(delay_s=0.05))
    real = run._journal.append

    def full(event, at):
        if event.kind == "run-ended":
            raise JournalError("The disk is full.")
        real(event, at)

    monkeypatch.setattr(run._journal, "append", full)
    run.stop()
    with pytest.raises(JournalError, match="disk is full"):
        run.wait(10)


def test_verdicts_on_edge_inputs_do_not_replace_those_on_drawn_ones(bench):
    run = bench.run().wait(10)
    name = run.state.best
    before = len(run.state.candidates[name].verdicts)
    drawn = next(v for v in run.state.candidates[name].verdicts if v.case == "c1" and v.seed == 0)
    run.emit(VerdictReached(candidate=name, verdict=drawn.model_copy(update={"variant": "zeros"})))
    assert len(run.state.candidates[name].verdicts) == before + 1


class MergesAreWrong(FakeEvaluator):
    async def judge(self, task, candidate, gates=ALL_GATES, on_verdict=lambda verdict: None):
        if candidate.author == "person":
            candidate = candidate.model_copy(update={"source": candidate.source + "# wrong\n"})
            on_verdict = lambda verdict: None  # noqa: E731
        return await super().judge(task, candidate, gates, on_verdict)


def test_hunks_that_fail_together_leave_the_proposal_open(bench):
    source = "import jax\ndef f(x):\n    return x\n# more\n"
    run = bench.run(ScriptedAuthor([source]), MergesAreWrong()).wait(10)
    run.accept(hunks=[0])
    with run._changed:
        assert run._changed.wait_for(lambda: any("not applied" in n.text for n in run.state.notes), 10)
    assert run.wait(10).state.open_proposal is not None
    run.accept().wait_end(10)
    assert run.state.outcome is RunOutcome.ACCEPTED


def test_accepting_never_overwrites_what_has_the_name_by_now(bench):
    run = bench.run().wait(10)
    bench.namespace["f"] = 5
    run.accept().wait_end(10)
    assert bench.namespace["f"] == 5 and "left alone" in run.state.reason
    assert run.kernel is not None and (bench.project.kernels / "f.py").read_text() == GOOD


def test_a_run_whose_start_failed_is_over(bench):
    run = bench.run(evaluator=FakeEvaluator(delay_s=0.05))
    run.runtime.end(RunOutcome.FAILED, "it could not start")
    assert run.wait(10).state.outcome is RunOutcome.FAILED
