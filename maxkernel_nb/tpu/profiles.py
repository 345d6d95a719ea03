"""What one ahead-of-time compile says about a program: frozen, serialisable."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from maxkernel_nb.values import Value


class OpProfile(Value):
    """One scheduled op (an XLA fusion or a Pallas call). Times in ms, sizes in bytes.

    ``bundles`` is the modelled number of executed VLIW bundles (trips and region frequencies applied), ``utilisation``
    the share of issue slots used, by unit (``mxu``, ``xlu``, ``valu``, ``eup``, ``vload``, ``vstore``, ``salu``; 0..1).
    """

    name: str
    kind: Literal["fusion", "pallas", "custom-call", "copy", "while", "other"]
    modelled_ms: float
    compute_ms: float
    memory_ms: float
    bundles: float = 0.0
    trips: tuple[float, ...] = ()
    hbm_bytes: float = 0.0
    bound_by: str = ""  # "hbm", "mxu", "valu", "eup", "xlu", "load/store", "scalar", "latency"
    utilisation: dict[str, float] = Field(default_factory=dict)
    spills: int = 0
    fills: int = 0
    vmem_bytes: int = 0
    note: str = ""


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

    def explain(self) -> str:
        """At most ten lines of text: time, bound, where it goes. Deterministic."""
        from maxkernel_nb.tpu.explain import explain

        return explain(self)
