"""The protocol of a measurement: reference and candidate in turn until the difference is known or the budget ends.

In order: both warm up until two windows agree; windows of interleaved pairs follow, on rotated inputs; a window that
something disturbed, or in which the reference itself was slower or faster than usual, is thrown away and counted; it
stops when the interval is narrow enough, or the call is clear, or the budget is used up; then the same is done once
more on inputs that nobody has seen, and that is the figure which is reported. Nothing here knows what a chip is: see
``Stand``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from maxkernel_nb.tpu.chip.statistics import DECIDING, Call, Pairs, Ratio, called, drifted, medians, ratio, steady


@dataclass(frozen=True)
class Window:
    """What one window gave. ``disturbed``: why it may not count, empty when it may. ``seconds``: the device's own."""

    pairs: Pairs
    disturbed: str = ""
    seconds: float = 0.0


class Stand(Protocol):
    """Where the two programs run. In order, ``window`` makes ``pairs`` pairs of runs, in a random order within each
    pair and on the next of the rotated inputs, each run waited for, and gives their device times.
    """

    async def window(self, pairs: int) -> Window: ...

    async def fresh(self, seed: int) -> None:
        """New inputs from here on, drawn from ``seed``."""
        ...


@dataclass(frozen=True)
class Rules:
    """``margin``: smaller differences count as none. ``narrow``: half width of the interval, relative, that is enough;
    ``clear``: half width that is enough when the whole interval lies on one side. ``seconds``: of wall time for a
    part, doubled where there are not yet ``fewest`` windows; ``window_s`` what one window should take.
    """

    margin: float = 0.03
    narrow: float = 0.01
    clear: float = 0.05
    agree: float = 0.1  # warm when two windows agree within this
    drift: float = 0.25  # a window is thrown away when its reference is off by more
    fewest: int = 4
    most: int = 60
    warm_most: int = 6
    seconds: float = 15.0
    window_s: float = 0.15
    most_pairs: int = 60


@dataclass(frozen=True)
class Part:
    """One set of inputs: the windows that count and those that do not."""

    windows: tuple[Pairs, ...]
    thrown_away: tuple[str, ...]
    warm_up: int
    warm: bool
    stopped: str
    seconds: float

    @property
    def ratio(self) -> Ratio:
        return ratio(self.windows)

    @property
    def pairs(self) -> int:
        return sum(len(w) for w in self.windows)


@dataclass(frozen=True)
class Comparison:
    """``final`` is the part on fresh inputs, whose figures are the ones to report; ``call`` rests on it."""

    first: Part
    final: Part
    call: Call
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> Ratio:
        return self.final.ratio

    @property
    def ms(self) -> tuple[float, float]:
        """Median milliseconds of the reference and the candidate."""
        return medians(self.final.windows)

    @property
    def seconds(self) -> float:
        return self.first.seconds + self.final.seconds


class TooNoisy(Exception):
    """Not one window could be counted; the message says what happened to them."""


async def compare(
    stand: Stand, rules: Rules = Rules(), seed: int = 1, clock: Callable[[], float] = time.monotonic
) -> Comparison:
    """Measures the candidate against the reference. Raises ``TooNoisy``, and what ``stand`` raises."""
    first = await measure(stand, rules, clock)
    await stand.fresh(seed)
    final = await measure(stand, rules, clock)
    notes = []
    a, b = first.ratio, final.ratio
    if a.high < b.low or b.high < a.low:
        notes.append(
            f"The first inputs gave {a.value:.3f}x and fresh ones {b.value:.3f}x: the intervals do not meet, so the "
            "difference depends on the inputs or the machine."
        )
    call = called(ratio(final.windows, DECIDING), rules.margin)
    if call != called(ratio(first.windows, DECIDING), rules.margin):
        call = "equal"  # what only one of two measurements shows is not known
    return Comparison(first, final, call, tuple(notes))


@dataclass
class _Course:
    """A part while it is made."""

    windows: list[Pairs] = field(default_factory=list)
    thrown: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def take(self, window: Window, rules: Rules) -> None:
        self.seconds += window.seconds
        if window.disturbed:
            self.thrown.append(window.disturbed)
        elif drifted(window.pairs, self.windows, rules.drift) and not self._unsteady():
            self.thrown.append("the reference itself ran at another speed")
        else:
            self.windows.append(window.pairs)

    def _unsteady(self) -> bool:
        """Half of all windows would go: then this machine is never still, and what is left would be a selection."""
        return len(self.thrown) >= max(4, len(self.windows))

    def finished(self, rules: Rules, left: float) -> str:
        if len(self.windows) >= rules.fewest:
            found = ratio(self.windows, DECIDING)
            if found.half_width <= rules.narrow:
                return "narrow enough"
            if called(found, rules.margin) != "equal" and found.half_width <= rules.clear:
                return "clear enough"
        if left <= 0 and (len(self.windows) >= rules.fewest or left <= -rules.seconds):
            return "out of time"
        return "enough windows" if len(self.windows) + len(self.thrown) >= rules.most else ""


async def measure(stand: Stand, rules: Rules, clock: Callable[[], float] = time.monotonic) -> Part:
    """One part, on the inputs that ``stand`` has now."""
    end = clock() + rules.seconds
    course = _Course()
    pairs, warm_up, warm = await _warm(stand, rules, course, clock, end)
    while not (stopped := course.finished(rules, end - clock())):
        course.take(await stand.window(pairs), rules)
    if not course.windows:
        why = course.thrown[-1] if course.thrown else "there was no time for one window"
        raise TooNoisy(f"None of {len(course.thrown)} windows could be counted: {why}.")
    return Part(tuple(course.windows), tuple(course.thrown), warm_up, warm, stopped, course.seconds)


async def _warm(
    stand: Stand, rules: Rules, course: _Course, clock: Callable[[], float], end: float
) -> tuple[int, int, bool]:
    """The pairs that fit into a window, the windows it took, and whether two of them agreed."""
    pairs, before = 1, np.empty((0, 2))
    for number in range(1, rules.warm_most + 1):
        window = await stand.window(pairs)
        course.seconds += window.seconds
        if window.disturbed:
            course.thrown.append(window.disturbed)
        elif len(window.pairs):
            if steady(before, window.pairs, rules.agree) and number > 2:
                return pairs, number, True
            before = window.pairs
            pair_s = float(np.median(window.pairs.sum(axis=1))) / 1e3
            pairs = int(np.clip(rules.window_s / max(pair_s, 1e-6), 1, rules.most_pairs))
        if clock() >= end:
            break
    return pairs, number, False
