"""Every number that is summed up over tasks: one place, so that tables, pictures and reports cannot disagree.

Policy, stated wherever a figure is shown:

* all tasks that were tried count (``n``); our own faults (``infrastructure``) are no tries and are counted apart;
* a task without a verified kernel counts as 1.0x in the geometric mean: its reference stays in use;
* speedups are clipped to 0.1x .. 10x in the mean, so that one algebraic trick cannot carry it (``clipped`` says how
  many were);
* ``fast_p`` is the share of all tries that are verified and faster than ``p`` times the reference.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jaxbench.results import Kind, Result, Status

CLIP = (0.1, 10.0)
FAILED = 1.0  # what a failure counts in the mean
THRESHOLDS = (0.0, 0.5, 1.0, 1.5, 2.0, 4.0)
POLICY = (
    f"Geometric mean over all n tries: a task without a verified kernel counts as {FAILED:g}x (its reference stays in "
    f"use), speedups are clipped to {CLIP[0]:g}x..{CLIP[1]:g}x. fast_p is the share of all n tries that are verified "
    "and faster than p times the XLA reference."
)


@dataclass(frozen=True)
class Summary:
    """``speedups`` of the verified and timed; ``untimed``: verified, but nobody could model them."""

    n: int
    verified: int
    failed: int
    untimed: int
    faults: int
    clipped: int
    geomean: float | None  # over all n, by the policy
    geomean_verified: float | None  # over the timed ones alone
    fast: dict[float, float]
    speedups: tuple[float, ...]


def geomean(values: Sequence[float]) -> float | None:
    """None without values. Raises ``ValueError`` for a value that is not positive and finite."""
    if any(not (v > 0 and math.isfinite(v)) for v in values):
        raise ValueError(f"A geometric mean needs positive finite values, not {list(values)}.")
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def clip(value: float) -> float:
    return min(max(value, CLIP[0]), CLIP[1])


def fast_p(speedups: Sequence[float], n: int, p: float) -> float:
    """Share of ``n`` tries whose verified speedup is more than ``p``. 0 without tries."""
    return sum(s > p for s in speedups) / n if n else 0.0


def summarise(results: Iterable[Result]) -> Summary:
    """Over kernels (results of references have no speedup and are left out)."""
    tried = [r for r in results if r.kind not in (Kind.REFERENCE, Kind.RIVAL)]
    judged = [r for r in tried if r.status is not Status.INFRASTRUCTURE]
    verified = [r for r in judged if r.ok]
    speedups = tuple(r.speedup for r in verified if r.speedup is not None)
    failed = len(judged) - len(verified)
    counted = [clip(s) for s in speedups] + [FAILED] * failed
    return Summary(
        n=len(judged),
        verified=len(verified),
        failed=failed,
        untimed=len(verified) - len(speedups),
        faults=len(tried) - len(judged),
        clipped=sum(clip(s) != s for s in speedups),
        geomean=geomean(counted),
        geomean_verified=geomean(speedups),
        fast={p: fast_p(speedups, len(judged), p) for p in THRESHOLDS},
        speedups=speedups,
    )


def breakdown(results: Iterable[Result], by: Callable[[Result], str]) -> dict[str, Summary]:
    """A summary for each class, classes in alphabetical order."""
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.kind not in (Kind.REFERENCE, Kind.RIVAL):
            groups[by(result)].append(result)
    return {name: summarise(groups[name]) for name in sorted(groups)}


def split_gain(result: Result) -> tuple[float, float] | None:
    """(algebraic part, kernel's part); their product is the speedup. None without a verified, timed kernel."""
    if result.speedup is None or result.kernel_gain is None:
        return None
    return result.speedup / result.kernel_gain, result.kernel_gain


def ratio_to_published(results: Iterable[Result]) -> dict[str, float]:
    """Modelled over published time of the reference, by task, where the published one applies to this program."""
    return {
        r.task: r.reference_ms / r.published_ms
        for r in results
        if r.reference_ms and r.published_ms and r.size == "full" and not r.published_note
    }


PRODUCTION_EIGHT = ("1p", "2p", "3p", "4p", "6p", "7p", "8p", "11p")  # those that have a hand-tuned kernel


@dataclass(frozen=True)
class Kept:
    """What a person has in the end: the kernel where it is faster, else the reference, so no task is below 1x.

    ``answered``: a verified kernel, or the reference kept with a reason. ``algebraic``: what plain JAX has after the
    algebra, 1x where there is none. ``eight``: the production tasks that have a hand-tuned kernel.
    """

    n: int
    verified: int
    answered: int
    geomean: float | None
    algebraic: float | None
    eight: float | None
    eight_n: int


def kept(results: Sequence[Result]) -> Kept:
    tries = [r for r in results if r.status is not Status.INFRASTRUCTURE]
    gains = [max(r.speedup or 1.0, 1.0) for r in tries]
    eight = [max(r.speedup or 1.0, 1.0) for r in tries if number(r) in PRODUCTION_EIGHT]
    answered = sum(r.ok or (r.status is Status.NO_KERNEL and bool(r.reason)) for r in tries)
    return Kept(
        n=len(tries), verified=sum(r.ok for r in tries), answered=answered, geomean=geomean(gains),
        algebraic=geomean([max(r.algebraic_gain or 1.0, 1.0) for r in tries]), eight=geomean(eight), eight_n=len(eight),
    )


def number(result: Result) -> str:
    return result.task.split("_", 1)[0]


def against(results: Sequence[Result], rivals: Sequence[Result]) -> dict[str, float]:
    """Task number -> time of jax's own tuned kernel over ours (the reference's time where it is kept)."""
    theirs = {number(r): r.kernel_ms for r in rivals if r.ok and r.kernel_ms}
    found = {}
    for r in results:
        times = [t for t in (r.kernel_ms if r.ok else None, r.reference_ms) if t]
        if number(r) in theirs and times:
            found[number(r)] = (theirs[number(r)] or 0.0) / min(times)
    return found
