"""What a worker does to itself before it serves anything. Linux; elsewhere only what the platform offers.

Threat model. A candidate is Python from a language model, possibly hostile, traced in a worker of its own. Fences, from
the outside in: own session and process group (killed whole), a deadline, an environment without keys, an empty
folder, limits on address space and file size, seccomp (no process, program or socket; root included), an audit hook
(no file outside), the screen, fingerprints of what it could patch. A worker that looks changed is thrown away, and
what it said with it. The oracle and the comparison live in another process that never sees its Python.

Open: the outputs a check compares are made in the candidate's own worker (a jaxpr with a kernel cannot be sent as
data), so native code that escaped every fence there could forge them; the compiler worker reads programs exported
there. Files the user can read can be read by native code (no mount namespace).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
# Largest file a worker may write.
FILE_BYTES = {"candidate": 64 << 20, "judge": 64 << 20, "compiler": 2 << 30, "chip": 4 << 30}
OPEN_FILES = 512


def die_with_parent(parent: int) -> None:
    """Asks the kernel for SIGKILL when the notebook dies (also by kill -9), and ends at once if it already has."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)


def limit(kind: str, memory_bytes: int) -> None:
    """Hard limits, after jax is loaded: address space beyond what is mapped now, file size, descriptors, no cores."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES[kind])
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    if sys.platform == "linux" and kind != "chip":  # a TPU's runtime maps far more than it uses
        _lower(resource.RLIMIT_AS, _mapped_bytes() + memory_bytes)


def _lower(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _mapped_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
