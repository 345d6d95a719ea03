"""The live panel's two directions: documents out, intents in, each at most once."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest
import samples
from sample_run import SampleRun

from maxkernel_nb import events as ev
from maxkernel_nb.document.build import document
from maxkernel_nb.patches import make_patch
from maxkernel_nb.widgets.panel import RunPanel
from maxkernel_nb.widgets.publisher import Publisher


class Panel(RunPanel):
    """Keeps what is sent to the front end."""

    def __init__(self, run):
        self.sent = []
        super().__init__(run)

    def send(self, content, buffers=None):
        self.sent.append(content)

    def receive(self, **message):
        self._handle_custom_msg({"id": uuid4().hex, **message}, [])
        return self.sent[-1]


@pytest.fixture
def run():
    return SampleRun(samples.waiting())


@pytest.fixture
def panel(run):
    return Panel(run)


def test_the_trait_holds_the_document(run, panel):
    assert panel.doc["header"]["run_id"] == run.id
    run.reject()
    panel.put(document(run.state))
    assert panel.doc["header"]["status"] == "rejected"


def test_accept_carries_hunks_comment_and_id_and_is_acknowledged(run, panel):
    ack = panel.receive(id="u1", intent="accept", hunks=[1], comment="only this", proposal="p1")
    assert run.calls == [("accept", {"hunks": (1,), "via": "button", "uuid": "u1", "comment": "only this"})]
    assert ack == {"kind": "ack", "id": "u1", "ok": True, "message": ""}


def test_the_same_message_twice_is_done_once_and_acknowledged_twice(run, panel):
    for _ in range(2):
        panel.receive(id="same", intent="accept", proposal="p1")
    assert len(run.calls) == 1
    assert panel.sent[0] == panel.sent[1] and panel.sent[0]["ok"]


def test_one_message_from_many_threads_is_done_once(run, panel):
    threads = [threading.Thread(target=panel.receive, kwargs={"id": "one", "intent": "accept"}) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(run.calls) == 1 and len(panel.sent) == 8


def test_a_second_decision_is_refused_with_the_run_s_own_sentence(panel):
    panel.receive(intent="reject")
    ack = panel.receive(intent="accept")
    assert not ack["ok"] and "no open proposal to accept" in ack["message"]


def test_a_decision_about_an_older_proposal_is_refused(run, panel):
    other = samples.candidate(1)
    run.emit(ev.ProposalMade(proposal="p2", candidate=other.id, patch=make_patch("a", "b"), claim=""))
    ack = panel.receive(intent="accept", proposal="p1")
    assert not ack["ok"] and "p2" in ack["message"] and run.calls == []


@pytest.mark.parametrize("intent", ["stop", "pause", "unpause"])
def test_controls_reach_the_run(run, panel, intent):
    assert panel.receive(intent=intent)["ok"]
    assert run.calls == [(intent, {})]


def test_an_answer_carries_choice_and_text():
    run = SampleRun(samples.asked())
    panel = Panel(run)
    assert panel.receive(id="a", intent="answer", choice="edit", comment="my plan", proposal="plan-1")["ok"]
    given = {"choice": "edit", "text": "my plan", "via": "button", "uuid": "a", "hunks": None}
    assert run.calls == [("answer", given)]


def test_a_run_is_taken_back_from_auto_and_asked_about():
    run = SampleRun(samples.handed_over())
    panel = Panel(run)
    assert [a["intent"] for a in panel.doc["next"]["actions"]] == ["takeback", "ask", "pause", "stop"]
    assert panel.receive(intent="takeback")["ok"] and run.state.control == "person"
    assert panel.receive(intent="ask", comment="Why not 512?")["ok"]
    assert run.calls == [("takeback", {}), ("ask", {"question": "Why not 512?"})]


@pytest.mark.parametrize("content", [{"id": "x", "intent": "format-disk"}, {"id": "x"}, {"intent": 1}, "text", None])
def test_what_is_not_a_message_is_answered_and_does_nothing(run, panel, content):
    panel._handle_custom_msg(content, [])
    assert panel.sent[-1]["ok"] is False and run.calls == []


def test_a_fault_of_the_run_is_answered_not_raised(run, panel):
    run.stop = lambda: 1 / 0
    ack = panel.receive(intent="stop")
    assert not ack["ok"] and "stop failed" in ack["message"]


def test_the_bundle_is_the_view_and_a_deterministic_line(panel):
    data, metadata = panel._repr_mimebundle_()
    assert set(data) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    assert data["text/plain"] == "maxkernel run auto-7f3a: waiting for you"
    assert "widgets" not in metadata
    assert panel._ipython_display_ is None


def test_two_candidates_are_compared_when_asked(panel):
    first, second = (samples.candidate(n).id for n in (0, 1))
    assert panel.receive(intent="compare", node=first, other=second)["ok"]
    assert panel.sent[-2]["kind"] == "comparison" and panel.sent[-2]["right"] == second
    ack = panel.receive(intent="compare", node=first, other="nobody")
    assert not ack["ok"] and "nobody" in ack["message"]


def test_two_views_of_one_run_agree_and_what_a_magic_decides_shows_in_both(run, screens=2):
    published = []
    views = [Publisher(run, publish=lambda *given: published.append(given)) for _ in range(screens)]
    for view in views:
        view.show()
    assert all(view.settle(120) for view in views)
    panels = [view.panel for view in views]
    assert panels[0].doc == panels[1].doc
    run.reject(via="magic")
    assert all(view.settle(120) for view in views)
    assert [p.doc["header"]["status"] for p in panels] == ["rejected"] * screens
    reports = [data["text/html"] for data, _, _, update in published if update and "text/html" in data]
    assert len(reports) == screens and reports[0] == reports[1]


def test_a_stale_decision_is_refused_and_the_newest_diff_is_there_before_the_answer(run, panel):
    other = samples.candidate(1)
    run.emit(ev.ProposalMade(proposal="p2", candidate=other.id, patch=make_patch("a", "b"), claim=""))
    ack = panel.receive(intent="accept", proposal="p1")
    assert not ack["ok"] and panel.doc["diff"]["proposal"] == "p2"
