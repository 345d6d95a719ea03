"""From the text after ``%maxkernel`` to values. Every mistake is one sentence that names the nearest valid word."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from maxkernel_nb.config import checked
from maxkernel_nb.errors import UsageError
from maxkernel_nb.options import COMMANDS, MODES, Command, Mode, Option, command, mode, nearest, options_of


@dataclass(frozen=True)
class CellLine:
    """``%%maxkernel MODE options``. ``options`` holds what was given, by option name."""

    mode: Mode
    options: dict[str, Any] = field(default_factory=dict)
    help: bool = False


@dataclass(frozen=True)
class CommandLine:
    """``%maxkernel COMMAND words options``. ``run`` None is the latest run; ``hunks`` None is all of them."""

    command: Command
    run: str | None = None
    hunks: tuple[int, ...] | None = None
    extra: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    help: bool = False
    words: tuple[str, ...] = ()  # of a command that reads them itself


def parse_cell_line(line: str) -> CellLine:
    words = _split(line)
    found = _mode(words[0] if words else "")
    if not found.available:
        ready = " or ".join(m.name for m in MODES if m.available)
        raise UsageError(f"Mode {found.name!r} is not available yet; use %%maxkernel {ready}.")
    if _asks_help(words):
        return CellLine(found, help=True)
    options, rest = _parse(words[1:], options_of(found.name), f"%%maxkernel {found.name}")
    if rest:
        raise UsageError(
            f"%%maxkernel {found.name} does not expect {rest[0]!r}; put a value that contains spaces in quotes."
        )
    return CellLine(found, options)


def parse_command_line(line: str) -> CommandLine:
    words = _split(line)
    if not words:
        return CommandLine(_command("help"))
    found = _command(words[0])
    if found.words and words[1:]:
        return CommandLine(found, words=tuple(words[1:]))
    if _asks_help(words) or found.words:
        return CommandLine(found, help=True)
    options, rest = _parse(words[1:], found.options, f"%maxkernel {found.name}")
    return _place(found, rest, options)


def _place(found: Command, words: list[str], options: dict[str, Any]) -> CommandLine:
    """Positional words: a run's id, then hunk numbers (a bare number is always a hunk) or one more word.

    A word that a command needs comes last, so that the run may be left out.
    """
    words = list(words)
    numbers = [w for w in words if w.isdigit()] if found.hunks else []
    words = [w for w in words if w not in numbers]
    needed = words.pop() if found.needs_extra and words else None
    run = words.pop(0) if found.run and words else None
    extra = words.pop(0) if found.extra and words and not found.needs_extra else needed
    if words and '"' in found.extra:
        raise UsageError(f"%maxkernel {found.name} takes one text; put it in quotes: %maxkernel {found.usage}")
    if words:
        raise UsageError(f"%maxkernel {found.name} does not expect {words[0]!r}; usage: %maxkernel {found.usage}")
    if found.needs_extra and not (extra or "").strip():
        raise UsageError(f"%maxkernel {found.name} lacks its {found.extra}; usage: %maxkernel {found.usage}")
    return CommandLine(found, run, tuple(map(int, numbers)) or None, extra, options)


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"The line cannot be read ({error}); close the quotes in: {line.strip()}") from error


def _asks_help(words: list[str]) -> bool:
    return any(word in ("-h", "--help", "?") for word in words)


def _mode(word: str) -> Mode:
    found = mode(word)
    if found is None:
        names = [m.name for m in MODES]
        given = f"There is no mode {word!r}; did you mean {nearest(word, names)!r}?" if word else "A mode is missing."
        ready = ", ".join(m.name for m in MODES if m.available)
        raise UsageError(f"{given} Available: %%maxkernel {ready}; commands on runs have one percent sign.")
    return found


def _command(word: str) -> Command:
    found = command(word)
    if found is None and mode(word):
        raise UsageError(f"{word!r} is a mode: write %%maxkernel {word} (two percent signs) at the head of a cell.")
    if found is None:
        names = [c.name for c in COMMANDS]
        raise UsageError(
            f"There is no command {word!r}; did you mean {nearest(word, names)!r}? %maxkernel help lists them all."
        )
    return found


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of leaving the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message.removeprefix('argument ')}; see {self.prog} --help.")


def _parse(words: list[str], options: Iterable[Option], prog: str) -> tuple[dict[str, Any], list[str]]:
    """``(given options by name, positional words)``."""
    options = tuple(options)
    parser = _Parser(prog=prog, add_help=False, allow_abbrev=False)
    for option in options:
        if option.metavar:
            parser.add_argument(option.flag, dest=option.name, action="append", metavar=option.metavar)
        else:
            parser.add_argument(option.flag, dest=option.name, action="store_const", const=["on"])
    known, rest = parser.parse_known_args(words)
    unknown = next((w for w in rest if w.startswith("-")), None)
    if unknown is not None:
        raise _unknown_option(unknown.partition("=")[0], options, prog)
    given = {o.name: _value(o, texts) for o in options if (texts := getattr(known, o.name)) is not None}
    return given, rest


def _unknown_option(word: str, options: tuple[Option, ...], prog: str) -> UsageError:
    flags = [o.flag for o in options]
    hint = f"did you mean {nearest(word, flags)}?" if flags else "it takes no options."
    return UsageError(f"{prog} has no option {word}; {hint}")


def _value(option: Option, texts: list[str]) -> Any:
    if option.name == "static":
        return tuple(name for text in texts for name in text.replace(",", " ").split())
    if option.repeat:
        return tuple(texts)
    if len(texts) > 1:
        raise UsageError(f"{option.flag} is given {len(texts)} times; give it once.")
    return checked(option, texts[0], option.flag)
