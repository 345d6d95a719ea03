"""The time model fitted to this machine: pairs of modelled and measured times, and the one constant they give.

What a published figure cannot say of this machine is how fast its HBM is. From at least four programs that were
modelled and measured here with the same compiler, its speed is fitted, relative to what the model assumes; what follows
is still modelled.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

from maxkernel_nb.store import write_atomically
from maxkernel_nb.tpu.profiles import ScheduleProfile
from maxkernel_nb.values import Value

FEWEST, MOST = 4, 200
BEFORE = 1.0  # HBM as fast as the model assumes (tpu/constants.py)
SPEEDS = tuple(round(0.50 + 0.01 * n, 2) for n in range(91))


class Pair(Value):
    """One program: compute and HBM milliseconds of its ops as modelled, and what was measured."""

    program: str
    chip: str
    versions: tuple[str, ...]
    compute_ms: tuple[float, ...]
    memory_ms: tuple[float, ...]
    modelled_ms: float
    measured_ms: float


class Fit(Value):
    """``speed`` of HBM, relative to the model's. Errors are medians of ``|modelled / measured - 1|`` over the pairs, in
    percent; ``after`` leaves out the pair that it judges."""

    speed: float
    pairs: int
    before_pct: float
    after_pct: float


def folder() -> Path:
    """Where a machine keeps what it has learned of its chips."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "maxkernel-nb" / "chips"


def pair(program: str, modelled: ScheduleProfile, measured_ms: float) -> Pair:
    return Pair(
        program=program, chip=modelled.chip, versions=(modelled.jax_version, modelled.libtpu_version),
        compute_ms=tuple(o.compute_ms for o in modelled.ops), memory_ms=tuple(o.memory_ms for o in modelled.ops),
        modelled_ms=modelled.modelled_ms, measured_ms=measured_ms,
    )  # fmt: skip


def pairs(chip: str, where: Path | None = None) -> tuple[Pair, ...]:
    """What is recorded for ``chip``; a damaged record counts as none."""
    try:
        listed = json.loads(((where or folder()) / f"{chip}.json").read_bytes())
        return tuple(Pair.from_dict(p) for p in listed)
    except (OSError, ValueError, TypeError):
        return ()


def record(new: Pair, where: Path | None = None) -> None:
    """Keeps the newest pair of each program. A folder that cannot be written is no reason to stop."""
    kept = [p for p in pairs(new.chip, where) if (p.program, p.versions) != (new.program, new.versions)]
    listed = [p.to_dict() for p in (*kept, new)][-MOST:]
    try:
        write_atomically((where or folder()) / f"{new.chip}.json", json.dumps(listed).encode())
    except OSError:
        return


def fit(known: Sequence[Pair]) -> Fit | None:
    """None from too few pairs, or when the fitted speed is no better on pairs it has not seen."""
    usable = [p for p in known if p.measured_ms > 0 and p.modelled_ms > 0]
    if len(usable) < FEWEST:
        return None
    before = _median([_error(p, BEFORE) for p in usable])
    after = _median([_error(p, _best([q for q in usable if q is not p])) for p in usable])
    if after >= before:
        return None
    return Fit(speed=_best(usable), pairs=len(usable), before_pct=100 * before, after_pct=100 * after)


def _best(known: Sequence[Pair]) -> float:
    return min(SPEEDS, key=lambda speed: sum(abs(math.log1p(_signed(p, speed))) for p in known))


def _scale(compute: Sequence[float], memory: Sequence[float], modelled: float, speed: float) -> float:
    """Modelled ms with HBM at another speed: the ops' longer halves are scaled, what the pipeline added goes along."""
    old = sum(max(c, m) for c, m in zip(compute, memory, strict=True))
    new = sum(max(c, m * BEFORE / speed) for c, m in zip(compute, memory, strict=True))
    return modelled * new / old if old else modelled


def _signed(p: Pair, speed: float) -> float:
    return _scale(p.compute_ms, p.memory_ms, p.modelled_ms, speed) / p.measured_ms - 1


def _error(p: Pair, speed: float) -> float:
    return abs(_signed(p, speed))


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def corrected(profile: ScheduleProfile, found: Fit | None) -> ScheduleProfile:
    """The profile with the machine's own HBM speed. Still modelled, and it says from what."""
    if found is None:
        return profile
    ops = tuple(
        o.model_copy(update={
            "modelled_ms": _scale((o.compute_ms,), (o.memory_ms,), o.modelled_ms, found.speed),
            "memory_ms": o.memory_ms * BEFORE / found.speed,
        })
        for o in profile.ops
    )  # fmt: skip
    compute, memory = [o.compute_ms for o in profile.ops], [o.memory_ms for o in profile.ops]
    note = (
        f"The model was fitted to {found.pairs} programs measured on this machine: its HBM is {found.speed:.2f} times "
        f"as fast as assumed; the error on programs it had not seen fell from {found.before_pct:.0f} % to "
        f"{found.after_pct:.0f} %."
    )
    return profile.model_copy(update={
        "modelled_ms": _scale(compute, memory, profile.modelled_ms, found.speed), "ops": ops,
        "error_pct": max(found.after_pct, 1.0), "error_source": f"{found.pairs} programs measured on this machine",
        "notes": (*profile.notes, note),
    })  # fmt: skip


@functools.cache
def active(chip: str, jax_version: str, libtpu_version: str, where: Path | None = None) -> Fit | None:
    """The fit for a chip and versions of jax and libtpu: read once a process, so that all figures of a run agree."""
    return fit([p for p in pairs(chip, where) if p.versions == (jax_version, libtpu_version)])
