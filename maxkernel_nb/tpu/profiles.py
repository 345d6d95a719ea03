"""What one ahead-of-time compile says about a program: frozen, serialisable."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from maxkernel_nb.values import Value


class LoopProfile(Value):
    """One loop of an op's program, as it runs: ``trips`` in all.

    ``bundles`` (cycles, with those in which the matrix units hold the program up), ``slots`` (issue slots used, by
    unit) and ``utilisation`` (of the slots there are, 0..1) are of one iteration without the loops inside;
    ``with_inner`` counts those too. ``read_bytes`` and ``written_bytes`` are what one iteration moves by DMA.
    ``share``: of the op's bundles that run in this loop itself.
    """

    depth: int
    trips: float
    bundles: float
    with_inner: float
    share: float
    slots: dict[str, float] = Field(default_factory=dict)
    utilisation: dict[str, float] = Field(default_factory=dict)
    read_bytes: float = 0.0
    written_bytes: float = 0.0


class RegionProfile(Value):
    """A predicated region (``pl.when``, a guarded copy): ``bundles`` long, run ``runs`` of ``chances`` times.

    ``loop``: the depth of the loop around it; ``share``: of the op's bundles that run in it.
    """

    bundles: int
    runs: float
    chances: float
    loop: int = 0
    share: float = 0.0


class BufferUse(Value):
    """A buffer in VMEM. ``size`` in bytes with all its ``copies`` (2: double buffered) and its ``padding``."""

    name: str
    kind: Literal["input", "output", "scratch", "spill", "temporary", "other"]
    size: int
    shape: str = ""
    copies: int = 1
    padding: int = 0


class OpProfile(Value):
    """One scheduled op (an XLA fusion or a Pallas call). Times in ms, sizes in bytes.

    ``bundles`` is the modelled number of executed VLIW bundles (trips and region frequencies applied), with the cycles
    in which the matrix units hold them up; ``utilisation`` the share of issue slots used, by unit (``mxu``, ``xlu``,
    ``valu``, ``eup``, ``vload``, ``vstore``, ``salu``; 0..1).
    """

    name: str
    kind: Literal["fusion", "pallas", "custom-call", "copy", "while", "other"]
    modelled_ms: float
    compute_ms: float
    memory_ms: float
    bundles: float = 0.0
    trips: tuple[float, ...] = ()
    hbm_bytes: float = 0.0
    bound_by: str = ""  # "hbm", "dma" (the number of copies), "mxu", "valu", "eup", "xlu", "load/store", ...
    utilisation: dict[str, float] = Field(default_factory=dict)
    spills: int = 0
    fills: int = 0
    vmem_bytes: int = 0
    note: str = ""
    read_bytes: float = 0.0  # of hbm_bytes, into VMEM
    written_bytes: float = 0.0
    startup_ms: float = 0.0  # of modelled_ms: the pipeline's first fetch and last write-back
    moves: Literal["", "copy", "layout"] = ""  # the op computes nothing: it copies, or changes a layout
    loops: tuple[LoopProfile, ...] = ()  # outermost first
    regions: tuple[RegionProfile, ...] = ()  # largest share first
    buffers: tuple[BufferUse, ...] = ()  # largest first; empty where the compiler reports none
    error_pct: float | None = None  # typical error (percent) of modelled_ms, for this class of op
    copies: float = 0.0  # DMAs that one core issues
    low_ms: float | None = None  # where data decides: the least, with one trip of each loop and regions skipped


class ScheduleProfile(Value):
    """The whole program on one chip. ``modelled_ms`` is modelled, never measured.

    ``source`` says where it was read: ``schedule`` (the compiler's VLIW dump) or ``hlo`` (estimates; wider error).
    ``error_pct`` is the model's typical error (percent) for this class of program, with its origin in ``error_source``.
    """

    chip: str
    modelled_ms: float
    flops: float
    hbm_bytes: float
    roofline_ms: float  # max(flops/peak, bytes of inputs and outputs / peak bandwidth)
    ops: tuple[OpProfile, ...] = ()
    source: Literal["schedule", "hlo"] = "schedule"
    error_pct: float | None = None
    error_source: str = ""
    bound_by: str = ""
    jax_version: str = ""
    libtpu_version: str = ""
    compile_s: float = 0.0
    vmem_bytes: int = 0
    has_pallas: bool = False
    notes: tuple[str, ...] = ()
    minimal_bytes: float = 0.0  # inputs and outputs, each moved once

    @property
    def intensity(self) -> float:
        """FLOPs per HBM byte moved; 0.0 where nothing is moved."""
        return self.flops / self.hbm_bytes if self.hbm_bytes else 0.0

    @property
    def tflops(self) -> float:
        """FLOPs over the modelled time, 1e12 per second: with ``intensity`` the point under the roofline."""
        return self.flops / self.modelled_ms / 1e9 if self.modelled_ms else 0.0

    @property
    def startup_ms(self) -> float:
        """Modelled time lost while pipelines fill and drain."""
        return sum(op.startup_ms for op in self.ops)

    @property
    def copies_ms(self) -> float:
        """Modelled time of ops that only copy."""
        return sum(op.modelled_ms for op in self.ops if op.moves == "copy")

    @property
    def layout_ms(self) -> float:
        """Modelled time of ops that only change a layout (transposes, retilings)."""
        return sum(op.modelled_ms for op in self.ops if op.moves == "layout")

    def explain(self) -> str:
        """At most ten lines of text: time, bound, where it goes. Deterministic."""
        from maxkernel_nb.tpu.explain import explain

        return explain(self)
