"""What a person sees: the document of runs in every phase."""

from __future__ import annotations

import pytest
import samples

from maxkernel_nb import events as ev
from maxkernel_nb.document.build import document
from maxkernel_nb.document.compare import comparison
from maxkernel_nb.document.diff import hunk_views
from maxkernel_nb.document.next_action import away
from maxkernel_nb.engine.state import fold
from maxkernel_nb.events import RunOutcome
from maxkernel_nb.patches import make_patch
from maxkernel_nb.task import GateName, Outcome, Verdict


def doc(events):
    return document(fold(events))


@pytest.mark.parametrize("name", samples.ALL)
def test_equal_states_give_equal_documents(name):
    made = samples.ALL[name]
    assert doc(made()).digest() == doc(made()).digest()


def test_every_prefix_of_a_run_can_be_shown():
    events = samples.accepted()
    for n in range(len(events) + 1):
        assert doc(events[:n]).next.text


def test_running_asks_for_nothing_but_can_be_stopped():
    seen = doc(samples.started())
    assert [a.intent for a in seen.next.actions] == ["pause", "stop"]
    assert not any(a.primary for a in seen.next.actions)
    assert "Judge the first kernel" in seen.next.text


def test_waiting_has_one_primary_action_and_says_what_it_does():
    seen = doc(samples.waiting())
    assert [a.intent for a in seen.next.actions if a.primary] == ["accept"]
    assert {a.intent for a in seen.next.actions} == {"accept", "reject", "stop"}
    assert "binds causal_attention" in seen.next.effect
    assert seen.header.status == "waiting for you"
    assert all(a.command.endswith("auto-7f3a") for a in seen.next.actions)


def test_speedup_never_stands_without_its_evidence():
    head = doc(samples.tuned()).header
    assert head.headline == "2.81× faster than XLA"
    assert head.evidence and head.evidence.kind == "modelled" and head.evidence.error == "±14 %"
    assert "nothing was measured" in head.evidence.text


def test_a_slower_best_is_called_slower():
    events = [*samples.started(), ev.BestChanged(candidate=samples.candidate().id, modelled_ms=20.0, speedup=0.5)]
    assert doc(events).header.headline == "2.00× slower than XLA"


def test_keeping_the_reference_is_a_good_outcome():
    seen = doc(samples.kept())
    assert seen.header.tone == "good"
    assert seen.header.headline == "XLA's own program is kept"
    assert "That is a correct result." in seen.outcome and "14.0 ms" in seen.outcome


def test_accepted_names_the_file_and_offers_undo():
    seen = doc(samples.accepted())
    assert seen.outcome.count("Accepted:") == 1
    assert ".maxkernel/kernels/causal_attention.py" in seen.outcome
    assert [a.intent for a in seen.next.actions] == ["undo"]
    assert "by button" in seen.diff.decision and "looks good" in seen.diff.decision


def test_undone_is_said_everywhere():
    seen = doc([*samples.accepted(), ev.Undone(proposal="p1")])
    assert "undone" in seen.outcome and "undone" in seen.diff.decision
    assert not seen.next.actions


@pytest.mark.parametrize("made", [samples.failed, samples.stopped])
def test_an_unfinished_run_says_how_to_go_on(made):
    assert "%maxkernel resume auto-7f3a" in doc(made()).next.text


def test_an_open_proposal_outlives_its_run():
    seen = doc([*samples.proposed(), ev.RunEnded(outcome=RunOutcome.PROPOSED, reason="")])
    assert {a.intent for a in seen.next.actions} == {"accept", "reject"}


def test_weak_task_and_loosened_tolerance_are_flagged():
    flags = {f.kind: f.text for f in doc(samples.weak()).flags}
    assert "first row repeated" in flags["weak task"] and "atol = 0.5" in flags["loosened tolerance"]


def test_checks_are_counted_by_gate_and_failures_carry_advice():
    checks = doc(samples.waiting()).checks
    assert checks.verdict == (
        "Correct on 3 shape cases and 3 seeds (9 comparisons). "
        "1 check declined: n = 250 is no multiple of BLOCK_K; the reference serves it."
    )
    check = checks.gates[2]
    assert (check.gate, check.outcome, check.passed, check.total) == ("check", "partly", 9, 10)
    assert check.note == "1 declined"  # a tick beside 9/10 would say that all is well
    failed = doc(samples.kept()).checks
    assert failed.verdict.startswith("Failed at check")
    assert failed.rows[-1].findings == (
        "line 21: the diagonal block is not masked Try: mask where column > row before the maximum",
    )


def test_one_error_stands_beside_the_headline_in_the_sentence_and_in_the_claim():
    state = samples.state(samples.waiting())
    seen = document(state).header.evidence
    assert state.model_error_pct == 14 and seen.error == "±14 %"
    assert "±14 %, the larger of XLA's program's (11 %) and the kernel's (14 %)" in seen.text


def test_edges_and_cores_are_named_and_no_seeds():
    passed = {"gate": GateName.CHECK, "outcome": Outcome.PASS, "summary": "Within the error budget."}
    made = [Verdict(case="small", seed=7, variant=variant, **passed) for variant in ("zeros", "two cores")]
    judged = [ev.VerdictReached(candidate=samples.candidate().id, verdict=v) for v in made]
    checks = doc([*samples.tuned(), *judged]).checks
    assert checks.verdict.startswith("Correct on 3 shape cases and 3 seeds (11 comparisons).")
    assert [row.seed for row in checks.rows[-2:]] == ["7, zeros", "7, two cores"]


@pytest.mark.parametrize("made", [samples.accepted, samples.proposed, samples.waiting])
def test_without_a_compiler_a_checked_kernel_is_not_called_slow(made):
    state = samples.state(made())
    unknown = state.model_copy(update={"baseline": None, "best_ms": None, "speedup": None, "candidates": {
        key: c.model_copy(update={"profile": None}) for key, c in state.candidates.items()}})
    head = document(unknown).header
    assert head.headline == "Checked kernel, speed unknown" and "TPU compiler" in head.headline_detail


def test_meters_show_caps_and_shares():
    meters = {x.label: x for x in doc(samples.tuned()).meters}
    assert (meters["Candidates judged"].used, meters["Candidates judged"].cap) == ("2", "40")
    assert meters["Time"].cap == "30 min" and 0 < meters["Time"].share < 1
    assert meters["Tokens"].share is None


def test_a_question_becomes_the_next_action():
    seen = doc(samples.asked())
    answers = [a for a in seen.next.actions if a.intent == "answer"]
    assert [a.choice for a in answers if a.primary] == ["go"]
    assert answers[0].command == "%maxkernel answer auto-7f3a go"
    assert seen.next.question.editable == samples.PLAN.summary


def test_a_run_in_the_hands_of_auto_can_be_taken_back_and_one_of_claudes_can_be_asked():
    actions = {a.intent: a for a in doc(samples.handed_over()).next.actions}
    assert actions["takeback"].command == "%maxkernel takeback auto-7f3a"
    assert actions["ask"].takes_text and actions["ask"].command == '%maxkernel ask auto-7f3a "..."'
    assert not {"takeback", "ask"} & {a.intent for a in doc(samples.tuned()).next.actions}  # recipes answer nothing


def test_hunks_show_each_baseline_line_once():
    baseline = "".join(f"line {n}\n" for n in range(30))
    proposed = baseline.replace("line 5\n", "five\n").replace("line 9\n", "").replace("line 20\n", "a\nb\n")
    hunks = hunk_views(make_patch(baseline, proposed))
    assert len(hunks) == 3
    shown = []
    for sign, start, text in (("+", "old", baseline), ("-", "new", proposed)):
        for hunk in hunks:
            there = [line[1:] for line in hunk.lines if line[0] != sign]
            first = getattr(hunk, start)
            assert text.splitlines()[first - 1 : first - 1 + len(there)] == there
            shown += [(start, first + n) for n in range(len(there))]
    assert len(shown) == len(set(shown))
    assert hunks[0].header == "@@ -3,7 +3,7 @@"


def test_numbers_that_are_not_finite_do_not_break_the_document():
    bad = samples.BEST.model_copy(update={"modelled_ms": float("nan"), "flops": float("inf")})
    seen = doc([*samples.started(), ev.BaselineProfiled(profile=bad)])
    assert seen.profile.sides[0].time == "?" and seen.profile.sides[0].ms == 0.0


def test_streamed_text_shows_its_tail_while_it_streams():
    events = [
        *samples.started(),
        ev.ConversationOpened(key="c", role="implementer", prompt="p"),
        ev.ModelSaid(key="c", text="x" * 5000 + "the end"),
    ]
    (said,) = doc(events).saying
    assert said.role == "implementer" and said.text.endswith("the end") and len(said.text) < 1000
    assert not doc([*events, ev.ConversationClosed(key="c")]).saying


def test_lessons_are_notes():
    events = [*samples.started(), ev.LessonLearned(text="BLOCK_K 512 spills", evidence="1,204 spills")]
    assert doc(events).notes[-1].text == "Learned: BLOCK_K 512 spills (1,204 spills)"


def test_two_candidates_beside_each_other():
    state = fold(samples.waiting())
    first, second = (samples.candidate(n).id for n in (0, 1))
    seen = comparison(state, first, second)
    facts = {row.label: (row.left, row.right) for row in seen.facts}
    assert facts["Result"] == ("verified", "fails check") and facts["Time"] == ("4.70 ms", "")
    apart = [row for row in seen.verdicts if row.left != row.right]
    assert apart and any(row.right.startswith("✗ fail") for row in apart)
    assert seen.diff.hunks[0].lines.count("+BLOCK_Q = 512") == 1
    assert comparison(state, first, "unknown") is None


def test_a_run_of_an_earlier_kernel_offers_no_button_and_says_how_to_take_it_up():
    state = samples.state(samples.waiting())
    seen = document(state, away(state))
    assert seen.header.status == "interrupted" and not seen.next.actions
    assert "%maxkernel resume auto-7f3a goes on in this kernel" in seen.next.text
    assert "Another kernel (process 7)" in away(state, "7")
    bound = samples.state(samples.accepted())
    assert "%maxkernel resume auto-7f3a binds causal_attention here again" in away(bound)
    assert away(samples.state(samples.kept())) == ""  # nothing is left to do
