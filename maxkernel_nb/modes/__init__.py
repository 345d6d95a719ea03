"""How the pool of sub-agents is driven."""

from __future__ import annotations

from maxkernel_nb.engine.runtime import Mode
from maxkernel_nb.errors import UsageError
from maxkernel_nb.modes.auto import auto
from maxkernel_nb.modes.hitl import hitl
from maxkernel_nb.modes.search import search

MODES: dict[str, Mode] = {"auto": auto, "hitl": hitl, "search": search}


def mode(name: str) -> Mode:
    """Raises ``UsageError`` naming the modes there are."""
    if name not in MODES:
        raise UsageError(f"There is no mode {name!r} in this version; use one of: {', '.join(MODES)}.")
    return MODES[name]
