"""Drives a strategy: several draws in flight, observed in the order drawn, everything in the journal.

Draw number n is made when exactly the draws before n - width + 1 were observed, whatever finished first. So the graph
depends on the answers alone, never on their timing: a resumed search reads what is recorded and goes on as it would
have without the crash.

A kernel's values are checked once its time leads for a while, and at the end: the dear gates are for those that may
win. Such a check is a draw of its own, so that others are judged meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from maxkernel_nb import events as ev
from maxkernel_nb.agents.judge import judge, keep_if_better
from maxkernel_nb.agents.tester import judge_fully
from maxkernel_nb.authors.model_errors import AttemptFailed
from maxkernel_nb.engine.graph import Graph, Node
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import Declined
from maxkernel_nb.evaluate.base import TUNING_GATES, Judged
from maxkernel_nb.evaluate.calls import ABANDON
from maxkernel_nb.modes.search.contract import Draw
from maxkernel_nb.modes.search.stopping import at_roofline, on_a_plateau, out_of_judgements, out_of_time
from maxkernel_nb.modes.search.strategy import Base, hopeless
from maxkernel_nb.modes.search.turns import Turns
from maxkernel_nb.modes.search.world import AuthorWorld
from maxkernel_nb.task import Candidate, Outcome

Result = Literal["verified", "timed", "failed", "none"]
_WRITTEN = (ev.EdgeKind.REFINE, ev.EdgeKind.REPAIR)
_UNJUDGED = (ev.EdgeKind.HUMAN, ev.EdgeKind.CHECK)  # what no bound may cancel
_TIE = 0.003  # relative; such a gain is not worth a full check
_STANDS = 4  # observed draws that left a leading kernel in the lead, before it is checked
_JUDGEMENTS_A_CHECK = 10  # at least, before the end
_TRIES = 20  # parents asked for before the ideas count as used up


@dataclass
class Made:
    """What a draw gave before it was observed."""

    edge: ev.EdgeAdded
    candidate: Candidate | None = None
    judged: Judged | None = None


@dataclass
class Flight:
    number: int
    draw: Draw
    candidate: Candidate | None  # None: an author is writing it
    known: bool = False  # it is in the graph already
    task: asyncio.Task[Made] = field(init=False)
    dominated: bool = False


class Explorer:
    def __init__(self, runtime: Runtime, world: AuthorWorld, strategy: Base, width: int) -> None:
        self.runtime, self.world, self.strategy, self.width = runtime, world, strategy, width
        self.graph = Graph()
        self.turns = Turns(width)
        state = runtime.run.state
        self._edges = {e.draw: e for e in state.edges}
        self._observed = {o.draw: o for o in state.observed}
        self._flights: deque[Flight] = deque()
        self._number = 0

    async def run(self) -> str:
        """Draws until there is a reason to stop, and gives it. ``graph`` is complete then."""
        try:
            while True:
                reason = self._fill()
                if not self._flights:
                    return reason
                await self._settle(self._flights[0])
        finally:
            await self._drop(list(self._flights))

    def _fill(self) -> str:
        """As many draws as fit; why there are not more, empty when all places are taken."""
        while len(self._flights) < self.width:
            self.graph.mark(self.runtime.run.state.marks.values())
            reason = self._enough() if self._number not in self._edges else ""
            flight = None if reason else self._next()
            if flight is None:
                reason = reason or "Every idea at hand was tried."
                flight = self._last_check() if not self._flights else None
            if flight is None:
                return reason
            self._launch(flight)
        return ""

    def _enough(self) -> str:
        baseline = self.runtime.run.state.baseline
        if baseline is None and self.graph.best is not None:
            return "Without a TPU compiler kernels cannot be compared; the first that passed every check is proposed."
        floors = [n.roofline_ms for n in self.graph.nodes.values() if n.roofline_ms]
        roofline = min([*floors, *([baseline.roofline_ms] if baseline else [])], default=0.0)
        budget = self.runtime.settings.budget
        return (at_roofline(self.graph, roofline) or on_a_plateau(self.graph) or self.strategy.done(self.graph)
                or out_of_judgements(self.graph, budget, len(self._flights))
                or out_of_time(budget, self.runtime.run.state.spend))

    # -- drawing -----------------------------------------------------------------------------------------------------

    def _next(self) -> Flight | None:
        edge = self._edges.get(self._number)
        proposed = self._human() or self._due_check() or self._proposed()
        if edge is not None:
            return self._again(edge)
        if proposed is None:
            return None
        draw, candidate = proposed
        return Flight(self._number, draw, candidate, self._known(draw, candidate))

    def _known(self, draw: Draw, candidate: Candidate | None) -> bool:
        """It is a node already, and not drawn to be checked."""
        return draw.how is not ev.EdgeKind.CHECK and candidate is not None and candidate.id in self.graph.nodes

    def _due_check(self) -> tuple[Draw, Candidate] | None:
        """Of the kernel that leads, once it stands; those that pass are a small share of all judgements before the
        end. Where the last one failed, the next is due at once."""
        node, refused = self._to_check(), self.graph.refused
        if node is None or any(f.draw.how is ev.EdgeKind.CHECK for f in self._flights):
            return None
        if refused and self._last_refused():
            return self._check(node)
        if self.graph.cost < _JUDGEMENTS_A_CHECK * (len(self.graph.checked) - refused + 1):
            return None
        stood = sum(1 for n, seen in self.graph.observed.items() if n > node.draw and seen.cost)
        return self._check(node) if stood >= _STANDS else None

    def _last_refused(self) -> bool:
        checks = [n for n, e in self.graph.edges.items() if e.how is ev.EdgeKind.CHECK and n in self.graph.observed]
        return bool(checks) and self.graph.observed[max(checks)].result == "failed"

    def _last_check(self) -> Flight | None:
        """Everything was observed: the fastest kernels are checked until one passes; here a small gain counts too."""
        node, budget = next(self.graph.unchecked(), None), self.runtime.settings.budget
        if node is None or (budget.judged is not None and self.graph.cost >= budget.judged):
            return None
        return Flight(self._number, *self._check(node))

    def _to_check(self) -> Node | None:
        node, best = next(self.graph.unchecked(), None), self.graph.best_ms
        worth = node is not None and (best is None or (node.ms is not None and node.ms < best * (1 - _TIE)))
        return node if worth else None

    def _check(self, node: Node) -> tuple[Draw, Candidate]:
        draw = Draw(ev.EdgeKind.CHECK, node.family, (), node.params, "its time leads", node.lineage)
        return draw, self.runtime.run.state.candidates[node.id].candidate

    def _human(self) -> tuple[Draw, Candidate | None] | None:
        """A person's own kernel goes first."""
        state = self.runtime.run.state
        for node, mark in state.marks.items():
            if mark.mark == "pinned" and node in state.candidates and node not in self.graph.nodes:
                candidate = state.candidates[node].candidate
                parents = (candidate.parent,) if candidate.parent in self.graph.nodes else ()
                return Draw(ev.EdgeKind.HUMAN, node, parents, candidate.params, "a person's edit"), candidate  # type: ignore[arg-type]
        return None

    def _proposed(self) -> tuple[Draw, Candidate | None] | None:
        """A pinned node gets every second draw."""
        focus = next(reversed(self.graph.pinned), None) if self._number % 2 == 0 else None
        if focus is not None and self.graph.nodes[focus].timed:
            draw = self.strategy.propose(self.graph, (focus,))
            if draw is not None and (made := self._drawn(draw)) is not None:
                return made
        for _ in range(_TRIES):
            draw = self.strategy.propose(self.graph, self.strategy.select(self.graph))
            if draw is not None and (made := self._drawn(draw)) is not None:
                return made
        return None

    def _drawn(self, draw: Draw) -> tuple[Draw, Candidate | None] | None:
        if _is_written(draw):
            return draw, None
        try:
            return draw, self.world.point(draw.family, draw.params, draw.parents[0] if draw.parents else None)
        except Declined:
            return None

    def _again(self, edge: ev.EdgeAdded) -> Flight:
        """A draw that is in the journal already."""
        state = self.runtime.run.state
        known = state.candidates.get(edge.candidate)
        draw = Draw(edge.how, edge.family, edge.parents, known.candidate.params if known else {}, edge.idea,
                    edge.lineage)
        candidate = None if _is_written(draw) or known is None else known.candidate
        return Flight(self._number, draw, candidate, self._known(draw, candidate))

    def _launch(self, flight: Flight) -> None:
        candidate, number = flight.candidate, flight.number
        edge = _edge(flight, candidate)
        if candidate is not None:
            if flight.draw.how is ev.EdgeKind.HUMAN:
                self.world.adopt(candidate)
            self._record(edge, candidate)
            self.graph.add(edge, candidate)
        else:
            self.graph.edges[number] = edge  # so that the same idea is not drawn twice meanwhile
        work = self._judged(flight, edge) if candidate is not None else self._written(flight)
        flight.task = asyncio.get_running_loop().create_task(work)
        self._flights.append(flight)
        self._number += 1

    def _record(self, edge: ev.EdgeAdded, candidate: Candidate | None) -> None:
        if edge.draw in self._edges:
            return
        if candidate is not None and candidate.id not in self.runtime.run.state.candidates:
            self.runtime.run.emit(ev.CandidateAdded(candidate=candidate))
        self.runtime.run.emit(edge)

    async def _judged(self, flight: Flight, edge: ev.EdgeAdded) -> Made:
        candidate = flight.candidate
        assert candidate is not None
        if flight.known:
            return Made(edge, candidate)
        dear = flight.draw.how in _UNJUDGED or flight.number == 0  # the first kernel is the first best, if it passes
        return Made(edge, candidate, await self._gates(flight.number, candidate, dear))

    async def _gates(self, number: int, candidate: Candidate, dear: bool) -> Judged:
        async with self.turns.turn(number, dear):
            if dear:
                return await judge_fully(self.runtime, candidate)
            return await judge(self.runtime, candidate, TUNING_GATES)

    async def _written(self, flight: Flight) -> Made:
        """An author's kernel: its call runs beside the gates of the others, then it is judged in full."""
        draw = flight.draw
        try:
            plan = self.world.plan_of(draw, self.graph)
            candidate = await self.world.write(flight.number, draw, plan, self._remarks(draw))
        except (AttemptFailed, Declined) as error:
            edge = _edge(flight, None, note=str(error))
            self._record(edge, None)
            return Made(edge)
        edge = _edge(flight, candidate).model_copy(update={"family": self.world.adopt(candidate, plan)})
        self._record(edge, candidate)
        return Made(edge, candidate, await self._gates(flight.number, candidate, dear=True))

    def _remarks(self, draw: Draw) -> str:
        """What the author is told beside the idea; the other parent of a merge in full."""
        node = self.graph.nodes[draw.parents[0]]
        told = [f"- {sentence}" for sentence in self.strategy.lessons.told(node.bound_by)]
        parts = ["Learned by other lines of this search:\n" + "\n".join(told)] if told else []
        if draw.how is ev.EdgeKind.MERGE:
            other = self.runtime.run.state.candidates[draw.parents[1]].candidate
            parts.append(f"The other parent, {other.id}, also verified:\n```python\n{other.source}\n```")
        return "\n\n".join(parts)

    # -- observing ---------------------------------------------------------------------------------------------------

    async def _settle(self, flight: Flight) -> None:
        """The oldest draw's outcome. Until it is here, younger ones go on but none is added."""
        made = await self._awaited(flight)
        if flight.candidate is None:
            flight.known = made.candidate is not None and made.candidate.id in self.graph.nodes
            self.graph.add(made.edge, made.candidate)
        seen = await self._result(flight, made)
        self._flights.popleft()
        profile = made.judged.profile if made.judged is not None else None
        self.graph.observe(seen, profile)
        if flight.number not in self._observed:
            self.runtime.run.emit(seen)
        if flight.draw.how is not ev.EdgeKind.CHECK:
            self._learn(seen)
        self._cancel_dominated()

    def _learn(self, seen: ev.DrawObserved) -> None:
        if lesson := self.strategy.lessons.observe(self.graph, seen):
            self.runtime.run.emit(ev.LessonLearned(text=lesson, evidence=f"draw {seen.draw}"))
        self.strategy.observe(self.graph, seen)

    async def _awaited(self, flight: Flight) -> Made:
        if flight.dominated:
            await self._drop([flight])
            return Made(_edge(flight, flight.candidate), flight.candidate)
        return await flight.task

    async def _result(self, flight: Flight, made: Made) -> ev.DrawObserved:
        number, candidate, judged = flight.number, made.candidate, made.judged
        if candidate is None:
            return ev.DrawObserved(draw=number, result="none")
        if flight.known:
            return ev.DrawObserved(draw=number, candidate=candidate.id, result="known")
        if flight.dominated or judged is None:
            return ev.DrawObserved(draw=number, candidate=candidate.id, result="dominated", cost=1)
        cost, ms = 1, judged.assessment.modelled_ms
        if not judged.assessment.failed and not judged.assessment.correct and self.graph.best is None:
            judged, cost = await self._gates(number, candidate, dear=True), 2
        keep_if_better(self.runtime, candidate, judged)
        return ev.DrawObserved(draw=number, candidate=candidate.id, result=_result_of(judged, ms), modelled_ms=ms,
                               cost=cost)

    def _cancel_dominated(self) -> None:
        """Draws in flight whose own bound is no better than the best: what they would say is not waited for."""
        for flight in self._flights:
            bound = flight.candidate.bound_ms if flight.candidate is not None else None
            if not flight.known and flight.draw.how not in _UNJUDGED and hopeless(self.graph, bound):
                flight.dominated = True
                flight.task.cancel(ABANDON)

    async def _drop(self, flights: list[Flight]) -> None:
        for flight in flights:
            flight.task.cancel(*([ABANDON] if flight.dominated else []))
        await asyncio.gather(*(f.task for f in flights), return_exceptions=True)


def _is_written(draw: Draw) -> bool:
    return draw.how in _WRITTEN or (draw.how is ev.EdgeKind.MERGE and not draw.params)


def _edge(flight: Flight, candidate: Candidate | None, note: str = "") -> ev.EdgeAdded:
    draw = flight.draw
    return ev.EdgeAdded(draw=flight.number, how=draw.how, candidate=candidate.id if candidate else "",
                        parents=draw.parents, idea=draw.idea, family=draw.family, lineage=draw.lineage, note=note)


def _result_of(judged: Judged, ms: float | None) -> Result:
    assessment = judged.assessment
    if assessment.failed:
        return "failed"
    if assessment.correct:
        return "verified"
    return "none" if any(v.outcome is Outcome.INFRASTRUCTURE for v in assessment.verdicts) else "timed"


