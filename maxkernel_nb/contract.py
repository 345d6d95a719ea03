"""The commands of a front end that lives outside the panel (the JupyterLab extension), and what the kernel tells it.

One versioned set of JSON messages over a Jupyter comm whose target is ``TARGET``; ``schema()`` describes all of them.
The kernel needs no front end, and nothing here can do more than a button or a ``%maxkernel`` command can.

A front end sends ``Command``s, each with an id that it draws (a UUID: the same id is never carried out twice), and gets
exactly one ``Ack`` for each. In between the kernel tells it of runs, proposals and questions as they come (``Notice``).
Texts are the exact bytes of a source file or a cell; ``baseline_hash`` is the SHA-256 (hex) of the baseline in UTF-8,
so that a front end can see whether the cell still holds what the proposal is about.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from maxkernel_nb.patches import Hunk
from maxkernel_nb.values import Value

TARGET = "maxkernel"
VERSION = 1

Action = Literal["stop", "pause", "unpause", "takeback", "resume", "undo"]


# -- from the front end --------------------------------------------------------------------------------------------


class _Command(Value):
    version: Literal[1]
    id: str = Field(min_length=1, max_length=100)


class Hello(_Command):
    """Answered with a ``Welcome``; every run of this kernel is then told, and its open proposal or question."""

    command: Literal["maxkernel:hello"]


class Runs(_Command):
    """Answered with a ``RunList``: the project's runs, those of earlier kernels too."""

    command: Literal["maxkernel:runs"]


class Look(_Command):
    """Tells a run of this kernel again: its state, and its proposal or question if one is open."""

    command: Literal["maxkernel:look"]
    run: str


class Decide(_Command):
    """``hunks``: numbers of ``Propose.hunks`` to accept, null for all; ``proposal`` is the one that was looked at."""

    command: Literal["maxkernel:decide"]
    run: str
    proposal: str
    accepted: bool
    hunks: tuple[int, ...] | None = None
    comment: str = ""


class Answer(_Command):
    """``choice``: one of ``Question.choices``; ``hunks`` as in ``Decide``, where the question shows a patch."""

    command: Literal["maxkernel:answer"]
    run: str
    question: str
    choice: str
    text: str = ""
    hunks: tuple[int, ...] | None = None


class Ask(_Command):
    """A person's own question about the work; answered in the panel, beside the run."""

    command: Literal["maxkernel:ask"]
    run: str
    text: str = Field(min_length=1)


class Control(_Command):
    command: Literal["maxkernel:control"]
    run: str
    action: Action


class Configure(_Command):
    """A person's defaults in this front end, by setting name; what is left out or empty is not set. They rank below
    pyproject.toml, and replace what this front end said before."""

    command: Literal["maxkernel:configure"] = "maxkernel:configure"
    settings: dict[str, str]


class Report(_Command):
    """Answered with a ``ReportPage``."""

    command: Literal["maxkernel:report"]
    run: str


Command = Annotated[
    Hello | Runs | Look | Decide | Answer | Ask | Control | Configure | Report, Field(discriminator="command")
]


class _Told(Value):
    """Base of what the kernel sends: every field is always there."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


# -- answers -------------------------------------------------------------------------------------------------------


class RunInfo(_Told):
    """A line of a list of runs. ``cell``: the id of the notebook cell that started it, as far as it is known here.

    ``live``: this kernel drives it. ``waits``: ``proposal``, ``question`` or empty. ``doing``: one sentence.
    ``speedup`` is modelled unless ``evidence`` says measured.
    """

    id: str
    mode: str
    author: str = ""
    entry: str = ""
    chip: str = ""
    status: str
    outcome: str = ""
    reason: str = ""
    doing: str = ""
    waits: Literal["", "proposal", "question"] = ""
    best: str = ""
    speedup: float | None = None
    evidence: Literal["", "modelled", "measured"] = ""
    dollars: float = 0.0
    tokens: int = 0
    judged: int = 0
    control: Literal["person", "auto"] = "person"
    live: bool
    ended: bool
    cell: str = ""


class FormField(_Told):
    """One option of ``%%maxkernel``, for a form. ``setting``: it may also stand in a settings file."""

    name: str
    flag: str
    metavar: str
    help: str
    type: Literal["text", "number"]
    default: str
    choices: tuple[str, ...] = ()
    repeat: bool = False
    setting: bool = False
    modes: tuple[str, ...] = ()


class FormMode(_Told):
    name: str
    summary: str
    available: bool


class Welcome(_Told):
    kind: Literal["welcome"] = "welcome"
    version: Literal[1] = 1
    package: str
    modes: tuple[FormMode, ...]
    options: tuple[FormField, ...]


class RunList(_Told):
    kind: Literal["runs"] = "runs"
    runs: tuple[RunInfo, ...]


class ReportPage(_Told):
    """``html`` stands alone: no scripts, nothing fetched."""

    kind: Literal["report"] = "report"
    run: str
    html: str


Answered = Annotated[Welcome | RunList | ReportPage, Field(discriminator="kind")]


# -- from the kernel -----------------------------------------------------------------------------------------------


class Ack(_Told):
    """``ok`` False: nothing was done, ``message`` says why in one sentence. ``data`` answers what was asked for."""

    version: Literal[1] = 1
    notice: Literal["maxkernel:ack"] = "maxkernel:ack"
    id: str
    ok: bool
    message: str = ""
    data: Answered | None = None


class RunChanged(_Told):
    version: Literal[1] = 1
    notice: Literal["maxkernel:run"] = "maxkernel:run"
    run: RunInfo


class Propose(_Told):
    """A proposal waits. ``claim``: what accepting gives, with its evidence. Hunks count from 0; their lines keep their
    ends, ``start:stop`` are 0-based baseline lines."""

    version: Literal[1] = 1
    notice: Literal["maxkernel:propose"] = "maxkernel:propose"
    run: str
    cell: str = ""
    proposal: str
    entry: str
    claim: str
    baseline: str
    baseline_hash: str
    proposed: str
    hunks: tuple[Hunk, ...]


class Choice(_Told):
    name: str
    label: str
    takes_text: str = ""


class Question(_Told):
    """A human-in-the-loop run asks. ``text`` is Markdown; the patch's fields as in ``Propose``, empty without one."""

    version: Literal[1] = 1
    notice: Literal["maxkernel:question"] = "maxkernel:question"
    run: str
    cell: str = ""
    question: str
    title: str
    text: str
    choices: tuple[Choice, ...]
    default: str
    editable: str = ""
    baseline: str = ""
    baseline_hash: str = ""
    proposed: str = ""
    hunks: tuple[Hunk, ...] = ()


class Decided(_Told):
    """A proposal was decided, by whatever route (``via``), and carried out. ``source``: what is bound now, empty when
    the reference stays; ``tests``: a cell that tests it, empty where none can be written; ``undone``: an acceptance was
    taken back."""

    version: Literal[1] = 1
    notice: Literal["maxkernel:decided"] = "maxkernel:decided"
    run: str
    cell: str = ""
    proposal: str
    accepted: bool
    via: str
    undone: bool = False
    source: str = ""
    tests: str = ""
    reason: str = ""


Notice = Annotated[Ack | RunChanged | Propose | Question | Decided, Field(discriminator="notice")]

_COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)
_NOTICES: TypeAdapter[Notice] = TypeAdapter(Notice)


def command_from_dict(data: Any) -> Command:
    """Raises pydantic's ``ValidationError`` for an unknown command, version or field."""
    return _COMMANDS.validate_python(data)


def notice_from_dict(data: Any) -> Notice:
    return _NOTICES.validate_python(data)


def schema() -> dict[str, Any]:
    """JSON Schema of every message: ``$defs/Command`` and ``$defs/Notice`` are the two unions."""
    command = _COMMANDS.json_schema(mode="validation")
    notice = _NOTICES.json_schema(mode="serialization")
    definitions = {**command.pop("$defs"), **notice.pop("$defs")}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"maxkernel messages, version {VERSION}",
        "oneOf": [{"$ref": "#/$defs/Command"}, {"$ref": "#/$defs/Notice"}],
        "$defs": {**definitions, "Command": command, "Notice": notice},
    }


def main() -> None:
    """``python -m maxkernel_nb.contract`` writes the schema, from which a front end's types can be made."""
    import json

    sys.stdout.write(json.dumps(schema(), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
