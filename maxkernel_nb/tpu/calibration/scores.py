"""How good modelled times are: errors, ranks, error bars by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from maxkernel_nb.tpu.constants import OpClass

USUALLY = 68.0  # percent of a class's rows that lie within its error bar


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Correlation of the ranks of two equally long sequences without ties."""
    first, second = (np.argsort(np.argsort(np.asarray(x))).astype(float) for x in (a, b))
    return float(np.corrcoef(first, second)[0, 1])


def within(errors: Sequence[float], limit: float) -> float:
    """Percent of the errors (in percent, signed) that are at most ``limit``."""
    return 100.0 * float(np.mean(np.abs(np.asarray(errors)) <= limit))


def median(errors: Sequence[float]) -> float:
    """The median absolute error."""
    return float(np.median(np.abs(np.asarray(errors))))


def error_bars(errors: Mapping[str, float], classes: Mapping[str, OpClass]) -> dict[OpClass, tuple[float, int]]:
    """(percent, number of rows) by class: so far off or less are two thirds of its rows."""
    bars: dict[OpClass, tuple[float, int]] = {}
    for kind in sorted(set(classes.values())):
        own = [abs(errors[name]) for name in errors if classes[name] == kind]
        bars[kind] = float(np.percentile(own, USUALLY)), len(own)
    return bars
