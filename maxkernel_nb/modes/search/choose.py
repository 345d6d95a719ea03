"""Which strategy: the one asked for, or the one that fits the budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from maxkernel_nb.errors import UsageError
from maxkernel_nb.modes.search.bandit import Bandit
from maxkernel_nb.modes.search.beam import Beam
from maxkernel_nb.modes.search.contract import World
from maxkernel_nb.modes.search.evolve import Evolve
from maxkernel_nb.modes.search.parallel import Parallel
from maxkernel_nb.modes.search.strategy import Base

STRATEGIES: dict[str, Callable[..., Base]] = {"parallel": Parallel, "beam": Beam, "evolve": Evolve, "bandit": Bandit}
_MANY = 400  # judgements


def strategy_named(name: str, world: World, judged: int | None, seed: int = 0) -> Base:
    """``auto``: by the budget. Raises ``UsageError`` naming the strategies there are."""
    if name == "auto":
        return by_budget(world, judged, seed)
    if name not in STRATEGIES:
        raise UsageError(f"There is no strategy {name!r}; use one of: auto, {', '.join(STRATEGIES)}.")
    return STRATEGIES[name](world, seed)


def by_budget(world: World, judged: int | None, seed: int = 0, **options: Any) -> Base:
    """The bandit for up to some hundreds of judgements (its model of costs, with the author's estimates, makes each
    count), islands beyond (an exact model's cost grows with the cube of what it has seen)."""
    if judged is not None and judged > _MANY:
        return Evolve(world, seed, islands=4, **options)
    return Bandit(world, seed, **options)
