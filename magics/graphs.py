"""``%maxkernel graph``: a search's picture and table, or one of its kernels in full."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

from maxkernel_nb.errors import UsageError
from maxkernel_nb.magics.views import Bundle, Table

_ROWS = 15


class GraphOutput:
    """Shows itself as picture and table; as text where pictures cannot be shown."""

    def __init__(self, view: Any) -> None:
        self.view = view
        rows = sorted((n for n in view.nodes if n.ms), key=lambda n: (n.ms, n.draw))[:_ROWS]
        marks = {view.best: "best"}
        self.table = Table(
            ("Kernel", "Result", "Modelled", "Against XLA", "Came by", "Constants", "Parents"),
            tuple((f"{n.id} {marks.get(n.id, n.mark)}".strip(), f"{n.sign} {n.result}", n.time, n.against, n.how,
                   n.params, ", ".join(n.parents)) for n in rows),
            empty=view.caption,
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        from maxkernel_nb.widgets.graph_charts import graph_charts

        pictures = "".join(
            f"<img width='640' alt='{html.escape(c.alt, quote=True)}' "
            f"src='data:image/png;base64,{base64.b64encode(c.png).decode()}'>" for c in graph_charts(self.view)
        )
        caption = f"<p>{html.escape(self.view.caption)}</p>"
        return {"text/plain": repr(self), "text/html": caption + pictures + self.table._repr_html_()}

    def __repr__(self) -> str:
        return f"{self.view.caption}\n{self.table!r}"


def graph_output(state: Any, node: str | None) -> Any:
    """Raises ``UsageError`` for a run that is no search, or an unknown node."""
    from maxkernel_nb.document.graph import graph_view, node_view

    if node is None:
        view = graph_view(state)
        if view is None:
            raise UsageError(f"Run {state.run_id} is no search but {state.mode}: it has no graph; "
                             f"%maxkernel show {state.run_id} shows it.")
        return GraphOutput(view)
    found = node_view(state, state.best if node == "best" and state.best else node)
    if found is None:
        raise UsageError(f"Run {state.run_id} has no kernel {node!r}; %maxkernel graph {state.run_id} lists them.")
    return Bundle({"text/plain": _as_text(found)})


def _as_text(node: Any) -> str:
    lines = [node.title, *(f"{f.label}: {f.value}" for f in (*node.facts, *node.commands))]
    if node.checks:
        lines += ["", node.checks.verdict, *(f"{g.gate}: {g.outcome} {g.passed}/{g.total}" for g in node.checks.gates)]
    if node.profile:
        lines += ["", "Profile (modelled)", *(f"{f.label}: {f.value}" for f in node.profile.facts)]
    for diff in node.diffs:
        lines += ["", f"{diff.claim}: +{diff.added} -{diff.removed}"]
        lines += [x for h in diff.hunks for x in h.lines]
    return "\n".join(lines)


def own_kernel(file: str | None) -> str | None:
    """The text of a person's kernel. Raises ``UsageError`` when the file cannot be read."""
    if file is None:
        return None
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--file {file} cannot be read ({error}); pass a text file that holds the kernel.") from None


__all__ = ["GraphOutput", "graph_output", "own_kernel"]
