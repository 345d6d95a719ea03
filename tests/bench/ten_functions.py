"""Ten functions from real models that are not in the benchmark: what the embedded engine makes of each.

    python -m tests.bench.ten_functions [--project FOLDER] [--points N] [NAME ...]

Each runs through the whole job (plan, every check, compile, tune, propose) and is printed with its modelled gain over
XLA, or with the reason for keeping the reference. Answers are kept in FOLDER, so an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from maxkernel_nb import api, compat
from maxkernel_nb.errors import MaxKernelError
from tests.bench.ten_models import FUNCTIONS

Functions = Mapping[str, tuple[Callable[..., Any], str]]  # name -> function, shapes of the timing case


def answer(function: Callable[..., Any], shapes: str, project: Path, points: int) -> dict[str, object]:
    started = time.monotonic()
    try:
        run = api.start(
            function, shapes=shapes, author="recipes", project=project, policy="propose", tuning_points=points,
            chip="v6e",
        )
    except MaxKernelError as error:
        return {"outcome": "no task", "reason": str(error)}
    run.wait()
    state = run.state
    found: dict[str, object] = {"outcome": str(state.outcome or state.status), "reason": state.reason}
    if state.best is not None:
        verified = state.candidates[state.best]
        found |= {"best_ms": state.best_ms, "recipe": state.plan.recipe if state.plan else "",
                  "what": verified.candidate.note, "constants": verified.candidate.params}
    if state.baseline is not None:
        found["reference_ms"] = state.baseline.modelled_ms
    return found | {"seconds": round(time.monotonic() - started)}


def line(name: str, found: dict[str, object]) -> str:
    reference, best = found.get("reference_ms"), found.get("best_ms")
    if isinstance(reference, float) and isinstance(best, float) and best > reference:
        kept = f"its kernel passed every check but takes {best:.4g} ms, XLA {reference:.4g} ms (modelled)"
        return f"{name:22} reference kept: {kept}"
    if isinstance(reference, float) and isinstance(best, float):
        gain = f"{reference:.4g} -> {best:.4g} ms modelled, {reference / best:.2f}x"
        return f"{name:22} verified, {gain} ({found['what']})"
    return f"{name:22} reference kept: {found['reason']}"


def main(words: Sequence[str] | None = None, functions: Functions = FUNCTIONS, folder: str = "maxkernel-ten",
         description: str | None = __doc__) -> int:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(functions))
    parser.add_argument("--project", type=Path, default=Path(tempfile.gettempdir()) / folder)
    parser.add_argument("--points", type=int, default=4)
    given = parser.parse_args(words)
    compat.prepare_host_backend()
    given.project.mkdir(parents=True, exist_ok=True)
    file = given.project / "ten.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    for name in given.names or list(functions):
        if name not in known:
            known[name] = answer(*functions[name], given.project, given.points)
            file.write_text(json.dumps(known, indent=1))
        sys.stdout.write(line(name, known[name]) + "\n")
        sys.stdout.flush()
    verified = sum(found.get("best_ms", math.inf) < found.get("reference_ms", 0.0) for found in known.values())
    sys.stdout.write(f"{verified} of {len(known)} verified with a faster kernel, the others keep their reference\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
