"""Errors of Python and of jax's tracer: milliseconds, before anything is lowered."""

from __future__ import annotations

from maxkernel_nb.tpu.diagnosis.kinds import FailureKind, Kind

_T, _N = FailureKind.TRACING, FailureKind.NAMES

TRACING = (
    Kind(
        "traced-condition", _T, r"TracerBoolConversionError|boolean conversion of traced",
        "A Python if, while, and or assert asks for the value of something that is only known on the chip.",
        "Use @pl.when(condition) for a region, jnp.where for values, jax.lax.cond where a result is needed.",
    ),
    Kind(
        "traced-loop-bound", _T, r"TracerIntegerConversionError|__index__\(\) method was called on traced",
        "Python needs an integer here (a range, a shape, an index) and gets a value that is only known on the chip.",
        "Loop with jax.lax.fori_loop(0, n, body, carry); index a ref with pl.ds(start, static_size).",
    ),
    Kind(
        "numpy-on-traced", _T, r"TracerArrayConversionError|__array__\(\) method was called on traced|"
        r"numpy\.ndarray conversion method",
        "A numpy function is called on a value that is only known on the chip.",
        "Use the jnp function of the same name.",
    ),
    Kind(
        "traced-size", _T, r"DShapedArray|Shapes must be 1D sequences of concrete values|"
        r"Arguments to [`']?\w+[`']? must be static|not a static (size|integer)|dynamic (size|shape)",
        "A size depends on a value that is only known on the chip; shapes and slice sizes are fixed when tracing.",
        "Take a static size and mask the rest with an iota, or loop over pieces of static size.",
    ),
    Kind(
        "concrete-value", _T, r"ConcretizationTypeError|Abstract tracer value encountered",
        "Python asks for the value of something that is only known on the chip.",
        "Compute it with jnp, or pass it as a static Python number.",
    ),
    Kind(
        "leaked-value", _T, r"UnexpectedTracerError|leaked",
        "A value made inside a loop body, a pl.when region or another trace is used outside it.",
        "Return it from the loop as carry, or store it in a scratch ref and read the ref.",
    ),
    Kind(
        "captured-constant", _T, r"captures constants|must not capture constants|closed-over|closes over",
        "The kernel or an index map uses an array that was made outside it.",
        "Pass it as an input (tables for index maps: scalar prefetch), or build it inside from broadcasted_iota; a "
        "value made under pl.when goes through a scratch ref.",
    ),
    Kind(
        "immutable-array", _T, r"JAX arrays are immutable|does not support item assignment",
        "A value (not a ref) is assigned to by index.",
        "Store to the ref, o_ref[...] = ..., or choose with jnp.where on a broadcasted_iota.",
    ),
    Kind(
        "ref-as-value", _T, r"requires ndarray or scalar arguments, got <class '[\w.]*(Tracer|Ref)|"
        r"(unsupported operand type|bad operand type).*(Tracer|Ref)\b|Ref\b.*not a valid JAX type|"
        r"got [`']?\w*(MemRef|AbstractRef|Ref)\b|MemRef<|Attempting to pass a Ref",
        "A ref is used as if it were its value.",
        "Read it first: x_ref[...] gives the block as a value.",
    ),
    Kind(
        "loop-carry", _T, r"carry input and carry output must have equal types|carry .* must have the same type|"
        r"body_fun output and input must have identical types",
        "The carry of a loop leaves the body with another shape or dtype than it entered with.",
        "Start with a carry of the final type (jnp.zeros(shape, jnp.float32)) and cast what the body returns to it.",
    ),
    Kind(
        "branch-results", _T, r"branches must have equal output types|branch outputs? must have|true_fun and false_fun "
        r"output",
        "The branches of a cond give results of different shape or dtype.",
        "Make both branches return the same shapes and dtypes, or store inside @pl.when instead.",
    ),
    Kind(
        "no-gradient", _T, r"Linearization failed|reverse-mode autodiff|Differentiation rule for 'pallas_call'|"
        r"JVP with aliasing|not implemented for Pallas",
        "jax cannot differentiate through a pallas_call.",
        "Give the function a jax.custom_vjp whose backward pass is another kernel or plain jax.",
    ),
    Kind(
        "unknown-attribute", _N, r"AttributeError: module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'|"
        r"AttributeError: (type object|partially|.*object) .*has no attribute '(?P<other>\w+)'|"
        r"ImportError: cannot import name '(?P<imported>\w+)'",
        "This version of jax has no such name.",
        "Look the name up in the installed jax: CompilerParams (was TPUCompilerParams), pl.ANY, ref indexing for "
        "pl.load and pl.store, pl.Element instead of Unblocked.",
    ),
    Kind(
        "unknown-argument", _N, r"got an unexpected keyword argument '(?P<name>\w+)'",
        "The function has no keyword {name} in this version of jax.",
        "Look its signature up in the installed jax; options of the TPU compiler go into pltpu.CompilerParams.",
    ),
    Kind(
        "unknown-name", _N, r"NameError: |UnboundLocalError",
        "A name is used that is not defined there.",
        "Define it, or import it at the top of the kernel's module.",
    ),
    Kind(
        "reshape-size", _T, r"cannot reshape array of shape|reshape total size must be unchanged",
        "A reshape changes the number of elements.",
        "Count with the block's shape, not the array's: inside the kernel a ref has the shape of its block.",
    ),
    Kind(
        "shapes-do-not-match", _T, r"incompatible shapes|contracting dimensions to have the same shape|"
        r"Incompatible shapes|got incompatible shapes|must have (equal|the same) shapes|concatenate .* shapes",
        "Two operands have shapes that do not fit each other.",
        "Compare the block shapes of both refs; a bias wants shape (1, n); dot_general names its contracting axes.",
    ),
)  # fmt: skip
