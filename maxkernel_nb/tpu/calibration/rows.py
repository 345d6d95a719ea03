"""The published rows and the stored terms of their programs."""

from __future__ import annotations

import csv
import json
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import Field

from maxkernel_nb.tpu.chips import chip
from maxkernel_nb.tpu.constants import Constants, OpClass
from maxkernel_nb.tpu.terms import OpTerms
from maxkernel_nb.tpu.timing import op_class, program_times
from maxkernel_nb.values import Value

FOLDER = "maxkernel_nb.tpu.calibration"
CHIP = "v6e"  # the one chip with published times
SAMPLED = ("v4", "v5e", "v5p", "v7x")  # chips of which ten references are stored: nobody published times of theirs


class Row(Value):
    """One published time. ``applies``: "yes", or why only nearly; ``remark``: what explains a large miss."""

    task: str
    variant: str
    program: str
    published_ms: float
    applies: str = "yes"
    remark: str = ""


class Compiled(Value):
    """What one compiler made of a program: its terms, the notes of the reader, the FLOPs asked for, and the time of
    the roofline (both 0.0 where not kept)."""

    ops: tuple[OpTerms, ...]
    notes: tuple[str, ...] = ()
    flops: float = 0.0
    roofline_ms: float = 0.0


class Environment(Value):
    """All programs as one compiler made them. ``made``: the day."""

    jax: str
    libtpu: str
    made: str
    programs: dict[str, Compiled] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"jax-{self.jax}"


@cache
def published() -> tuple[Row, ...]:
    """The rows of ``published.csv``."""
    text = (files(FOLDER) / "published.csv").read_text(encoding="utf-8")
    return tuple(Row.model_validate(row) for row in csv.DictReader(text.splitlines()))


@cache
def environments() -> tuple[Environment, ...]:
    """The stored environments, the oldest compiler first: its age is that of the published times."""
    found = [e for e in files(FOLDER).iterdir() if e.name.startswith("terms-") and e.name.endswith(".json")]
    loaded = [Environment.from_dict(json.loads(e.read_text(encoding="utf-8"))) for e in found]
    return tuple(sorted(loaded, key=lambda e: [int(n) for n in e.jax.split(".")]))


@cache
def sample(chip: str) -> Environment:
    """The stored references of one of the ``SAMPLED`` chips, as one compiler made them."""
    text = (files(FOLDER) / f"sample-{chip}.json").read_text(encoding="utf-8")
    return Environment.from_dict(json.loads(text))


def write_environment(environment: Environment, folder: Path, chip: str = CHIP) -> Path:
    """Stores an environment in ``folder`` as ``environments()`` and ``sample()`` read it, fields at their default left
    out."""
    path = folder / (f"terms-{environment.name}.json" if chip == CHIP else f"sample-{chip}.json")
    body = {"jax": environment.jax, "libtpu": environment.libtpu, "made": environment.made}
    programs = {
        name: json.dumps(program.model_dump(mode="json", exclude_defaults=True), separators=(",", ":"))
        for name, program in environment.programs.items()
    }
    lines = ",\n".join(f"{json.dumps(name)}: {text}" for name, text in programs.items())
    path.write_text(f'{json.dumps(body)[:-1]}, "programs": {{\n{lines}\n}}}}\n', encoding="utf-8")
    return path


def modelled_ms(program: Compiled, constants: Constants, on: str = CHIP) -> float:
    """Milliseconds of a program with these constants."""
    return sum(t.total_ms for t in program_times(program.ops, chip(on), constants))


def main_class(program: Compiled, constants: Constants, on: str = CHIP) -> OpClass:
    """The class of op in which most of a program's time goes."""
    spent: dict[OpClass, float] = {}
    for op, time in zip(program.ops, program_times(program.ops, chip(on), constants), strict=True):
        kind = op_class(op, time)
        spent[kind] = spent.get(kind, 0.0) + time.total_ms
    return max(spent, key=lambda kind: spent[kind], default="compute")
