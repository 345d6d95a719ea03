"""In the judge worker: a candidate's vector-Jacobian product against the reference's and the oracle's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from maxkernel_nb.compat import enable_x64
from maxkernel_nb.evaluate import inputs, wire
from maxkernel_nb.evaluate.numerics import compare
from maxkernel_nb.task import Case, Tolerance
from maxkernel_nb.values import content_hash

NONE = "none"  # kind of an answer: the reference was exported without its gradient
KEPT = 64
_known: dict[str, list[np.ndarray]] = {}


def compared(args: dict[str, Any], buffers: tuple[bytes, ...]) -> dict[str, Any]:
    """Buffers: ``own``, ``oracle`` (empty: none), the candidate's outputs. The facts of a ``Comparison``."""
    import jax.export

    from maxkernel_nb.evaluate.ops_judge import facts_of

    case, tolerance = Case.from_dict(args["case"]), Tolerance.from_dict(args["tolerance"])
    own, oracle, *rest = buffers
    program = jax.export.deserialize(bytearray(own))
    if not program.has_vjp():
        return {"passed": False, "kind": NONE, "sentence": "The reference was exported without its gradient."}
    results = [(tuple(v.shape), v.dtype.name) for v in program.out_avals]
    given = inputs.cotangents(results, case.name, args["seed"])
    mine = _asked(own, case, args["seed"], given, wide=False)
    wide = _asked(oracle, case, args["seed"], given, args["wide"]) if oracle else mine
    return facts_of(compare(wire.arrays(args["outputs"], rest), mine, wide, tolerance))


def _asked(exported: bytes, case: Case, seed: int, given: Sequence[np.ndarray], wide: bool) -> list[np.ndarray]:
    key = content_hash([content_hash(exported), case.digest(), seed])
    if key not in _known:
        while len(_known) >= KEPT:
            _known.pop(next(iter(_known)))
        with enable_x64(wide):
            _known[key] = _pulled_back(exported, case, seed, given)
    return _known[key]


def _pulled_back(exported: bytes, case: Case, seed: int, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    import jax
    import jax.export

    program = jax.export.deserialize(bytearray(exported))
    arrays = [a.astype(v.dtype) for a, v in zip(inputs.draw(case, seed), program.in_avals, strict=True)]
    floats = [n for n, a in enumerate(case.args) if inputs.is_float(a.dtype)]
    left = iter(given)
    whole = [
        next(left).astype(v.dtype) if inputs.is_float(v.dtype.name) else np.zeros(v.shape, jax.dtypes.float0)
        for v in program.out_avals
    ]

    def function(*some: Any) -> Any:
        full = [some[floats.index(n)] if n in floats else a for n, a in enumerate(arrays)]
        return jax.tree.leaves(program.call(*full))

    def back(some: Sequence[Any]) -> Any:
        return jax.vjp(function, *some)[1](whole)

    call = jax.jit(back, compiler_options={"xla_allow_excess_precision": False})
    return [np.asarray(g) for g in call([arrays[n] for n in floats])]
