"""The TPU chips that can be aimed at, with the facts the model needs and where each one comes from.

Sources named in the table:

* [vendor] Google Cloud's TPU system architecture pages (peak bf16 rate, HBM size and bandwidth, cores a chip).
* [jax] ``jax._src.pallas.mosaic.tpu_info`` of jax 0.10.2 (MXU columns and issue slots, VMEM and SMEM a core).
* [provoked] read from the compiler's own error text by asking for too much (libtpu 0.0.42.1, 2026-11-30).
* [derived] clock = peak bf16 rate / (cores x multiply-accumulates a cycle x 2).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from maxkernel_nb.errors import UsageError

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One TPU chip.

    ``tflops_bf16``, ``hbm_gbs`` (1e9 bytes/s) and ``hbm_bytes`` are for the whole chip; ``vmem_bytes``, the MXU figures
    and ``smem_bytes`` are for one core. ``device_cores`` is how many cores one JAX device of this chip's topology has:
    where it is less than ``cores`` a single-device program uses only that share of the chip.
    """

    name: str
    topology: str
    bounds: tuple[int, int, int]
    tflops_bf16: float
    hbm_gbs: float
    hbm_bytes: int
    cores: int
    device_cores: int
    clock_ghz: float
    mxu_size: int
    mxu_count: int
    vmem_bytes: int
    scoped_vmem_bytes: int
    smem_bytes: int
    device_kinds: tuple[str, ...]
    dma_granule_bytes: int = 32  # [jax]; the unit of the schedule's DMA sizes, checked against block sizes

    @property
    def device_share(self) -> float:
        """Share of the chip's cores (and so of its peak rate and bandwidth) that one JAX device owns, 0..1."""
        return self.device_cores / self.cores

    @property
    def matrix_rows(self) -> float:
        """Rows of bfloat16 that the matrix units of one core take in a cycle at the peak rate, all together."""
        return self.tflops_bf16 * 1e3 / (self.cores * self.clock_ghz * 2 * self.mxu_size**2)

    @property
    def device_tflops(self) -> float:
        """Peak bf16 TFLOP/s of one JAX device."""
        return self.tflops_bf16 * self.device_share

    @property
    def device_hbm_gbs(self) -> float:
        """Peak HBM bandwidth of one JAX device, 1e9 bytes/s."""
        return self.hbm_gbs * self.device_share


CHIPS: dict[str, Chip] = {
    c.name: c
    for c in (
        Chip(
            name="v4",
            topology="v4:1x1x1",  # shows two devices of one core each [provoked]
            bounds=(1, 1, 1),
            tflops_bf16=275.0,  # [vendor]
            hbm_gbs=1200.0,  # [vendor]; jax says 1230
            hbm_bytes=32 * GIB,  # [vendor]
            cores=2,  # [vendor]
            device_cores=1,  # num_cores of the topology's device
            clock_ghz=1.05,  # [derived] 275e12 / (2 x 4 x 128 x 128 x 2)
            mxu_size=128,  # [jax]
            mxu_count=4,  # [jax]
            vmem_bytes=16 * MIB,  # [provoked] [jax]
            scoped_vmem_bytes=16 * MIB,  # [provoked]
            smem_bytes=1 * MIB,  # [provoked] [jax]
            device_kinds=("TPU v4",),
            dma_granule_bytes=512,  # from the schedule: a 128 KiB block is a DMA of 256 granules
        ),
        Chip(
            name="v5e",
            topology="v5e:1x1",
            bounds=(1, 1, 1),
            tflops_bf16=197.0,  # [vendor]
            hbm_gbs=819.0,  # [vendor]
            hbm_bytes=16 * GIB,  # [vendor]
            cores=1,
            device_cores=1,
            clock_ghz=1.5,  # [derived] 197e12 / (4 x 128 x 128 x 2)
            mxu_size=128,  # [jax]
            mxu_count=4,  # [jax]
            vmem_bytes=128 * MIB,  # [provoked] [jax]
            scoped_vmem_bytes=16 * MIB,  # [provoked]
            smem_bytes=1 * MIB,  # [provoked] [jax]
            device_kinds=("TPU v5 lite", "TPU v5e"),
        ),
        Chip(
            name="v5p",
            topology="v5p:1x1x1",  # shows one device of two cores (megacore) [provoked]
            bounds=(1, 1, 1),
            tflops_bf16=459.0,  # [vendor]
            hbm_gbs=2765.0,  # [vendor]; jax says 2460
            hbm_bytes=95 * GIB,  # [vendor]
            cores=2,
            device_cores=2,
            clock_ghz=1.75,  # [derived] 459e12 / (2 x 4 x 128 x 128 x 2)
            mxu_size=128,  # [jax]
            mxu_count=4,  # [jax]
            vmem_bytes=64 * MIB,  # [provoked] [jax]
            scoped_vmem_bytes=16 * MIB,  # [provoked]
            smem_bytes=1 * MIB,  # [provoked] [jax]
            device_kinds=("TPU v5", "TPU v5p"),
        ),
        Chip(
            name="v6e",
            topology="v6e:1x1",
            bounds=(1, 1, 1),
            tflops_bf16=918.0,  # [vendor]
            hbm_gbs=1640.0,  # [vendor]
            hbm_bytes=32 * GIB,  # [vendor]
            cores=1,
            device_cores=1,
            clock_ghz=1.75,  # [derived] 918e12 / (2 slots x 2 rows x 256 x 256 x 2)
            mxu_size=256,  # [jax]
            mxu_count=2,  # [jax], and the MXU column of the schedule dump; each takes two rows a cycle
            vmem_bytes=int(127.94 * MIB),  # [provoked]; jax says 128 MiB
            scoped_vmem_bytes=32 * MIB,  # [provoked]
            smem_bytes=1 * MIB,  # [provoked] [jax]
            device_kinds=("TPU v6 lite", "TPU v6e"),
        ),
        Chip(
            name="v7x",
            topology="tpu7x:1x1x1",  # 'v7x:...' is refused; shows two devices of one core each [provoked]
            bounds=(1, 1, 1),
            tflops_bf16=2307.0,  # [vendor]
            hbm_gbs=7380.0,  # [vendor]; jax says 7400
            hbm_bytes=192 * GIB,  # [vendor]
            cores=2,
            device_cores=1,
            clock_ghz=2.2,  # [derived] 2307e12 / (2 x 2 slots x 2 rows x 256 x 256 x 2)
            mxu_size=256,  # [jax]
            mxu_count=2,  # [jax]
            vmem_bytes=64 * MIB,  # [provoked] [jax]
            scoped_vmem_bytes=32 * MIB,  # [provoked]
            smem_bytes=1 * MIB,  # [provoked] [jax]
            device_kinds=("TPU7x", "TPU v7x"),
        ),
    )
}


def chip(name: str) -> Chip:
    """The chip called ``name`` (case does not matter).

    Raises:
        UsageError: no such chip; the nearest known name is in the message.
    """
    found = CHIPS.get(name.strip().lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower(), CHIPS, n=1, cutoff=0.3)
    meant = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(f"Unknown chip {name!r}: {meant}Choose one of {', '.join(CHIPS)}.")


def detect_chip(device_kind: str) -> str | None:
    """The chip whose JAX ``device_kind`` string this is, or None for anything that is not a known TPU."""
    for c in CHIPS.values():
        if device_kind in c.device_kinds:
            return c.name
    return None
