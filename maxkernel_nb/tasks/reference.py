"""Capture a reference once, as executables: its own, its float64 oracle, and the one for the TPU compiler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from maxkernel_nb import compat
from maxkernel_nb.errors import TaskError
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Case, CaseRole, ReferenceArtefacts, RowsReference
from maxkernel_nb.tasks.oracle import Oracle, interpreted
from maxkernel_nb.tasks.rows import Part, parts
from maxkernel_nb.tasks.shortcuts import dropped
from maxkernel_nb.tasks.tracing import Traced, Tracer, refuse_impure, structs
from maxkernel_nb.tasks.work import work


@dataclass(frozen=True)
class CapturedReference:
    """``jax.export`` bytes of one case (empty: not needed or not possible). Inputs are the array parameters in order,
    outputs have the reference's structure; the oracle's floats, in and out, are of ``oracle_dtype``."""

    case: str
    own: bytes = b""
    oracle: bytes = b""
    device: bytes = b""
    oracle_dtype: Literal["float64", "float32"] = "float64"
    note: str = ""
    work: float = 0.0
    shortcuts: dict[str, bytes] = field(default_factory=dict)
    parts: tuple[CapturedPart, ...] = ()


@dataclass(frozen=True)
class CapturedPart:
    """``part`` of the timing case with its exports, as in ``CapturedReference``."""

    part: Part
    captured: CapturedReference


def capture(
    fn: Callable[..., Any], cases: Sequence[Case], static: dict[str, Any], tracer: Tracer | None = None,
    full_oracle: bool = False, gradient: bool = False,
) -> tuple[CapturedReference, ...]:
    """Exports ``fn`` for each case: ``own`` and ``oracle`` (CPU) for check cases, ``device`` (TPU) for the timing case,
    with ``full_oracle`` (there is a chip to measure on) also its ``oracle``, empty where that is not possible.
    ``gradient``: those for check cases can be differentiated once.

    The function is traced once per case (twice for the last) and never run. Raises ``TaskError`` when it does not
    trace, has side effects, calls back into Python, or cannot be exported.
    """
    tracer = tracer or Tracer(fn, [a.name for a in cases[0].args], static)
    refuse_impure(tracer, cases[-1].args)
    compat.prepare_host_backend()
    with compat.no_source_locations():
        captured = [_captured(tracer, case, full_oracle, int(gradient)) for case in cases]
        first = next((case for case in cases if case.role is CaseRole.CHECK), None)
        shortcuts = _shortcuts(tracer, first) if first else {}
    return tuple(
        replace(c, work=work(tracer(case.args).closed), shortcuts=shortcuts if case is first else {})
        for c, case in zip(captured, cases, strict=True)
    )


def _shortcuts(tracer: Tracer, case: Case) -> dict[str, bytes]:
    """The reference without one of its last steps: kernels that drop their epilogue. Left out where not exportable."""
    traced, inputs = tracer(case.args), structs(case.args)
    made: dict[str, bytes] = {}
    for name, function in dropped(traced.closed, tracer.params).items():
        with contextlib.suppress(TaskError):
            made[name] = _export(tracer, traced, function, inputs, "cpu")
    return made


def store_references(captured: Sequence[CapturedReference], store: ObjectStore) -> tuple[ReferenceArtefacts, ...]:
    def put(data: bytes) -> str:
        return store.put(data) if data else ""

    return tuple(
        ReferenceArtefacts(
            case=c.case,
            own=put(c.own),
            oracle=put(c.oracle),
            device=put(c.device),
            oracle_dtype=c.oracle_dtype,
            note=c.note,
            work=c.work,
            shortcuts={name: put(program) for name, program in c.shortcuts.items()},
            parts=tuple(
                RowsReference(
                    args=p.part.args,
                    rows=p.part.rows,
                    own=put(p.captured.own),
                    oracle=put(p.captured.oracle),
                    oracle_dtype=p.captured.oracle_dtype,
                    work=p.part.work,
                )
                for p in c.parts
            ),
        )
        for c in captured
    )


def _captured(tracer: Tracer, case: Case, full_oracle: bool, order: int) -> CapturedReference:
    traced, inputs = tracer(case.args), structs(case.args)
    if case.role is CaseRole.TIMING:
        device = _export(tracer, traced, _evaluator(traced.closed), inputs, "tpu")
        return CapturedReference(case.name, oracle=_full_oracle(tracer, traced, case) if full_oracle else b"",
                                 device=device, parts=tuple(_parts(tracer, case)))
    return _on_cpu(tracer, case, order)


def _parts(tracer: Tracer, case: Case) -> Iterator[CapturedPart]:
    """Those that can be exported: without any, a candidate is not run at full size."""
    for part in parts(case, tracer):
        with contextlib.suppress(TaskError):
            yield CapturedPart(part, _on_cpu(tracer, part.case))


def _on_cpu(tracer: Tracer, case: Case, order: int = 0) -> CapturedReference:
    """``order``: how often the exports can be differentiated."""
    traced, inputs = tracer(case.args), structs(case.args)
    own = _export(tracer, traced, _evaluator(traced.closed, on_cpu=True), inputs, "cpu", order)
    try:
        oracle, notes = _export_oracle(tracer, traced, case, "float64", order)
        return CapturedReference(case.name, own, oracle, note="; ".join(notes))
    except TaskError as error:
        oracle, notes = _export_oracle(tracer, traced, case, "float32", order)
        why = f"float64 was not possible ({error})"
        return CapturedReference(case.name, own, oracle, oracle_dtype="float32", note="; ".join((why, *notes)))


def _full_oracle(tracer: Tracer, traced: Traced, case: Case) -> bytes:
    try:
        return _export_oracle(tracer, traced, case, "float64")[0]
    except TaskError:
        return b""


def _export_oracle(
    tracer: Tracer, traced: Traced, case: Case, dtype: Literal["float64", "float32"], order: int = 0
) -> tuple[bytes, tuple[str, ...]]:
    import jax

    wide = Oracle(traced.closed, dtype)
    with compat.enable_x64(dtype == "float64" or bool(jax.config.read("jax_enable_x64"))):
        inputs = [jax.ShapeDtypeStruct(s.shape, wide.wide(s.dtype)) for s in structs(case.args)]
        return _export(tracer, traced, wide, inputs, "cpu", order), wide.notes


def _export(
    tracer: Tracer, traced: Traced, flat: Callable[..., list[Any]], inputs: Sequence[Any], platform: str,
    order: int = 0,
) -> bytes:
    import jax
    from jax import export

    treedef = jax.tree.structure(traced.outputs)

    def reference(*args: Any) -> Any:
        return jax.tree.unflatten(treedef, flat(*args))

    try:
        return bytes(export.export(jax.jit(reference), platforms=[platform])(*inputs).serialize(vjp_order=order))
    except (ValueError, TypeError, NotImplementedError, AssertionError, KeyError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        if order:
            raise TaskError(f"{tracer.name} has no gradient ({reason[:240]}); leave --gradient off.") from error
        raise TaskError(
            f"{tracer.name} cannot be exported for {platform} ({reason[:240]}); it must be plain JAX that returns "
            "arrays in tuples, lists or dicts."
        ) from error


def _evaluator(closed: Any, on_cpu: bool = False) -> Callable[..., list[Any]]:
    """Evaluates the captured jaxpr; ``on_cpu`` switches Pallas calls in it to interpret mode."""
    from jax.extend.core import jaxpr_as_fun

    if on_cpu and any(e.primitive.name == "pallas_call" for e in compat.equations(closed)):
        closed = closed.replace(jaxpr=_with_interpreted_kernels(closed.jaxpr))
    return jaxpr_as_fun(closed)


def _with_interpreted_kernels(jaxpr: Any) -> Any:
    def change(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(change(v) for v in value) if type(value) in (tuple, list) else value
        if hasattr(value, "jaxpr") and hasattr(value, "consts"):
            return value.replace(jaxpr=_with_interpreted_kernels(value.jaxpr))
        return _with_interpreted_kernels(value) if hasattr(value, "eqns") else value

    eqns = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "pallas_call":
            eqns.append(interpreted(eqn))
        else:
            eqns.append(eqn.replace(params={k: change(v) for k, v in eqn.params.items()}))
    return jaxpr.replace(eqns=eqns)
