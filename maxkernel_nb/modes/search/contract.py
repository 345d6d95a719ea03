"""The contract between a search's strategies, the graph they read and the world that makes what they draw.

In order, for each draw: ``done`` (a reason ends the drawing), ``select`` names the parents, ``propose`` says what to
make of them, and later, in the order drawn, ``observe`` is told what came of it. A strategy is seeded and keeps no
clock: the same answers give the same draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from maxkernel_nb.engine.graph import Graph
from maxkernel_nb.events import DrawObserved, EdgeKind


@dataclass(frozen=True)
class Draw:
    """What to make next. ``params`` are whole points; ``idea`` is a sentence for an author that writes."""

    how: EdgeKind
    family: str
    parents: tuple[str, ...] = ()
    params: Mapping[str, int] = field(default_factory=dict)
    idea: str = ""
    lineage: str = ""


@dataclass(frozen=True)
class Family:
    """Kernels that differ in their constants only: the values to try, and points known to be good, best guess first."""

    key: str
    axes: Mapping[str, tuple[int, ...]]
    seeds: tuple[Mapping[str, int], ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Preview:
    """A point before anything is spent on it. ``bound_ms``: no kernel of these constants is faster; ``estimate_ms``:
    about what it takes, good for ranking only (None: unknown)."""

    candidate: str
    bound_ms: float | None = None
    estimate_ms: float | None = None

    @property
    def priors(self) -> tuple[float | None, ...]:
        """What a cost model may lean on."""
        return self.bound_ms, self.estimate_ms


class World(Protocol):
    """Where candidates come from. ``families`` may grow while an author writes new kernels."""

    families: dict[str, Family]
    refines: bool  # the author can rewrite a kernel, not only set its constants

    def preview(self, family: str, params: Mapping[str, int]) -> Preview | None:
        """None for a point that cannot work. Cheap, and the same every time."""
        ...

    def estimate(self, family: str, params: Mapping[str, int]) -> float | None:
        """About the ms of a point that need not work, cheaper still; None where the author has no estimate."""
        ...


class Strategy(Protocol):
    name: str

    def select(self, graph: Graph) -> tuple[str, ...]:
        """The parents of the next draw; none for a new root."""
        ...

    def propose(self, graph: Graph, parents: tuple[str, ...]) -> Draw | None:
        """None when these parents have nothing left to try."""
        ...

    def observe(self, graph: Graph, seen: DrawObserved) -> None: ...

    def done(self, graph: Graph) -> str:
        """Why nothing more is drawn; empty while there is something to try."""
        ...
