"""Lessons kept for a project's later runs, when the person asked for it: one JSON line each, oldest first."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from maxkernel_nb.values import Value

FILE = "lessons.jsonl"
_SHOWN = 8


class Lesson(Value):
    """``chip`` and ``run``: where it was learned."""

    text: str
    evidence: str = ""
    chip: str
    run: str


class LessonBook:
    """Appends whole lines, so that several runs may write; lines that cannot be read are passed over."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def add(self, lesson: Lesson) -> None:
        if any(known.text == lesson.text and known.chip == lesson.chip for known in self._all()):
            return
        with self.path.open("a") as file:
            file.write(json.dumps(lesson.to_dict()) + "\n")

    def about(self, chip: str) -> list[Lesson]:
        """The latest lessons for a chip."""
        return [x for x in self._all() if x.chip == chip][-_SHOWN:]

    def _all(self) -> list[Lesson]:
        try:
            lines = self.path.read_text().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                found.append(Lesson.from_dict(json.loads(line)))
            except (ValueError, ValidationError):
                continue
        return found
