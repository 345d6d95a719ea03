"""Errors of the TPU compiler itself (Mosaic, allocation, XLA) and of running with TPU semantics."""

from __future__ import annotations

from maxkernel_nb.tpu.diagnosis.kinds import FailureKind, Kind

_L, _B, _R = FailureKind.MOSAIC_LAYOUT, FailureKind.BLOCK_ALIGNMENT, FailureKind.RUN_TIME

MEMORY = (
    Kind(
        "smem-exceeded", FailureKind.SMEM_EXCEEDED, r"space=smem|memory space smem",
        "The scalar memory is full: it holds 1 MiB and pads the last axis of an array to 128 words.",
        "Pass long tables as 1-D arrays with the long axis last, or keep them in HBM and copy pieces.",
    ),
    Kind(
        "vmem-window", FailureKind.VMEM_EXCEEDED, r"Allocation \(size=\d+\) would exceed memory[\s\S]*space=vmem",
        "One single block or scratch array is larger than the chip's VMEM, mostly because the call has no grid.",
        "Give the call a grid and cut this array into blocks.",
    ),
    Kind(
        "vmem-exceeded", FailureKind.VMEM_EXCEEDED, r"space=vmem|memory space vmem|ScopedVmemOom|scoped vmem",
        "Blocks (held twice while they stream), scratch and values computed in the step exceed the VMEM that "
        "the kernel may use.",
        "Make the largest blocks smaller, or raise vmem_limit_bytes in pltpu.CompilerParams.",
    ),
    Kind(
        "hbm-exceeded", FailureKind.HBM_EXCEEDED,
        r"[Rr]an out of memory (on|in memory space) (HBM|hbm)|exceeds available HBM",
        "The arrays and temporaries do not fit the chip's HBM.",
        "Use smaller shapes or a chip with more memory.",
    ),
)  # fmt: skip

COMPILER = (
    Kind(
        "packed-rows", _B, r"E2002|MisalignedBlock|is not divisible by tiling",
        "A tile has 8 rows of 32-bit data, 16 of 16-bit, 32 of 8-bit, and the block cuts one.",
        "Take block rows in multiples of 16 for bfloat16 and 32 for int8 and fp8, or all rows.",
    ),
    Kind(
        "unaligned-index", _B, r"E2003|UnprovenMemoryAccessAlignment|cannot statically prove that index",
        "A slice starts at an index that the compiler cannot show to be a multiple of the tile.",
        "Index in whole tiles: wrap the start in pl.multiple_of(i, 128) (lanes) or 8/16/32 (rows), or load an aligned "
        "piece and pltpu.roll it.",
    ),
    Kind(
        "dma-alignment", _B, r"along tiled dimensions must be aligned|must be aligned to tiling|memref_slice",
        "A copy takes part of a tile (rows in 8s, lanes in 128s).",
        "Copy whole tiles, or put the dynamic index on a leading axis by reshaping to (n, 1, d).",
    ),
    Kind(
        "lane-gather", _L, r"Multiple source vregs along gather dimension|dynamic_gather|[Ss]ublane gather",
        "A gather along lanes works within one register of 8 x 128 only (and not at all on v4).",
        "Take pieces of 128 lanes, or a one-hot matmul.",
    ),
    Kind(
        "shape-cast", _L, r"[Uu]nsupported shape cast|[Uu]nsupported reshape|infer-vector-layout: unsupported",
        "A reshape inside the kernel splits or merges the last (lane) axis in a way that registers cannot follow.",
        "Reshape outside the kernel; inside keep the last two axes, and build 2-D masks with broadcasted_iota.",
    ),
    Kind(
        "layout", _L,
        r"infer-vector-layout|apply-vector-layout|relayout|[Ll]ayout|implicit dim|offsets? (mismatch|not supported)|"
        r"Not implemented:|Not Implemented|not implemented",
        "Values would have to move between register layouts in a way that this compiler cannot.",
        "Keep the last axis in whole 128-lane tiles, reduce with keepdims=True, and avoid reshapes that split lanes.",
    ),
    Kind(
        "out-of-bounds-read", _R, r"Out-of-bounds (read|get|load)",
        "The kernel reads beyond a buffer: on a TPU that gives junk, or halts the core.",
        "Check the start of the slice on the last grid step; clamp it, or mask the ragged end with an iota.",
    ),
    Kind(
        "out-of-bounds-write", _R, r"Out-of-bounds (write|swap|store)",
        "The kernel writes beyond a buffer: on a TPU that overwrites other memory, or halts the core.",
        "Check the start of the slice on the last grid step; an output block is indexed from 0.",
    ),
    Kind(
        "dtype", FailureKind.DTYPE,
        r"Please cast your input|Unsupported (element|input|target) type|Unsupported data ?type|Unsupported cast|"
        r"dtype mismatch|Invalid dtype|unsupported dtype|Invalid vector type",
        "An operation gets a dtype that this chip has no form of it for.",
        "Compute in float32 (or int32), feed the MXU bfloat16, and cast on load and store.",
    ),
    Kind(
        "unsupported-form", FailureKind.UNSUPPORTED_OP,
        r"Unsupported operation|failed to legalize operation '(?P<op>[\w.]+)'|[Nn]ot supported|NotImplementedError",
        "This chip's compiler has no form of the operation named in the message.",
        "Replace it; the guide lists what to write instead.",
    ),
)  # fmt: skip
