"""What a candidate worker does: load, trace, export, interpret. Trusted with nothing; see ``sandbox``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from maxkernel_nb import compat
from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate import capture, inputs, numpy_jaxpr, ops_suite, probes, proportion, quick, tamper, wire
from maxkernel_nb.evaluate.audit import Fence
from maxkernel_nb.evaluate.capture import Captured, Program
from maxkernel_nb.evaluate.executor import JobRefused, Reply
from maxkernel_nb.evaluate.interpret import Interpreter, Machine, export_plain, opened
from maxkernel_nb.evaluate.semantics import parallel_axes, read_variables, shared_output
from maxkernel_nb.task import ArgSpec, Case, CaseRole, Parameter
from maxkernel_nb.tpu.chips import chip as chip_named
from maxkernel_nb.tpu.vmem import estimate_vmem, vmem_refusal
from maxkernel_nb.values import content_hash

CONSTANT_LIMIT = 64 << 10
_COPIES = ("dma", "semaphore", "barrier", "core_map")  # within a primitive's name: the kernel orders memory by itself
_REHEARSAL = """
import jax
from jax.experimental import pallas as pl

def _body(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1.0

def kernel(x):
    return pl.pallas_call(_body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
"""
_fence: list[Fence] = []
_probe: list[tuple[Interpreter, list[np.ndarray]]] = []
_programs: OrderedDict[str, Program] = OrderedDict()  # the last ones loaded: candidates judged side by side take turns
PROGRAMS = 4


def load() -> dict[str, Any]:
    """Imports what candidates need, once, and returns the operations."""
    import jax
    import jax.experimental.pallas.tpu
    import jax.export

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    quick.install()
    numpy_jaxpr.install()
    _rehearse()
    _fence.append(Fence(Path.cwd()))
    _fence[0].install()
    suite = {"suite": lambda args, buffers: ops_suite.build(args, _fenced)}
    return {"ping": lambda args, buffers: Reply({}), "trace": trace, "check": check, "gradient": gradient,
            "rehearse": rehearse, **suite}


def _rehearse() -> None:
    """Everything a candidate will need, once: later imports and caches are then not taken for tampering."""
    case = Case(name="rehearsal", role=CaseRole.CHECK, args=(ArgSpec(name="x", shape=(8, 128), dtype="float32"),))
    program = capture.load(_REHEARSAL, "kernel")
    captured = capture.capture(program, case, {}, "v6e")
    _facts(captured)
    capture.export(captured, "v6e")
    _probe.append((Interpreter(captured, Machine()), inputs.draw(case, 0)))
    if not _sound():
        raise InfrastructureError("TPU interpret mode does not work in this environment.")


def _sound() -> bool:
    """True while the interpreter still gives the right answer: asked after every kernel it stopped on."""
    interpreter, arrays = _probe[0]
    try:
        return np.array_equal(interpreter.run(arrays)[0], arrays[0] + 1)
    except JobRefused:
        return False


def trace(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """Captures every case; exports those asked for. One buffer for each name in the answer's ``exports``."""
    program, listed = _program(args), list(map(Case.from_dict, args["cases"]))
    refusals, again = _traced(program, listed, args)
    cases, exports, made = {}, [], []
    for case in listed:
        try:
            if case.name in refusals:
                raise refusals[case.name]
            captured = program.cases[case.name]
            cases[case.name] = _facts(captured)
            _admit(captured, case)
            _fits(captured, args["chip"])
        except JobRefused as refusal:
            if case.role is not CaseRole.RAGGED:
                refusal.extra["case"] = case.name
                raise
            cases[case.name] = {"declined": refusal.message}
            program.cases.pop(case.name, None)
            continue
        _stable(captured, again, case)
        if case.name in args["export"]:
            exports.append(case.name)
            made.append(capture.export(captured, args["chip"]))
    return Reply({"cases": cases, "exports": exports}, tuple(made))


def _traced(program: Program, cases: list[Case], args: dict[str, Any]) -> tuple[dict[str, JobRefused], Program]:
    """All that is traced of a candidate, behind one fence: each case, then all once more, last case first. Refusals by
    case, up to the first of a case that must be traced; and the second captures.
    """
    refusals: dict[str, JobRefused] = {}
    again = Program(program.function)
    with _fenced():
        for case in cases:
            try:
                capture.capture(program, case, args["static"], args["chip"])
            except JobRefused as refusal:
                refusals[case.name] = refusal
                if case.role is not CaseRole.RAGGED:
                    return refusals, again
        for case in reversed(cases):
            if case.name not in refusals:
                capture.capture(again, case, args["static"], args["chip"])
    return refusals, again


def _stable(captured: Captured, again: Program, case: Case) -> None:
    """Traced once more, the function must give the same program: it remembers nothing. Nothing is traced again where
    a case is refused: that refusal is then the answer.
    """
    if case.name in again.cases and captured.fingerprint != again.cases[case.name].fingerprint:
        told = f"For case {case.name} the kernel traces to another program the second time: it keeps something."
        raise JobRefused("unstable", told, case=case.name)


def rehearse(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """The case's program exported for the CPU, its kernels lowered to plain operations: to rehearse measuring."""
    case = Case.from_dict(args["case"])
    return Reply({}, (export_plain(_captured(_program(args), case, args)),))


def check(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """Runs one case on several draws. ``runs``: outputs (their buffers follow in order) or a refusal for each.
    ``compiled``: all by jax, no run with numpy.
    """
    program = _program(args)
    case = Case.from_dict(args["case"])
    captured = _captured(program, case, args)
    runs: list[dict[str, Any]] = []
    sent: list[bytes] = []
    machines: dict[Machine, Interpreter] = {}
    for run in args["runs"]:
        machine = Machine(**run["machine"])
        if machine not in machines:
            alike = sum(r["machine"] == run["machine"] for r in args["runs"])
            machines[machine] = Interpreter(captured, machine, alike)
        interpreter = machines[machine].compile() if args.get("compiled") else machines[machine]
        arrays = _drawn(case, run)
        try:
            outputs = interpreter.run(arrays, run.get("garbage"))
        except JobRefused as refusal:
            runs.append({"refused": {"kind": refusal.kind, "message": refusal.message}})
            return Reply({"runs": runs, "retire": not _sound()}, tuple(sent))
        runs.append({"outputs": [wire.describe(o) for o in outputs]})
        sent += map(wire.to_buffer, outputs)
    return Reply({"runs": runs}, tuple(sent))


def gradient(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """The vector-Jacobian product on one draw; one output for each float argument."""
    program, case = _program(args), Case.from_dict(args["case"])
    with _fenced():
        plain = capture.capture(program, case, args["static"], args["chip"]).closed
        results = list(plain.out_avals)
        try:
            captured = capture.capture_gradient(program, case, args["static"], args["chip"], results)
        except JobRefused as refusal:
            own = any("custom_vjp" in e.primitive.name for e in compat.equations(plain))
            if refusal.kind == "gradient" and not own:
                refusal.kind = "gradient-missing"
            raise
    _refuse_callbacks(list(compat.equations(captured.closed)))
    given = inputs.cotangents([(v.shape, v.dtype.name) for v in results], case.name, args["seed"])
    try:
        outputs = Interpreter(captured, Machine()).run([*inputs.draw(case, args["seed"]), *given])
    except JobRefused as refusal:
        refusal.extra["retire"] = not _sound()
        raise
    return Reply({"outputs": [wire.describe(o) for o in outputs]}, tuple(map(wire.to_buffer, outputs)))


def _drawn(case: Case, run: dict[str, Any]) -> list[np.ndarray]:
    if run.get("probe"):
        return probes.drawn(case, run["draw"], probes.Probe.from_dict(run["probe"]))
    return inputs.draw(case, run["draw"], inputs.Variant(run["variant"]))


@contextmanager
def _fenced() -> Iterator[None]:
    """Where a candidate's own Python runs. What a process that was changed there says is thrown away, with the process.

    The rest of a job (lowering, interpreting) is jax's and ours, and may start threads.
    """
    before = tamper.snapshot()
    try:
        with _fence[0] if _fence else nullcontext():
            yield
    finally:
        found = tamper.changed(before, tamper.snapshot())
        if found:
            told = f"It changes {found}; a kernel may not change anything outside itself."
            raise JobRefused("tampering", told, retire=True)


def _captured(program: Program, case: Case, args: dict[str, Any]) -> Captured:
    """The program that was traced, found or made again: it must be the one whose fingerprint the judge was told."""
    if case.name not in program.cases:
        with _fenced():
            capture.capture(program, case, args["static"], args["chip"])
    captured = program.cases[case.name]
    if captured.fingerprint != args["fingerprint"]:
        raise JobRefused("unstable", "The kernel traces to another program each time it is loaded.")
    return captured


def _program(args: dict[str, Any]) -> Program:
    trees = args.get("trees", [])
    key = content_hash([args["source"], args["entry"], args["static"], args["chip"], trees])
    capture.show(args["source"])
    if key not in _programs:
        while len(_programs) >= PROGRAMS:
            _programs.popitem(last=False)
        with _fenced():
            _programs[key] = capture.load(args["source"], args["entry"], [*map(Parameter.from_dict, trees)])
    return _programs[key]


def _facts(captured: Captured) -> dict[str, Any]:
    found = list(compat.equations(captured.closed))
    kernels = [e for e in found if e.primitive.name == "pallas_call"]
    return {
        "outputs": captured.outputs,
        "kernels": len(kernels),
        "constant_bytes": capture.constant_bytes(captured.closed),
        "fingerprint": captured.fingerprint,
        "vmem_bytes": estimate_vmem(captured.closed).bytes,
        **proportion.facts(captured.closed),
        "parallel": sum(bool(parallel_axes(e)) for e in kernels),
        "copies": sum(any(word in e.primitive.name for word in _COPIES) for e in found),
    }


def _fits(captured: Captured, chip: str) -> None:
    """Asked before lowering and long before the compiler, which needs up to a minute to say the same."""
    failure = vmem_refusal(estimate_vmem(captured.closed), chip_named(chip))
    if failure is not None:
        raise JobRefused(str(failure.kind), failure.message, line=failure.line, advice=failure.advice)


def _refuse_callbacks(found: list[Any]) -> None:
    for name in (equation.primitive.name for equation in found):
        if any(word in name for word in capture.CALLBACKS):
            raise JobRefused("callback", f"The kernel calls back to the host ({name}); remove it.")


# What a TPU answers otherwise than this machine, by a primitive's name: a program that asks is one of two programs.
# What plain JAX asks of the platform is answered already (``platforms``).
_ASKS = {
    "platform_index": "asks within a kernel or a loop on which platform it runs",
    "prng_seed": "draws random bits of the chip",
    "prng_random_bits": "draws random bits of the chip",
    "rng_bit_generator": "draws random bits of the platform",
    "semaphore_read": "reads how far copies are, which is a matter of time",
}


def _refuse_questions(found: list[Any]) -> None:
    for name in (equation.primitive.name for equation in found):
        if name in _ASKS:
            told = f"The program {_ASKS[name]} ({name}): its result must depend on its inputs alone; remove it."
            raise JobRefused("platform", told)


def _admit(captured: Captured, case: Case) -> None:
    """What no candidate may contain, decided on the program, not on its text."""
    program = opened(captured.closed)  # so that it shows which results of a kernel are read
    found, read = list(compat.equations(program)), read_variables(program)
    _refuse_callbacks(found)
    _refuse_questions(found)
    for equation in found:
        name = equation.primitive.name
        if name == "pallas_call" and equation.params.get("interpret"):
            raise JobRefused("interpret-left-on", "A pallas_call has interpret=True left on; remove it.")
        if name == "pallas_call" and (shared := shared_output(equation, read)):
            raise JobRefused("parallel-axis", shared)
    if not any(e.primitive.name == "pallas_call" for e in found):
        raise JobRefused("no-kernel", f"There is no Pallas kernel in it for case {case.name}: it is plain JAX.")
    baked = capture.constant_bytes(captured.closed)
    if baked > CONSTANT_LIMIT:
        told = f"{baked} bytes of constants are baked in (limit {CONSTANT_LIMIT}); compute them in the function."
        raise JobRefused("constants", told)
