"""What all charts share: the palette (Okabe-Ito, also in grey apart) and an empty figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REFERENCE, BEST, BOUND, INK, PAPER = "#8a8f98", "#0072b2", "#d55e00", "#24292f", "white"
SKY, GREEN, YELLOW, PINK = "#56b4e9", "#009e73", "#f0e442", "#cc79a7"
DPI = 144


def figure_and_axes(height: float) -> tuple[Figure, Axes]:
    """6.4 inches wide, on white: readable in a dark notebook, in print and on a light page alike."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, max(1.3, height)), dpi=DPI, layout="constrained", facecolor=PAPER)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9, colors=INK)
    axes.xaxis.label.set_fontsize(8.5)
    axes.yaxis.label.set_fontsize(8.5)
    return figure, axes
