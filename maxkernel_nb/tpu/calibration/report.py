"""The tables that ``python -m maxkernel_nb.tpu.calibrate --report`` prints."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from maxkernel_nb.tpu.calibration.rows import CHIP, FOLDER, Environment, Row, main_class, modelled_ms, published
from maxkernel_nb.tpu.calibration.scores import error_bars, median, spearman, within
from maxkernel_nb.tpu.chips import chip as chip_named
from maxkernel_nb.tpu.constants import ERRORS, Constants, OpClass, constants
from maxkernel_nb.tpu.timing import program_times

FILE = "leave_one_out.csv"
MISS = 15.0  # percent; larger misses are explained


class Line(NamedTuple):
    """A row in one environment. ``unseen_ms``: modelled with constants fitted without the row; errors in percent."""

    row: Row
    kind: OpClass
    modelled_ms: float
    unseen_ms: float

    @property
    def applies(self) -> bool:
        """Whether the program is the one that was measured, not only nearly."""
        return not self.row.applies.startswith("approximately")

    @property
    def error(self) -> float:
        return 100 * (self.unseen_ms / self.row.published_ms - 1)


def write_leave_one_out(found: Mapping[str, Mapping[str, float]], folder: Path) -> Path:
    """``found[environment][program]``: milliseconds with constants fitted without the program's row."""
    path = folder / FILE
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["environment", "program", "unseen_ms"])
        for environment, rows in found.items():
            out.writerows([environment, program, f"{ms:.4f}"] for program, ms in rows.items())
    return path


def leave_one_out() -> dict[tuple[str, str], float]:
    """The stored times by (environment, program)."""
    text = (files(FOLDER) / FILE).read_text(encoding="utf-8")
    return {(r["environment"], r["program"]): float(r["unseen_ms"]) for r in csv.DictReader(text.splitlines())}


def lines(environment: Environment) -> list[Line]:
    """Every published row whose program is stored for this environment."""
    unseen, known = leave_one_out(), constants(CHIP)
    found = []
    for row in published():
        program = environment.programs.get(row.program)
        if program is not None:
            now = modelled_ms(program, known)
            kind = main_class(program, known)
            found.append(Line(row, kind, now, unseen.get((environment.name, row.program), now)))
    return found


def report(environment: Environment) -> Iterator[str]:
    """The table of one environment, its scores, its misses."""
    rows = lines(environment)
    yield f"jax {environment.jax}, libtpu {environment.libtpu}, compiled {environment.made}; {len(rows)} published rows"
    yield f"{'row':12}{'published':>11}{'modelled':>10}{'unseen':>10}{'error':>9}  class     applies"
    for x in rows:
        yield (
            f"{x.row.program:12}{x.row.published_ms:8.3f} ms{x.modelled_ms:10.3f}{x.unseen_ms:10.3f}{x.error:+8.1f}%"
            f"  {x.kind:8}  {x.row.applies}"
        )
    yield f"leave-one-out, all rows: {_scores(rows)}"
    yield f"leave-one-out, rows that apply: {_scores([x for x in rows if x.applies])}"
    yield "error bars: " + ", ".join(f"{k} {e:.1f} % ({n})" for k, (e, n) in _bars(rows).items())
    for x in rows:
        if abs(x.error) > MISS:
            yield f"off by {x.error:+.0f} %: {x.row.program}: {_why(x.row, environment)}"


def table(environment: Environment, chip: str) -> Iterator[str]:
    """Every program of an environment as modelled on ``chip``: for looking at those that nobody published."""
    known, facts = constants(chip), chip_named(chip)
    yield f"{len(environment.programs)} programs on {chip}, jax {environment.jax}, libtpu {environment.libtpu}"
    faster = 0
    yield f"{'program':12}{'modelled':>12}{'roofline':>12}{'of it':>8}{'GB':>9}  class     guessed or not understood"
    for name, program in sorted(environment.programs.items(), key=lambda item: _by_number(item[0])):
        ms = sum(t.total_ms for t in program_times(program.ops, facts, known))
        size = sum((o.read_bytes + o.written_bytes) * o.times for o in program.ops) / 1e9
        share = 100 * program.roofline_ms / ms if ms else 0.0
        faster += share > 100.0
        note = program.notes[0] if program.notes else ""
        kind = main_class(program, known, chip)
        yield f"{name:12}{ms:9.3f} ms{program.roofline_ms:9.3f} ms{share:7.0f}%{size:9.2f}  {kind:8}  {note[:60]}"
    yield f"modelled below their roofline: {faster} of {len(environment.programs)}"


def _by_number(name: str) -> tuple[int, str]:
    digits = "".join(c for c in name.partition(":")[0] if c.isdigit())
    return int(digits or 0), name


def constants_text(found: Constants) -> str:
    """The constants on one line."""
    return ", ".join(f"{name} {value:g}" for name, value in found.model_dump().items())


def summary() -> Iterator[str]:
    """What the package uses."""
    yield f"constants of {CHIP}: {constants_text(constants(CHIP))}"
    yield "error bars in use: " + ", ".join(f"{k} {e:g} %" for k, e in ERRORS.items())


def _scores(rows: list[Line]) -> str:
    errors = [x.error for x in rows]
    rank = spearman([x.unseen_ms for x in rows], [x.row.published_ms for x in rows])
    return (
        f"median error {median(errors):.1f} %, within 20 % {within(errors, 20.0):.0f} % of {len(rows)}, "
        f"Spearman {rank:.3f}"
    )


def _bars(rows: list[Line]) -> dict[OpClass, tuple[float, int]]:
    return error_bars({x.row.program: x.error for x in rows}, {x.row.program: x.kind for x in rows})


def _why(row: Row, environment: Environment) -> str:
    """A remark may hold for compilers of an age only: ``0.10: ...``."""
    for remark in row.remark.split("|"):
        age, colon, text = remark.strip().partition(": ")
        if colon and age.replace(".", "").isdigit():
            if environment.jax.startswith(age):
                return text
        elif remark.strip():
            return remark.strip()
    return "not explained"
