"""How the pool of sub-agents is driven."""

from __future__ import annotations

from maxkernel_nb.engine.runtime import Mode
from maxkernel_nb.errors import UsageError
from maxkernel_nb.modes.auto import auto
from maxkernel_nb.modes.hitl import hitl
from maxkernel_nb.modes.search import search

DRIVES: dict[str, Mode] = {"auto": auto, "hitl": hitl, "search": search}


def drive_of(name: str) -> Mode:
    """What drives a run of that mode (``options.MODES`` says what each is for). Raises ``UsageError`` naming them."""
    if name not in DRIVES:
        raise UsageError(f"There is no mode {name!r} in this version; use one of: {', '.join(DRIVES)}.")
    return DRIVES[name]
