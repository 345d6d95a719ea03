"""Two charts of memory: one pipeline step as work beside copies, and the VMEM map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxkernel_nb.document.model import StepView, VmemView
from maxkernel_nb.widgets.ink import BEST, BOUND, GREEN, INK, PAPER, PINK, REFERENCE, SKY, YELLOW, figure_and_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIB = 1024 * 1024
KINDS = {
    "input": (SKY, ""), "output": (BEST, "////"), "scratch": (YELLOW, ".."), "spill": (BOUND, "xx"),
    "temporary": (PINK, "\\\\\\\\"), "other": (REFERENCE, "--"),
}  # fmt: skip
WORK = ((BEST, ""), (SKY, "////"), (PINK, ".."), (YELLOW, "xx"))
ROOM = 0.09  # of the axis: a part narrower than this has its label in the legend only


def draw_step(step: StepView) -> tuple[Figure, str]:
    """Three lanes over one step: the reads for the next step, this one's work, the write-back of the one before."""
    figure, axes = figure_and_axes(2.0)
    length = max(step.compute_us, step.read_us + step.written_us)
    at = 0.0
    for n, part in enumerate(step.parts):
        colour, hatch = WORK[n % len(WORK)]
        axes.barh(1, part.us, 0.62, left=at, color=colour, hatch=hatch, edgecolor=PAPER, lw=0,
                  label=f"{part.label}: {part.us:.2f} µs")  # fmt: skip
        at += part.us
    axes.barh(0, step.read_us, 0.62, color=GREEN, hatch="....", edgecolor=PAPER, lw=0,
              label=f"reads for the next step: {step.read_us:.2f} µs")  # fmt: skip
    axes.barh(2, step.written_us, 0.62, left=step.read_us, color=REFERENCE, hatch="----", edgecolor=PAPER, lw=0,
              label=f"write-back of the last step: {step.written_us:.2f} µs")  # fmt: skip
    axes.axvline(length, color=BOUND, lw=2)
    axes.annotate(f"step {length:.2f} µs ", (length, -0.42), ha="right", va="top", fontsize=8, color=INK)
    _three_lanes(axes, length)
    return figure, f"{step.text} {step.trips:,.0f} steps; " + ", ".join(f"{p.label} {p.us:.2f} µs" for p in step.parts)


def _three_lanes(axes: Axes, length: float) -> None:
    axes.set_yticks(range(3), ["DMA in", "compute", "DMA out"])
    axes.set_ylim(2.5, -0.75)
    axes.set_xlim(0, length * 1.02)
    axes.set_xlabel("microseconds of a typical step, modelled")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.32), ncols=2, frameon=False, fontsize=8)


def draw_vmem(vmem: VmemView) -> tuple[Figure, str]:
    """One bar a buffer, with the total against what the kernel may use and what the chip has."""
    figure, axes = figure_and_axes(0.95 + 0.27 * len(vmem.rows))
    for at, row in enumerate(vmem.rows):
        colour, hatch = KINDS.get(row.kind, KINDS["other"])
        axes.barh(at, row.size / MIB, 0.68, color=colour, hatch=hatch, edgecolor=INK, lw=0.5)
        axes.annotate(f" {row.text} ({row.kind})", (row.size / MIB, at), va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(vmem.rows)), [r.label for r in vmem.rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, max(r.size for r in vmem.rows) / MIB * 1.35)
    total = f"{vmem.used / MIB:.1f} of {vmem.capacity / MIB:.0f} MiB on the chip"
    axes.set_xlabel(f"MiB of VMEM, copies included; in all {total}")
    said = "; ".join(f"{r.label} {r.text}" for r in vmem.rows)
    return figure, f"VMEM by buffer: {said}; in all {total}."
