"""``continue_search``: an ended search goes on from one of its kernels, or from a person's edit of it."""

import pytest
from search_bench import ShuffledEvaluator, ValleyAuthor, search

from maxkernel_nb import api
from maxkernel_nb import events as ev
from maxkernel_nb.budget import Budget
from maxkernel_nb.engine import loop
from maxkernel_nb.engine.graph import graph_of
from maxkernel_nb.engine.loop import Engine
from maxkernel_nb.errors import UsageError
from maxkernel_nb.journal import Journal, read_events
from maxkernel_nb.run import Run
from maxkernel_nb.store import Project

OWN = "def f(x):\n    return x\n# time=0.65\n"


@pytest.fixture
def engine(monkeypatch):
    made = Engine()
    monkeypatch.setattr(made, "evaluator", lambda *about: ShuffledEvaluator())
    monkeypatch.setattr(api, "get_engine", lambda: made)
    monkeypatch.setattr(loop, "get_engine", lambda: made)
    yield made
    made.close()


def searched(root, judged):
    """A search that ended, with the options that a real start records."""
    search(root, judged=judged)
    project = Project(root)
    run = Run(project, Journal(project.runs / "f-1"), read_events(project.runs / "f-1"))
    options = {"policy": "propose", "budget": Budget(judged=judged).to_dict(), "tuning_points": 12, "width": 3}
    run.emit(ev.OptionsChanged(options=options))
    run.close()
    return run.state


def go_on(root, node, **options):
    return api.continue_search("f-1", node, project=root, author=ValleyAuthor(), **options).wait_end(60).state


def test_it_goes_on_with_as_much_budget_again_and_builds_on_the_node(tmp_path, engine):
    before = searched(tmp_path, 12)
    node = next(n for n in graph_of(before).by_speed() if n.id != before.best)
    after = go_on(tmp_path, node.id)
    assert after.options["budget"]["judged"] == 12 + before.spend.judged
    assert after.edges[: len(before.edges)] == before.edges and len(after.edges) > len(before.edges)
    new = after.edges[len(before.edges):]
    assert any(node.id in e.parents for e in new) and after.marks[node.id].via == "continue"


def test_a_person_s_edit_of_the_best_becomes_its_child_and_is_judged_first(tmp_path, engine):
    before = searched(tmp_path, 12)
    after = go_on(tmp_path, "best", source=OWN)
    graph = graph_of(after)
    [human] = [n for n in graph.nodes.values() if n.how == ev.EdgeKind.HUMAN]
    assert human.parents == (before.best,) and human.result == "verified" and after.best == human.id
    assert human.draw == len(before.edges)


def test_what_cannot_go_on_is_said(tmp_path, engine):
    searched(tmp_path, 8)
    with pytest.raises(UsageError, match="has no node 'nothing'"):
        go_on(tmp_path, "nothing")
    with pytest.raises(UsageError, match="cannot be judged"):
        go_on(tmp_path, "best", source="not python (")
    assert go_on(tmp_path, "best").best is not None  # and the journal was not left locked
