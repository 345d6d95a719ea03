"""A kernel's source text: checks it before it is judged, finds its tunable constants, and sets them.

A tunable constant is a module-level line ``NAME = 512  # tune: 256, 512, 1024``: it reads well, a person can edit it,
and nothing about tuning has to be stored anywhere else.
"""

from __future__ import annotations

import ast
import re

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import Candidate, KernelTask

_TUNABLE = re.compile(
    r"^(?P<name>[A-Za-z_]\w*)(?P<equals>\s*=\s*)(?P<value>\d+)(?P<gap>\s*#\s*tune:\s*)(?P<values>[\d,\s]+)$",
    re.MULTILINE,
)
_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\n(?P<code>.*?)\n?```\s*\Z", re.DOTALL)
_MOST_AXES = 5


class NotAKernel(ValueError):
    """The text cannot be judged; the message says why, for the author of the text."""


def clean(source: str) -> str:
    """Without a Markdown fence around it, with one newline at its end."""
    fenced = _FENCE.match(source)
    return (fenced["code"] if fenced else source).strip("\n") + "\n"


def check_kernel_text(task: KernelTask, source: str) -> None:
    """Raises ``NotAKernel`` for a text that is not Python or lacks the function with the task's parameters."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0) or 0
        raise NotAKernel(f"this is not Python (line {line}: {getattr(error, 'msg', error)})") from None
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    if task.entry not in functions:
        named = ", ".join(functions) or "none"
        raise NotAKernel(f"it must define a function {task.entry!r} at module level; it defines {named}")
    arguments = functions[task.entry].args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if tuple(names[: len(task.parameters)]) != task.parameters:
        wanted = ", ".join(task.parameters)
        raise NotAKernel(f"{task.entry} must take ({wanted}) in this order; it takes ({', '.join(names)})")
    known = {*names, *(a.arg for a in arguments.kwonlyargs)}
    missing = [name for name in task.static if name not in known]
    if missing and arguments.kwarg is None:
        raise NotAKernel(f"{task.entry} must also take {', '.join(missing)}, with the reference's meaning")


def tunables(source: str) -> dict[str, int]:
    """Tunable constant -> its value in the text, in order."""
    return {m["name"]: int(m["value"]) for m in _TUNABLE.finditer(source)}


def space_in(source: str) -> TuningSpace:
    """What the text says may be tried. The values in the text are the first seed."""
    axes: dict[str, tuple[int, ...]] = {}
    for match in _TUNABLE.finditer(source):
        values = {int(v) for v in re.findall(r"\d+", match["values"])} | {int(match["value"])}
        axes[match["name"]] = tuple(sorted(v for v in values if v > 0))
    axes = {name: values for name, values in axes.items() if len(values) > 1}
    return TuningSpace(axes=dict(list(axes.items())[:_MOST_AXES]))


def set_constants(source: str, params: dict[str, int]) -> str:
    """The same text with other values. Raises ``Declined`` naming a constant that the text does not have."""
    unknown = params.keys() - tunables(source).keys()
    if unknown:
        raise Declined(f"The kernel has no tunable constant {min(unknown)!r}.")

    def replace(match: re.Match[str]) -> str:
        value = params.get(match["name"], int(match["value"]))
        return f"{match['name']}{match['equals']}{value}{match['gap']}{match['values']}"

    return _TUNABLE.sub(replace, source)


def make_candidate(task: KernelTask, source: str, author: str, note: str = "", parent: str | None = None) -> Candidate:
    """Raises ``NotAKernel`` when the text cannot be judged."""
    source = clean(source)
    check_kernel_text(task, source)
    return Candidate(source=source, entry=task.entry, author=author, parent=parent, params=tunables(source), note=note)
