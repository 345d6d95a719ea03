"""A deterministic author for tests: it writes the text it was given and counts what it was asked."""

from __future__ import annotations

from collections.abc import Sequence

from maxkernel_nb.authors.base import TaskView, TuningSpace
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import Assessment, Candidate, Plan


class ScriptedAuthor:
    """``sources`` are handed out in order: the first by ``implement``, the rest by ``repair``.

    ``axes`` is the tuning space; ``retune`` appends the point to the first source as a comment.
    """

    name = "scripted"

    def __init__(
        self, sources: Sequence[str], entry: str = "f", axes: dict[str, tuple[int, ...]] | None = None
    ) -> None:
        self.sources = list(sources)
        self.entry = entry
        self.axes = axes or {}
        self.asked: list[str] = []

    async def plan(self, view: TaskView) -> Plan:
        self.asked.append("plan")
        if not self.sources:
            raise Declined("The script holds no kernel for this function.")
        return Plan(strategy="scripted", summary="Write what the script says.")

    async def implement(self, view: TaskView, plan: Plan) -> Candidate:
        self.asked.append("implement")
        return self._candidate(0)

    async def repair(self, view: TaskView, plan: Plan, candidate: Candidate, assessment: Assessment) -> Candidate:
        self.asked.append("repair")
        number = next(n for n, s in enumerate(self.sources) if s == candidate.source) + 1
        if number == len(self.sources):
            raise Declined("The script holds no further repair.")
        return self._candidate(number, parent=candidate.id)

    def _candidate(self, number: int, parent: str | None = None) -> Candidate:
        return Candidate(source=self.sources[number], entry=self.entry, author=self.name, parent=parent,
                         note=f"script {number}")

    def tuning_space(self, view: TaskView, plan: Plan, candidate: Candidate) -> TuningSpace:
        return TuningSpace(axes=self.axes)

    def retune(self, view: TaskView, plan: Plan, candidate: Candidate, params: dict[str, int]) -> Candidate:
        text = " ".join(f"{name}={value}" for name, value in sorted(params.items()))
        return Candidate(source=f"{candidate.source}# {text}\n", entry=candidate.entry, author=self.name,
                         parent=candidate.id, params=params, note=text)
