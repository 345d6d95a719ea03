"""Five tasks through the whole ladder and the chip gate, with XLA's CPU backend as the chip (a rehearsal).

    python tests/bench/chip_path.py [--only NAME]

Each kernel is screened, traced, checked, compiled for a TPU where libtpu is installed, then loaded by the worker that
holds the device, checked there at full size and timed against its reference from profiler traces. Prints what the chip
gate said; the exit code says whether all five were right there and timed. The times say nothing of a TPU: the kernels
run as plain operations.
"""

import argparse
import asyncio
import inspect
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import jax
import jax.numpy as jnp

from maxkernel_nb.evaluate.base import ALL_GATES
from maxkernel_nb.evaluate.chip_place import Fleet
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.knowledge import exemplar_rownorm
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Candidate, Outcome
from maxkernel_nb.tasks.build import build_task
from maxkernel_nb.tpu.chip.owner import Ownership

HERE = Path(__file__).resolve().parents[1]


def kernels():
    spec = spec_from_file_location("evaluate_kernels", HERE / "evaluate" / "kernels.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row_norm(x, gain):
    values = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(values * values, axis=1, keepdims=True) + 1e-6)
    return (values * scale * gain.astype(jnp.float32)).astype(x.dtype)


def softmax(x):
    return jax.nn.softmax(x, axis=-1)


def waves(x):
    return jnp.tanh(jnp.exp(-x * x) * jnp.sin(x)) + jnp.log1p(x * x)


WAVES = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def _body(x_ref, o_ref):
    x = x_ref[...]
    o_ref[...] = jnp.tanh(jnp.exp(-x * x) * jnp.sin(x)) + jnp.log1p(x * x)


def kernel(x):
    rows, n = x.shape
    block = min(64, rows)
    spec = pl.BlockSpec((block, n), lambda i: (i, 0))
    return pl.pallas_call(_body, grid=(pl.cdiv(rows, block),), in_specs=[spec], out_specs=spec,
                          out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
"""

SOFTMAX = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def _body(x_ref, o_ref):
    x = x_ref[...]
    e = jnp.exp(x - jnp.max(x, axis=1, keepdims=True))
    o_ref[...] = e / jnp.sum(e, axis=1, keepdims=True)


def kernel(x):
    rows, n = x.shape
    block = min(128, rows)
    spec = pl.BlockSpec((block, n), lambda i: (i, 0))
    return pl.pallas_call(_body, grid=(pl.cdiv(rows, block),), in_specs=[spec], out_specs=spec,
                          out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
"""


def tasks():
    ks = kernels()
    small = "f32[1,2,256,128]"
    return {
        "waves": (waves, "x: f32[256,256]", WAVES, "kernel"),
        "product": (ks.gemm, "x: bf16[256,256], w: bf16[256,256], b: bf16[256]", ks.GEMM, "kernel"),
        "attention": (ks.attention, f"q: {small}, k: {small}, v: {small}", ks.ATTENTION, "kernel"),
        "row norm": (row_norm, "x: f32[512,256], gain: f32[256]", inspect.getsource(exemplar_rownorm), "rms_norm"),
        "softmax": (softmax, "x: f32[256,256]", SOFTMAX, "kernel"),
    }


async def judged(evaluator, store, name, reference, shapes, source, entry):
    task = build_task(reference, shapes=shapes, source=source, store=store, full_oracle=True).task
    found = await evaluator.judge(task, Candidate(source=source, entry=entry, author="test"), ALL_GATES)
    verdicts = found.assessment.verdicts
    for verdict in (v for v in verdicts if v.gate == "chip" or v.outcome is Outcome.FAIL):
        print(f"{name:10} {verdict.gate} {verdict.outcome:8} {verdict.summary}", flush=True)
    chip = [v for v in verdicts if v.gate == "chip"]
    return len(chip) == 2 and all(v.outcome is Outcome.PASS for v in chip) and "measured_ms" in chip[1].numbers


async def run(chosen):
    store = ObjectStore(Path(tempfile.mkdtemp(prefix="chip-path-")))
    fleet = Fleet(Ownership("worker", "cpu", 1, "", "a rehearsal", rehearsal=True))
    evaluator = LocalEvaluator(store, chips=lambda: fleet)
    try:
        return {name: await judged(evaluator, store, name, *tasks()[name]) for name in chosen}
    finally:
        evaluator.close()
        fleet.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=tasks(), action="append")
    done = asyncio.run(run(parser.parse_args().only or list(tasks())))
    print(f"jax {jax.__version__}: {sum(done.values())} of {len(done)} tasks right at full size and timed on the CPU "
          f"backend{'' if all(done.values()) else '; not ' + ', '.join(n for n, ok in done.items() if not ok)}")
    return 0 if all(done.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
