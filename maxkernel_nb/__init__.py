"""Agents that write, prove and tune TPU kernels. Importing this package is cheap: nothing heavy loads until used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "optimize": "maxkernel_nb.api",
    "maxkernel": "maxkernel_nb.api",
    "resume": "maxkernel_nb.api",
    "find_run": "maxkernel_nb.api",
    "BoundKernel": "maxkernel_nb.engine.binding",
    "Run": "maxkernel_nb.run",
    "MaxKernelError": "maxkernel_nb.errors",
}
__all__ = ["BoundKernel", "MaxKernelError", "Run", "__version__", "find_run", "maxkernel", "optimize", "resume"]

if TYPE_CHECKING:
    from maxkernel_nb.api import find_run, maxkernel, optimize, resume
    from maxkernel_nb.engine.binding import BoundKernel
    from maxkernel_nb.errors import MaxKernelError
    from maxkernel_nb.run import Run


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'maxkernel_nb' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext maxkernel_nb``."""
    import_module("maxkernel_nb.magics").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext maxkernel_nb``: restores everything that loading changed."""
    import_module("maxkernel_nb.magics").unload(shell)
