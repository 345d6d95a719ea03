"""Pictures of results as PNG bytes: speedups as lollipops, all tasks on a roofline."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from jaxbench.results import Result
from maxkernel_nb.tpu.chips import chip as find_chip

BLUE, ORANGE, GREEN, GREY, RED = "#0072B2", "#E69F00", "#009E73", "#999999", "#D55E00"  # Okabe-Ito


def lollipop(results: Sequence[Result], title: str) -> bytes:
    """One line a task, from 1x to its speedup; failures are crosses at 1x. The algebraic part is drawn lighter."""
    from matplotlib.figure import Figure

    shown = list(reversed(results))
    figure = Figure(figsize=(7.2, 1.2 + 0.24 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    for y, result in enumerate(shown):
        speedup = result.speedup
        if speedup is None:
            axes.plot(1, y, "x", color=RED)
            continue
        algebra = min(max(result.algebraic_gain or 1.0, 1.0), max(speedup, 1.0))
        axes.plot([1, algebra], [y, y], color=ORANGE, linewidth=2)
        axes.plot([algebra, speedup], [y, y], color=BLUE, linewidth=2)
        axes.plot(speedup, y, "o", color=BLUE if speedup >= 1 else GREY)
        axes.annotate(f"{speedup:.2f}x", (speedup, y), xytext=(6, -3), textcoords="offset points", fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color=GREY, linewidth=0.8)
    axes.set_yticks(range(len(shown)), [r.task.split("_")[0] for r in shown], fontsize=7)
    axes.set_xlabel("speedup over XLA (orange: algebra alone; cross: no verified kernel)")
    axes.set_title(title, fontsize=9)
    axes.margins(x=0.15)
    return _png(figure)


def roofline(results: Sequence[Result], title: str) -> bytes:
    """Operations a second over operations a byte of the least traffic; the chip's peak and bandwidth as the roof."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    axes = figure.add_subplot()
    points = [(r, *p) for r in results if (p := _point(r)) is not None]
    chip = find_chip(results[0].chip)
    peak, bandwidth = chip.device_tflops * 1e12, chip.device_hbm_gbs * 1e9
    least = min((x for _, x, _ in points), default=1.0) / 2
    most = max((x for _, x, _ in points), default=1e4) * 2
    knee = peak / bandwidth
    axes.plot([least, knee, max(most, 2 * knee)], [least * bandwidth, peak, peak], color=GREY)
    for tier, colour in (("production", BLUE), ("fusion", ORANGE), ("", GREEN)):
        mine = [(i, rate) for r, i, rate in points if r.tier == tier]
        if mine:
            intensities, rates = zip(*mine, strict=True)
            axes.scatter(intensities, rates, s=14, color=colour, label=tier or "other")
    for result, x, y in points:
        axes.annotate(result.task.split("_")[0], (x, y), fontsize=6, xytext=(2, 2), textcoords="offset points")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP a byte of least HBM traffic")
    axes.set_ylabel(f"FLOP/s on {chip.name}")
    axes.set_title(title, fontsize=9)
    if points:
        axes.legend(fontsize=7)
    return _png(figure)


def _point(result: Result) -> tuple[float, float] | None:
    """(intensity, rate) of a task's program; of the kernel where there is one."""
    ms = result.kernel_ms or result.reference_ms
    known = result.ok and ms and result.flops and result.min_bytes
    if not known or not all(map(math.isfinite, (ms, result.flops, result.min_bytes))):  # type: ignore[arg-type]
        return None
    return result.flops / result.min_bytes, result.flops / (ms * 1e-3)  # type: ignore[operator]


def _png(figure: object) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)  # type: ignore[attr-defined]
    return buffer.getvalue()
