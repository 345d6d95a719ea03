"""The report's charts: matplotlib ``Figure`` objects only, with the colours the panel uses (Okabe-Ito).

Colour never says anything alone: sides and kinds differ in hatching, marker or label too, so that the charts read in
grey. They stand on a white card of their own, which a dark notebook shows as such.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from maxkernel_nb.document.model import ProfileView, SideView
from maxkernel_nb.widgets.ink import BEST, BOUND, INK, PAPER, REFERENCE, figure_and_axes
from maxkernel_nb.widgets.memory_charts import draw_step, draw_vmem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS, MARKERS = (REFERENCE, BEST), "os"
HATCHES = {"modelled": ("", "////"), "measured": ("....", "xxxx")}


@dataclass(frozen=True)
class Chart:
    """``alt`` says in words and numbers what the picture shows."""

    title: str
    alt: str
    png: bytes
    figure: Figure = field(repr=False, compare=False)

    def save(self, kind: Literal["png", "svg"] = "png") -> bytes:
        """The picture again, from the same figure, as PNG or SVG."""
        return self.png if kind == "png" else _bytes(self.figure, kind)


def charts(profile: ProfileView | None) -> tuple[Chart, ...]:
    """Times, unit utilisation, roofline, a pipeline step and the VMEM map, as far as the profile has them.

    Equal profiles give equal bytes. A kernel without counted flops (a reduction over rows) has no place under a roof:
    no roofline is drawn then. Step and VMEM are of the last side that has them, the kernel where there is one. Measured
    sides lie in the same pictures as the modelled ones.
    """
    if profile is None or not any(side.ms > 0 for side in profile.sides):
        return ()
    made = [_times(profile)]
    if any(side.units for side in profile.sides):
        made.append(_units(profile))
    if profile.roof is not None and any(_has_point(side) for side in profile.sides):
        made.append(_roofline(profile))
    last = [s for s in profile.sides if s.evidence == "modelled"][-1:] or profile.sides[-1:]
    return (*made, *_within(last[0]))


def _within(last: SideView) -> list[Chart]:
    made = []
    if last.step is not None:
        figure, alt = draw_step(last.step)
        made.append(_chart(f"One pipeline step of {last.step.op}", alt, figure))
    if last.vmem is not None:
        figure, alt = draw_vmem(last.vmem)
        made.append(_chart(f"VMEM of {last.vmem.op}", alt, figure))
    return made


def _evidence(profile: ProfileView) -> str:
    """``modelled``, ``measured``, or both words."""
    return " and ".join(dict.fromkeys(s.evidence for s in profile.sides))


def _chart(title: str, alt: str, figure: Figure) -> Chart:
    return Chart(title, alt, _bytes(figure, "png"), figure)


def _times(profile: ProfileView) -> Chart:
    sides = profile.sides
    figure, axes = figure_and_axes(0.55 + 0.42 * len(sides))
    for at, side in enumerate(sides):
        error = side.ms * side.error_pct / 100 if side.error_pct is not None else None
        axes.barh(at, side.ms, 0.56, color=_colour(at), hatch=_hatch(at, side), edgecolor=PAPER, lw=0, xerr=error,
                  ecolor=INK, capsize=3, error_kw={"lw": 1})  # fmt: skip
        axes.plot(
            [side.bound_ms] * 2,
            [at - 0.36, at + 0.36],
            color=BOUND,
            lw=2.5,
            solid_capstyle="butt",
            label="roofline bound" if at == 0 else None,
        )
        axes.annotate(
            f" {side.time}{_against(sides, at)}",
            (side.ms + (error or 0), at),
            va="center",
            fontsize=9,
            weight="bold",
            color=INK,
        )
    axes.set_yticks(range(len(sides)), [s.label for s in sides])
    axes.invert_yaxis()
    axes.margins(x=0.28)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{_evidence(profile)} time (ms), whiskers: typical error")
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    said = "; ".join(f"{s.label} {s.time}, bound {s.bound_ms:.3g} ms" for s in sides)
    how = _evidence(profile)
    return _chart(f"{how.capitalize()} time", f"Bars of {how} time: {said}.", figure)


def _against(sides: tuple[SideView, ...], at: int) -> str:
    """How much faster than the first side with the same evidence: a measured time is held against measured ones."""
    first = next(n for n, side in enumerate(sides) if side.evidence == sides[at].evidence)
    if at == first or sides[at].ms <= 0 or sides[first].ms <= 0:
        return ""
    ratio = sides[first].ms / sides[at].ms
    return f"  ({ratio:.2f}× faster)" if ratio >= 1 else f"  ({1 / ratio:.2f}× slower)"


def _units(profile: ProfileView) -> Chart:
    sides = [s for s in profile.sides if s.units]
    names = [u.label for u in sides[0].units]
    figure, axes = figure_and_axes(0.6 + 0.34 * len(names))
    thick = 0.8 / len(sides)
    for number, side in enumerate(sides):
        at = profile.sides.index(side)
        places = [n + (number - (len(sides) - 1) / 2) * thick for n in range(len(side.units))]
        shares = [u.share * 100 for u in side.units]
        axes.barh(places, shares, thick * 0.92, color=_colour(at), hatch=_hatch(at, side), edgecolor=PAPER, lw=0,
                  label=side.label)  # fmt: skip
        for place, share in zip(places, shares, strict=True):
            axes.annotate(f" {share:.0f} %", (share, place), va="center", fontsize=7.5, color=INK)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 108)
    axes.set_xlabel("issue slots used (%), modelled")
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    said = "; ".join(f"{s.label}: " + ", ".join(f"{u.label} {u.share:.0%}" for u in s.units) for s in sides)
    return _chart("Unit utilisation", f"Bars of issue slots used, by unit. {said}.", figure)


def _roofline(profile: ProfileView) -> Chart:
    roof = profile.roof
    assert roof is not None
    shown = [s for s in profile.sides if _has_point(s)]
    ridge = roof.peak_tflops * 1e3 / roof.hbm_gbps
    left = min([ridge / 30, *(s.intensity / 3 for s in shown)])
    right = max([ridge * 10, *(s.intensity * 3 for s in shown)])
    figure, axes = figure_and_axes(2.7)
    axes.loglog(
        [left, ridge, right], [left * roof.hbm_gbps / 1e3, roof.peak_tflops, roof.peak_tflops], color=BOUND, lw=2
    )
    axes.annotate(f"{roof.peak_tflops:g} TFLOP/s", (right, roof.peak_tflops), xytext=(0, 3),
                  textcoords="offset points", ha="right", va="bottom", fontsize=8, color=INK)  # fmt: skip
    for side in shown:
        _point(axes, profile, side)
    axes.margins(y=0.15)
    axes.set_xlabel("flop per HBM byte")
    axes.set_ylabel(f"TFLOP/s, {_evidence(profile)}")
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    said = "; ".join(f"{s.label} {s.tflops:.3g} TFLOP/s at {s.intensity:.3g} flop per byte" for s in shown)
    return _chart(
        f"Roofline of {roof.chip}", f"Peak {roof.peak_tflops:g} TFLOP/s, {roof.hbm_gbps:g} GB/s. {said}.", figure
    )


def _has_point(side: SideView) -> bool:
    return side.intensity > 0 and side.tflops > 0


def _point(axes: Axes, profile: ProfileView, side: SideView) -> None:
    at = profile.sides.index(side)
    axes.plot(
        [side.intensity],
        [side.tflops],
        marker=MARKERS[at % 2],
        ms=9,
        ls="",
        color=_colour(at) if side.evidence == "modelled" else "none",
        markeredgecolor=INK if side.evidence == "modelled" else _colour(at),
        markeredgewidth=1 if side.evidence == "modelled" else 2.5,
        label=f"{side.label}: {side.tflops:.3g} TFLOP/s",
    )


def _colour(at: int) -> str:
    return COLOURS[at % 2]


def _hatch(at: int, side: SideView) -> str:
    return HATCHES[side.evidence][at % 2]


def _bytes(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Software": None} if kind == "png" else {"Date": None}
    figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()
