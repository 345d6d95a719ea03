"""What measures on a chip: the operations of its worker, and of the notebook's process where that owns the chip.

Takes exported programs only; no candidate's Python is ever near it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate import inputs, wire
from maxkernel_nb.evaluate.executor import JobRefused, Reply
from maxkernel_nb.task import Case
from maxkernel_nb.tpu.chip import memory
from maxkernel_nb.tpu.chip.profile import profile
from maxkernel_nb.tpu.chip.quiet import Quiet
from maxkernel_nb.tpu.chip.session import CANDIDATE, REFERENCE, CellRuns, Place, Session
from maxkernel_nb.tpu.chip.trace import Disturbed, TraceRefused
from maxkernel_nb.tpu.chips import CHIPS, detect_chip

LIMIT = "MAXKERNEL_CHIP_BYTES"  # in the worker's environment: memory it may use, for tests
CPU_CACHE = 4 << 20  # bytes that repeated inputs could stay in where the CPU plays the chip
_HALTED = ("halt", "E0200", "DEADLINE_EXCEEDED", "INTERNAL")


class Chip:
    """The operations on one device. ``number`` among this process's devices."""

    def __init__(self, device: Any, quiet: Quiet | None = None, limit: int | None = None) -> None:
        name = detect_chip(device.device_kind)
        on_chip = CHIPS[name].vmem_bytes * CHIPS[name].device_cores if name else CPU_CACHE
        self.device, self.chip = device, CHIPS.get(name or "")
        self.place = Place(device, None, on_chip, limit, quiet)
        self.session: Session | None = None

    def operations(self) -> dict[str, Callable[[dict[str, Any], tuple[bytes, ...]], Reply]]:
        named = (self.about, self.open, self.first, self.check, self.fresh, self.window, self.clocks, self.profile)
        return {"ping": lambda args, buffers: Reply({}), **{f.__name__: _told(f) for f in named}, "close": self.close}

    def about(self, args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
        import jax

        kind = self.device.device_kind
        return Reply({"platform": self.device.platform, "kind": kind, "jax": jax.__version__, "pid": os.getpid()})

    def open(self, args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
        """Buffers: the reference's and the candidate's exported programs."""
        self.close(args, ())
        case = Case.from_dict(args["case"])
        self.session = Session(self.place)
        programs = {REFERENCE: buffers[0], CANDIDATE: buffers[1]}
        return Reply(self.session.open(programs, lambda seed: _drawn(case, seed), args["seed"]))

    def first(self, args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
        self._session().first(args["side"])
        return Reply({})

    def check(self, args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
        """Outputs of the candidate, then of the reference, on the inputs of ``seed`` in the answer."""
        found = self._session().check()
        arrays = [*found[CANDIDATE], *found[REFERENCE]]
        described = [wire.describe(a) for a in arrays]
        return Reply({"outputs": described, "seed": self._session().first_seed}, tuple(map(wire.to_buffer, arrays)))

    def fresh(self, args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
        self._session().fresh(args["seed"])
        return Reply({})

    def window(self, args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
        return Reply(self._session().window(args["pairs"]))

    def clocks(self, args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
        """The slope of each side, and what sending an empty program takes. In ms."""
        session = self._session()
        slopes = session.slope(args["ms"], args["tries"])
        abreast = 1 if self.device.platform == "tpu" else max(2, os.cpu_count() or 2)
        return Reply({"slope": slopes, "overhead": session.overhead(), "abreast": abreast})

    def profile(self, args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
        kind = self.device.device_kind
        calls = self._session().profiled()
        return Reply({side: profile(c, kind, self.chip).to_dict() for side, c in calls.items()})

    def close(self, args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
        session, self.session = self.session, None
        if session is not None:
            session.close()
        return Reply({})

    def _session(self) -> Session:
        if self.session is None:
            raise InfrastructureError("No measurement is open on this chip.")
        return self.session


def _drawn(case: Case, seed: int) -> list[Any]:
    """On the host, where every judge draws the same."""
    import jax

    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return inputs.draw(case, seed)


def _told(work: Callable[..., Reply]) -> Callable[[dict[str, Any], tuple[bytes, ...]], Reply]:
    """What can go wrong on a device, as refusals that say what it was."""

    def operation(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
        from jax.errors import JaxRuntimeError

        try:
            return work(args, buffers)
        except memory.DoesNotFit as short:
            raise JobRefused("memory", str(short), needed=short.needed, free=short.free, ever=short.ever) from short
        except CellRuns as cell:
            raise JobRefused("cell", "A cell of the notebook began.") from cell
        except Disturbed as why:
            raise JobRefused("disturbed", str(why)) from why
        except TraceRefused as why:
            raise JobRefused("trace", str(why)) from why
        except (JaxRuntimeError, ValueError) as error:
            raise _refusal(error) from error

    return operation


def _refusal(error: Exception) -> JobRefused:
    said = " ".join(str(error).split())[:400]
    if memory.ran_out(error):
        return JobRefused("memory", f"The device ran out of memory: {said}", needed=0, free=0, ever=True)
    kind = "halt" if any(word in said for word in _HALTED) else "runtime"
    return JobRefused(kind, f"The device stopped with: {said}")


def load() -> dict[str, Any]:
    """In the worker: opens the device that its environment leaves visible."""
    import jax

    device = jax.local_devices()[0]
    limit = os.environ.get(LIMIT)
    return Chip(device, limit=int(limit) if limit else None).operations()
