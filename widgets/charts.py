"""The report's charts as PNG: matplotlib ``Figure`` objects only, with the colours the panel uses (Okabe-Ito)."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maxkernel_nb.document.model import ProfileView, SideView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REFERENCE, BEST, BOUND, INK = "#8a8f98", "#0072b2", "#d55e00", "#24292f"
_COLOURS = (REFERENCE, BEST)
DPI = 144


@dataclass(frozen=True)
class Chart:
    """``alt`` says in words and numbers what the picture shows."""

    title: str
    alt: str
    png: bytes


def charts(profile: ProfileView | None) -> tuple[Chart, ...]:
    """Times, unit utilisation and roofline, as far as the profile has them. Equal profiles give equal bytes.

    A kernel without counted flops (a reduction over rows) has no place under a roof: no roofline is drawn then.
    """
    if profile is None or not any(side.ms > 0 for side in profile.sides):
        return ()
    made = [_times(profile)]
    if any(side.units for side in profile.sides):
        made.append(_units(profile))
    if profile.roof is not None and any(_has_point(side) for side in profile.sides):
        made.append(_roofline(profile))
    return tuple(made)


def _times(profile: ProfileView) -> Chart:
    sides = profile.sides
    figure, axes = _figure(0.55 + 0.42 * len(sides))
    for at, side in enumerate(sides):
        error = side.ms * side.error_pct / 100 if side.error_pct is not None else None
        axes.barh(at, side.ms, 0.56, color=_COLOURS[at], xerr=error, ecolor=INK, capsize=3, error_kw={"lw": 1})
        axes.plot(
            [side.bound_ms] * 2,
            [at - 0.36, at + 0.36],
            color=BOUND,
            lw=2.5,
            solid_capstyle="butt",
            label="roofline bound" if at == 0 else None,
        )
        axes.annotate(f" {side.time}", (side.ms + (error or 0), at), va="center", fontsize=9, weight="bold", color=INK)
    axes.set_yticks(range(len(sides)), [s.label for s in sides])
    axes.invert_yaxis()
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    axes.set_xlabel("modelled time (ms), whiskers: typical error")
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    said = "; ".join(f"{s.label} {s.time}, bound {s.bound_ms:.3g} ms" for s in sides)
    return Chart("Modelled time", f"Bars of modelled time: {said}.", _png(figure))


def _units(profile: ProfileView) -> Chart:
    sides = [s for s in profile.sides if s.units]
    names = [u.label for u in sides[0].units]
    figure, axes = _figure(0.6 + 0.34 * len(names))
    thick = 0.8 / len(profile.sides)
    for at, side in enumerate(profile.sides):
        if not side.units:
            continue
        places = [n + (at - (len(profile.sides) - 1) / 2) * thick for n in range(len(side.units))]
        shares = [u.share * 100 for u in side.units]
        axes.barh(places, shares, thick * 0.92, color=_COLOURS[at], label=side.label)
        for place, share in zip(places, shares, strict=True):
            axes.annotate(f" {share:.0f} %", (share, place), va="center", fontsize=7.5, color=INK)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 108)
    axes.set_xlabel("issue slots used (%), modelled")
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    said = "; ".join(f"{s.label}: " + ", ".join(f"{u.label} {u.share:.0%}" for u in s.units) for s in sides)
    return Chart("Unit utilisation", f"Bars of issue slots used, by unit. {said}.", _png(figure))


def _roofline(profile: ProfileView) -> Chart:
    roof = profile.roof
    assert roof is not None
    shown = [s for s in profile.sides if _has_point(s)]
    ridge = roof.peak_tflops * 1e3 / roof.hbm_gbps
    left = min([ridge / 30, *(s.intensity / 3 for s in shown)])
    right = max([ridge * 10, *(s.intensity * 3 for s in shown)])
    figure, axes = _figure(2.7)
    axes.loglog(
        [left, ridge, right], [left * roof.hbm_gbps / 1e3, roof.peak_tflops, roof.peak_tflops], color=BOUND, lw=2
    )
    for side in shown:
        _point(axes, profile, side)
    axes.set_xlabel("flop per HBM byte")
    axes.set_ylabel("TFLOP/s, modelled")
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    said = "; ".join(f"{s.label} {s.tflops:.3g} TFLOP/s at {s.intensity:.3g} flop per byte" for s in shown)
    return Chart(
        f"Roofline of {roof.chip}", f"Peak {roof.peak_tflops:g} TFLOP/s, {roof.hbm_gbps:g} GB/s. {said}.", _png(figure)
    )


def _has_point(side: SideView) -> bool:
    return side.intensity > 0 and side.tflops > 0


def _point(axes: Axes, profile: ProfileView, side: SideView) -> None:
    at = profile.sides.index(side)
    axes.plot(
        [side.intensity],
        [side.tflops],
        marker="os"[at],
        ms=9,
        ls="",
        color=_COLOURS[at],
        label=f"{side.label}: {side.tflops:.3g} TFLOP/s",
    )


def _figure(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, max(1.3, height)), dpi=DPI, layout="constrained", facecolor="white")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9, colors=INK)
    axes.xaxis.label.set_fontsize(8.5)
    axes.yaxis.label.set_fontsize(8.5)
    return figure, axes


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
