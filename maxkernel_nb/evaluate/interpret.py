"""Inside a worker: a captured jaxpr run on the CPU with TPU semantics, kernel untouched."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from maxkernel_nb import compat
from maxkernel_nb.evaluate import quick
from maxkernel_nb.evaluate.capture import Captured, sentence
from maxkernel_nb.evaluate.executor import JobRefused
from maxkernel_nb.evaluate.inputs import unchanged
from maxkernel_nb.evaluate.numpy_jaxpr import MOST, Budget, Program, spending
from maxkernel_nb.tpu.diagnosis import diagnose


@dataclass(frozen=True)
class Machine:
    """How the pretended TPU behaves. ``order`` seeds the order of parallel grid steps."""

    order: int = 0
    cores: int = 1
    races: bool = False


class Interpreter:
    """A captured program for one machine, run ``runs`` times: with numpy where that is quick (``numpy_jaxpr``), else
    compiled once.
    """

    def __init__(self, captured: Captured, machine: Machine, runs: int = 1) -> None:
        import jax
        import jax.extend.core as jex

        closed = opened(captured.closed)
        replaced = jex.ClosedJaxpr(with_interpret(closed.jaxpr, parameters(machine)), closed.consts)
        self.run_ = jax.jit(jex.jaxpr_as_fun(replaced), compiler_options=quick.options())
        self.machine, self._replaced = machine, replaced
        # Cores that wait for each other's copies are left to jax.
        self._budget: Budget | None = None if machine.races else Budget(MOST // runs)

    @property
    def stepwise(self) -> bool:
        """True while runs are tried with numpy."""
        return self._budget is not None

    @cached_property
    def _steps(self) -> Program:
        assert self._budget is not None
        return Program(self._replaced.jaxpr, self._replaced.consts, self._budget)

    def compile(self) -> Interpreter:
        """From now on compiled."""
        self._budget = None
        return self

    def _results(self, arguments: Sequence[np.ndarray]) -> list[Any]:
        """jax has the last word on whatever numpy's run stops at, a kernel's fault or not."""
        import jax

        if self._budget is not None:
            try:
                with spending(self._budget):
                    return self._steps(*arguments)
            except Exception:  # noqa: BLE001 - whatever it is, it is raised again where it is no fault of the first run
                self.compile()
                forget()
        return list(jax.block_until_ready(self.run_(*arguments)))

    def run(self, arguments: Sequence[np.ndarray], garbage: int | None = None) -> list[np.ndarray]:
        """The outputs, as host arrays. ``garbage``: memory not written holds numbers drawn from it, not NaN. Raises
        ``JobRefused`` for what a TPU would not do, or would do by chance.
        """
        try:
            with unchanged(arguments), quick.garbage(garbage):
                outputs = [np.asarray(o) for o in self._results(arguments)]
        except JobRefused:
            forget()
            raise
        except MemoryError as error:
            forget()
            raise JobRefused("memory", "The kernel needs more memory than a worker may use.") from error
        except Exception as error:
            forget()
            raise JobRefused("interpret", fault(error), advice=diagnose(error).explained) from error
        raced = self.machine.races and _races_found()
        forget()
        if raced:
            raise JobRefused("race", "Two accesses to the same memory are not ordered (a data race).")
        return outputs


def forget() -> None:
    """Clears what a run leaves behind: the pretended TPU's memory, and the token that orders its callbacks.

    Without the second, the next program in this process raises the error of the one before (jax 0.7.2 to 0.10.2).
    """
    from jax._src.dispatch import runtime_tokens
    from jax.experimental.pallas import tpu as pltpu

    pltpu.reset_tpu_interpret_mode_state()
    runtime_tokens.clear()


def parameters(machine: Machine) -> Any:
    from jax.experimental.pallas import tpu as pltpu

    known = {f.name for f in dataclasses.fields(pltpu.InterpretParams)}
    cores = "num_cores_or_threads" if "num_cores_or_threads" in known else "num_cores_per_device"  # 0.7.2
    chosen: dict[str, Any] = {
        "uninitialized_memory": "nan",
        "out_of_bounds_reads": "raise",
        "dma_execution_mode": "on_wait",
        "detect_races": machine.races,
        "random_seed": machine.order,
        cores: machine.cores,
    }
    return pltpu.InterpretParams(**chosen)


def export_plain(captured: Captured) -> bytes:
    """The captured program for the CPU, its kernels as plain operations (not with a TPU's semantics)."""
    import jax
    import jax.export
    import jax.extend.core as jex

    closed = captured.closed
    plain = jex.ClosedJaxpr(with_interpret(closed.jaxpr, True), closed.consts)
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals]
    try:
        exported = jax.export.export(jax.jit(jex.jaxpr_as_fun(plain)), platforms=["cpu"])(*specs)
        return bytes(exported.serialize())
    except Exception as error:
        raise JobRefused("rehearsal", f"It cannot be lowered for the CPU: {sentence(error)}") from error


def opened(closed: Any) -> Any:
    """The same program with calls (``jit``, ``remat`` ...) around kernels written out.

    The interpreter orders its callbacks by a token. A call was traced without one, and then lowering finds none
    (``KeyError: OrderedIOEffect``, jax 0.7.2 to 0.10.2).
    """
    import jax

    if not any(_calls_kernels(e) for e in closed.jaxpr.eqns):
        return closed
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in closed.in_avals]
    return jax.make_jaxpr(lambda *arguments: _written_out(closed.jaxpr, closed.consts, arguments))(*specs)


def _written_out(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if compat.is_literal(atom) else env[atom]

    for equation in jaxpr.eqns:
        inputs = [read(v) for v in equation.invars]
        if _calls_kernels(equation):
            body, consts_within = compat.called(equation) or (None, ())
            results = _written_out(body, consts_within, inputs)
        else:
            results = compat.bind_equation(equation, inputs, equation.params)
        env.update(zip(equation.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _calls_kernels(equation: Any) -> bool:
    inner = compat.called(equation)
    return inner is not None and any(e.primitive.name == "pallas_call" for e in compat.equations(inner[0]))


def with_interpret(jaxpr: Any, how: Any) -> Any:
    """The same jaxpr with every kernel's ``interpret`` replaced, inner jaxprs included."""
    return jaxpr.replace(eqns=[_equation(e, how) for e in jaxpr.eqns])


def _equation(equation: Any, how: Any) -> Any:
    if equation.primitive.name == "pallas_call":
        aliases = {} if not _ragged(equation) else {"input_output_aliases": ()}
        return equation.replace(params={**equation.params, "interpret": how, **aliases})
    params = {name: _value(value, how) for name, value in equation.params.items()}
    changed = any(params[name] is not value for name, value in equation.params.items())
    return equation.replace(params=params) if changed else equation


def _ragged(equation: Any) -> bool:
    """True where a block of an output hangs over its edge. Interpreted in place, such an output keeps its padding (jax
    0.7.2 to 0.10.2), so that it is run with outputs of its own: in place it is checked on the other cases.
    """
    mapping = equation.params["grid_mapping"]
    outputs = mapping.block_mappings[len(mapping.block_mappings) - mapping.num_outputs :]
    for block, variable in zip(outputs, equation.outvars, strict=True):
        sizes = [getattr(b, "block_size", b) for b in block.block_shape]
        pairs = zip(variable.aval.shape, sizes, strict=False)
        if any(isinstance(size, int) and size and n % size for n, size in pairs):
            return True
    return False


def _value(value: Any, how: Any) -> Any:
    if hasattr(value, "jaxpr") and hasattr(value, "consts"):
        return value.replace(jaxpr=with_interpret(value.jaxpr, how))
    if hasattr(value, "eqns"):
        return with_interpret(value, how)
    if type(value) in (tuple, list) and any(hasattr(v, "eqns") for v in value):
        return type(value)(_value(v, how) for v in value)
    return value


def fault(error: BaseException) -> str:
    """The interpreter's own words: the innermost 'SomeError: text' of a callback's traceback, else the error's."""
    found = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.+)$", str(error), re.MULTILINE)
    told = [f"{name}: {text}" for name, text in found if "CpuCallback" not in text]
    return f"Running it with TPU semantics stopped with {told[-1][:400] if told else sentence(error)}"


def _races_found() -> bool:
    """jax keeps the finding in a module of its own (0.8 on) or in the interpreter's only one (0.7)."""
    base = "jax._src.pallas.mosaic.interpret"
    state = sys.modules.get(base + ".interpret_pallas_call") or sys.modules[base]
    return bool(state.races is not None and state.races.races_found)
