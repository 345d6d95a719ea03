"""In the judge worker: a candidate's program at full size, against the reference there or a few rows of it.

Where only a few rows of the reference can be had, every row of the inputs is a copy of one of them, so that every row
of the result has a known right answer, and a program that leaves rows out has nowhere to leave them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from maxkernel_nb.evaluate import inputs, probes
from maxkernel_nb.evaluate.inputs import Variant
from maxkernel_nb.evaluate.numerics import CONTESTED, compare
from maxkernel_nb.task import Case, Tolerance
from maxkernel_nb.values import content_hash

Arrays = list[np.ndarray]
Function = Callable[[Sequence[np.ndarray]], Arrays]
DEPENDENT = "dependent"  # kind of an answer: the reference's rows are not what was hoped
AT_ONCE = 1 << 22  # elements compared at a time
MOST = 1 << 25  # elements compared in all: rows beyond are drawn lots for
KEPT = 8  # answers of references; each is some rows, or a result whose reference is cheap
_apart: dict[str, bool] = {}
_right: dict[str, tuple[Arrays, Arrays]] = {}


def compared(
    args: dict[str, Any], buffers: tuple[bytes, ...], reference: Callable[[bytes, bool], Function],
    candidate: Callable[[bytes], Function],
) -> dict[str, Any]:
    """Buffers: ``own`` and ``oracle`` of the part, the program, and with ``args`` those of the witness. The facts
    of the worst comparison, or the first that failed; ``kind``: ``dependent`` where the reference's rows are.
    """
    from maxkernel_nb.evaluate.ops_judge import facts_of, standard

    own, oracle, program, *shown = buffers
    tolerance, cut = Tolerance.from_dict(args["tolerance"]), tuple(args["args"])
    if cut and not _stand_alone(args["witness"], shown, cut, tolerance, reference):
        return {"kind": DEPENDENT, "passed": False, "sentence": "The reference's rows depend on each other."}
    run, worst = candidate(program), {"kind": CONTESTED, "passed": False, "sentence": "nothing was compared."}
    for variant in map(Variant, args["variants"]):
        key, mine, wide, arrays, assigned = _expected(args, own, oracle, cut, variant, reference)
        got = run(arrays)
        for some in _chunks(got, assigned, args["seed"]):
            if assigned is None:
                told = standard(content_hash([key, tolerance.to_dict()]), mine, wide, tolerance).compare(got)
            else:
                told = compare(_at(got, some), _at(mine, assigned[some]), _at(wide, assigned[some]), tolerance)
            facts = facts_of(told)
            if facts["kind"] not in ("", CONTESTED):
                return facts
            if worst["kind"] or (facts["passed"] and facts["ratio"] > worst["ratio"]):
                worst = facts
    return worst


def _expected(
    args: dict[str, Any], own: bytes, oracle: bytes, cut: tuple[int, ...], variant: Variant,
    reference: Callable[[bytes, bool], Function],
) -> tuple[str, Arrays, Arrays, Arrays, np.ndarray | None]:
    """What names the answers, the reference's and its oracle's, the candidate's inputs, and for each of their rows
    whose copy it is.
    """
    case = Case.from_dict(args["part"])
    arrays = inputs.draw(case, args["seed"], variant)
    key = content_hash([content_hash(own), content_hash(oracle), case.digest(), args["seed"], str(variant)])
    if key not in _right:
        while len(_right) >= KEPT:
            _right.pop(next(iter(_right)))
        mine = reference(own, False)(arrays)
        _right[key] = mine, reference(oracle, args["wide"])(arrays) if oracle else mine
    if not cut:
        return key, *_right[key], arrays, None
    assigned = _assigned(arrays[cut[0]].shape[0], args["rows"], args["seed"])
    return key, *_right[key], [a[assigned] if k in cut else a for k, a in enumerate(arrays)], assigned


def _at(arrays: Arrays, rows: Any) -> Arrays:
    return [a[rows] if a.ndim else a for a in arrays]


def _assigned(distinct: int, total: int, seed: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(int(content_hash(["rows", seed])[:16], 16)))
    return rng.permutation(np.concatenate([np.arange(distinct), rng.integers(0, distinct, total - distinct)]))


def _chunks(got: Arrays, assigned: np.ndarray | None, seed: int) -> Iterator[Any]:
    """Numbers of rows, some at a time; all rows where that is not too much."""
    if assigned is None or any(not o.ndim or o.shape[0] != assigned.size for o in got):
        yield slice(None)
        return
    each = max(1, sum(o.size for o in got) // assigned.size)
    rng = np.random.Generator(np.random.PCG64(seed))
    order = np.sort(rng.permutation(assigned.size)[: max(64, MOST // each)])
    step = max(1, AT_ONCE // each)
    yield from (order[at : at + step] for at in range(0, order.size, step))


def _stand_alone(
    witness: dict[str, Any], shown: Sequence[bytes], cut: tuple[int, ...], tolerance: Tolerance,
    reference: Callable[[bytes, bool], Function],
) -> bool:
    case = Case.from_dict(witness["case"])
    key = content_hash([[content_hash(b) for b in shown], case.digest(), witness["seed"], list(cut)])
    if key not in _apart:
        own = reference(shown[0], False)
        oracle = reference(shown[1] or shown[0], witness["wide"])
        _apart[key] = probes.rows_apart(case, witness["seed"], own, oracle, tolerance, cut)
    return _apart[key]
