"""Ours on the shapes of the best published agent (Autocomp: v6e, batch 1, sequence 2048), beside its figures.

    python -m tests.bench.autocomp [16p 15p 3p 1p] [--budget "6 candidates, 10m"] [--project FOLDER]

Its gains were measured on a chip, over plain JAX (flash attention: over jax's own Pallas kernel); ours are modelled
from the TPU compiler's schedule: the two lie beside each other and are not the same kind of figure. What is known
already is not run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jaxbench.harness import Harness
from jaxbench.registry import BenchTask, task
from jaxbench.results import Kind, Result, ResultFile
from jaxbench.suites import OwnItem
from maxkernel_nb import compat
from maxkernel_nb.store import Project

PUBLISHED = {"16p": 4.37, "15p": 2.61, "3p": 1.85, "1p": 1.41}  # measured; 1p over jax's own kernel
AGAINST = {"1p": "jax's own kernel"}


def shaped(number: str) -> BenchTask:
    bench = task(number)
    cases = {name: {**dims, "batch": 1} for name, dims in bench.cases.items()}  # as derived for a batch of one
    return replace(bench, id=f"{bench.id}_b1_s2048", full=bench.full.but(batch=1, seq_len=2048), cases=cases)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.autocomp", description=__doc__)
    parser.add_argument("ids", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--budget", default="6 candidates, 10m")
    parser.add_argument("--project", type=Path, default=Path("build/autocomp"))
    given = parser.parse_args(words)
    compat.prepare_host_backend()
    file = ResultFile(given.project / "results.jsonl")
    with Harness(Project(given.project), file, resume=True) as harness:
        items = [OwnItem(shaped(number)) for number in given.ids]
        harness.optimize(items, author="recipes", budget=given.budget)
        harness.rivals([i for i in items if i.bench.number in AGAINST])
    for number in given.ids:
        sys.stdout.write(line(number, file.read()) + "\n")
    return 0


def line(number: str, results: Sequence[Result]) -> str:
    mine = [r for r in results if r.task == shaped(number).id]
    ours = next((r for r in reversed(mine) if r.kind is Kind.OPTIMIZED), None)
    if ours is None or ours.kernel_ms is None or ours.reference_ms is None:
        why = ours.reason if ours else "not run"
        return f"{number:4} no kernel: {why}; published {PUBLISHED[number]:.2f}x measured"
    told = f"{number:4} XLA {ours.reference_ms:.3f} ms, ours {ours.kernel_ms:.3f} ms: {ours.speedup:.2f}x modelled"
    rival = next((r for r in mine if r.kind is Kind.RIVAL and r.kernel_ms), None)
    if rival is not None and rival.kernel_ms is not None:
        told += f"; jax's own kernel {rival.kernel_ms:.3f} ms: {rival.kernel_ms / ours.kernel_ms:.2f}x modelled"
    return f"{told}; published {PUBLISHED[number]:.2f}x measured over {AGAINST.get(number, 'plain JAX')}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
