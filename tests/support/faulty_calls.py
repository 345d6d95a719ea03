"""How the kernels of ``faulty.py`` are called, provoked and diagnosed. Kept apart: lines of that file are what counts.

Run as a script it is the worker: ``python faulty_calls.py OUT.json [NAME...]`` writes {name: diagnosis}, each from the
real tracer, lowering, TPU compiler or interpreter.
"""

import inspect
import json
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

FAULTS = {}


def spec(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype)


@dataclass(frozen=True)
class Fault:
    name: str
    kind: str
    function: Any
    specs: tuple
    chip: str
    run: bool

    @property
    def line(self):
        """Of the file, 1-based: the one that ends in ``# here``; 0 where no line can be told."""
        lines, first = inspect.getsourcelines(self.function)
        return next((first + i for i, text in enumerate(lines) if text.rstrip().endswith("# here")), 0)


def fault(kind, *specs, chip="v6e", run=False):
    """``run``: it shows only when the kernel runs in TPU interpret mode."""

    def add(function):
        name = function.__name__
        FAULTS[name] = Fault(name, kind, function, specs or (spec(32, 256),), chip, run)
        return function

    return add


def rows(kernel, *arrays, out=None, into=None, block=8, **more):
    """Runs a kernel over blocks of rows of its inputs."""
    out = out or arrays[0].shape
    specs = [pl.BlockSpec((block, s[1]), lambda i: (i, 0)) for s in (*[a.shape for a in arrays], out)]
    chosen = {"in_specs": specs[:-1], "out_specs": specs[-1], "grid": (out[0] // block,), **more}
    return pl.pallas_call(kernel, out_shape=spec(*out, dtype=into or arrays[0].dtype), **chosen)(*arrays)


def whole(kernel, *arrays, out=None, **more):
    """Runs a kernel on whole arrays."""
    return pl.pallas_call(kernel, out_shape=out or spec(*arrays[0].shape, dtype=arrays[0].dtype), **more)(*arrays)


def provoke(found, file):
    """The error of one fault (None when nothing refuses it), and the traced program as far as it came."""
    import jax.export
    import jax.extend.core as jex

    from maxkernel_nb.tpu import aot

    program = None
    try:
        if found.run:
            with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(out_of_bounds_reads="raise")):
                arrays = [jax.numpy.zeros(s.shape, s.dtype) for s in found.specs]
                jax.block_until_ready(jax.jit(found.function)(*arrays))
            return None, None
        with aot.abstract_mesh(aot.topology_devices(found.chip)[0]):
            program = jax.make_jaxpr(found.function)(*found.specs)
            lowered = jax.jit(jex.jaxpr_as_fun(program))
            data = jax.export.export(lowered, platforms=["tpu"])(*found.specs).serialize()
        aot.compile_exported(data, found.chip, file)
    except Exception as error:  # noqa: BLE001 - whatever the tools raise is what is looked for
        return error, program
    finally:
        _forget(found)
    return None, None


def _forget(found):
    if found.run:
        from jax._src.dispatch import runtime_tokens

        pltpu.reset_tpu_interpret_mode_state()
        runtime_tokens.clear()


def main(out, *names):
    from maxkernel_nb.tpu.aot import worker_environment

    os.environ.update(worker_environment())
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    import faulty
    import faulty_calls

    from maxkernel_nb.tpu.diagnosis import diagnose

    results = {}
    for name in names or faulty_calls.FAULTS:
        begun = time.monotonic()
        error, program = provoke(faulty_calls.FAULTS[name], faulty.__file__)
        found = diagnose(error, faulty.__file__, program).to_dict() if error else {"kind": "nothing refuses it"}
        seconds = round(time.monotonic() - begun, 2)
        results[name] = {**found, "seconds": seconds, "error": f"{type(error).__name__}: {str(error)[:2000]}"}
    with open(out, "w") as file:
        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
