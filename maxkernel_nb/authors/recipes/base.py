"""The contract of a recipe: recognise a computation, plan it, write it, say what it needs and how fast it can be.

In order, the author calls ``recognise`` once with the reference's jaxpr in every case, keeps the match in the plan
(``Plan.spec``), and from then on works from the match alone: ``plan``, ``space``, ``check``, ``render``. A recipe must
raise ``Declined`` with a reason where it cannot serve, never guess. It only reads and writes text: nothing is run
(but for a recipe that tries the smallest case's traced function on drawn values, where no jaxpr tells: ``paged``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes.algebra import rewritten
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan, Tree
from maxkernel_nb.tpu.chips import Chip
from maxkernel_nb.tpu.chips import chip as chip_named
from maxkernel_nb.values import Value

MIB = 1024 * 1024
# Mosaic keeps temporaries, spills and semaphores beside the buffers we can count.
VMEM_MARGIN = 4 * MIB
STEP_MS = 0.35e-3  # about what a grid step costs beside its work


class Signature(Value):
    """The user's function as text: name, parameters as written, names of the arrays, fixed keywords."""

    entry: str
    header: str  # the text between the parentheses of ``def``
    params: tuple[str, ...]
    static: dict[str, Any] = Field(default_factory=dict)
    within: dict[str, str] = Field(default_factory=dict)  # an array inside a parameter -> params["w"]
    fixed: dict[str, Any] = Field(default_factory=dict)  # params["heads"] -> its value
    returns: Tree | None = None  # the structure of the results; None: as the recipe writes them


class Match(Value):
    """What a recogniser found out. Subclasses add their findings; ``bound`` figures are for the timing case."""

    signature: Signature
    chip: str
    algebra: tuple[str, ...] = ()  # what was rewritten before the kernel was chosen, a sentence each


@dataclass(frozen=True)
class Bound:
    """A-priori limits on the timing case: FLOPs and bytes that no kernel of this algorithm can avoid."""

    flops: float
    hbm_bytes: float

    def milliseconds(self, chip: Chip) -> float:
        return 1e3 * max(self.compute_s(chip), self.hbm_bytes / (chip.device_hbm_gbs * 1e9))

    def compute_s(self, chip: Chip) -> float:
        return self.flops / (chip.device_tflops * 1e12)

    def attacks(self, chip: Chip) -> str:
        compute = self.compute_s(chip) > self.hbm_bytes / (chip.device_hbm_gbs * 1e9)
        return "MXU throughput" if compute else "HBM bandwidth"


class Recipe(ABC):
    name: ClassVar[str]
    title: ClassVar[str]
    match_type: ClassVar[type[Match]]
    limits: ClassVar[tuple[str, ...]]  # known limits, one sentence each
    last_resort: ClassVar[bool] = False  # asked only where no recipe serves the whole function

    @abstractmethod
    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> Match:
        """``traces``: case name -> closed jaxpr, the timing case always among them. Raises ``Declined``."""

    def others(self, match: Any) -> tuple[Any, ...]:
        """Matches for other kernels of the same computation and bound, whose speed only the judge can tell apart."""
        return ()

    @abstractmethod
    def plan(self, match: Any, params: dict[str, int]) -> Plan: ...

    @abstractmethod
    def space(self, match: Any) -> TuningSpace: ...

    @abstractmethod
    def vmem_bytes(self, match: Any, params: dict[str, int]) -> int:
        """Bytes of VMEM on the timing case: double-buffered blocks, scratch and the large temporaries."""

    @abstractmethod
    def bound(self, match: Any) -> Bound: ...

    def bound_with(self, match: Any, params: dict[str, int]) -> Bound:
        """The limits of these constants, never above what such a kernel takes: hopeless points are not compiled."""
        return self.bound(match)

    def estimate_ms(self, match: Any, params: dict[str, int]) -> float:
        """About what such a kernel takes: good enough to rank points before anything is compiled, never a claim."""
        return self.bound_with(match, params).milliseconds(chip_named(match.chip))

    @abstractmethod
    def render(self, match: Any, params: dict[str, int]) -> str:
        """A complete module that depends on jax alone."""

    def vmem_limit(self, match: Any, params: dict[str, int], spare: float = 1 / 4) -> int:
        """Bytes of VMEM that a kernel asks for: the estimate and what it may be short by; at least what is usual."""
        chip, need = chip_named(match.chip), self.vmem_bytes(match, params)
        return min(chip.vmem_bytes - MIB, max(chip.scoped_vmem_bytes, pad_up(need + int(need * spare), MIB)))

    @abstractmethod
    def check(self, match: Any, params: dict[str, int]) -> None:
        """Raises ``Declined`` for constants that cannot work (VMEM, alignment, range)."""


def in_every_case(traces: Mapping[str, Any], task: KernelTask, read: Callable[[Graph, Any], Any],
                  shape_free: Callable[[Any], Any]) -> list[Any]:
    """``read(graph, first)`` over all shape cases after the algebra, the timing case first (``first`` is None there).

    Raises ``Declined`` where the findings differ in anything that is not a size.
    """
    timing = task.timing_case.name
    first = read(rewritten(traces[timing]).graph, None)
    found = [first, *(read(rewritten(traces[name]).graph, first) for name in traces if name != timing)]
    if any(shape_free(case) != shape_free(first) for case in found):
        raise Declined("the computation differs between shape cases, not only in its sizes")
    return found


def algebra_of(traces: Mapping[str, Any], task: KernelTask) -> tuple[str, ...]:
    """What was rewritten in the timing case."""
    return rewritten(traces[task.timing_case.name]).notes


def check_axes(params: dict[str, int], space: TuningSpace) -> None:
    unknown = set(params) - set(space.axes)
    missing = set(space.axes) - set(params)
    if unknown or missing:
        names = ", ".join(sorted(unknown or missing))
        what = "unknown" if unknown else "missing"
        raise Declined(f"{what} constants {names}: this kernel has {', '.join(space.axes)}")


def check_vmem(need: int, chip: Chip) -> None:
    limit = chip.vmem_bytes - VMEM_MARGIN
    if need > limit:
        raise Declined(
            f"needs about {need / MIB:.1f} MiB of VMEM, {chip.name} has {limit / MIB:.0f} MiB to give: "
            "take smaller blocks"
        )


def itemsize(dtype: str) -> int:
    sizes = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "bfloat16": 2, "float16": 2, "float64": 8, "int64": 8}
    return 1 if dtype.startswith("float8") else sizes.get(dtype, 4)


def pad_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def bound_text(bound: Bound, chip_name: str) -> str:
    chip = chip_named(chip_name)
    return (
        f"{bound.flops / 1e9:.1f} GFLOP, {bound.hbm_bytes / 1e6:.1f} MB: "
        f"at least {bound.milliseconds(chip):.3f} ms on {chip.name} ({bound.attacks(chip)})"
    )


def at_least(bound: Bound, chip: Chip) -> str:
    """For the end of a plan's summary."""
    return (
        f"At least {bound.flops / 1e9:.1f} GFLOP and {bound.hbm_bytes / 1e6:.1f} MB: no kernel on {chip.name} can take "
        f"less than {bound.milliseconds(chip):.3f} ms."
    )


def algebra_text(match: Match) -> str:
    """For the head of a plan's summary."""
    return f"Algebra first: {'; '.join(match.algebra)}. " if match.algebra else ""
