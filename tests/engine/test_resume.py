"""A run interrupted after any event continues to the same end and repeats no finished step."""

from collections import Counter

import pytest
from engine_bench import GOOD, TIMES, TunableAuthor

from maxkernel_nb.events import Status
from maxkernel_nb.journal import Journal, read_events


def _finished_then_started_again(events):
    finished, repeated = set(), []
    for event in events:
        if event.kind == "step-finished":
            finished.add(event.step)
        elif event.kind == "step-started" and event.step in finished:
            repeated.append(event.step)
    return repeated


@pytest.fixture
def whole(bench):
    run = bench.run(TunableAuthor([GOOD], axes=TIMES), folder="whole").wait(10)
    run.close()
    return run, read_events(bench.project.runs / "whole")


def test_cut_after_every_single_event(bench, whole):
    run, events = whole
    cuts = [n for n in range(1, len(events)) if events[n - 1].kind != "status-changed"]
    assert len(cuts) > 30
    for cut in cuts:
        folder = bench.project.runs / f"cut-{cut}"
        folder.mkdir()
        journal = Journal(folder)
        for event in events[:cut]:
            journal.append(event, at=0.0)
        journal.close()
        resumed = bench.run(TunableAuthor([GOOD], axes=TIMES), folder=folder.name).wait(10)
        assert resumed.state.status is Status.WAITING
        assert (resumed.state.best, resumed.state.speedup) == (run.state.best, run.state.speedup), f"cut after {cut}"
        assert resumed.state.open_proposal.patch == run.state.open_proposal.patch
        assert _finished_then_started_again(read_events(folder)) == []
        resumed.close()


def test_a_finished_step_is_journaled_once(whole):
    steps = Counter(e.step for e in whole[1] if e.kind == "step-finished")
    assert set(steps.values()) == {1}
