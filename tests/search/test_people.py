"""A person's part in a search: pins, prunes, own kernels, going on after the end; and what they are shown."""

import pytest
import search_bench
from search_bench import ShuffledEvaluator, search

from maxkernel_nb import events as ev
from maxkernel_nb.document.build import document
from maxkernel_nb.document.graph import DRAWN, graph_view, node_view
from maxkernel_nb.engine.graph import graph_of
from maxkernel_nb.engine.state import fold
from maxkernel_nb.errors import UsageError
from maxkernel_nb.journal import Journal, read_events
from maxkernel_nb.magics.graphs import graph_output
from maxkernel_nb.run import Run
from maxkernel_nb.store import Project
from maxkernel_nb.widgets.graph_charts import graph_charts
from maxkernel_nb.widgets.html import render_fragment
from maxkernel_nb.widgets.limits import MESSAGE_BYTES, fit, fit_node, size
from maxkernel_nb.widgets.text import render_text


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    root = tmp_path_factory.mktemp("ended")
    return root, search(root, judged=24)


def reopened(root):
    project = Project(root)
    return Run(project, Journal(project.runs / "f-1"), read_events(project.runs / "f-1"))


def test_it_goes_on_from_a_pinned_node_and_from_a_person_s_own_kernel(tmp_path):
    before = search(tmp_path, judged=12)
    node = next(n for n in graph_of(before).nodes.values() if n.timed and n.id != before.best)
    run = reopened(tmp_path)
    with pytest.raises(UsageError, match="has no node 'nothing'"):
        run.mark("nothing", "pinned")
    with pytest.raises(UsageError, match="cannot be judged"):
        run.add_kernel("not python at all (", node.id)
    run.mark(node.id, "pinned")
    own = run.add_kernel("def f(x):\n    return x\n# time=0.65\n", node.id)
    run.close()
    after = search(tmp_path, judged=24)
    graph = graph_of(after)
    assert graph.nodes[own].how == ev.EdgeKind.HUMAN and graph.nodes[own].parents == (node.id,)
    assert after.best == own and graph.nodes[own].result == "verified"
    assert len(graph.nodes) > len(graph_of(before).nodes) + 1


def test_nothing_descends_from_a_pruned_node(tmp_path):
    before = search(tmp_path, judged=10)
    run = reopened(tmp_path)
    run.mark(before.best, "pruned")
    run.close()
    after = search(tmp_path, judged=24)
    drawn = [e for e in after.edges if e.draw > max(x.draw for x in before.edges) + 3]
    assert drawn and all(before.best not in e.parents for e in drawn)


def test_the_document_holds_graph_curve_and_table_and_every_renderer_shows_them(ended):
    _, state = ended
    doc = document(state)
    assert doc.graph.best == state.best and doc.graph.lineage[-1] == state.best
    assert doc.graph.curve[-1].ms == state.best_ms
    assert "Search" in render_text(doc) and state.best in render_text(doc)
    html = render_fragment(doc)
    assert html.count("data:image/png") >= 2 and "Graph of kernels" in html
    assert [c.title for c in graph_charts(doc.graph)] == ["Graph of kernels", "Best so far against judgements"]
    assert all(n.sign for n in doc.graph.nodes)


def test_one_node_in_full_fits_a_message(ended):
    _, state = ended
    child = next(n for n in graph_of(state).nodes.values() if n.parents)
    view = node_view(state, child.id)
    assert view.diffs and view.checks and view.profile
    assert any("--from " + child.id in f.value for f in view.commands)
    assert size(fit_node(view)) < MESSAGE_BYTES
    assert node_view(state, "nothing") is None


def test_a_large_graph_is_drawn_in_part_and_the_message_stays_small(ended):
    _, state = ended
    more = []
    for n in range(2000):
        made = search_bench.ValleyAuthor()._kernel({"A": n + 1000, "B": 16, "C": 1})
        more += [ev.CandidateAdded(candidate=made),
                 ev.EdgeAdded(draw=1000 + n, how=ev.EdgeKind.RETUNE, candidate=made.id, parents=(state.best,)),
                 ev.DrawObserved(draw=1000 + n, candidate=made.id, result="timed", modelled_ms=3.0, cost=1)]
    grown = fold(more, state)
    view = graph_view(grown)
    assert len(view.nodes) <= DRAWN < view.total
    assert {n.id for n in view.nodes} >= set(view.lineage)
    assert size(fit(document(grown))) < MESSAGE_BYTES


def test_the_graph_command_shows_picture_and_table_or_one_kernel(ended):
    _, state = ended
    shown = graph_output(state, None)._repr_mimebundle_()
    assert "<img" in shown["text/html"] and state.best in shown["text/plain"]
    assert "modelled" in repr(graph_output(state, "best")) or state.best in str(graph_output(state, "best"))
    with pytest.raises(UsageError, match="no kernel 'nothing'"):
        graph_output(state, "nothing")


def test_a_run_that_is_no_search_has_no_graph(tmp_path):
    state = fold([ev.RunCreated(run_id="f-1", mode="auto", author="x", task=search_bench.recorded_task())])
    assert document(state).graph is None
    with pytest.raises(UsageError, match="is no search but auto"):
        graph_output(state, None)


def test_what_is_dominated_is_given_up_and_charged(tmp_path):
    class Bounded(search_bench.ValleyAuthor):
        def _kernel(self, params, parent=None):
            made = super()._kernel(params, parent)
            return made.model_copy(update={"bound_ms": search_bench.made_up_ms(params) * 0.98})

    state = search(tmp_path, judged=30, author=Bounded(), evaluator=ShuffledEvaluator(most_s=0.01), width=6,
                   strategy="evolve")
    given_up = [o for o in state.observed if o.result == "dominated"]
    assert all(o.cost == 1 for o in given_up)
    graph = graph_of(state)
    assert all(graph.nodes[o.candidate].bound_ms >= state.best_ms for o in given_up)
