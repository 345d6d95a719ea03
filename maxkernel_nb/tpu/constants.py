"""What the compiler's output does not say: six constants a chip, and how far modelled times are usually off.

Fitted to published v6e device times (``calibration/published.csv``) by ``python -m maxkernel_nb.tpu.calibrate --fit``;
``--report`` prints how well they do, each row with constants fitted without it. The other chips have no published
times here: they take v6e's constants, which are shares of their own peak or properties of the DMA engine, and a wider
error.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from maxkernel_nb.values import Value

OpClass = Literal["compute", "memory", "kernel", "guess", "hlo"]


class Constants(Value):
    """The model's constants.

    Attributes:
        hbm_efficiency: share of peak HBM bandwidth that reads and writes reach together (row misses, refresh, turning
            the bus around). Decided by 12p, which reads and writes streams of equal size.
        one_way_efficiency: the same for reads alone or writes alone, which use half of the paths between HBM and VMEM.
            Decided by 16p and 1p, which write 17 GB and read them again.
        dma_latency_us: from the last byte's turn on the bus until the waiting program sees it.
        dma_setup_us: the least time between two DMAs however small they are (descriptor, address translation).
            Decided by 6p, which gathers pages of 32 KB.
        contention: share of its own time by which a bundle is delayed while a DMA uses VMEM's ports beside it. Decided
            by the matrix products whose DMAs and bundles take nearly as long.
        launch_us: from one scheduled op to the next (program load, scalar set-up) beyond what their bundles say.
    """

    hbm_efficiency: float = Field(default=0.94, gt=0, le=1)
    one_way_efficiency: float = Field(default=0.76, gt=0, le=1)
    dma_latency_us: float = Field(default=0.4, ge=0)
    dma_setup_us: float = Field(default=0.18, ge=0)
    contention: float = Field(default=0.14, ge=0)
    launch_us: float = Field(default=0.0, ge=0)


V6E = Constants()
CONSTANTS: dict[str, Constants] = {"v6e": V6E}


def constants(chip: str) -> Constants:
    """The constants of ``chip``; v6e's, where no times of the chip were published."""
    return CONSTANTS.get(chip, V6E)


# Typical error of a modelled time in percent, by class of op: two thirds of the published rows of that class are nearer
# (leave-one-out with the compiler of their age). "guess" rests on one row and "hlo" on none: wider than seen.
ERRORS: dict[OpClass, float] = {"compute": 5.0, "memory": 12.0, "kernel": 7.0, "guess": 25.0, "hlo": 40.0}
CALIBRATED = "25 published v6e times, each left out of its own fit: median error 3 %, 96 % within 20 % (jax 0.6.2)"


def typical_error(kind: OpClass) -> float:
    """Percent by which a modelled time of this class of op is typically off."""
    return ERRORS[kind]
