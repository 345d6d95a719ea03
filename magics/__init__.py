"""``%load_ext maxkernel_nb``: loading is quick, silent and fully undone by unloading."""

from __future__ import annotations

import sys
from typing import Any


def load(shell: Any) -> None:
    """Adds ``%%maxkernel``, ``%maxkernel``, ``%config MaxKernel`` and their completion to ``shell``."""
    from maxkernel_nb.magics.magic import MaxKernelMagics

    MaxKernelMagics(shell).attach()


def unload(shell: Any) -> None:
    """Takes all of it away again. Runs in flight are stopped; their journals stay and can be resumed."""
    magics = shell.magics_manager.registry.get("MaxKernelMagics")
    if magics is not None:
        magics.detach()
    engine = sys.modules.get("maxkernel_nb.engine.loop")
    if engine is not None:
        engine.close_engine()
