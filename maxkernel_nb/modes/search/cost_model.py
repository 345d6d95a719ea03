"""A cost model of one family of kernels: a Gaussian process over the logarithms of the constants.

Its prior is the author's own lower bound or cheap estimate, where there is one, times a factor learned from what was
seen; so it knows before the first trial that more traffic is slower. How far to lean on which is what explains the
times seen best. Small, exact, and the same on every machine up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

_NOISE = 1e-4  # variance of log time: the same program may be modelled by two texts
_LENGTHS = (0.5, 1.0, 2.0, 4.0)  # octaves
_MOST = 160  # observations kept: the fastest and the newest


Priors = Sequence[float | None]  # ms, one for each kind of prior knowledge


class CostModel:
    """``fit`` on (params, priors, ms), then ``improvement`` of unseen points over the best.

    ``trend``: log of the time a doubling of any constant is expected to add before anything is known (below zero:
    larger blocks are faster, as where fixed costs of a grid step bind).
    """

    def __init__(self, axes: Sequence[str], trend: float = 0.0) -> None:
        self.axes, self.trend = tuple(axes), trend
        self._x = np.zeros((0, len(self.axes)))
        self._lengths = np.ones(len(self.axes))
        self._weights = np.zeros(0)

    def fit(self, seen: Sequence[tuple[Mapping[str, int], Priors, float]]) -> None:
        if len(seen) > _MOST:
            fastest = sorted(range(len(seen)), key=lambda n: seen[n][2])[: _MOST // 2]
            kept = set(fastest) | set(range(len(seen) - _MOST // 2, len(seen)))
            seen = [s for n, s in enumerate(seen) if n in kept]
        self._x = np.array([self._point(p) for p, _, _ in seen])
        times = np.log([t for _, _, t in seen]) - self.trend * self._x.sum(1)
        priors = _logs([p for _, p, _ in seen])
        best: tuple[float, np.ndarray, np.ndarray] | None = None
        for weights in _weight_choices(priors):
            for lengths in _length_choices(len(self.axes)):
                score = self._try(times - priors @ weights, lengths)
                if best is None or score > best[0] + 1e-9:
                    best = (score, weights, lengths)
        assert best is not None
        _, self._weights, self._lengths = best
        self._try(times - priors @ self._weights, self._lengths)

    def _point(self, params: Mapping[str, int]) -> list[float]:
        return [math.log2(params[a]) for a in self.axes]

    def _try(self, y: np.ndarray, lengths: np.ndarray) -> float:
        """Conditions on ``y``; the log marginal likelihood."""
        self._mean = float(np.mean(y))
        spread = max(float(np.var(y)), 1e-3)
        self._variance = spread
        k = spread * _kernel(self._x, self._x, lengths) + _NOISE * np.eye(len(y))
        self._factor = np.linalg.cholesky(k)
        self._alpha = np.linalg.solve(self._factor.T, np.linalg.solve(self._factor, y - self._mean))
        return float(-0.5 * (y - self._mean) @ self._alpha - np.log(np.diag(self._factor)).sum())

    def predict(self, points: Sequence[Mapping[str, int]],
                priors: Sequence[Priors]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the log of ms."""
        x = np.array([self._point(p) for p in points])
        k = self._variance * _kernel(x, self._x, self._lengths)
        mean = self._mean + self.trend * x.sum(1) + _logs(priors) @ self._weights + k @ self._alpha
        v = np.linalg.solve(self._factor, k.T)
        return mean, np.sqrt(np.maximum(self._variance + _NOISE - (v**2).sum(0), 1e-12))

    def improvement(self, points: Sequence[Mapping[str, int]], priors: Sequence[Priors],
                    best_ms: float) -> np.ndarray:
        """Expected improvement of the log time over ``best_ms``, for each point."""
        mean, sigma = self.predict(points, priors)
        z = (math.log(best_ms) - mean) / sigma
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        below = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
        return sigma * (z * below + density)


def _logs(priors: Sequence[Priors]) -> np.ndarray:
    """[points, kinds]; what is not known counts as one millisecond."""
    return np.array([[math.log(p) if p else 0.0 for p in point] for point in priors])


def _weight_choices(priors: np.ndarray) -> list[np.ndarray]:
    """Leaning on one kind, the last first, wholly or half; on the last two half each; on none."""
    kinds = priors.shape[1]
    useful = [n for n in reversed(range(kinds)) if (len(priors) == 1 and priors[0, n]) or np.ptp(priors[:, n]) > 0]
    found = [weight * np.eye(kinds)[n] for weight in (1.0, 0.5) for n in useful]
    if len(useful) > 1:
        found.append(0.5 * (np.eye(kinds)[useful[0]] + np.eye(kinds)[useful[1]]))
    return [*found, np.zeros(kinds)]


def _length_choices(axes: int) -> list[np.ndarray]:
    """Common lengths, and each axis longer (it matters less) or shorter than the others."""
    found = [np.full(axes, length) for length in _LENGTHS]
    for axis in range(axes):
        for length in (1.0, 2.0):
            for factor in (0.5, 4.0):
                one = np.full(axes, length)
                one[axis] *= factor
                found.append(one)
    return found


def _kernel(a: np.ndarray, b: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Matern 5/2."""
    gaps = (a[:, None, :] - b[None, :, :]) / lengths
    r = np.sqrt(5 * (gaps**2).sum(-1))
    return (1 + r + r**2 / 3) * np.exp(-r)
