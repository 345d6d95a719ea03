"""The check's last part: the candidate's program in the judge's own process, which never saw its Python.

At full size where a CPU can (the program that is timed, on a draw that no candidate's worker is told, against the
reference there, or some of its rows); else on the largest check case. As plain operations, without a TPU's semantics.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from typing import Any

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate import proportion
from maxkernel_nb.evaluate.executor import ExecutorClosed, Job, JobRefused, WorkerKind
from maxkernel_nb.evaluate.ground import Ground, numbers, refused
from maxkernel_nb.evaluate.inputs import Variant
from maxkernel_nb.evaluate.numerics import CONTESTED
from maxkernel_nb.evaluate.ops_full import DEPENDENT
from maxkernel_nb.task import Case, CaseRole, GateName, Outcome, RowsReference, Verdict

APART = "second process"
FULL = "full size"
UNSEEN = range(1000, 1008)  # seeds of draws that no candidate's worker is told; plain operations run in milliseconds
LIMIT = 3e11  # operations of a candidate at full size: some seconds on two cores
DOUBTED = 3e12  # the same where its work is not in proportion: then it must be shown
ELEMENTS = 3 << 27  # of arguments and results
CHEAP = 4e9  # operations: more are run on drawn values only
LOOSENED = " Tolerance loosened by the user."


async def apart(ground: Ground, largest: Case) -> AsyncIterator[Verdict]:
    """At full size; where that is not possible the largest check case, and doubts about the size then count."""
    name = ground.task.timing_case.name
    checked = {c: about for c, about in ground.facts.items() if c != name}
    works = {c: ground.task.reference(c).work for c in ground.facts}
    doubt = proportion.doubt(ground.facts[name], checked, works, name) if name in ground.facts else ""
    full = await _full(ground, bool(doubt))
    small = None
    if full.outcome is Outcome.DECLINED or (full.outcome is Outcome.FAIL and _copies(ground)):
        small = await _largest(ground, largest)
        doubt = doubt or _not_alike(full, small, name)
        full = _excused(full, small)
    if full.outcome is Outcome.DECLINED and doubt:
        told = JobRefused("proportion", _unshown(doubt, full))
        full = refused(GateName.CHECK, told, time.monotonic(), name, variant=FULL)
    yield full
    if full.outcome is not Outcome.FAIL and small is not None:
        yield small


def _copies(ground: Ground) -> bool:
    """True where every case's kernel orders copies by itself: as plain operations it may do something else."""
    return all(about["copies"] for about in ground.facts.values())


def _excused(full: Verdict, small: Verdict) -> Verdict:
    """Plain operations are no judge at full size of what they do not judge where it was checked either."""
    if full.outcome is not Outcome.FAIL or small.outcome is not Outcome.DECLINED:
        return full
    told = f"Not run at full size: plain operations are no judge of it. {small.summary}"
    return full.model_copy(update={"outcome": Outcome.DECLINED, "summary": told, "diagnostics": ()})


def _not_alike(full: Verdict, small: Verdict, name: str) -> str:
    """Where the checked program can be had as plain operations and the timed one cannot."""
    lowered = "cannot be lowered" not in full.summary or small.outcome is not Outcome.PASS
    return "" if lowered else f"The {name} case cannot be made plain operations, checked cases can"


def _unshown(doubt: str, verdict: Verdict) -> str:
    why = verdict.summary.removeprefix("Not run at full size: ").rstrip(".")
    return (
        f"{doubt}, and it could not be run there ({why}): what is timed must be what was checked; let the program not "
        "depend on the size."
    )


async def _full(ground: Ground, doubted: bool) -> Verdict:
    started, task, case = time.monotonic(), ground.task, ground.task.timing_case
    declined = Verdict(gate=GateName.CHECK, outcome=Outcome.DECLINED, summary="", case=case.name, variant=FULL)
    try:
        told = await _answer(ground, DOUBTED if doubted else LIMIT)
    except ExecutorClosed:
        raise
    except (JobRefused, InfrastructureError) as why:
        return declined.model_copy(update={"summary": f"Not run at full size: {why}"})
    if told["kind"] == CONTESTED:
        return declined.model_copy(update={"summary": f"Not run at full size: {told['sentence']}"})
    if not told["passed"]:
        said = f"At full size the program gives other results: {told['sentence']}"
        return refused(GateName.CHECK, JobRefused("full-size", said), started, case.name, variant=FULL)
    loosened = LOOSENED if task.tolerance.loosened else ""
    return declined.model_copy(
        update={
            "outcome": Outcome.PASS,
            "summary": f"Right at full size in a second process, on a draw of its own: {told['sentence']}{loosened}",
            "numbers": numbers(told),
            "seconds": time.monotonic() - started,
        }
    )


async def _answer(ground: Ground, limit: float) -> dict[str, Any]:
    """The judge's facts. Raises ``JobRefused`` with why it was not run, or what the workers raise."""
    case = ground.task.timing_case
    facts = ground.facts.get(case.name)
    parts = ground.task.reference(case.name).parts
    if facts is None or not parts:
        raise JobRefused("full", "the reference itself is too large for a CPU there.")
    if facts["work"] > limit:
        raise JobRefused("full", f"its {facts['work']:.2g} operations are too many for a CPU.")
    held = sum(math.prod(a.shape) for a in case.args) + sum(math.prod(o["shape"]) for o in facts["outputs"]["leaves"])
    if held > ELEMENTS:
        raise JobRefused("full", f"its {held:.2g} elements are too many for a CPU.")
    program = await _program(ground, case)
    for part in parts:
        job = _job(ground, part, program)
        if job is not None and (told := (await ground.caller.ask_once(job)).data)["kind"] != DEPENDENT:
            return told
    raise JobRefused("full", "the reference is too large for a CPU there, and its rows depend on each other.")


def _job(ground: Ground, part: RowsReference, program: bytes) -> Job | None:
    """``witness``: a check case on which the rows of ``part`` are shown not to depend on each other; None without."""
    task = ground.task
    witness = next((c for c in task.check_cases if _can_witness(ground, c, part)), None) if part.args else None
    if part.args and witness is None:
        return None
    args = {
        "part": _cut(task.timing_case, part).to_dict(),
        "seed": task.draws(UNSEEN[0]),
        "quick": _cheap(ground),
        "variants": [Variant.DRAWN, Variant.LARGE] if _cheap(ground) else [Variant.DRAWN],
        "tolerance": task.tolerance.to_dict(),
        "args": list(part.args),
        "rows": task.timing_case.args[part.args[0]].shape[0] if part.args else 0,
        "wide": part.oracle_dtype == "float64",
        "witness": witness and {"case": witness.to_dict(), "seed": task.draws(task.seeds[0]),
                                "wide": task.reference(witness.name).oracle_dtype == "float64"},
    }  # fmt: skip
    reference = tuple(ground.store.get(d) if d else b"" for d in (part.own, part.oracle))
    shown = ground.reference(witness) if witness else ()
    return Job(WorkerKind.JUDGE, "full", args, (*reference, program, *shown), ground.limits.full_s)


def _cut(case: Case, part: RowsReference) -> Case:
    args = (
        a.model_copy(update={"shape": (part.rows, *a.shape[1:])}) if k in part.args else a
        for k, a in enumerate(case.args)
    )
    return case.model_copy(update={"args": tuple(args)})


def _cheap(ground: Ground) -> bool:
    name = ground.task.timing_case.name
    return max(ground.facts[name]["work"], ground.task.reference(name).work) <= CHEAP


def _can_witness(ground: Ground, case: Case, part: RowsReference) -> bool:
    counts = {case.args[k].shape[0] for k in part.args}
    usual = case.role is CaseRole.CHECK and bool(ground.task.reference(case.name).own)
    return usual and len(counts) == 1 and counts.pop() >= 2


async def _program(ground: Ground, case: Case) -> bytes:
    fingerprint = ground.facts[case.name]["fingerprint"]
    job = ground.job("rehearse", ground.limits.trace_s, case=case.to_dict(), fingerprint=fingerprint)
    buffers = (await ground.ask(job)).buffers
    if len(buffers) != 1:
        raise JobRefused("crash", "The kernel's worker gave an answer that is none.")
    return buffers[0]


async def _largest(ground: Ground, case: Case) -> Verdict:
    """Declines what cannot be lowered so, and a difference in a kernel that orders copies by itself, for which plain
    operations are no judge.
    """
    started = time.monotonic()
    task, facts = ground.task, ground.facts[case.name]
    declined = Verdict(gate=GateName.CHECK, outcome=Outcome.DECLINED, summary="", case=case.name, variant=APART)
    try:
        program = await _program(ground, case)
    except JobRefused as refusal:
        return declined.model_copy(update={"summary": f"Not run in a second process: {refusal}"})
    args = {
        "case": case.to_dict(),
        "seeds": [task.draws(s) for s in UNSEEN],
        "tolerance": task.tolerance.to_dict(),
        "wide": task.reference(case.name).oracle_dtype == "float64",
    }
    buffers = (*ground.reference(case), program)
    told = (await ground.ask(Job(WorkerKind.JUDGE, "clean", args, buffers, ground.limits.compare_s))).data
    if told["kind"] == CONTESTED or (not told["passed"] and facts["copies"]):
        return declined.model_copy(update={"summary": f"In a second process: {told['sentence']}"})
    if not told["passed"]:
        said = f"In a process that never saw its Python, the program gives other results: {told['sentence']}"
        return refused(GateName.CHECK, JobRefused("second-process", said), started, case.name, variant=APART)
    note = LOOSENED if task.tolerance.loosened else ""
    return declined.model_copy(
        update={
            "outcome": Outcome.PASS,
            "summary": f"Right on {case.name} in a second process, on draws of its own: {told['sentence']}{note}",
            "numbers": numbers(told),
            "seconds": time.monotonic() - started,
        }
    )
