"""What the judge worker does: the reference's outputs and the comparison. It never sees a candidate's Python."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from maxkernel_nb.evaluate import controls, inputs, wire
from maxkernel_nb.evaluate.executor import Reply
from maxkernel_nb.evaluate.inputs import Variant
from maxkernel_nb.evaluate.numerics import CONTESTED, Comparison, Standard, compare
from maxkernel_nb.evaluate.probes import Probe, drawn, find
from maxkernel_nb.evaluate.quick import options as quick_options
from maxkernel_nb.evaluate.wrong_answers import wrong_answers
from maxkernel_nb.task import Case, Tolerance
from maxkernel_nb.values import content_hash

CACHE_BYTES = 512 << 20
Function = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
_functions: dict[str, Function] = {}
_held: set[str] = set()  # comparisons whose sanity controls this process has seen come out right
_standards: OrderedDict[str, Standard] = OrderedDict()  # of small answers, which many candidates are held to
STANDARDS_BYTES = 256 << 20
_answers: OrderedDict[tuple[str, ...], list[np.ndarray]] = OrderedDict()


def load() -> dict[str, Any]:
    import jax
    import jax.export

    jax.jit(lambda x: x + 1)(0.0).block_until_ready()
    operations = {"compare": compare_outputs, "admit": admit, "outputs": outputs, "probes": probes, "clean": clean,
                  "full": full, "gradient": gradient, "compare_on_chip": compare_on_chip}
    return {"ping": lambda args, buffers: Reply({}), **operations}


def outputs(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """The out tree and leaves (shape, dtype, weak type) of each exported program sent."""
    import jax.export

    from maxkernel_nb.evaluate.capture import leaf

    exports = [jax.export.deserialize(bytearray(b)) for b in buffers]
    return Reply({"outputs": [{"tree": str(e.out_tree), "leaves": [leaf(a) for a in e.out_avals]} for e in exports]})


def compare_outputs(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """Facts of each of ``runs`` of a case. Buffers: exports ``own`` and ``oracle``, then the candidate's outputs, run
    after run. ``probe``: how a run's inputs were changed. ``control``: false where this batch has had its sanity
    controls; the same answers are then held to them once.
    """
    case, tolerance = Case.from_dict(args["case"]), Tolerance.from_dict(args["tolerance"])
    own, oracle, *rest = buffers
    parts = iter(rest)
    told = []
    for run in args["runs"]:
        got = wire.arrays(run["outputs"], list(islice(parts, len(run["outputs"]))))
        told.append(facts_of(_compared(run, got, case, (own, oracle), args["wide"], tolerance)))
    return Reply({"runs": told})


def _compared(
    run: dict[str, Any], got: list[np.ndarray], case: Case, exports: tuple[bytes, bytes], wide: bool,
    tolerance: Tolerance,
) -> Comparison:
    seed, variant = run["seed"], Variant(run["variant"])
    probe = Probe.from_dict(run["probe"]) if run.get("probe") else None
    own = _answer(exports[0], case, seed, variant, wide=False, probe=probe)
    oracle = _answer(exports[1], case, seed, variant, wide, probe) if exports[1] else own
    key = [*_key(exports[0], case, seed, variant, probe), content_hash(exports[1]), tolerance.to_dict()]
    held = content_hash(key)
    held_to = standard(held, own, oracle, tolerance)
    if run.get("control", True) or held not in _held:
        controls.hold(own, held_to)
        _held.add(held)
    return held_to.compare(got)


def standard(key: str, own: list[np.ndarray], oracle: list[np.ndarray], tolerance: Tolerance) -> Standard:
    """The one of that name, kept while there is room."""
    found = _standards.pop(key, None) or Standard(own, oracle, tolerance)
    _standards[key] = found
    while sum(kept.nbytes for kept in _standards.values()) > STANDARDS_BYTES:
        _standards.popitem(last=False)
    return found


def compare_on_chip(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """Outputs from a device at full size; see ``ops_chip_judge``."""
    from maxkernel_nb.evaluate.ops_chip_judge import compared

    return Reply(compared(args, buffers, lambda e, case, seed, wide: _answer(e, case, seed, Variant.DRAWN, wide)))


def clean(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """Runs a candidate's program, its kernels lowered to plain operations, in this process, which never sees its
    Python; the facts of the first run that is wrong, else of the worst. Buffers: ``own``, ``oracle``, the program.
    """
    case, tolerance = Case.from_dict(args["case"]), Tolerance.from_dict(args["tolerance"])
    own_bytes, oracle_bytes, program = buffers
    call = _compile(program, wide=False, quick=True)
    worst: dict[str, Any] = {}
    for seed in args["seeds"]:
        own = _answer(own_bytes, case, seed, Variant.DRAWN, wide=False)
        oracle = _answer(oracle_bytes, case, seed, Variant.DRAWN, args["wide"]) if oracle_bytes else own
        facts = facts_of(compare(call(inputs.draw(case, seed)), own, oracle, tolerance))
        if not facts["passed"]:
            return Reply(facts)
        worst = max(worst, facts, key=lambda f: f.get("ratio", -1.0))
    return Reply(worst)


def full(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """The full-size program on one draw, against the reference there or a few rows of it; see ``ops_full``."""
    from maxkernel_nb.evaluate.ops_full import compared

    quick = bool(args.get("quick"))
    return Reply(compared(args, buffers, _function, lambda program: _compile(program, wide=False, quick=quick)))


def gradient(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """A candidate's vector-Jacobian product against the reference's; see ``ops_gradient``."""
    from maxkernel_nb.evaluate.ops_gradient import compared

    return Reply(compared(args, buffers))


def probes(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """Changed inputs on which the reference tells right from wrong (``probes``). Buffers: ``own``, ``oracle``."""
    own, oracle = (_function(b, wide) for b, wide in ((buffers[0], False), (buffers[1] or buffers[0], args["wide"])))
    found = find(Case.from_dict(args["case"]), args["seed"], own, oracle, Tolerance.from_dict(args["tolerance"]))
    return Reply({"probes": [p.to_dict() for p in found]})


def admit(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    """Names of cheap wrong answers that pass all that a check would try on this case. Buffers: ``own``, ``oracle``,
    then one program for each name in ``shortcuts``."""
    case, tolerance = Case.from_dict(args["case"]), Tolerance.from_dict(args["tolerance"])
    own_bytes, oracle_bytes, *programs = buffers
    own, oracle = _function(own_bytes, wide=False), _function(oracle_bytes or own_bytes, args["wide"])
    shortcuts = {n: _function(b, wide=False) for n, b in zip(args["shortcuts"], programs, strict=True)}
    first = args["seeds"][0]
    tried: list[tuple[int, list[np.ndarray]]] = [(s, inputs.draw(case, s)) for s in args["seeds"]]
    tried += [(first, inputs.draw(case, first, v)) for v in (Variant.ZEROS, Variant.LARGE)]
    tried += [(first, drawn(case, first, p)) for p in find(case, first, own, oracle, tolerance)]
    passing: list[str] | None = None
    for seed, arrays in tried:
        right, exact = own(arrays), oracle(arrays)
        answers = wrong_answers(case, seed, arrays, right, own, shortcuts)
        names = list(answers) if passing is None else passing
        if compare(right, right, exact, tolerance).kind != CONTESTED:
            passing = [n for n in names if compare(answers[n](), right, exact, tolerance).passed]
    return Reply({"weak": sorted(passing or ())})


def facts_of(result: Comparison) -> dict[str, Any]:
    facts = dataclasses.asdict(result)
    return {**facts, "index": list(result.index), "passed": result.passed}


def _answer(
    exported: bytes, case: Case, seed: int, variant: Variant, wide: bool, probe: Probe | None = None
) -> list[np.ndarray]:
    key = _key(exported, case, seed, variant, probe)
    if key not in _answers:
        arguments = drawn(case, seed, probe) if probe else inputs.draw(case, seed, variant)
        _answers[key] = _function(exported, wide)(arguments)
        while sum(a.nbytes for kept in _answers.values() for a in kept) > CACHE_BYTES and len(_answers) > 1:
            _answers.popitem(last=False)
    _answers.move_to_end(key)
    return _answers[key]


def _key(exported: bytes, case: Case, seed: int, variant: Variant, probe: Probe | None) -> tuple[str, ...]:
    return content_hash(exported), case.digest(), str(seed), str(variant), probe.digest() if probe else ""


def _function(exported: bytes, wide: bool) -> Function:
    """The exported reference, compiled once. It takes the same draws, cast to the dtypes it was exported with."""
    key = content_hash(exported)
    if key not in _functions:
        _functions[key] = _compile(exported, wide)
    return _functions[key]


def _compile(exported: bytes, wide: bool, quick: bool = False) -> Function:
    import jax
    import jax.export

    from maxkernel_nb.compat import enable_x64

    program = jax.export.deserialize(bytearray(exported))
    # Fused on a CPU, XLA skips roundings to bfloat16 that the function asks for, and the reference's own error would
    # look smaller than any kernel's that makes them.
    options = {"xla_allow_excess_precision": False, **(quick_options() if quick else {})}
    call = jax.jit(program.call, compiler_options=options)

    def run(arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        with enable_x64(wide or any(a.dtype.itemsize == 8 for a in arguments)):
            cast = [a.astype(v.dtype) for a, v in zip(arguments, program.in_avals, strict=True)]
            with inputs.unchanged(cast):
                return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.block_until_ready(call(*cast)))]

    return run
