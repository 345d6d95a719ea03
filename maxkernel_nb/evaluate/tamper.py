"""Fingerprints of what a candidate could change in its worker: libraries, settings, environment, signals, threads."""

from __future__ import annotations

import builtins
import os
import signal
import sys
import threading
from types import ModuleType
from typing import Any

_WATCHED = (
    "builtins", "time", "math", "json", "hashlib", "struct", "numpy", "numpy.random", "jax", "jax.numpy", "jax.lax",
    "jax.nn", "jax.export", "jax.extend.core", "jax.tree", "jax.core", "jax._src.core", "jax._src.pallas.core",
    "jax._src.pallas.pallas_call", "jax._src.pallas.mosaic.core", "jax._src.pallas.mosaic.interpret",
    "jax._src.pallas.mosaic.interpret.interpret_pallas_call", "jax.experimental.pallas", "jax.experimental.pallas.tpu",
)  # fmt: skip
Snapshot = dict[str, Any]


def snapshot() -> Snapshot:
    """What the watched modules and this package consist of, and the state of the process."""
    names = [n for n in sys.modules if n in _WATCHED or n.startswith("maxkernel_nb.")]
    modules = {name: _identities(sys.modules[name]) for name in names}
    return {
        **modules,
        "environment": dict(os.environ),
        "working folder": os.getcwd(),
        "signal handlers": {s: id(signal.getsignal(s)) for s in signal.valid_signals() if signal.getsignal(s)},
        "jax settings": _settings(),
        "threads": {t.ident: t.name for t in threading.enumerate()},
        "trace functions": (id(sys.gettrace()), id(sys.getprofile())),
    }


def changed(before: Snapshot, after: Snapshot) -> str:
    """The first thing that is not as it was: 'numpy.allclose', 'the environment' ...; empty when nothing changed.

    New names in a module are not a change (jax imports lazily), nor are threads that ended.
    """
    for place, old in before.items():
        new = after.get(place)
        if isinstance(old, dict) and isinstance(new, dict) and place in sys.modules:
            name = next((n for n, value in old.items() if new.get(n) != value), None)
            if name is not None:
                return f"{place}.{name}"
        elif place == "threads":
            if set(new or ()) - set(old):
                return "the worker's threads"
        elif old != new:
            return f"the {place}"
    return ""


def _identities(module: ModuleType) -> dict[str, Any]:
    """Functions, classes and modules by identity; of this package also its numbers and texts (limits, names)."""
    ours = module.__name__.startswith("maxkernel_nb.")
    kept: dict[str, Any] = {n: id(v) for n, v in vars(module).items() if callable(v) or isinstance(v, ModuleType)}
    if ours:
        kept |= {n: v for n, v in vars(module).items() if isinstance(v, int | float | str) and not n.startswith("__")}
    if module is builtins:
        kept.pop("_", None)
    return kept


def _settings() -> dict[str, str]:
    import jax

    return {name: repr(value) for name, value in jax.config.values.items()}
