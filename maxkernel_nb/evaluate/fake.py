"""A deterministic evaluator for tests: verdicts follow from marks in the candidate's text.

``# wrong`` fails the check gate, with ``# unjudged`` the judge itself fails there, ``# time=0.5`` sets the modelled ms
(default 1.0). With ``chip``, what passed every gate is measured: ``# measured=0.5`` sets the ms (default: as modelled),
at two chip seconds each.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from maxkernel_nb.errors import Declined
from maxkernel_nb.evaluate.base import ALL_GATES, Judged
from maxkernel_nb.task import Assessment, Candidate, GateName, KernelTask, Outcome, Verdict
from maxkernel_nb.tpu.profiles import ScheduleProfile

CHIP_S = 2.0


class FakeEvaluator:
    def __init__(self, baseline_ms: float | None = 2.0, delay_s: float = 0.0, chip: bool = False,
                 no_baseline: str = "") -> None:
        self.baseline_ms, self.chip = baseline_ms, chip
        self.no_baseline = no_baseline  # why the reference does not compile
        self.delay_s = delay_s
        self.judged: list[tuple[str, tuple[GateName, ...]]] = []
        self.closed = False
        self.weak: tuple[str, ...] = ()

    def warm(self) -> None: ...

    async def baseline(self, task: KernelTask) -> ScheduleProfile | None:
        await asyncio.sleep(self.delay_s)
        if self.no_baseline:
            raise Declined(self.no_baseline)
        return None if self.baseline_ms is None else fake_profile(self.baseline_ms, task.chip)

    async def admit(self, task: KernelTask) -> tuple[str, ...]:
        return self.weak

    async def judge(
        self, task: KernelTask, candidate: Candidate, gates: Sequence[GateName] = ALL_GATES,
        on_verdict: Callable[[Verdict], None] = lambda verdict: None,
    ) -> Judged:
        self.judged.append((candidate.id, tuple(gates)))
        verdicts: list[Verdict] = []
        for verdict in self._verdicts(task, candidate, gates):
            await asyncio.sleep(self.delay_s)
            on_verdict(verdict)
            verdicts.append(verdict)
            if verdict.outcome is Outcome.FAIL:
                break
        time = next((v.numbers["modelled_ms"] for v in verdicts if "modelled_ms" in v.numbers), None)
        profile = None if time is None else fake_profile(time, task.chip)
        return Judged(assessment=Assessment(candidate=candidate.id, verdicts=tuple(verdicts)), profile=profile)

    def _verdicts(self, task: KernelTask, candidate: Candidate, gates: Sequence[GateName]) -> list[Verdict]:
        found: list[Verdict] = []
        for gate in gates:
            if gate is GateName.CHECK:
                marks = {"# wrong": Outcome.FAIL, "# unjudged": Outcome.INFRASTRUCTURE}
                outcome = next((o for mark, o in marks.items() if mark in candidate.source), Outcome.PASS)
                found += [Verdict(gate=gate, outcome=outcome, summary=f"check {outcome}", case=c.name, seed=s)
                          for c in task.check_cases for s in task.seeds]
            elif gate is GateName.MODEL and self.baseline_ms is not None:
                time = float(match[1]) if (match := re.search(r"# time=([\d.]+)", candidate.source)) else 1.0
                found.append(Verdict(gate=gate, outcome=Outcome.PASS, summary=f"{time} ms modelled",
                                     numbers={"modelled_ms": time}, evidence="modelled"))
            else:
                declined = gate in (GateName.COMPILE, GateName.MODEL) and self.baseline_ms is None
                outcome = Outcome.DECLINED if declined else Outcome.PASS
                found.append(Verdict(gate=gate, outcome=outcome, summary=f"{gate} {outcome}"))
        return [*found, *self._measured(candidate, gates)]

    def _measured(self, candidate: Candidate, gates: Sequence[GateName]) -> list[Verdict]:
        if not self.chip or self.baseline_ms is None or not set(ALL_GATES) <= set(gates):
            return []
        marks = [re.search(rf"# {name}=([\d.]+)", candidate.source) for name in ("measured", "time")]
        ms = next((float(m[1]) for m in marks if m), 1.0)
        ratio = self.baseline_ms / ms
        numbers = {"measured_ms": ms, "reference_measured_ms": self.baseline_ms, "measured_speedup": ratio,
                   "speedup_low": ratio * 0.99, "speedup_high": ratio * 1.01, "chip_s": CHIP_S}
        return [Verdict(gate=GateName.CHIP, outcome=Outcome.PASS, summary=f"{ms} ms measured", numbers=numbers,
                        evidence="measured")]

    def close(self) -> None:
        self.closed = True


def fake_profile(modelled_ms: float, chip: str = "v6e") -> ScheduleProfile:
    return ScheduleProfile(chip=chip, modelled_ms=modelled_ms, flops=1e12, hbm_bytes=1e9, roofline_ms=0.6,
                           bound_by="mxu", error_pct=6.0, error_source="fake")
