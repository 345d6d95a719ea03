"""A search's graph as a person sees it: the nodes worth drawing, the curve of the best, and one node in full."""

from __future__ import annotations

from maxkernel_nb.document import model as m
from maxkernel_nb.document.checks import checks_view_of
from maxkernel_nb.document.diff import sources_diff
from maxkernel_nb.document.profile import side_view, time_text
from maxkernel_nb.engine.graph import Graph, Node, graph_of
from maxkernel_nb.engine.state import RunState

DRAWN = 240  # nodes in the picture: more are neither told apart nor small enough to send
_LOOK: dict[str, tuple[m.Tone, str]] = {
    "verified": ("good", "✓"), "timed": ("plain", "○"), "failed": ("bad", "✗"), "dominated": ("plain", "–"),
    "none": ("warn", "!"), "": ("busy", "…"),
}
_WORDS = {
    "verified": "verified", "timed": "compiled and modelled, not checked", "failed": "refused by the judge",
    "dominated": "given up: its own bound cannot beat the best", "none": "could not be judged", "": "being judged",
}


def graph_view(state: RunState) -> m.GraphView | None:
    """None for a run that is no search."""
    if not state.edges and state.mode != "search":
        return None
    graph = graph_of(state)
    lineage = tuple(graph.lineage(graph.best)) if graph.best else ()
    shown = _worth_drawing(graph, set(lineage))
    curve = tuple(m.CurvePoint(judged=j, ms=ms, speedup=_speedup(state, ms)) for j, ms in graph.curve)
    return m.GraphView(
        caption=_caption(state, graph, len(shown)), nodes=tuple(_node(state, graph, n) for n in shown),
        best=graph.best or "", lineage=lineage, curve=curve, total=len(graph.nodes), judged=graph.cost,
    )


def _worth_drawing(graph: Graph, lineage: set[str]) -> list[Node]:
    """The best one's ancestors, what a person marked, the fastest and the newest; in the order drawn."""
    nodes = list(graph.nodes.values())
    if len(nodes) <= DRAWN:
        return sorted(nodes, key=lambda n: n.draw)
    kept = {n: graph.nodes[n] for n in (*lineage, *graph.pinned, *graph.pruned) if n in graph.nodes}
    kept |= {n.id: n for n in graph.fastest(DRAWN // 2)}
    for node in reversed(nodes):
        if len(kept) >= DRAWN:
            break
        kept[node.id] = node
    return sorted(kept.values(), key=lambda n: n.draw)[:DRAWN]


def _caption(state: RunState, graph: Graph, shown: int) -> str:
    counts = dict.fromkeys(_LOOK, 0)
    for node in graph.nodes.values():
        counts[node.result] += 1
    parts = [f"{counts[name]} {word}" for name, word in (
        ("verified", "verified"), ("timed", "timed"), ("failed", "refused"), ("dominated", "given up"),
        ("", "in flight")) if counts[name]]
    drawn = f" {shown} of them are drawn." if shown < len(graph.nodes) else ""
    strategy = state.options.get("strategy", "auto")
    return (f"{len(graph.nodes)} kernels from {len(graph.edges)} draws, {graph.cost} judgements, strategy "
            f"{strategy}: {', '.join(parts) or 'none yet'}.{drawn} All times are modelled.")


def _speedup(state: RunState, ms: float | None) -> float | None:
    return state.baseline.modelled_ms / ms if ms and state.baseline is not None else None


def _node(state: RunState, graph: Graph, node: Node) -> m.GraphNode:
    tone, sign = _LOOK[node.result]
    speedup = _speedup(state, node.ms)
    return m.GraphNode(
        id=node.id, draw=node.draw, how=str(node.how), result=node.result or "in flight", tone=tone, sign=sign,
        ms=node.ms, time=time_text(node.ms) if node.ms else "", speedup=speedup,
        against=f"{speedup:.2f}×" if speedup else "", parents=node.parents, lineage=node.lineage, idea=node.idea[:120],
        params=_constants(node), mark=_mark(graph, node.id),
    )


def _constants(node: Node) -> str:
    return ", ".join(f"{k} = {v}" for k, v in node.params.items())


def _mark(graph: Graph, node: str) -> str:
    return "pinned" if node in graph.pinned else "pruned" if node in graph.pruned else ""


def node_view(state: RunState, node_id: str) -> m.NodeView | None:
    """Everything about one node, asked for by a click or ``%maxkernel graph --node``. None for an unknown one."""
    graph = graph_of(state)
    node, known = graph.nodes.get(node_id), state.candidates.get(node_id)
    if node is None or known is None:
        return None
    diffs = []
    for parent in node.parents:
        before = state.candidates.get(parent)
        if before is not None:
            sources = before.candidate.source, known.candidate.source
            diffs.append(sources_diff(*sources, node_id, f"Against its parent {parent}"))
    run = state.run_id
    commands = (
        m.Fact(label="Build on it", value=f"%maxkernel continue {run} --from {node_id}"),
        m.Fact(label="With your own edit", value=f"%maxkernel continue {run} --from {node_id} --file FILE"),
    )
    return m.NodeView(
        id=node_id, title=f"{node_id}: {_WORDS[node.result]}", facts=_facts(state, graph, node), diffs=tuple(diffs),
        checks=checks_view_of(known), profile=side_view(node_id, known.profile) if known.profile else None,
        source=known.candidate.source, mark=_mark(graph, node_id), commands=commands,
    )


def _facts(state: RunState, graph: Graph, node: Node) -> tuple[m.Fact, ...]:
    speedup = _speedup(state, node.ms)
    pairs = (
        ("Modelled", time_text(node.ms) if node.ms else ""), ("Against XLA", f"{speedup:.2f}×" if speedup else ""),
        ("Its own lower bound", time_text(node.floor_ms) if node.floor_ms else ""), ("Constants", _constants(node)),
        ("Came to be by", str(node.how)), ("Idea", node.idea), ("Draw", str(node.draw)), ("Lineage", node.lineage),
        ("Parents", ", ".join(node.parents)), ("Children", str(len(node.children)) if node.children else ""),
        ("Judgements", str(node.cost) if node.cost else ""), ("Found", f"{node.found} times" if node.found > 1 else ""),
        ("Descends from", " → ".join(graph.lineage(node.id)[-6:])),
    )
    return tuple(m.Fact(label=k, value=v) for k, v in pairs if v)
