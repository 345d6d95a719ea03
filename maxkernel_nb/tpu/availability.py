"""Is the TPU compiler here? Answered without importing jax or loading libtpu."""

from __future__ import annotations

import importlib.util
import platform
import sys
from importlib import metadata

INSTALL = 'pip install "maxkernel-nb[tpu]"'


def compiler_available(system: str | None = None, machine: str | None = None) -> tuple[bool, str]:
    """Whether kernels can be compiled ahead of time for a TPU here, with the reason as one sentence.

    ``system`` and ``machine`` default to this machine's (``sys.platform``, ``platform.machine()``).
    """
    system, machine = system or sys.platform, (machine or platform.machine()).lower()
    if not system.startswith("linux") or machine not in ("x86_64", "amd64"):
        return False, (
            f"The TPU compiler (libtpu) exists for Linux x86-64 only and this is {system} {machine}: "
            "the compile and model gates are off."
        )
    if importlib.util.find_spec("libtpu") is None:
        return False, f"libtpu is not installed: run {INSTALL} to turn the compile and model gates on."
    return True, f"libtpu {libtpu_version() or '(unknown version)'} can compile for TPUs on this machine."


def libtpu_version() -> str:
    """The installed libtpu's version, or an empty string."""
    for name in ("libtpu", "libtpu-nightly"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""
