"""Products of int8 and float8 through the whole job: plan, every check, compile, tune, propose.

    python -m tests.bench.narrow_products [--project FOLDER] [--chip CHIP] [--points N] [NAME ...]

Prints for each whether its kernel was verified, and its modelled time beside XLA's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from maxkernel_nb import api, compat


def scaled_int8(x, w, s, t):
    """A quantised layer: whole numbers, a scale of each row and of each column."""
    whole = jax.lax.dot(x, w, preferred_element_type=jnp.int32)
    return jax.nn.gelu(whole.astype(jnp.float32) * s[:, None] * t * 1e-4).astype(jnp.bfloat16)


def int8_weights(x, w, s):
    """Weights of eight bits, activations of sixteen."""
    return (x @ w.astype(x.dtype)) * s


def scaled_float8(x, w, s):
    return jax.nn.silu(jax.lax.dot(x, w, preferred_element_type=jnp.float32) * s).astype(jnp.bfloat16)


def float8_gradients(x, w):
    """Gradients in e5m2 times weights in e4m3."""
    return jax.lax.dot(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "scaled_int8": (scaled_int8, "x: i8[4096,4096], w: i8[4096,4096], s: f32[4096], t: f32[4096]"),
    "int8_weights": (int8_weights, "x: bf16[4096,4096], w: i8[4096,4096], s: bf16[4096]"),
    "scaled_float8": (scaled_float8, "x: f8e4m3fn[4096,4096], w: f8e4m3fn[4096,4096], s: f32[4096]"),
    "float8_gradients": (float8_gradients, "x: f8e5m2[4096,4096], w: f8e4m3fn[4096,4096]"),
}


def answer(name: str, project: Path, chip: str, points: int) -> str:
    function, shapes = FUNCTIONS[name]
    run = api.start(
        function, shapes=shapes, author="recipes", project=project, policy="propose", tuning_points=points, chip=chip
    )
    run.wait()
    state = run.state
    reference = state.baseline.modelled_ms if state.baseline is not None else None
    if state.best is None or state.best_ms is None or reference is None:
        return f"{name:18} not verified: {state.reason}"
    recipe = state.plan.recipe if state.plan else ""
    return (
        f"{name:18} verified ({recipe}, {state.candidates[state.best].candidate.note}): {reference:.4g} -> "
        f"{state.best_ms:.4g} ms modelled on {chip}, {reference / state.best_ms:.2f}x"
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FUNCTIONS))
    parser.add_argument("--project", type=Path, default=Path(tempfile.gettempdir()) / "maxkernel-narrow")
    parser.add_argument("--chip", default="v6e")
    parser.add_argument("--points", type=int, default=3)
    given = parser.parse_args(words)
    compat.prepare_host_backend()
    given.project.mkdir(parents=True, exist_ok=True)
    for name in given.names or FUNCTIONS:
        sys.stdout.write(answer(name, given.project, given.chip, given.points) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
