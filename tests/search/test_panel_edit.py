"""A person writes their own version of a node in the panel: it is judged next, as that node's child."""

from uuid import uuid4

import pytest
from engine_bench import Bench
from search_bench import ShuffledEvaluator, ValleyAuthor, search

from maxkernel_nb import events as ev
from maxkernel_nb.budget import Budget
from maxkernel_nb.document.graph import node_view
from maxkernel_nb.engine.graph import graph_of
from maxkernel_nb.journal import Journal, read_events
from maxkernel_nb.run import Run
from maxkernel_nb.store import Project
from maxkernel_nb.widgets.limits import fit_node
from maxkernel_nb.widgets.panel import RunPanel

OWN = "def f(x):\n    return x\n# time=0.65\n"


class Panel(RunPanel):
    def __init__(self, run):
        self.sent = []
        super().__init__(run)

    def send(self, content, buffers=None):
        self.sent.append(content)

    def edit(self, node, text):
        self._handle_custom_msg({"id": uuid4().hex, "intent": "edit", "node": node, "comment": text}, [])
        return self.sent[-1]


@pytest.fixture
def live(tmp_path):
    """A search that is paused once it has a verified kernel."""
    bench = Bench(tmp_path)
    run = bench.run(ValleyAuthor(), ShuffledEvaluator(most_s=0.01), mode_name="search", budget=Budget(judged=40),
                    policy="propose", width=2)
    with run._changed:
        assert run._changed.wait_for(lambda: run.state.best or run.state.ended, 30)
    run.pause()
    yield run
    bench.engine.close()


def test_an_edit_in_the_panel_is_judged_next_as_the_nodes_child(live):
    panel, parent = Panel(live), live.state.best
    assert panel.edit(parent, OWN)["ok"]
    live.unpause().wait_end(60)
    graph = graph_of(live.state)
    [own] = [n for n in graph.nodes.values() if n.how == ev.EdgeKind.HUMAN]
    assert own.parents == (parent,) and own.result == "verified"
    assert live.state.candidates[own.id].candidate.source == OWN


def test_what_cannot_be_judged_is_said_and_changes_nothing(live):
    panel, node, before = Panel(live), live.state.best, live.state.marks
    assert "cannot be judged" in panel.edit(node, "not python at all (")["message"]
    assert "change it first" in panel.edit(node, live.state.candidates[node].candidate.source)["message"]
    assert "no node 'nothing'" in panel.edit("nothing", OWN)["message"]
    assert live.state.marks == before


def test_after_the_end_the_command_that_goes_on_is_named(tmp_path):
    state = search(tmp_path, judged=10)
    project = Project(tmp_path)
    run = Run(project, Journal(project.runs / "f-1"), read_events(project.runs / "f-1"))
    assert f"%maxkernel continue f-1 --from {state.best}" in Panel(run).edit(state.best, OWN)["message"]
    run.close()


def test_a_text_too_long_to_be_sent_whole_cannot_be_edited(tmp_path):
    state = search(tmp_path, judged=10)
    view = node_view(state, state.best)
    assert fit_node(view)["complete"]
    long = view.model_copy(update={"source": "# a line\n" * 100_000})
    assert not fit_node(long)["complete"]
