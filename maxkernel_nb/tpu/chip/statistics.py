"""What a set of interleaved pairs says: a ratio, its interval, and whether it is a difference at all.

A pair is one run of the reference and one of the candidate, back to back. The estimate is the median of the pairs'
ratios; its interval comes from resampling whole windows, for what disturbs a machine lasts longer than a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Pairs = np.ndarray  # [pairs, 2]: reference ms, candidate ms
RESAMPLES = 1000
FEW = 4  # windows
REPORTED, DECIDING = 0.95, 0.99  # coverage of the interval that is shown, and of the one that a call rests on
Call = Literal["faster", "slower", "equal"]


@dataclass(frozen=True)
class Ratio:
    """Speed of the candidate against the reference (2.0: half the time), with its interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Relative to the value."""
        return (self.high - self.low) / (2 * self.value)


def ratio(windows: Sequence[Pairs], coverage: float = REPORTED, seed: int = 0) -> Ratio:
    """Raises ``ValueError`` without any pair."""
    logs = [np.log(w[:, 0]) - np.log(w[:, 1]) for w in windows if len(w)]
    if not logs:
        raise ValueError("no pair was measured")
    tail = (1 - coverage) / 2
    low, high = np.quantile(_resampled(logs, seed), [tail, 1 - tail])
    value = float(np.median(np.concatenate(logs)))
    return Ratio(float(np.exp(value)), float(np.exp(min(low, value))), float(np.exp(max(high, value))))


def _resampled(logs: list[np.ndarray], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if len(logs) < FEW:  # too few windows to resample
        return np.median(rng.choice(np.concatenate(logs), (RESAMPLES, sum(map(len, logs)))), axis=1)
    windows = np.array([np.median(w) for w in logs])
    return np.median(rng.choice(windows, (RESAMPLES, len(windows))), axis=1)


def called(found: Ratio, margin: float) -> Call:
    """``equal`` unless the whole interval lies beyond ``margin`` (0.03: three percent) on one side."""
    if found.low > 1 + margin:
        return "faster"
    if found.high < 1 / (1 + margin):
        return "slower"
    return "equal"


def steady(earlier: Pairs, later: Pairs, within: float) -> bool:
    """Two windows whose medians agree on both sides: warming up has ended."""
    if not len(earlier) or not len(later):
        return False
    a, b = np.median(earlier, axis=0), np.median(later, axis=0)
    return bool(np.all(np.abs(a - b) <= within * np.maximum(a, b)))


def drifted(window: Pairs, windows: Sequence[Pairs], within: float) -> bool:
    """The reference is not as fast in this window as in the others."""
    if len(windows) < 3 or not len(window):
        return False
    usual = float(np.median([np.median(w[:, 0]) for w in windows]))
    return bool(abs(np.median(window[:, 0]) - usual) > within * usual)


def medians(windows: Sequence[Pairs]) -> tuple[float, float]:
    """Milliseconds of the reference and of the candidate."""
    both = np.median(np.concatenate([w for w in windows if len(w)]), axis=0)
    return float(both[0]), float(both[1])
