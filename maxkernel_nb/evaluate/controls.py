"""Sanity controls: before an answer counts, the comparison must pass a known right answer and refuse known wrong ones.

They ride along with every batch (the runs of a case of a candidate), and with every answer of the reference that a
judge process has not compared with before, on its own arrays. When one of them comes out wrong the comparison is
void: an infrastructure fault, never a verdict on a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate.numerics import CONTESTED, Standard

Arrays = Sequence[np.ndarray]


def hold(own: Arrays, standard: Standard) -> None:
    """``standard``: what the batch's answers are held to, made of ``own``. Raises ``InfrastructureError`` naming the
    control that came out wrong.
    """
    if not own or not all(o.size for o in own):
        return
    right = standard.compare(own)
    if right.kind == CONTESTED:
        return
    if not right.passed:
        raise InfrastructureError(f"The reference fails its own comparison, so nothing can be judged: {right.sentence}")
    for name, wrong in known_bad(own).items():
        if standard.compare(wrong).passed:
            raise InfrastructureError(f"A known wrong answer ({name}) passed the comparison, so its verdict is void.")


def known_bad(own: Arrays) -> dict[str, Arrays]:
    """One array missing, another dtype, another shape, NaN in the last element: wrong whatever the tolerance."""
    first, rest = own[0], list(own[1:])
    bad: dict[str, Arrays] = {
        "an array missing": rest,
        "another dtype": [first.astype(np.float64 if first.dtype != np.float64 else np.float32), *rest],
        "another shape": [first.reshape(1, *first.shape), *rest],
    }
    if first.dtype.kind not in "iub" and np.isfinite(first[(-1,) * first.ndim].astype(np.complex128)):
        spoiled = first.copy()
        spoiled[(-1,) * first.ndim] = np.nan
        bad["not a number"] = [spoiled, *rest]
    return bad
