"""A search in the report: its graph and the curve of its best, as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxkernel_nb.document.model import GraphNode, GraphView
from maxkernel_nb.widgets.charts import Chart, _chart
from maxkernel_nb.widgets.ink import BEST, REFERENCE, figure_and_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOUR = {"good": "#116329", "bad": "#b42318", "warn": "#7a4d00", "plain": "#8a8f98", "busy": "#8a8f98"}
_MARKER = {"✓": "o", "○": "s", "✗": "X", "–": "_", "!": "P", "…": "d"}


def graph_charts(graph: GraphView | None) -> tuple[Chart, ...]:
    """Nothing for a run that is no search, or before it has timed a kernel."""
    if graph is None or not any(n.ms for n in graph.nodes):
        return ()
    return (_graph(graph), *((_curve(graph),) if graph.curve else ()))


def _graph(graph: GraphView) -> Chart:
    figure, axes = figure_and_axes(3.4)
    times = [n.ms for n in graph.nodes if n.ms]
    place = {n.id: (float(n.draw), n.ms or 1.25 * max(times)) for n in graph.nodes}
    _edges(axes, graph, place)
    for sign, marker in _MARKER.items():
        group = [n for n in graph.nodes if n.sign == sign]
        if group:
            axes.scatter(*zip(*(place[n.id] for n in group), strict=True), marker=marker, zorder=3, linewidths=1,
                         s=[18 + 90 * (min(times) / place[n.id][1]) ** 2 for n in group],
                         c=[_COLOUR[n.tone] for n in group], label=f"{group[0].result}")
    if graph.best in place:
        axes.annotate("best", place[graph.best], xytext=(0, 9), textcoords="offset points", ha="center", fontsize=8,
                      weight="bold", color=BEST)
    axes.set_yscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("draw")
    axes.set_ylabel("modelled time (ms), faster is higher")
    axes.legend(loc="lower right", frameon=False, fontsize=7.5)
    alt = (f"Each kernel by draw and modelled time, joined to its parents. {graph.caption} The best, "
           f"{graph.best or 'none yet'}, is generation {len(graph.lineage)}.")
    return _chart("Graph of kernels", alt, figure)


def _edges(axes: Axes, graph: GraphView, place: dict[str, tuple[float, float]]) -> None:
    path = set(graph.lineage)
    for n in graph.nodes:
        for at, parent in enumerate(p for p in n.parents if p in place):
            best = at == 0 and _both(path, n, parent)
            axes.plot(*zip(place[parent], place[n.id], strict=True), color=BEST if best else REFERENCE,
                      lw=2.5 if best else 0.7, alpha=1 if best else 0.5, zorder=2 if best else 1)


def _both(path: set[str], node: GraphNode, parent: str) -> bool:
    return node.id in path and parent in path


def _curve(graph: GraphView) -> Chart:
    figure, axes = figure_and_axes(1.9)
    against = all(p.speedup is not None for p in graph.curve)
    values = [(p.speedup if against else p.ms) or 0.0 for p in graph.curve]
    judged = [*(p.judged for p in graph.curve), graph.judged]
    axes.step(judged, [*values, values[-1]], where="post", color=BEST, lw=2.2)
    if against:
        axes.axhline(1, color=REFERENCE, lw=1, ls=":")
    axes.set_xlabel("candidates judged")
    axes.set_ylabel("best, over XLA" if against else "best (ms)")
    said = "; ".join(f"after {p.judged}: {p.ms:.4g} ms" for p in graph.curve[-6:])
    return _chart("Best so far against judgements", f"Best modelled time {said}.", figure)
