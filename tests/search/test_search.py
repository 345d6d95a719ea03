"""What a search does with kernels, budget and a person's marks."""

import pytest
from search_bench import ShuffledEvaluator, ValleyAuthor, WritingAuthor, made_up_ms, recorded, search

from maxkernel_nb.engine.graph import graph_of
from maxkernel_nb.events import RunOutcome
from maxkernel_nb.modes.search.stopping import plateau_length


@pytest.mark.parametrize("strategy", ["auto", "evolve", "beam", "parallel"])
def test_it_proposes_the_fastest_verified_kernel_it_saw(tmp_path, strategy):
    state = search(tmp_path, judged=40, strategy=strategy)
    graph = graph_of(state)
    timed = [n for n in graph.nodes.values() if n.result == "verified"]
    assert state.outcome is RunOutcome.PROPOSED
    assert graph.best == state.best == min(timed, key=lambda n: n.ms).id
    assert graph.best_ms < made_up_ms({"A": 16, "B": 16, "C": 1}) / 2
    assert all(graph.nodes[n].result != "failed" for n in [graph.best])


def test_the_budget_is_kept_and_named(tmp_path):
    state = search(tmp_path, judged=9)
    assert state.spend.judged <= 9
    assert any("budget of 9 candidates" in n.text for n in state.notes)


def test_it_stops_at_the_roofline_and_says_so(tmp_path):
    author = WritingAuthor(times=(0.62,))
    state = search(tmp_path, judged=60, author=author)
    assert any("of the roofline" in n.text for n in state.notes)
    assert len(state.observed) < 30


def test_a_plateau_ends_it_with_its_confidence(tmp_path):
    class Flat(ValleyAuthor):
        def _kernel(self, params, parent=None):
            made = super()._kernel(params, parent)
            return made.model_copy(update={"source": made.source.replace("# time=", "# time=9")})

    author = Flat()
    state = search(tmp_path, judged=90, author=author)
    assert plateau_length() == 21
    assert any("90% confidence" in n.text or "tried" in n.text for n in state.notes)


def test_lessons_reach_the_authors_of_other_lineages(tmp_path):
    author = WritingAuthor(times=(0.9, 0.85, 0.8, 0.75, 0.7))
    state = search(tmp_path, judged=40, author=author)
    assert state.lessons and all(" trials" in lesson.text for lesson in state.lessons)
    assert any("Learned by other lines" in remarks for _, remarks in author.told)
    assert all("bound by" in plan.summary for plan, _ in author.told)


def test_the_same_kernel_found_twice_is_one_node_and_judged_once(tmp_path):
    evaluator = ShuffledEvaluator()
    state = search(tmp_path, judged=40, strategy="evolve", evaluator=evaluator)
    judged = [(c, g) for c, g in evaluator.judged]
    assert len(judged) == len(set(judged))
    assert len(graph_of(state).nodes) == len({e.candidate for e in state.edges})


def test_slow_first_rewrites_get_their_chance_and_win(tmp_path):
    author = WritingAuthor(times=(6.0, 3.0, 1.5, 0.75, 0.62))
    state = search(tmp_path, judged=80, author=author)
    rewritten = [n for n in graph_of(state).nodes.values() if n.how == "refine"]
    assert max(n.depth for n in rewritten) >= 4
    assert "# rewritten" in state.candidates[state.best].candidate.source
    slow = [e for e in state.edges if e.how == "refine"]
    assert len(slow) < len(state.edges) * 0.6


def test_without_a_compiler_the_first_verified_kernel_is_proposed(tmp_path):
    evaluator = ShuffledEvaluator()
    evaluator.baseline_ms = None
    state = search(tmp_path, evaluator=evaluator)
    assert state.outcome is RunOutcome.PROPOSED and len(state.observed) <= 3
    assert recorded(tmp_path).outcome is RunOutcome.PROPOSED
