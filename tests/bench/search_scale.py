"""A journal of many nodes, read, folded and drawn: `python tests/bench/search_scale.py [NODES ...]`.

Times are processor seconds of one core. Every node has what a real draw leaves: its text, edge, step, four verdicts, a
profile, the step's answer, its cost and what was made of it.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from engine_bench import make_task

from maxkernel_nb import events as ev
from maxkernel_nb.engine.graph import graph_of
from maxkernel_nb.engine.state import fold
from maxkernel_nb.evaluate.base import Judged
from maxkernel_nb.evaluate.fake import fake_profile
from maxkernel_nb.events import EdgeKind, Spend
from maxkernel_nb.journal import Journal, read_events
from maxkernel_nb.task import Assessment, Candidate, GateName, Outcome, Verdict

SOURCE = "import jax\n" + "".join(f"# line {n} of a kernel of the usual length, some 150 lines\n" for n in range(120))
GATES = (GateName.SCREEN, GateName.TRACE, GateName.COMPILE, GateName.MODEL)


def draw(n, parent):
    """The events of one draw; they get slower and faster in turn."""
    ms = 1 + (n * 7919 % 1000) / 500 - min(n, 5000) / 10000
    candidate = Candidate(source=f"{SOURCE}A = {n}\n", entry="f", author="recipes", params={"A": n}, bound_ms=0.1)
    key, profile = f"judge:{candidate.id}:screen+trace+compile+model", fake_profile(ms)
    verdicts = tuple(Verdict(gate=g, outcome=Outcome.PASS, summary=f"{g} passed",
                             numbers={"modelled_ms": ms} if g is GateName.MODEL else {}, seconds=0.1) for g in GATES)
    answer = Judged(assessment=Assessment(candidate=candidate.id, verdicts=verdicts), profile=profile)
    yield ev.CandidateAdded(candidate=candidate)
    yield ev.EdgeAdded(draw=n, how=EdgeKind.RETUNE if parent else EdgeKind.RECIPE, candidate=candidate.id,
                       parents=(parent,) if parent else (), idea="A up", family="made up", lineage=str(n % 4))
    yield ev.StepStarted(step=key, role="tester", title=f"Try A {n}")
    for verdict in verdicts:
        yield ev.VerdictReached(candidate=candidate.id, verdict=verdict)
    yield ev.CandidateProfiled(candidate=candidate.id, profile=profile)
    yield ev.StepFinished(step=key, seconds=0.5, result={"value": answer.to_dict()}, costs=Spend(judged=1))
    yield ev.Spent(amount=Spend(wall_seconds=0.5), what=key)
    yield ev.DrawObserved(draw=n, candidate=candidate.id, result="verified", modelled_ms=ms, cost=1)


def write(folder, nodes):
    """The journal, in one transaction: only reading it is timed."""
    journal = Journal(folder)
    journal._db.execute("BEGIN")
    journal.append(ev.RunCreated(run_id="f-1", mode="search", author="recipes", task=make_task()), 0.0)
    journal.append(ev.BaselineProfiled(profile=fake_profile(2.0)), 0.0)
    ids = []
    for n in range(nodes):
        for event in draw(n, ids[n // 2] if ids else None):
            journal.append(event, 0.0)
            if event.kind == "candidate-added":
                ids.append(event.candidate.id)
    journal._db.execute("COMMIT")
    journal.close()


def timed(work):
    """Processor seconds: what else this machine does is not counted."""
    start = time.process_time()
    return work(), time.process_time() - start


def measure(nodes):
    from maxkernel_nb.document.build import document
    from maxkernel_nb.document.graph import node_view
    from maxkernel_nb.widgets.limits import fit, fit_node, size

    with tempfile.TemporaryDirectory() as root:
        write(Path(root), nodes)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        events, read_s = timed(lambda: read_events(Path(root)))
        count = len(events)
        state, fold_s = timed(lambda events=events: fold(events))
        del events  # as whoever opens a recorded run: the state alone is kept
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        data, panel_s = timed(lambda: fit(document(state)))
        graph, graph_s = timed(lambda: graph_of(state))
        node = fit_node(node_view(state, graph.best))
        _, more_s = timed(lambda: fold([ev.Noted(text="one more")], state))
        step, step_s = timed(lambda: fold(list(draw(nodes, None)), state))
    assert len(graph.nodes) == nodes and step.seq > state.seq
    return {"events": count, "read_s": read_s, "fold_s": fold_s, "graph_s": graph_s, "panel_s": panel_s,
            "message_kb": size(data) / 1e3, "node_kb": size(node) / 1e3, "memory_mb": (after - before) / 1e3,
            "one_event_ms": more_s * 1e3, "one_draw_ms": step_s * 1e3}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", nargs="*", type=int, default=[1000, 2500, 5000, 10_000])
    sys.stdout.write("  nodes  events  read s  fold s  graph s  panel s  message kB  node kB  memory MB  draw ms\n")
    for count in parser.parse_args().nodes:
        f = measure(count)
        sys.stdout.write(f"{count:7} {f['events']:7} {f['read_s']:7.2f} {f['fold_s']:7.2f} {f['graph_s']:8.2f} "
                         f"{f['panel_s']:8.2f} {f['message_kb']:11.0f} {f['node_kb']:8.0f} {f['memory_mb']:10.0f} "
                         f"{f['one_draw_ms']:8.1f}\n")
        sys.stdout.flush()
