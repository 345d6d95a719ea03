"""Modelled beside measured, for one run: the table that a person with a chip sends back."""

from __future__ import annotations

from maxkernel_nb.engine.state import CandidateState, RunState
from maxkernel_nb.task import GateName, Outcome, Verdict

HEADS = ("candidate", "modelled ms", "measured ms", "reference modelled ms", "reference measured ms", "speedup",
         "chip gate")


def measured_table(state: RunState) -> str:
    """Markdown, one row for each candidate that came before the chip gate; a sentence when none did."""
    rows = [_row(state, key, known, v) for key, known in state.candidates.items() for v in _timings(known)]
    if not rows:
        return "No candidate came before the chip gate."
    versions = ", ".join(f"{name} {version}" for name, version in sorted(state.versions.items()))
    chip = state.task.chip if state.task else ""
    lines = [" | ".join(HEADS), " | ".join("---" for _ in HEADS), *(" | ".join(row) for row in rows)]
    return "\n".join([*(f"| {line} |" for line in lines), "", f"Modelled for {chip}; {versions}."])


def _timings(known: CandidateState) -> list[Verdict]:
    """The chip's verdicts but those on the outputs, which say nothing of time."""
    chip = [v for v in known.verdicts if v.gate is GateName.CHIP]
    return [v for v in chip if not (v.outcome is Outcome.PASS and "measured_ms" not in v.numbers)]


def _row(state: RunState, key: str, known: CandidateState, chip: Verdict) -> tuple[str, ...]:
    n, profile, baseline = chip.numbers, known.profile, state.baseline
    timed = "measured_speedup" in n
    interval = f"{n['measured_speedup']:.3f} [{n['speedup_low']:.3f}, {n['speedup_high']:.3f}]" if timed else ""
    said = f"{chip.outcome}{f' ({chip.variant})' if chip.variant else ''}"
    return (
        key, f"{profile.modelled_ms:.4g}" if profile else "", _ms(n, "measured_ms"),
        f"{baseline.modelled_ms:.4g}" if baseline else "", _ms(n, "reference_measured_ms"),
        interval, said if timed else f"{said}: {chip.summary}",
    )  # fmt: skip


def _ms(numbers: dict[str, float], name: str) -> str:
    return f"{numbers[name]:.4g}" if name in numbers else ""
