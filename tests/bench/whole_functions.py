"""Whole functions in one cell: which parts of each become kernels, and what that makes of the whole.

    python -m tests.bench.whole_functions [--project FOLDER] [--points N] [NAME ...]

Each runs through the whole job: the reference, then one kernel, then the versions with more. A line a version that was
compiled, with the modelled time of the whole; the last line says what was verified and kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from maxkernel_nb import api, compat
from maxkernel_nb.errors import MaxKernelError
from tests.authors.whole_models import mamba_block, mlp_block, transformer_layer

FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "mlp_block": (
        mlp_block, "x: bf16[4096,2048], g: f32[2048], gate: bf16[2048,5632], up: bf16[2048,5632], "
                   "down: bf16[5632,2048]"),
    "mamba_block": (
        mamba_block, "x: bf16[1,4096,2048], gate: bf16[2048,2048], value: bf16[2048,2048], b: bf16[2048,128], "
                     "c: bf16[2048,128], step: bf16[2048,4], step_bias: f32[4], rate: f32[4], g: f32[2048], "
                     "out: bf16[2048,2048]"),
    "transformer_layer": (
        transformer_layer, "x: bf16[1,4096,2048], g1: f32[2048], packed: bf16[2048,6144], out: bf16[2048,2048], "
                           "g2: f32[2048], gate: bf16[2048,5632], up: bf16[2048,5632], down: bf16[5632,2048]"),
}


def answer(name: str, project: Path, points: int) -> list[str]:
    function, shapes = FUNCTIONS[name]
    try:
        run = api.start(function, shapes=shapes, author="recipes", project=project,
                        policy="propose", tuning_points=points, chip="v6e")
    except MaxKernelError as error:
        return [f"no task: {error}"]
    run.wait()
    state = run.state
    lines = [] if state.baseline is None else [f"XLA's reference: {state.baseline.modelled_ms:.4g} ms modelled"]
    for found in state.candidates.values():
        head = found.candidate.source.split("\n", 1)[0].lstrip("# ")
        time = f"{found.profile.modelled_ms:.4g} ms" if found.profile is not None else "not timed"
        lines.append(f"{time}: {head} {found.candidate.params}")
    if state.best is None:
        return [*lines, f"reference kept: {state.reason}"]
    gain = f", {state.speedup:.2f}x" if state.speedup is not None else ""
    plan = state.plan.strategy if state.plan is not None else ""
    return [*lines, f"verified: {state.best_ms:.4g} ms modelled{gain}; {plan}; {state.outcome}: {state.reason}"]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FUNCTIONS))
    parser.add_argument("--project", type=Path, default=Path(tempfile.gettempdir()) / "maxkernel-whole")
    parser.add_argument("--points", type=int, default=4)
    given = parser.parse_args(words)
    compat.prepare_host_backend()
    for name in given.names or list(FUNCTIONS):
        sys.stdout.write(name + "".join(f"\n    {line}" for line in answer(name, given.project, given.points)) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
