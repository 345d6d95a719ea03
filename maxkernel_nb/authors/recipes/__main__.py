"""``python -m maxkernel_nb.authors.recipes``: the recipes; with ``FILE.py:FUNCTION --shapes TEXT`` their answers."""

from __future__ import annotations

import argparse
import runpy
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from maxkernel_nb.authors.survey import known, survey
from maxkernel_nb.errors import MaxKernelError, UsageError


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m maxkernel_nb.authors.recipes", description=__doc__)
    parser.add_argument("function", nargs="?", metavar="FILE.py:FUNCTION", help="whose recipes are wanted")
    parser.add_argument("--shapes", metavar="TEXT", help='"x: bf16[4096,8192], w: bf16[8192,8192]"')
    parser.add_argument("--chip", default="v6e")
    given = parser.parse_args(words)
    try:
        lines = _of_function(given.function, given.shapes, given.chip) if given.function else _all()
    except MaxKernelError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _all() -> list[str]:
    return [line for name, title, limits in known() for line in (f"{name}: {title}", *(f"    {x}" for x in limits))]


def _of_function(where: str, shapes: str | None, chip: str) -> list[str]:
    from maxkernel_nb import compat
    from maxkernel_nb.store import ObjectStore
    from maxkernel_nb.tasks.build import build_task

    file, _, name = where.partition(":")
    if not name or not Path(file).is_file():
        raise UsageError(f"{where} names no function; write FILE.py:FUNCTION.")
    compat.prepare_host_backend()
    found = runpy.run_path(file).get(name)
    if not callable(found):
        raise UsageError(f"{file} has no function {name}.")
    with tempfile.TemporaryDirectory() as folder:
        built = build_task(found, shapes=shapes, chip=chip, store=ObjectStore(Path(folder)))
        answers = survey({case.name: built.trace(case.name) for case in built.task.cases}, built.task)
    lines = []
    for answer in answers:
        bound = f", at least {answer.bound_ms:.3f} ms on {chip}" if answer.bound_ms is not None else ""
        lines.append(f"{answer.recipe}: {'serves' if answer.serves else 'declines'}: {answer.reason}{bound}")
        lines += [f"    algebra: {note}" for note in answer.algebra]
    return lines


if __name__ == "__main__":
    sys.exit(main())
