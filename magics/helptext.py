"""Help, made from the option table: for ``?``, ``%maxkernel help``, and the README."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from maxkernel_nb.errors import UsageError
from maxkernel_nb.options import COMMANDS, MODES, OPTIONS, Command, Mode, Option, command, mode, nearest, options_of

_WIDTH = 96
_NOT_YET = "not available yet"


def cell_help(mode_name: str = "auto") -> str:
    """``%%maxkernel?``"""
    chosen = mode(mode_name) or MODES[0]
    missing = "" if chosen.available else f" ({_NOT_YET})"
    return "\n".join([
        f"%%maxkernel {chosen.name} [options]{missing}",
        "",
        textwrap.fill(
            "The cell below this line runs as plain Python; the function it defines is the reference. Agents then "
            f"{chosen.summary}. The notebook stays free while they work: the cell returns the run at once, except "
            "in batch clients (nbconvert, papermill, nbval), where it waits.", _WIDTH),
        "",
        "Modes:",
        *_rows((m.name, _mode_text(m)) for m in MODES),
        "",
        "Options:",
        *_rows((f"{o.flag} {o.metavar}", _option_text(o)) for o in options_of(chosen.name) if not o.group),
        "",
        "Claude:",
        *_rows((f"{o.flag} {o.metavar}", _option_text(o)) for o in options_of(chosen.name) if o.group),
        "",
        'Example: %%maxkernel auto --chip v6e --shapes "x: bf16[4096,8192], w: bf16[8192,8192]"',
        "Commands on runs: %maxkernel help",
    ])


def line_help() -> str:
    """``%maxkernel?``"""
    return "\n".join([
        "%maxkernel COMMAND [RUN] ...",
        "",
        "RUN is a run's id; left out, it is the latest run.",
        "",
        *_rows((c.usage, c.help) for c in COMMANDS),
        "",
        "To start a run: %%maxkernel auto at the head of a cell; %maxkernel help auto shows its options.",
    ])


def topic_help(topic: str) -> str:
    """Raises ``UsageError`` naming the nearest topic."""
    if mode(topic):
        return cell_help(topic)
    if found := command(topic):
        return _command_help(found)
    topics = [m.name for m in MODES] + [c.name for c in COMMANDS]
    raise UsageError(f"There is no help on {topic!r}; did you mean {nearest(topic, topics)!r}?")


def _command_help(found: Command) -> str:
    options = _rows((f"{o.flag} {o.metavar}", _option_text(o)) for o in found.options)
    return "\n".join([f"%maxkernel {found.usage}", "", found.help[0].upper() + found.help[1:] + ".", *options])


def option_table() -> str:
    """The README's table, in Markdown."""
    lines = ["| Option | What it is | Default | Also set by |", "|---|---|---|---|"]
    for option in OPTIONS:
        others = f"`%config MaxKernel.{option.name}`, `MAXKERNEL_{option.name.upper()}`" if option.setting else ""
        choices = f" (`{'`, `'.join(option.choices)}`)" if option.choices else ""
        cells = (f"`{option.flag} {option.metavar}`", option.help + choices, option.default_text, others)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def command_table() -> str:
    """The README's table of commands, in Markdown."""
    lines = ["| Command | What it does |", "|---|---|"]
    return "\n".join(lines + [f"| `%maxkernel {c.usage}` | {c.help} |" for c in COMMANDS])


def _mode_text(shown: Mode) -> str:
    return shown.summary if shown.available else f"{shown.summary} ({_NOT_YET})"


def _option_text(option: Option) -> str:
    parts = [option.help]
    parts += [f"one of {', '.join(option.choices)}"] if option.choices else []
    parts += [f"default: {option.default_text}"] if option.default_text else []
    return "; ".join(parts)


def _rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    pairs = list(pairs)
    wide = min(26, max((len(left) for left, _ in pairs), default=0)) + 4
    lines: list[str] = []
    for left, right in pairs:
        head = f"  {left}"
        if len(head) >= wide:
            lines.append(head)
            head = ""
        lines.append(textwrap.fill(right, _WIDTH, initial_indent=head.ljust(wide), subsequent_indent=" " * wide))
    return lines
