"""Inside a worker: a candidate's Python, run once, and the jaxprs that stand for it from then on."""

from __future__ import annotations

import contextlib
import linecache
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

from maxkernel_nb import compat
from maxkernel_nb.evaluate.executor import JobRefused
from maxkernel_nb.evaluate.inputs import is_float
from maxkernel_nb.evaluate.platforms import on_tpu
from maxkernel_nb.evaluate.wire import dtype_named
from maxkernel_nb.task import Case, Parameter
from maxkernel_nb.tasks.trees import from_arrays
from maxkernel_nb.tpu.chips import chip as chip_named
from maxkernel_nb.tpu.diagnosis import diagnose
from maxkernel_nb.tpu.failures import compile_failure
from maxkernel_nb.values import content_hash

FILE = "<candidate>"
CALLBACKS = ("callback", "debug_print", "infeed", "outfeed")  # within a primitive's name


@dataclass(frozen=True)
class Captured:
    """One case: the closed jaxpr (as traced for a TPU, else untouched) and the tree of its outputs."""

    closed: Any
    out_tree: str

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same program in any process: addresses in printed functions do not count."""
        return content_hash(re.sub(r"0x[0-9a-f]+", "0x", str(self.closed)))

    @property
    def outputs(self) -> dict[str, Any]:
        return {"tree": self.out_tree, "leaves": [leaf(aval) for aval in self.closed.out_avals]}


@dataclass
class Program:
    """A loaded candidate: its function of the task's arrays, and what has been captured of it. Lives as long as the
    worker remembers it.
    """

    function: Callable[..., Any]
    cases: dict[str, Captured] = field(default_factory=dict)


def leaf(aval: Any) -> dict[str, Any]:
    return {"shape": list(aval.shape), "dtype": aval.dtype.name, "weak_type": bool(getattr(aval, "weak_type", False))}


def show(source: str) -> None:
    """The text that a line of ``FILE`` in an error is read from."""
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)


def load(source: str, entry: str, trees: Sequence[Parameter] = ()) -> Program:
    """Runs the module once. Raises ``JobRefused`` with the line for whatever it raises."""
    module = ModuleType("candidate")
    show(source)
    with _blamed("import", "The kernel's module cannot be run"):
        exec(compile(source, FILE, "exec"), module.__dict__)
        return Program(from_arrays(getattr(module, entry), trees))


def capture(program: Program, case: Case, static: dict[str, Any], chip: str) -> Captured:
    """Traces the function for a case (abstract inputs, the target chip as the device), at most once."""
    import jax

    if case.name not in program.cases:
        specs = [jax.ShapeDtypeStruct(a.shape, dtype_named(a.dtype)) for a in case.args]
        with _blamed("trace", f"The kernel does not trace for case {case.name}"), as_on(chip):
            closed, out = jax.make_jaxpr(lambda *a: program.function(*a, **static), return_shape=True)(*specs)
            closed = on_tpu(closed)
        program.cases[case.name] = Captured(closed, str(jax.tree.structure(out)))
    return program.cases[case.name]


def capture_gradient(program: Program, case: Case, static: dict[str, Any], chip: str, results: list[Any]) -> Captured:
    """The vector-Jacobian product of the function for a case: of its arguments and the float results' cotangents, in
    order; it gives one array for each float argument. ``results``: the abstract values of the function's results.
    """
    import jax
    import numpy as np

    specs = [jax.ShapeDtypeStruct(a.shape, dtype_named(a.dtype)) for a in case.args]
    floats = [n for n, a in enumerate(case.args) if is_float(a.dtype)]
    asked = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in results if is_float(v.dtype.name)]

    def gradient(inputs: list[Any], cotangents: list[Any]) -> Any:
        def function(*some: Any) -> Any:
            full = [some[floats.index(n)] if n in floats else a for n, a in enumerate(inputs)]
            return jax.tree.leaves(program.function(*full, **static))

        given = iter(cotangents)
        whole = [next(given) if is_float(v.dtype.name) else np.zeros(v.shape, jax.dtypes.float0) for v in results]
        return jax.vjp(function, *(inputs[n] for n in floats))[1](whole)

    with _blamed("gradient", f"The kernel cannot be differentiated for case {case.name}"), as_on(chip):
        closed, out = jax.make_jaxpr(gradient, return_shape=True)(specs, asked)
        closed = on_tpu(closed)
    return Captured(closed, str(jax.tree.structure(out)))


@contextlib.contextmanager
def as_on(chip: str) -> Iterator[None]:
    """Lowering and ``get_tpu_info`` ask the device in use what it is: answer with the target, not this CPU."""
    import dataclasses

    import jax
    from jax._src.mesh import AbstractDevice  # public only through a real device's mesh (0.7.2 to 0.10.2)

    about: dict[str, Any] = {"device_kind": chip_named(chip).device_kinds[0], "num_cores": 1, "platform": "tpu"}
    device = AbstractDevice(**{f.name: about[f.name] for f in dataclasses.fields(AbstractDevice)})
    mesh = jax.sharding.AbstractMesh((1,), ("_",), abstract_device=device)
    with jax.sharding.use_abstract_mesh(mesh):
        yield


def export(captured: Captured, chip: str) -> bytes:
    """The captured jaxpr, lowered for TPU: ``jax.export`` bytes. Raises ``JobRefused`` when it cannot be."""
    import jax
    import jax.export
    import jax.extend.core as jex

    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in captured.closed.in_avals]
    function = jax.jit(jex.jaxpr_as_fun(captured.closed))
    try:
        with as_on(chip):
            return bytes(jax.export.export(function, platforms=["tpu"])(*specs).serialize())
    except MemoryError as error:
        raise JobRefused("memory", "Lowering the kernel needs more memory than a worker may use.") from error
    except Exception as error:
        found = compile_failure(error, FILE, chip_named(chip).vmem_bytes, captured.closed)
        line, told = found.line or line_of(error), found.diagnosis
        raise JobRefused(told.kind, found.message, line=line, advice=told.explained) from error


def constant_bytes(closed: Any) -> int:
    """Bytes of arrays baked into the program: constants of it and of every closed jaxpr inside, and literals."""
    total = sum(map(_bytes, closed.consts))
    for equation in compat.equations(closed):
        total += sum(_bytes(v.val) for v in equation.invars if hasattr(v, "val"))
        for value in equation.params.values():
            values = value if isinstance(value, list | tuple) else (value,)
            total += sum(_bytes(c) for v in values if hasattr(v, "jaxpr") for c in getattr(v, "consts", ()))
    return total


def _bytes(constant: Any) -> int:
    """Not ``nbytes``: jax 0.7's literal arrays have none."""
    dtype: Any = getattr(constant, "dtype", None)
    return int(constant.size) * dtype.itemsize if hasattr(dtype, "itemsize") and hasattr(constant, "size") else 0


@contextlib.contextmanager
def _blamed(kind: str, what: str) -> Iterator[None]:
    """Whatever the candidate raises is its own: a refusal with its line and the last sentence of the error."""
    try:
        yield
    except JobRefused:
        raise
    except MemoryError as error:
        raise JobRefused(kind, f"{what}: it needs more memory than a worker may use.") from error
    except BaseException as error:  # SystemExit and KeyboardInterrupt from a candidate are its errors too
        told = diagnose(error, FILE)
        raise JobRefused(kind, f"{what}: {sentence(error)}", line=line_of(error), advice=told.explained) from error


def sentence(error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text[:600]}"


def line_of(error: BaseException | None) -> int:
    """The innermost line of the candidate's own source on the error's way, 0 if it was never there."""
    while error is not None:
        lines = [f.lineno or 0 for f in traceback.extract_tb(error.__traceback__) if f.filename == FILE]
        if isinstance(error, SyntaxError) and error.filename == FILE:
            return error.lineno or 0
        if lines:
            return lines[-1]
        error = error.__cause__ or error.__context__
    return 0
