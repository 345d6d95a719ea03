"""What the commands say about a question that a human-in-the-loop run asks, and the text that goes with an answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxkernel_nb.errors import UsageError
from maxkernel_nb.magics.views import Text


def text_of(options: Mapping[str, str]) -> str:
    """``--text`` as given, or what the file of ``--file`` holds. Raises ``UsageError`` for both, or no such file."""
    if "file" not in options:
        return options.get("text", "")
    if "text" in options:
        raise UsageError("--text and --file both give the answer's text; keep one of them.")
    try:
        return Path(options["file"]).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"--file {options['file']} cannot be read ({reason}); name a text file.") from error


def answered(run: Any, asked: Any) -> Text:
    """``asked``: the question as it stood before the answer."""
    given = run.state.questions[asked.question].answer
    label = next(c.label for c in asked.choices if c.name == given.choice)
    return Text(f"Run {run.id}: {asked.title} {label}. %maxkernel wait {run.id} waits for what comes next.")


def how_to_answer(run_id: str, asked: Any) -> str:
    lines = [f"Run {run_id} asks: {asked.title}"]
    for choice in asked.choices:
        text = f' --text "{choice.takes_text}"' if choice.takes_text else ""
        lines.append(f"  %maxkernel answer {run_id} {choice.name}{text}: {choice.label}")
    return "\n".join(lines)


def nobody_answers(run_id: str, asked: Any) -> str:
    """For a batch client whose run waits, because its policy is ask."""
    names = ", ".join(choice.name for choice in asked.choices)
    return (
        f"Run {run_id} asks {asked.title!r} and nobody can answer here; pass --policy propose or --policy "
        f"accept-verified, which take every default, or answer in a cell: %maxkernel answer {run_id} CHOICE ({names})."
    )
