"""Which recipe serves each of the 50 benchmark references, and why the others decline. Nothing is compiled or run.

    python -m tests.bench.recipe_field [8p 12p ...]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from jaxbench.bridge import build
from jaxbench.registry import BenchTask, task, tasks
from maxkernel_nb import compat
from maxkernel_nb.authors.survey import Answer, survey
from maxkernel_nb.errors import MaxKernelError
from maxkernel_nb.store import ObjectStore

SHORT = 110


def main(words: Sequence[str]) -> int:
    compat.prepare_host_backend()
    served = 0
    wanted = [task(word) for word in words] or list(tasks())
    with tempfile.TemporaryDirectory() as folder:
        for bench in wanted:
            lines, found = _lines(bench, ObjectStore(Path(folder)))
            served += found
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
    sys.stdout.write(f"{served} of {len(wanted)} are served by a recipe\n")
    return 0


def _lines(bench: BenchTask, store: ObjectStore) -> tuple[list[str], bool]:
    try:
        built = build(bench, store)
        answers = survey({case.name: built.trace(case.name) for case in built.task.cases}, built.task)
    except MaxKernelError as error:
        return [f"{bench.number}: no task: {error}"], False
    serving = [a for a in answers if a.serves]
    if serving:
        return [_served(bench, a) for a in serving], True
    return [f"{bench.number}: declined", *(f"    {a.recipe}: {a.reason[:SHORT]}" for a in answers)], False


def _served(bench: BenchTask, answer: Answer) -> str:
    algebra = f"; algebra: {'; '.join(answer.algebra)}" if answer.algebra else ""
    return f"{bench.number}: {answer.recipe}: {answer.reason}, at least {answer.bound_ms:.3f} ms{algebra}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
