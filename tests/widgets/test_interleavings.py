"""No decision is lost, none taken twice, however clicks, repeated messages, magics and new proposals interleave."""

from __future__ import annotations

import contextlib
import sys
import threading
from itertools import count

import pytest
import samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxkernel_nb import events as ev
from maxkernel_nb.errors import UsageError
from maxkernel_nb.journal import Journal, read_events
from maxkernel_nb.patches import make_patch
from maxkernel_nb.run import Run
from maxkernel_nb.store import Project
from maxkernel_nb.widgets.panel import RunPanel

INTERLEAVINGS = 1000
CLICK = st.tuples(st.sampled_from(("first view", "second view")), st.sampled_from(("accept", "reject")),
                  st.integers(0, 2), st.sampled_from(("now", "now", "before")))
MAGIC = st.tuples(st.just("magic"), st.sampled_from(("accept", "reject")), st.just(0), st.just("now"))
AGAIN = st.tuples(st.just("run"), st.just("propose"), st.just(0), st.just(""))
LANES = st.lists(st.lists(st.one_of(CLICK, CLICK, MAGIC, AGAIN), min_size=1, max_size=3), min_size=1, max_size=3)


class View(RunPanel):
    """A panel whose acks are kept."""

    def __init__(self, run):
        self.acks = []
        super().__init__(run)

    def send(self, content, buffers=None):
        self.acks.append(content)


class World:
    """One real run with its journal and two views; every example decides proposals of its own."""

    def __init__(self, root):
        project = Project(root).prepare()
        self.folder = project.runs / "many"
        self.folder.mkdir()
        self.run = Run(project, Journal(self.folder))
        for event in samples.tuned():
            self.run.emit(event)
        self.views = {name: View(self.run) for name in ("first view", "second view")}
        self.numbers, self.clicks = count(), count()
        self.lock = threading.Lock()

    def propose(self):
        with self.lock:
            name = f"p{next(self.numbers)}"
            self.run.emit(ev.ProposalMade(proposal=name, candidate=samples.candidate().id,
                                          patch=make_patch("a\n", f"{name}\n"), claim=""))
        return name

    def close_all(self):
        """What an example left open is decided: the next one begins with none."""
        while self.run.state.open_proposal is not None:
            self.run.reject(via="policy")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("interleavings"))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change places in the middle of things
    yield made
    sys.setswitchinterval(before)
    made.run.close()


def play(world, lanes):
    """Every lane is a thread; all start together. Gives the messages that were delivered, with their acks."""
    world.close_all()
    old, now = world.propose(), world.propose()
    looked = {"now": now, "before": old, "": ""}
    batch = next(world.clicks)
    for view in world.views.values():
        view.acks.clear()
    start = threading.Barrier(len(lanes))

    def lane(moves):
        start.wait(30)
        for who, what, number, at in moves:
            if who == "run":
                world.propose()
            elif who == "magic":
                with contextlib.suppress(UsageError):
                    getattr(world.run, what)(via="magic")
            else:
                world.views[who]._handle_custom_msg(
                    {"id": f"{batch}-{number}-{who}-{what}-{at}", "intent": what, "proposal": looked[at]}, [])

    threads = [threading.Thread(target=lane, args=(moves,)) for moves in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return batch, looked


@settings(max_examples=INTERLEAVINGS, deadline=None, database=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(lanes=LANES)
def test_no_decision_is_lost_and_none_is_taken_twice(world, lanes):
    seen = len(world.run.state.proposals)
    _batch, looked = play(world, lanes)
    clicks = [move for lane in lanes for move in lane if move[0].endswith("view")]
    acks = [ack for view in world.views.values() for ack in view.acks if ack["kind"] == "ack"]
    assert len(acks) == len(clicks)  # each delivery is answered, a repeated one too
    made = list(world.run.state.proposals.values())[seen:]
    by_uuid = {}
    for proposal in made:
        if proposal.decision is not None and proposal.decision.via == "button":
            assert proposal.decision.uuid not in by_uuid, "one click decided two proposals"
            by_uuid[proposal.decision.uuid] = proposal.id
    for ack in acks:
        done = ack["id"] in by_uuid
        assert ack["ok"] == done, ack  # a yes means that it was recorded, a no that it was not
        if done:
            meant = looked[ack["id"].rpartition("-")[2]]
            assert by_uuid[ack["id"]] == meant, "a click decided a proposal that nobody had looked at"
    told = [a["id"] for a in acks if a["ok"]]
    assert set(told) == set(by_uuid)


def test_the_journal_tells_the_same_story(world):
    world.close_all()
    decided = [event for event in read_events(world.folder) if isinstance(event, ev.DecisionTaken)]
    assert len(decided) == len({event.proposal for event in decided}) == len(world.run.state.proposals)
