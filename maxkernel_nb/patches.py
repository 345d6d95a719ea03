"""Patches: a recorded baseline, a proposal, and the hunks between them, accepted one by one or together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from maxkernel_nb.errors import UsageError
from maxkernel_nb.values import Value


class Hunk(Value):
    """Lines ``start:stop`` (0-based, half open) of the baseline are replaced by ``new``. Line ends are kept."""

    number: int
    start: int
    stop: int
    old: tuple[str, ...]
    new: tuple[str, ...]


class Patch(Value):
    baseline: str
    proposed: str
    hunks: tuple[Hunk, ...]

    def apply(self, accepted: Iterable[int] | None = None) -> str:
        """The text with the ``accepted`` hunk numbers applied (None: all). No hunk gives the exact baseline."""
        chosen = {h.number for h in self.hunks} if accepted is None else set(accepted)
        unknown = chosen - {h.number for h in self.hunks}
        if unknown:
            raise UsageError(
                f"The proposal has no hunk {min(unknown)}; it has hunks 0 to {len(self.hunks) - 1}: choose one of them."
            )
        lines = self.baseline.splitlines(keepends=True)
        for hunk in reversed(self.hunks):
            if hunk.number in chosen:
                lines[hunk.start : hunk.stop] = hunk.new
        return "".join(lines)


def make_patch(baseline: str, proposed: str) -> Patch:
    old, new = baseline.splitlines(keepends=True), proposed.splitlines(keepends=True)
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = [b for b in blocks if b[0] != "equal"]
    hunks = tuple(
        Hunk(number=n, start=i1, stop=i2, old=tuple(old[i1:i2]), new=tuple(new[j1:j2]))
        for n, (_, i1, i2, j1, j2) in enumerate(changed)
    )
    return Patch(baseline=baseline, proposed=proposed, hunks=hunks)
