"""How much VMEM a Pallas kernel will ask for, read from its jaxpr alone (milliseconds, no compiler).

The rules were found by provoking the compiler (libtpu 0.0.42.1, v6e): a block is held twice unless its index never
changes over the grid, or ``Buffered(n)`` says otherwise; scratch once; sizes without padding (a (20480, 64) float32
block counts 5 MiB). The kernel's own temporaries are not seen, so the estimate is a lower bound: over the limit means
refused for sure, under it means only that the compiler must be asked. Scratch that the compiler may do without counts
in the estimate and not against the kernel.
"""

from __future__ import annotations

import math
import re
from typing import Any

from pydantic import Field

from maxkernel_nb.compat import equations
from maxkernel_nb.tpu.availability import libtpu_version
from maxkernel_nb.tpu.chips import MIB, Chip
from maxkernel_nb.tpu.failures import CompileFailure, FailureKind, vmem_advice
from maxkernel_nb.values import Value

OUTSIDE_VMEM = ("smem", "any", "hbm", "host", "semaphore", "cmem")


class VmemEstimate(Value):
    """Bytes of VMEM that the blocks and scratch of one kernel need (the largest kernel, where there are several).

    ``by_buffer`` maps a buffer's name (``x_ref bf16[512,1024] x2``) to its bytes with buffering; ``limit_bytes`` is
    the kernel's own ``vmem_limit_bytes``, None where it relies on the chip's default.
    """

    bytes: int = 0
    least_bytes: int = 0  # every block once: what a compiler needs that gives up double buffering rather than refuse
    fleeting_bytes: int = 0  # of both: scratch that the compiler may do without
    by_buffer: dict[str, int] = Field(default_factory=dict)
    limit_bytes: int | None = None
    kernel: str = ""

    def limit_on(self, chip: Chip) -> int:
        """The scoped limit that applies on ``chip``, bytes."""
        return min(self.limit_bytes or chip.scoped_vmem_bytes, chip.vmem_bytes)


def estimate_vmem(closed_jaxpr: Any) -> VmemEstimate:
    """The VMEM need of the largest ``pallas_call`` in a jaxpr (open or closed); zero bytes where there is none."""
    kernels = [e for e in equations(closed_jaxpr) if e.primitive.name == "pallas_call"]
    return max((_of_kernel(e) for e in kernels), key=lambda v: v.bytes, default=VmemEstimate())


def vmem_refusal(estimate: VmemEstimate, chip: Chip, slack: float = 1.02) -> CompileFailure | None:
    """The failure that the compiler would report (after up to a minute), or None while the estimate may still fit."""
    limit = estimate.limit_on(chip)
    needed = estimate.bytes if _insists_on_two_buffers() else estimate.least_bytes
    if needed - estimate.fleeting_bytes <= slack * limit:
        return None
    top = sorted(estimate.by_buffer.items(), key=lambda kv: -kv[1])[:3]
    largest = ", ".join(f"{name} = {size / MIB:.1f} MiB" for name, size in top)
    return CompileFailure(
        FailureKind.VMEM_EXCEEDED,
        f"Blocks and scratch need {estimate.bytes / MIB:.1f} MiB of VMEM and the limit on {chip.name} is "
        f"{limit / MIB:.1f} MiB; largest: {largest}.",
        vmem_advice(estimate.bytes, limit, chip.vmem_bytes),
        used_bytes=estimate.bytes,
        limit_bytes=limit,
    )


def _insists_on_two_buffers(version: str | None = None) -> bool:
    """libtpu 0.0.23 was seen to drop the second buffer of blocks that do not fit, 0.0.42 to refuse them."""
    numbers = [int(n) for n in re.findall(r"\d+", libtpu_version() if version is None else version)[:3]]
    return not numbers or numbers >= [0, 0, 40]


def _of_kernel(eqn: Any) -> VmemEstimate:
    grid_mapping, body = eqn.params["grid_mapping"], eqn.params["jaxpr"]
    prefetch = grid_mapping.num_index_operands
    blocks = list(grid_mapping.block_mappings)
    refs = body.invars[prefetch:]
    names = _names(body, prefetch)
    sizes: dict[str, int] = {}
    for i, block in enumerate(blocks):
        copies = _buffers(block, grid_mapping.grid)
        _add(sizes, names[i], block.block_aval, copies)
    twice = sum(sizes.values())
    least = sum(size // _copies(label) for label, size in sizes.items())
    fleeting = 0
    for i, ref in enumerate(refs[len(blocks) :], start=len(blocks)):
        before = sum(sizes.values())
        _add(sizes, names[i], ref.aval, 1)
        fleeting += sum(sizes.values()) - before if _fleeting(ref, body) else 0
    params = eqn.params.get("compiler_params")
    return VmemEstimate(
        bytes=sum(sizes.values()),
        least_bytes=sum(sizes.values()) - twice + least,
        fleeting_bytes=fleeting,
        by_buffer=sizes,
        limit_bytes=_limit(params),
        kernel=_kernel_name(eqn),
    )


def _names(body: Any, prefetch: int) -> list[str]:
    info = getattr(body, "debug_info", None)
    names = list(getattr(info, "arg_names", None) or ())
    count = len(body.invars)
    if len(names) != count:
        names = [f"buffer {i}" for i in range(count)]
    return names[prefetch:]


def _add(sizes: dict[str, int], name: str, aval: Any, copies: int) -> None:
    space = str(getattr(aval, "memory_space", None) or "").lower()
    if any(word in space for word in OUTSIDE_VMEM):
        return
    item = getattr(aval.dtype, "itemsize", None)
    if item is None:  # semaphores
        return
    bits = 4 if "int4" in str(aval.dtype) else 8 * item
    shape = ",".join(map(str, aval.shape))
    label = f"{name} {aval.dtype}[{shape}]" + (f" x{copies}" if copies > 1 else "")
    sizes[label if label not in sizes else f"{label} #{len(sizes)}"] = (
        math.prod(map(int, aval.shape)) * bits // 8 * copies
    )


def _fleeting(ref: Any, body: Any) -> bool:
    """Scratch that is never used, or always written before it is read: the compiler was seen to keep such values in
    registers, or forward them from store to load, and to allot no scratch."""
    uses = [e for e in body.eqns if any(_in(v, {ref}) for v in e.invars)]
    plain = all(e.primitive.name in ("get", "swap") for e in uses)
    return not uses or (plain and uses[0].primitive.name == "swap")


def _copies(label: str) -> int:
    found = re.search(r"\] x(\d+)( #\d+)?$", label)
    return int(found.group(1)) if found else 1


def _buffers(block: Any, grid: tuple[Any, ...]) -> int:
    mode = getattr(block, "pipeline_mode", None)
    count = getattr(mode, "buffer_count", None)
    if count is not None:
        return int(count)
    return 2 if _moves(block.index_map_jaxpr, grid) else 1


def _moves(index_map: Any, grid: tuple[Any, ...]) -> bool:
    """Whether a block's index can change over the grid: through an axis longer than one, or prefetched data."""
    jaxpr = getattr(index_map, "jaxpr", index_map)
    fixed = {v for v, n in zip(jaxpr.invars, grid, strict=False) if isinstance(n, int) and n == 1}
    moving = set(jaxpr.invars) - fixed
    for eqn in jaxpr.eqns:
        if any(_in(v, moving) for v in eqn.invars):
            moving.update(eqn.outvars)
    return any(_in(v, moving) for v in jaxpr.outvars)


def _in(var: Any, vars_: set[Any]) -> bool:
    return not hasattr(var, "val") and var in vars_


def _limit(params: Any) -> int | None:
    if isinstance(params, dict) or hasattr(params, "get"):
        params = params.get("mosaic_tpu") or params.get("mosaic")
    if isinstance(params, dict):
        return params.get("vmem_limit_bytes")
    return getattr(params, "vmem_limit_bytes", None)


def _kernel_name(eqn: Any) -> str:
    info = getattr(eqn.params["jaxpr"], "debug_info", None)
    return str(eqn.params.get("name") or getattr(info, "func_name", "") or "kernel")
