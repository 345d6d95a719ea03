"""Checks that need not be made twice: verdicts of the check gate, in memory and on disk.

A check is known again when the task is the same to its salt, seeds, tolerance and exports, the candidate's source is
the same but for comments and layout, it traced to the same programs, and the judge and its libraries are the same.
Whatever says more about this machine today than about the kernel (a limit, a crash, a fault of ours) is not kept.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from maxkernel_nb.evaluate.ground import Ground
from maxkernel_nb.evaluate.records import Records
from maxkernel_nb.task import Outcome, Verdict
from maxkernel_nb.values import content_hash

_NOT_KEPT = ("timeout", "crash", "memory")


class KnownChecks:
    def __init__(self, records: Records) -> None:
        self._records = records
        self._memory: dict[str, tuple[Verdict, ...]] = {}

    def get(self, ground: Ground) -> tuple[Verdict, ...] | None:
        key = identity(ground)
        if key not in self._memory:
            found = self._records.get("check", key, ground.task.chip)
            if found is None:
                return None
            try:
                self._memory[key] = tuple(Verdict.from_dict(v) for v in found["verdicts"])
            except (KeyError, TypeError, ValueError):  # a damaged record counts as absent
                return None
        return self._memory[key] or None

    def put(self, ground: Ground, verdicts: tuple[Verdict, ...]) -> None:
        kinds = {d.kind for v in verdicts for d in v.diagnostics}
        if not verdicts or kinds & set(_NOT_KEPT) or any(v.outcome is Outcome.INFRASTRUCTURE for v in verdicts):
            return
        key = identity(ground)
        self._memory[key] = verdicts
        self._records.put("check", key, ground.task.chip, {"verdicts": [v.to_dict() for v in verdicts]})


def identity(ground: Ground) -> str:
    """What a check depends on."""
    programs = {case: facts.get("fingerprint", "") for case, facts in ground.facts.items()}
    declined = sorted(ground.declined)
    text = normal(ground.candidate.source)
    return content_hash([judge_digest(), ground.task.digest(), text, ground.candidate.entry, programs, declined])


@functools.cache
def judge_digest() -> str:
    """Of the judge's own code: another judge may judge otherwise."""
    return content_hash("".join(content_hash(p.read_bytes()) for p in sorted(Path(__file__).parent.glob("*.py"))))


def normal(source: str) -> str:
    """The source without comments and layout; as it is where it is not Python."""
    try:
        return ast.unparse(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
