"""Errors of the call: ``pallas_call``, its specs, grid and parameters. Python as well."""

from __future__ import annotations

from maxkernel_nb.tpu.diagnosis.kinds import FailureKind, Kind

_S, _D = FailureKind.SPECS, FailureKind.DTYPE

CALLS = (
    Kind(
        "index-map-arguments", _S, r"<lambda>\(\) (takes \d+ positional|missing \d+ required)|"
        r"index_map.*(takes \d+ positional|missing \d+ required)|_map\(\) (takes|missing)",
        "An index map takes another number of arguments than the grid has axes (plus prefetched scalars).",
        "One argument a grid axis, then one a prefetched operand, in every spec, outputs too.",
    ),
    Kind(
        "index-map-result", _S, r"Index map function .* must return|index_map.*must return",
        "An index map must return one integer for each axis of the block.",
        "Use // instead of /, and return one index an axis of the block; indices count blocks, not elements.",
    ),
    Kind(
        "block-spec-order", _S, r"'function' object is not iterable|block_shape.*function",
        "BlockSpec gets the index map where the block's shape belongs.",
        "Write pl.BlockSpec(block_shape, index_map).",
    ),
    Kind(
        "block-rank", _S, r"must have the same number of dimensions as the array shape",
        "A block has another number of axes than its array.",
        "Give one block size an axis; None drops an axis inside the kernel.",
    ),
    Kind(
        "spec-count", _S, r"Pytree for `?(in|out)_specs`? and|(in|out)_specs.*do not match",
        "The number (or tree) of specs differs from that of the arrays.",
        "One spec an input and one an output, in the same order; prefetched operands carry none.",
    ),
    Kind(
        "kernel-arguments", _S, r"\w+\(\) (takes \d+ positional arguments? but \d+ (was|were) given|"
        r"missing \d+ required positional)",
        "The kernel takes another number of refs than the call passes: prefetched, inputs, outputs, scratch.",
        "Write one parameter for each, in that order.",
    ),
    Kind(
        "kernel-returns", _S, r"should return None\. It returns",
        "The kernel returns a value; results leave through the output refs.",
        "Store the result: o_ref[...] = ..., and return nothing.",
    ),
    Kind(
        "store-dtype", _D, r"Invalid dtype for `?swap`?|Value dtype.*Ref dtype",
        "A value is stored into a ref of another dtype.",
        "Cast at the store: o_ref[...] = value.astype(o_ref.dtype).",
    ),
    Kind(
        "block-in-any-space", _S, r"memory space ANY|only blocks having the same block shape",
        "A spec cuts an array in memory space ANY (HBM) into blocks; only VMEM and SMEM are filled block by block.",
        "Write pl.BlockSpec(memory_space=pl.ANY) without a block and copy pieces with pltpu.make_async_copy.",
    ),
    Kind(
        "store-shape", _S, r"Invalid shape for `?swap`?|Value shape.*Ref shape",
        "A value is stored into a ref (or a slice of it) of another shape.",
        "Reduce with keepdims=True; an axis with block size None is gone inside the kernel and must not be indexed.",
    ),
    Kind(
        "index-rank", _S, r"`?indices`? must not be longer than `?shape`?|Too many indices",
        "A ref is indexed with more indices than it has axes.",
        "Index by the block's rank without its None axes.",
    ),
    Kind(
        "index-out-of-bounds", _S, r"Out of bound (slice|indexer|index)|out of bounds for (axis|dim)|"
        r"index .* is out of bounds",
        "A static index or slice reaches beyond the ref.",
        "A ref has the shape of its block, not of the array: index within it, or make the block larger.",
    ),
    Kind(
        "grid-not-integer", _S, r"Grid must be a tuple of integers|grid.*must be (an )?integers?",
        "A grid size is not an integer.",
        "Use pl.cdiv(n, block) or n // block, which stay integers.",
    ),
    Kind(
        "grid-axis", _S, r"Axis -?\d+ is out of bounds for grid|program_id.*out of (bounds|range)",
        "program_id or num_programs names an axis that the grid does not have.",
        "Count grid axes from 0; a kernel without a grid needs grid=(1,) to ask.",
    ),
    Kind(
        "dimension-semantics", _S, r"dimension.semantics",
        "dimension_semantics has an unknown word or another length than the grid.",
        "One of \"parallel\" or \"arbitrary\" a grid axis; \"arbitrary\" for an axis that carries state between steps.",
    ),
    Kind(
        "alias", _S, r"input_output_aliases",
        "An alias names an input and an output that differ in shape or dtype, or an input that does not exist.",
        "Indices count the flat inputs, prefetched ones included; shape and dtype must be equal.",
    ),
    Kind(
        "compiler-params", _S, r"unhashable type: 'dict'|compiler_params",
        "compiler_params is a dictionary or of a wrong type.",
        "Pass pltpu.CompilerParams(dimension_semantics=..., vmem_limit_bytes=...).",
    ),
    Kind(
        "cost-estimate", _S, r"CostEstimate",
        "A field of CostEstimate is not an integer.",
        "Wrap it in int(...).",
    ),
    Kind(
        "out-shape", _S, r"Invalid out_shape|out_shape.*(type|ShapeDtypeStruct)|object has no attribute 'dtype'",
        "out_shape is not an array type.",
        "Pass jax.ShapeDtypeStruct(shape, dtype), or a list of them.",
    ),
)  # fmt: skip
