"""Killed at any event, a search goes on as if nothing had happened: no draw repeated, none lost, the same graph."""

import os
import random

import pytest
from search_bench import ShuffledEvaluator, WritingAuthor, killed_at, recorded, search, shape

from maxkernel_nb.journal import read_events

KILLS = int(os.environ.get("MAXKERNEL_TEST_KILLS", "8"))  # 50 for the full trial


def repeated(root):
    events = read_events(root / ".maxkernel" / "runs" / "f-1")
    kinds = {"step-finished": "step", "edge-added": "draw", "draw-observed": "draw"}
    keys = [(e.kind, getattr(e, kinds[e.kind])) for e in events if e.kind in kinds]
    return [k for k in set(keys) if keys.count(k) > 1]


@pytest.mark.parametrize("strategy", ["auto", "evolve", "beam", "parallel"])
def test_the_order_of_answers_does_not_change_the_graph(tmp_path, strategy):
    shapes = []
    for trial in range(3):
        root = tmp_path / str(trial)
        root.mkdir()
        shapes.append(shape(search(root, evaluator=ShuffledEvaluator(trial), strategy=strategy)))
    assert shapes[0] == shapes[1] == shapes[2]
    assert len(shapes[0][0]) > 8


def test_killed_at_random_events_it_ends_with_the_same_graph(tmp_path):
    undisturbed = search(tmp_path, judged=24)
    expected, dice, kills, trial = shape(undisturbed), random.Random(8), 0, 0
    while kills < KILLS:
        trial += 1
        root = tmp_path / f"trial-{trial}"
        root.mkdir()
        while kills < KILLS and killed_at(root, dice.randint(1, undisturbed.seq // 2), judged=24):
            kills += 1
        state = search(root, judged=24) if not _ended(root) else recorded(root)
        assert shape(state) == expected
        assert repeated(root) == []
        assert (state.best, state.best_ms, state.spend.judged) == (
            undisturbed.best, undisturbed.best_ms, undisturbed.spend.judged)


def _ended(root):
    return recorded(root).ended


def test_a_paid_draw_is_not_asked_for_again_after_a_crash(tmp_path):
    while killed_at(tmp_path, 75, judged=16, author=WritingAuthor()):
        pass
    state = recorded(tmp_path)
    assert state.ended and repeated(tmp_path) == []
    assert any(e.how == "refine" for e in state.edges)
