"""Runs tasks through the one evaluator and keeps what comes back: no second checker, no second timer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from jaxbench import bridge, kernel_files
from jaxbench.progress import Progress, Silent
from jaxbench.registry import Size
from jaxbench.results import Kind, Result, ResultFile, Status, done
from jaxbench.smoke import smoke_run
from jaxbench.suites import Facts, ForeignItem, Item, OwnItem
from maxkernel_nb import api
from maxkernel_nb.engine.loop import get_engine
from maxkernel_nb.errors import Declined, InfrastructureError, MaxKernelError, UsageError
from maxkernel_nb.evaluate.base import Judged
from maxkernel_nb.evaluate.compile_gates import without_compiler
from maxkernel_nb.evaluate.executor import JobRefused
from maxkernel_nb.evaluate.ground import Limits
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.events import RunOutcome
from maxkernel_nb.store import Project
from maxkernel_nb.task import Assessment, KernelTask, Outcome, Verdict
from maxkernel_nb.tpu.chip.owner import VARIABLE, ownership
from maxkernel_nb.tpu.chips import chip as find_chip
from maxkernel_nb.tpu.profiles import ScheduleProfile
from maxkernel_nb.values import content_hash

FULL_SIZE = Limits(trace_s=300.0, check_s=600.0, compare_s=600.0, compile_s=1200.0)
RESULTS = "bench/results.jsonl"  # below .maxkernel
Evidence = Literal["modelled", "measured"]


@dataclass(frozen=True)
class Done:
    """What a command over several tasks leaves: new results, how many were known already, whether it was stopped."""

    results: tuple[Result, ...]
    skipped: int = 0
    interrupted: bool = False


@dataclass
class Harness:
    """One place for results, one evaluator, one chip. Use it as a context: leaving it ends the workers.

    ``resume``: tasks whose question is answered in ``results`` already are skipped.
    """

    project: Project
    results: ResultFile
    chip: str = "v6e"
    inputs: bridge.Inputs = "ours"
    resume: bool = False
    progress: Callable[[int], Progress] = lambda total: Silent()
    evaluator: LocalEvaluator = field(init=False)

    def __post_init__(self) -> None:
        self.chip = find_chip(self.chip).name
        self.project.prepare()
        self.evaluator = LocalEvaluator(self.project.objects, limits=FULL_SIZE)

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *about: object) -> None:
        self.evaluator.close()

    def run(self, items: Sequence[Item], size: Size = "full", evidence: Evidence = "modelled") -> Done:
        """The references themselves: compiled for the chip and modelled; at smoke size also run here on the CPU.

        ``evidence`` ``measured``: on this machine's chip too, in turn with the algebraic short form where there is one,
        else with itself. Raises ``UsageError`` where there is no chip.
        """
        if evidence == "measured" and (owned := ownership()).owner == "none":
            raise UsageError(
                f"--evidence measured needs a TPU, and {owned.reason}; leave it out, or set {VARIABLE}=cpu for a "
                "rehearsal on the CPU."
            )
        return self._each(items, lambda item: self._reference(item, size, evidence))

    def evaluate(self, item: Item, path: Path, salt: str = "") -> Result:
        """Judges a kernel file on fresh draws, or on those of an earlier judgement, whose ``salt`` its result names.

        Raises ``UsageError`` when the file cannot be read, ``TaskError`` for a bad task.
        """
        return self._wait(self._judged(item, path, salt or secrets.token_hex(8)))

    def optimize(self, items: Sequence[Item], *, author: str | None = None, mode: str = "auto",
                 budget: str | None = None, trust: bool = False) -> Done:
        """Has a mode look for kernels. ``trust``: a foreign task's own Python may run in this process."""
        for item in items:
            if isinstance(item, ForeignItem) and not trust:
                raise UsageError(
                    f"Recipes read {item.id} as a live function, so its file would run in this process; pass --trust "
                    "if you trust it."
                )
        options = {"author": author, "mode": mode, "budget": budget}
        return self._each(items, lambda item: self._optimized(item, options))

    def rivals(self, items: Sequence[Item]) -> Done:
        """jax's own kernels with tuned blocks, compiled and modelled as the references are. Tasks without one: none."""
        from jaxbench.rivals import RIVALS

        having = [i for i in items if isinstance(i, OwnItem) and i.bench.number in RIVALS]
        return self._each(having, self._rival)

    # -- one task --------------------------------------------------------------------------------------------------

    def _each(self, items: Sequence[Item], one: Callable[[Item], Result | None]) -> Done:
        """In order; each result is kept at once. An interrupt ends the work, never what is done."""
        made: list[Result] = []
        skipped = 0
        with self.progress(len(items)) as progress:
            try:
                for item in items:
                    progress.working(item.id)
                    result = one(item)
                    skipped += result is None
                    if result is not None:
                        self.results.append(result)
                        made.append(result)
                    progress.done(line(result) if result is not None else f"{item.id:58} known already")
            except KeyboardInterrupt:
                return Done(tuple(made), skipped, interrupted=True)
        return Done(tuple(made), skipped)

    def _reference(self, item: Item, size: Size, evidence: Evidence) -> Result | None:
        started = time.monotonic()
        base = self._blank(item, Kind.REFERENCE, size).model_copy(update={"asked": evidence})
        try:
            task, short = self._wait(item.timed(self.evaluator, self.chip, size))
        except UsageError:
            raise
        except InfrastructureError as error:
            return _ended(base, started, status=Status.INFRASTRUCTURE, reason=str(error))
        except MaxKernelError as error:
            return _ended(base, started, status=Status.REFUSED, reason=str(error))
        base = base.model_copy(update={"task_hash": task_hash(task), **_facts(item.facts(size))})
        if self._known(base):
            return None
        changes: dict[str, Any] = {}
        if size == "smoke" and isinstance(item, OwnItem):
            changes |= smoke_run(item.bench)
        if changes.get("status") is not Status.REFUSED:
            changes |= self._modelled(task, short)
        if evidence == "measured" and changes.get("status") is None:
            changes |= self._measured(task, short, changes.get("reference_ms"))
        return _ended(base, started, **changes)

    def _measured(self, task: KernelTask, short: KernelTask | None, modelled_ms: float | None) -> dict[str, Any]:
        """The chip's verdicts, and its times where they are a chip's: a rehearsal's stay in the verdicts."""
        other = short.reference(short.timing_case.name).device if short is not None else ""
        verdicts = self._wait(self.evaluator.measure_reference(task, other))
        found = Assessment(candidate="", verdicts=verdicts).measured
        facts: dict[str, Any] = {"verdicts": verdicts, "modelled_ms": modelled_ms}
        if found is None:
            return facts
        times = {"evidence": "measured", "reference_ms": found.numbers["reference_measured_ms"]}
        return {**facts, **times, "algebra_ms": found.numbers["measured_ms"] if other else None}

    def _rival(self, item: Item) -> Result | None:
        started = time.monotonic()
        assert isinstance(item, OwnItem)
        base = self._blank(item, Kind.RIVAL, "full").model_copy(update={"author": "jax's own kernel"})
        if self._known(base):
            return None
        try:
            task = bridge.rival_task(item.bench, self.project.objects, self.chip)
            found = self._modelled(task, None)
        except MaxKernelError as error:
            return _ended(base, started, status=Status.REFUSED, reason=str(error))
        return _ended(base, started, **{**found, "kernel_ms": found.get("reference_ms"), "reference_ms": None})

    def _modelled(self, task: KernelTask, short: KernelTask | None) -> dict[str, Any]:
        missing = without_compiler()
        if missing:
            return {"reason": missing}
        try:
            profile = self._wait(self.evaluator.reference_profile(task))
            quick = self._wait(self.evaluator.reference_profile(short)) if short is not None else None
        except JobRefused as refusal:
            return {"status": Status.REFUSED, "reason": refusal.message}
        except InfrastructureError as error:
            return {"status": Status.INFRASTRUCTURE, "reason": str(error)}
        return {
            "evidence": "modelled", "reference_ms": profile.modelled_ms, "roofline_ms": profile.roofline_ms,
            "algebra_ms": quick and quick.modelled_ms, "error_pct": profile.error_pct, "bound_by": profile.bound_by,
            "hbm_bytes": profile.hbm_bytes,
        }  # fmt: skip

    async def _judged(self, item: Item, path: Path, salt: str) -> Result:
        started = time.monotonic()
        base = self._blank(item, Kind.KERNEL, "full")
        task = await item.judged(self.evaluator, self.chip, self.inputs)
        candidate = kernel_files.read_kernel(path, task)
        fresh = task.model_copy(update={"salt": salt})  # draws that nobody can know beforehand
        judged = await self.evaluator.judge(fresh, candidate)
        baseline = None
        if judged.assessment.correct:
            baseline = await self._baseline(task)
        _, short = await item.timed(self.evaluator, self.chip, "full") if baseline else (None, None)
        quick = await self._baseline(short) if short is not None else None
        known = kernel_files.kernel_hash(path.read_text(encoding="utf-8"))
        result = base.model_copy(update={
            "task_hash": task_hash(task), "kernel_hash": known, "author": path.name, "seeds": task.seeds,
            "salt": fresh.salt, "loosened": task.tolerance.loosened, **_facts(item.facts("full")),
            "reference_ms": baseline and baseline.modelled_ms, "algebra_ms": quick and quick.modelled_ms,
        })  # fmt: skip
        return _ended(result, started, **_verdict(judged))

    def _optimized(self, item: Item, options: dict[str, Any]) -> Result | None:
        started = time.monotonic()
        keywords = _live(item, self.inputs)
        task = self._wait(item.judged(self.evaluator, self.chip, self.inputs))
        base = self._blank(item, Kind.OPTIMIZED, "full").model_copy(update={
            "task_hash": task_hash(task), "author": options["author"] or "default", "mode": options["mode"],
            "seeds": task.seeds, **_facts(item.facts("full")),
        })  # fmt: skip
        if self._known(base):
            return None
        given = {k: v for k, v in options.items() if v is not None}
        run = api.start(chip=self.chip, policy="accept-verified", project=self.project.root, **keywords, **given)
        try:
            run.wait()
        except KeyboardInterrupt:
            run.stop()
            raise
        _, short = self._wait(item.timed(self.evaluator, self.chip, "full"))
        quick = self._wait(self._baseline(short)) if short is not None else None
        return _ended(base, started, run=run.id, algebra_ms=quick and quick.modelled_ms, **_of_run(run.state))

    # -- helpers ---------------------------------------------------------------------------------------------------

    async def _baseline(self, task: KernelTask) -> ScheduleProfile | None:
        """None too where the reference does not compile: its result says so already."""
        try:
            return await self.evaluator.baseline(task)
        except Declined:
            return None

    def _blank(self, item: Item, kind: Kind, size: Size) -> Result:
        return Result(task=item.id, suite=item.suite, kind=kind, status=Status.OK, size=size, inputs=self.inputs,
                      chip=self.chip, versions=api.versions())

    def _known(self, result: Result) -> bool:
        return self.resume and result.key() in done(self.results.read())

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The engine's loop does the work, so that this also runs where a notebook's loop is busy already."""
        future = get_engine().submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise


def task_hash(task: KernelTask) -> str:
    """Of what is asked: without the salt of one run, and the references' exports (which differ by jax version)."""
    facts = task.model_copy(update={"salt": "", "references": (), "weak": (), "chip": ""}).to_dict()
    return content_hash(facts)[:16]


def line(result: Result) -> str:
    """One line for a person, with what is modelled called so."""
    told = result.reason or result.status
    if result.ok and result.reference_ms is not None:
        told = f"{result.reference_ms:9.4g} ms {result.evidence}"
        if result.speedup is not None:
            times = f"{result.kernel_ms:9.4g} ms against {result.reference_ms:.4g} ms"
            told = f"{times}, {result.speedup:.2f}x {result.evidence}"
        elif result.published_ms:
            note = f" ({result.published_note})" if result.published_note else ""
            told += f"; published {result.published_ms:.4g} ms{note}"
        if result.kind is Kind.REFERENCE and result.algebraic_gain:
            told += f"; algebra alone {result.algebraic_gain:.1f}x"
    if result.kind is Kind.REFERENCE and result.verdicts:
        told += f"; {_on_chip(result)}"
    elif result.ok and result.kernel_hash and result.kernel_ms is None:
        told = "verified, not timed"
    if result.cpu_wall_ms is not None:
        told += f"; {result.cpu_wall_ms:.3g} ms wall clock on this CPU"
    return f"{result.task:58} {told}"


def _on_chip(result: Result) -> str:
    last = result.verdicts[-1]
    if "reference_measured_ms" not in last.numbers:
        return f"{last.variant or 'chip'}: {last.summary}"
    n = last.numbers
    beside = f"; modelled {result.modelled_ms:.4g} ms" if result.evidence == "measured" and result.modelled_ms else ""
    where = last.variant or "chip"
    return f"{where}: {n['reference_measured_ms']:.4g} ms in {n['pairs']:.0f} pairs, {n['chip_s']:.3g} s{beside}"


def _facts(facts: Facts) -> dict[str, Any]:
    ms, note = facts.published or (None, "")
    return {
        "tier": facts.tier, "algebra": facts.algebra, "flops": facts.flops, "min_bytes": facts.min_bytes,
        "published_ms": ms, "published_note": note, "notes": facts.notes,
    }  # fmt: skip


def _ended(result: Result, started: float, **changes: Any) -> Result:
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    update = {**changes, "finished": finished, "seconds": round(time.monotonic() - started, 2)}
    return Result.model_validate({**{n: getattr(result, n) for n in type(result).model_fields}, **update})


def _verdict(judged: Judged) -> dict[str, Any]:
    """What the assessment amounts to. A fault of ours is none of the kernel's."""
    assessment, profile = judged.assessment, judged.profile
    facts: dict[str, Any] = {"verdicts": assessment.verdicts}
    if assessment.correct:
        facts |= {"status": Status.OK, "kernel_ms": assessment.modelled_ms}
        if profile is not None:
            facts |= {
                "evidence": "modelled", "roofline_ms": profile.roofline_ms, "error_pct": profile.error_pct,
                "bound_by": profile.bound_by, "hbm_bytes": profile.hbm_bytes,
            }  # fmt: skip
        return facts | _timing(assessment.measured)
    at_fault = next((v for v in assessment.verdicts if v.outcome is Outcome.FAIL), None)
    ours = next((v for v in assessment.verdicts if v.outcome is Outcome.INFRASTRUCTURE), None)
    if at_fault is None and ours is not None:
        return {**facts, "status": Status.INFRASTRUCTURE, "reason": ours.summary}
    reason = f"{at_fault.gate}: {at_fault.summary}" if at_fault else "too few shape cases could be checked"
    return {**facts, "status": Status.REFUSED, "reason": reason}


def _timing(verdict: Verdict | None) -> dict[str, Any]:
    """The times of a chip, where one measured kernel and reference in turn: they stand in for the modelled ones."""
    if verdict is None or "reference_measured_ms" not in verdict.numbers:
        return {}
    kernel_ms, reference_ms = (verdict.numbers[n] for n in ("measured_ms", "reference_measured_ms"))
    return {"evidence": "measured", "kernel_ms": kernel_ms, "reference_ms": reference_ms}


def _of_run(state: Any) -> dict[str, Any]:
    best = state.candidates.get(state.best) if state.best else None
    reference = state.baseline.modelled_ms if state.baseline else None
    facts = {"reference_ms": reference, "weak": state.task.weak if state.task else ()}
    if best is None:
        status = Status.INFRASTRUCTURE if state.outcome is RunOutcome.FAILED else Status.NO_KERNEL
        return {**facts, "status": status, "reason": state.reason or str(state.outcome)}
    profile = best.profile
    more = {"error_pct": profile.error_pct, "bound_by": profile.bound_by, "roofline_ms": profile.roofline_ms,
            "hbm_bytes": profile.hbm_bytes, "evidence": "modelled"} if profile else {}
    timed: dict[str, Any] = {"kernel_ms": state.best_ms}
    if state.measured is not None:
        timed = {"evidence": "measured", "kernel_ms": state.measured.ms, "reference_ms": state.measured.reference_ms}
    return {**facts, **more, **timed, "kernel_hash": content_hash(best.candidate.source), "verdicts": best.verdicts}


def _live(item: Item, inputs: bridge.Inputs) -> dict[str, Any]:
    """Keywords for ``api.start``."""
    if isinstance(item, OwnItem):
        return bridge.start_keywords(item.bench, inputs)
    assert isinstance(item, ForeignItem)
    return item.trusted_keywords()
