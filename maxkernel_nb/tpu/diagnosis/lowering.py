"""Errors of Pallas' lowering for TPU and of MLIR's verifier: still Python, still milliseconds."""

from __future__ import annotations

from maxkernel_nb.tpu.diagnosis.kinds import FailureKind, Kind

_U, _D, _L, _B = (
    FailureKind.UNSUPPORTED_OP, FailureKind.DTYPE, FailureKind.MOSAIC_LAYOUT, FailureKind.BLOCK_ALIGNMENT,
)  # fmt: skip
_MISSING = r"(Unimplemented primitive in Pallas TPU lowering[^:]*: *|primitive[ :']+)"


_CALLBACK = r"\w*callback\w*"


def _missing(names: str) -> str:
    return rf"{_MISSING}(?P<op>{names})\b"


LOWERING = (
    Kind(
        "unsupported-sort", _U, _missing("sort|top_k|approx_top_k|argsort"),
        "The TPU's vector unit has no {op}.",
        "Find k values by k rounds of maximum and mask, or leave {op} to XLA outside the kernel.",
    ),
    Kind(
        "unsupported-cumulative", _U, _missing(r"cumsum|cumprod|cummax|cummin|cumlogsumexp|reduce_window\w*"),
        "There is no running {op} inside a kernel.",
        "Multiply by a triangular matrix of ones on the MXU, or take log2(n) steps of pltpu.roll and mask.",
    ),
    Kind(
        "slice-of-value", _U, _missing("dynamic_slice"),
        "A value (registers) cannot be sliced at an index that is only known on the chip.",
        "Slice the ref instead: ref[pl.ds(start, size), :].",
    ),
    Kind(
        "update-of-value", _U, _missing(r"dynamic_update_slice|scatter[\w-]*"),
        "A value (registers) cannot be updated in part.",
        "Store to a slice of a ref, ref[pl.ds(start, size), :] = ..., or choose with jnp.where on an iota.",
    ),
    Kind(
        "gather", _U, rf"take_along_axis-like gathers|Shape mismatch in input, indices and output|{_missing('gather')}",
        "Only gathers in the form of take_along_axis are lowered.",
        "Rows: loop over indices in SMEM, a one-hot matmul, or an index map on prefetched indices.",
    ),
    Kind(
        "unsupported-reverse", _U, _missing("rev"),
        "There is no reversal of an axis inside a kernel (flip, [::-1]).",
        "Let an index map count down, or multiply by an anti-diagonal matrix.",
    ),
    Kind(
        "unsupported-function", _U, _missing("erfc|expm1|cbrt|lgamma|digamma|erf_inv|asinh|acosh|atanh|igamma"),
        "The function {op} has no lowering for TPU kernels.",
        "Write it with exp, log, tanh, rsqrt and erf: gelu as 0.5*x*(1+lax.erf(x/sqrt(2))), expm1(x) as exp(x)-1, "
        "cbrt(x) as sign(x)*exp(log(abs(x))/3).",
    ),
    Kind(
        "complex", _D, rf"VectorElementTypeInterface|complex|{_missing('fft|real|imag')}",
        "Complex numbers do not exist inside a TPU kernel.",
        "Carry real and imaginary parts apart; a small Fourier transform is two matmuls.",
    ),
    Kind(
        "scan-outputs", _U, r"extensive output|not a fori_loop index in",
        "A lax.scan inside a kernel may carry values and may not stack outputs.",
        "Use jax.lax.fori_loop and write row i into a ref.",
    ),
    Kind(
        "host-callback", _U, rf"host callback|different from the lowering platform|{_missing(_CALLBACK)}|"
        r"callbacks? (is|are) not supported|Only interpret mode is supported|io_callback|debug_callback",
        "The program calls back to Python on the host, or is left in interpret mode; neither exists on a TPU.",
        "Remove callbacks, host prints and interpret=True.",
    ),
    Kind(
        "negative-shift", _U, r"shift must be non-negative",
        "pltpu.roll turns one way only.",
        "Add the axis size: roll(x, n - 1, axis) instead of roll(x, -1, axis).",
    ),
    Kind(
        "strided-slice", _U, r"extract_strided_slice' op expected strides|strides? .*(not supported|to be confined)|"
        r"last dim size is not 128|Strided load with non 32-bit",
        "A value cannot be sliced with a stride; a ref can, along rows of 32-bit data 128 lanes wide.",
        "Select columns with a 0/1 matrix on the MXU, or read ref[pl.ds(start, n, stride), :].",
    ),
    Kind(
        "interior-padding", _U, r"interior padding",
        "Padding between elements is not lowered.",
        "Arrange the spacing outside the kernel, or store to a strided slice of a ref.",
    ),
    Kind(
        "float-iota", _D, r"tpu\.iota' op result|iota.*must be vector of integer",
        "Index vectors are integers on a TPU.",
        "Take jax.lax.broadcasted_iota(jnp.int32, shape, axis) and cast it to float32.",
    ),
    Kind(
        "matmul-accumulator", _D, r"Expected matmul acc to be 32-bit|[Aa]cc(umulator)? .*(must be|to be) (32|f32)",
        "The MXU adds up in 32 bits and the product is asked for in less.",
        "Pass preferred_element_type=jnp.float32 and cast the sum afterwards.",
    ),
    Kind(
        "matmul-contraction", _U, r"contracting dims must be of size 1|matmul.*contracting|"
        r"(Multiple|[Tt]wo) contract\w+ dim\w*|batch dims?.*not (implemented|supported)",
        "A product inside a kernel contracts one axis.",
        "Reshape to two axes outside the kernel, or add up one product for each slice.",
    ),
    Kind(
        "matmul-precision", _D, r"Bad (lhs|rhs) type",
        "HIGHEST or HIGH precision is for float32 operands.",
        "Drop precision= for bfloat16 operands, or cast both to float32.",
    ),
    Kind(
        "matmul-dtype", _D, r"E2001|Unsupported matmul (LHS|RHS|lhs|rhs)|Unsupported input data type in matmul",
        "This chip's matrix unit does not take operands of this dtype.",
        "Cast the operands to bfloat16 on this chip (v4 has no int8, fp8 or int4 products).",
    ),
    Kind(
        "scalar-to-vmem", _L, r"Cannot store scalars to VMEM",
        "VMEM is written in vectors and a scalar is stored.",
        "Keep the axes (keepdims=True) and store a (1, 1) slice, or use an output in SMEM.",
    ),
    Kind(
        "array-in-smem", _L, r"Can only load scalars from SMEM|SMEM.*scalars? only|only.*scalar.*SMEM",
        "SMEM is read one number at a time and an array is read.",
        "Index it fully, s_ref[i], or keep the array in VMEM.",
    ),
    Kind(
        "integer-reduction", _D, r"Reductions? over (?P<dtype>u?int\d+|unsigned integers) not implemented",
        "There is no reduction over {dtype}.",
        "Cast to int32 before reducing.",
    ),
    Kind(
        "small-integers", _D, r"Only vector<i16> and vector<i32>|failed to legalize operation 'arith[\s\S]*xi(8|16|4)>|"
        r"Unsupported.*\bi(8|4)\b.*arith",
        "The vector unit has no arithmetic on integers this small.",
        "Widen to int32 on load, and cast back on store.",
    ),
    Kind(
        "float16", _D,
        r"Invalid vector type for (load|store)|mosaic dialect: 'f16'|\bf16>.*(Unsupported|Invalid)|float16",
        "float16 does not exist on a TPU.",
        "Use bfloat16 or float32; cast outside the kernel.",
    ),
    Kind(
        "float64", _D, r"\bX64\b|\bf64\b|xf64\b|float64|64-bit types are|materialization[^\n]*i64|"
        r"func\.return[\s\S]*\bi64\b|\bi64\b[\s\S]*func\.return",
        "64-bit numbers do not exist on a TPU.",
        "Use float32 and int32; turn jax_enable_x64 off around the call, or write np.int32(0) in index maps.",
    ),
    Kind(
        "dma-mismatch", _L, r"DMA source and target (shape|element type)|enqueue_dma' op",
        "An asynchronous copy has a source and a target that differ in shape or dtype; it neither casts nor permutes.",
        "Slice both ends to the same shape, keep one dtype, and cast after the wait.",
    ),
    Kind(
        "vector-dot", _U, r"^AssertionError:\s*$",
        "A rule of Pallas' lowering is broken that has no message: products of two vectors end here.",
        "Keep two axes: jnp.sum(a * b, axis=1, keepdims=True) instead of a dot of vectors.",
    ),
    Kind(
        "rank-1-block", _B, r"rank 1 block shapes?",
        "A one-dimensional block must be the whole array, a multiple of 1024, or a power of two of at least 128 words.",
        "Reshape the array to (1, n) or (n / 128, 128) outside the kernel and use two-dimensional blocks.",
    ),
    Kind(
        "block-alignment", _B, r"last two dimensions of your block shape",
        "The last two sizes of a block must be multiples of 8 and 128, or the array's own.",
        "Choose multiples of 8 (16 for bfloat16, 32 for int8) and 128; one row a step: reshape to (n, 1, d) and use "
        "(None, 1, d).",
    ),
    Kind(
        "unsupported-operation", _U, r"Unimplemented primitive in Pallas TPU lowering[^:]*: *(?P<op>[\w-]+)",
        "{op} has no lowering for TPU kernels.",
        "Write {op} with operations that Pallas lowers for TPU (slices of refs, dot, where, reductions).",
    ),
)  # fmt: skip
