"""Changed inputs on which the reference answers in a known way: what a kernel that skips work cannot follow.

*Influence*: one argument made larger, one element, one last element changed, where the reference moves so far that an
answer without the change would be refused. *Relations*: rows permuted, rows of another draw put beside them, an
argument scaled by four, where the reference keeps the relation exactly. Which of them hold is found by asking the
reference, never assumed; a candidate must then be right on each. The amplitude is the smallest that shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import ml_dtypes
import numpy as np

from maxkernel_nb.evaluate import inputs
from maxkernel_nb.evaluate.numerics import compare
from maxkernel_nb.task import Case, Tolerance
from maxkernel_nb.values import Value, content_hash

MOST = 14  # of one task: each costs every candidate one run of its smallest case
AMPLITUDES = (1.0, 8.0, 64.0, 512.0, 4096.0, 2.0**18, 2.0**24)
CLEAR = 4.0  # times the allowed error: how wrong an answer without the change must be
SCALE = 4.0  # a power of two: exact in every float type
_OTHER = 7919  # added to a seed: another draw
_FITTED = ("permutation", "sorted", "partition", "pages")  # elements that only make sense together

Arrays = list[np.ndarray]
Function = Callable[[Sequence[np.ndarray]], Arrays]


class ProbeKind(StrEnum):
    LARGER = "larger"
    ELEMENT = "element"
    TAIL = "tail"
    PERMUTED = "permuted"
    JOINED = "joined"
    SCALED = "scaled"


class Probe(Value):
    """``args``: numbers of the arguments that change; ``factor``: amplitude in spreads of the draw, or the scaling."""

    kind: ProbeKind
    args: tuple[int, ...]
    factor: float = 1.0
    name: str = ""

    @property
    def relation(self) -> bool:
        return self.kind in (ProbeKind.PERMUTED, ProbeKind.JOINED, ProbeKind.SCALED)


def drawn(case: Case, seed: int, probe: Probe) -> Arrays:
    """The inputs of a probe: a function of case, seed and probe, the same in every process."""
    arrays = inputs.draw(case, seed)
    other = inputs.draw(case, seed + _OTHER) if probe.kind in (ProbeKind.LARGER, ProbeKind.JOINED) else arrays
    rng = np.random.Generator(np.random.PCG64(_entropy(case, seed, probe)))
    rows = arrays[probe.args[0]].shape[0] if arrays[probe.args[0]].ndim else 1
    order = rng.permutation(rows)
    for k in probe.args:
        arrays[k] = _changed(case, k, arrays[k], other[k], probe, rng, order)
    return arrays


def _changed(
    case: Case, k: int, array: np.ndarray, other: np.ndarray, probe: Probe, rng: np.random.Generator, order: np.ndarray
) -> np.ndarray:
    match probe.kind:
        case ProbeKind.LARGER:
            return _amplified(case, k, other, probe.factor)
        case ProbeKind.ELEMENT:
            return _one_changed(case, k, array, probe.factor, rng, tuple(int(rng.integers(n)) for n in array.shape))
        case ProbeKind.TAIL:
            return _one_changed(case, k, array, probe.factor, rng, tuple(n - 1 for n in array.shape))
        case ProbeKind.PERMUTED:
            return np.ascontiguousarray(array[order])
        case ProbeKind.JOINED:
            half = array.shape[0] // 2
            return np.concatenate([array[:half], _amplified(case, k, other, probe.factor)[half:]])
        case ProbeKind.SCALED:
            return _times(array, probe.factor)


def find(
    case: Case, seed: int, own: Function, oracle: Function, tolerance: Tolerance, most: int = MOST
) -> list[Probe]:
    """Probes of a case that say something about a candidate, the most telling of each argument first."""
    base = inputs.draw(case, seed)
    here = own(base), oracle(base)
    if not all(np.isfinite(o.astype(np.float64)).all() for part in here for o in part if o.dtype.kind not in "c"):
        return []
    asked = _Asked(case, seed, own, oracle, tolerance, *here)
    found = list(asked.relations())
    for kind in (ProbeKind.LARGER, ProbeKind.TAIL, ProbeKind.ELEMENT):
        for k in range(len(case.args)):
            if len(found) < most and (probe := asked.influence(kind, k)) is not None:
                found.append(probe)
    return found


def rows_apart(
    case: Case, seed: int, own: Function, oracle: Function, tolerance: Tolerance, args: tuple[int, ...]
) -> bool:
    """True where the reference's row n depends on rows n of ``args`` and on no other row of theirs."""
    base = inputs.draw(case, seed)
    asked = _Asked(case, seed, own, oracle, tolerance, own(base), oracle(base))
    probe = Probe(kind=ProbeKind.JOINED, args=args, factor=1.0)
    return asked._holds(probe)


class _Asked:
    """The reference, asked about one case."""

    def __init__(
        self, case: Case, seed: int, own: Function, oracle: Function, tolerance: Tolerance, o: Arrays, wide: Arrays
    ) -> None:
        self.case, self.seed, self.own, self.oracle, self.tolerance = case, seed, own, oracle, tolerance
        self.base_own, self.base = o, wide

    def influence(self, kind: ProbeKind, k: int) -> Probe | None:
        """The probe with the smallest amplitude that the tolerance sees; None when there is none, or nothing new."""
        for factor in _amplitudes(self.case, k):
            probe = Probe(kind=kind, args=(k,), factor=factor, name=_named(kind, self.case.args[k].name))
            if self._telling(probe):
                drawn_already = kind is ProbeKind.LARGER and factor == 1.0
                return None if drawn_already else probe
        return None

    def relations(self) -> Iterator[Probe]:
        for kind, words in ((ProbeKind.PERMUTED, "rows permuted"), (ProbeKind.JOINED, "rows of two draws")):
            factors = (8.0, 1.0) if kind is ProbeKind.JOINED else (1.0,)
            probes = [Probe(kind=kind, args=rows, factor=f, name=words) for rows in self._rows() for f in factors]
            found = next((p for p in probes if self._holds(p)), None)
            if found is not None:
                yield found
        for k, arg in enumerate(self.case.args):
            probe = Probe(kind=ProbeKind.SCALED, args=(k,), factor=SCALE, name=f"{arg.name} times {SCALE:g}")
            if _floats(self.case, k) and self._holds(probe):
                yield probe
                return

    def _rows(self) -> list[tuple[int, ...]]:
        """Sets of arguments that may be the rows: all that lead with the outputs' first axis, else one of them."""
        leading = _leading(self.case, self.base)
        return [leading, *((k,) for k in leading if len(leading) > 1)] if leading else []

    def _answers(self, probe: Probe) -> tuple[Arrays, Arrays] | None:
        """None where either is not finite: such inputs are no test of a kernel."""
        arrays = drawn(self.case, self.seed, probe)
        if not all(np.isfinite(a.astype(np.float64)).all() for a in arrays if a.dtype.kind != "c"):
            return None
        answers = self.own(arrays), self.oracle(arrays)
        finite = all(np.isfinite(o.astype(np.complex128)).all() for part in answers for o in part)
        return answers if finite else None

    def _telling(self, probe: Probe) -> bool:
        answers = self._answers(probe)
        if answers is None:
            return False
        result = compare(self.base_own, *answers, self.tolerance)
        return not result.passed and result.ratio >= CLEAR

    def _holds(self, probe: Probe) -> bool:
        answers = self._answers(probe)
        if answers is None:
            return False
        if probe.kind is ProbeKind.SCALED:
            return any(_close(answers[1], [o * SCALE**p for o in self.base]) for p in (1, 2, 0, -1))
        return _close(answers[1], self._rearranged(probe))

    def _rearranged(self, probe: Probe) -> Arrays:
        """What the oracle must give when each row of the result belongs to one row of the arguments."""
        rows = self.case.args[probe.args[0]].shape[0]
        if probe.kind is ProbeKind.PERMUTED:
            rng = np.random.Generator(np.random.PCG64(_entropy(self.case, self.seed, probe)))
            order = rng.permutation(rows)
            return [o[order] for o in self.base]
        arrays, other = inputs.draw(self.case, self.seed), inputs.draw(self.case, self.seed + _OTHER)
        for k in probe.args:
            arrays[k] = _amplified(self.case, k, other[k], probe.factor)
        half = rows // 2
        return [np.concatenate([o[:half], n[half:]]) for o, n in zip(self.base, self.oracle(arrays), strict=True)]


def _leading(case: Case, outputs: Arrays) -> tuple[int, ...]:
    """The arguments whose first axis is that of every output: a batch, or rows."""
    if case.maker or not outputs or any(not o.ndim for o in outputs):
        return ()
    rows = outputs[0].shape[0]
    if rows < 2 or any(o.shape[0] != rows for o in outputs):
        return ()
    return tuple(
        k for k, a in enumerate(case.args)
        if len(a.shape) > 1 and a.shape[0] == rows and a.draw.kind not in _FITTED
    )  # fmt: skip


def _floats(case: Case, k: int) -> bool:
    arg = case.args[k]
    return inputs.dtype_named(arg.dtype).kind not in "iubc" and (bool(case.maker) or arg.draw.kind == "normal")


def _amplitudes(case: Case, k: int) -> tuple[float, ...]:
    if _floats(case, k):
        return AMPLITUDES
    arg = case.args[k]
    fitted = bool(case.maker) or arg.draw.kind in (*_FITTED, "constant")
    return () if fitted or inputs.dtype_named(arg.dtype).kind == "c" else (1.0,)


def _amplified(case: Case, k: int, array: np.ndarray, factor: float) -> np.ndarray:
    """Deviations from the draw's mean, times ``factor``; what is no float stays."""
    if not _floats(case, k) or factor == 1.0:
        return array
    mean = float(array.astype(np.float64).mean()) if case.maker else case.args[k].draw.mean
    wide = mean + (array.astype(np.float64) - mean) * factor
    with np.errstate(over="ignore"):
        return wide.astype(array.dtype)


def _one_changed(
    case: Case, k: int, array: np.ndarray, factor: float, rng: np.random.Generator, at: tuple[int, ...]
) -> np.ndarray:
    changed = array.copy()
    if _floats(case, k):
        draw = case.args[k].draw
        spread = float(array.astype(np.float64).std()) or 1.0 if case.maker else draw.std
        value = float(array[at]) + factor * spread * (1 + rng.random())
        with np.errstate(over="ignore"):
            changed[at] = np.asarray(value).astype(array.dtype)
    elif array.dtype.kind == "b":
        changed[at] = ~array[at]
    else:
        low, high = _range(case, k)
        span = max(1, high - low)
        changed[at] = low + (int(array[at]) - low + 1 + int(rng.integers(max(1, span - 1)))) % span
    return changed


def _range(case: Case, k: int) -> tuple[int, int]:
    draw = case.args[k].draw
    if draw.kind == "integers":
        return draw.low, draw.high
    if draw.kind == "bernoulli":
        return 0, 2
    info = ml_dtypes.iinfo(inputs.dtype_named(case.args[k].dtype))
    reach = max(1, int(3 * draw.std))
    return max(info.min, int(draw.mean) - reach), min(info.max, int(draw.mean) + reach)


def _times(array: np.ndarray, factor: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        return (array.astype(np.float64) * factor).astype(array.dtype)


def _close(one: Arrays, other: Arrays) -> bool:
    """To rounding of the oracle, which may be float32."""
    return all(_same(a, b) for a, b in zip(one, other, strict=True))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "iub":
        return np.array_equal(a, b)
    eps = 64 * np.finfo(np.float64 if a.dtype.itemsize >= 8 else np.float32).eps
    a, b = a.astype(np.complex128), b.astype(np.complex128)
    return bool(np.abs(a - b).max(initial=0.0) <= eps * max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0)))


def _named(kind: ProbeKind, arg: str) -> str:
    return {
        ProbeKind.LARGER: f"a larger {arg}",
        ProbeKind.ELEMENT: f"one element of {arg} changed",
        ProbeKind.TAIL: f"the last element of {arg} changed",
    }[kind]


def _entropy(case: Case, seed: int, probe: Probe) -> int:
    return int(content_hash([case.name, seed, str(probe.kind), list(probe.args)])[:32], 16)
