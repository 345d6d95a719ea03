"""A run's report as a file to share: one that stands alone, whatever the form."""

from __future__ import annotations

import io
import json
from typing import Any

from maxkernel_nb.document.model import Document
from maxkernel_nb.errors import UsageError
from maxkernel_nb.options import REPORT_FORMS
from maxkernel_nb.widgets.charts import Chart, charts
from maxkernel_nb.widgets.graph_charts import graph_charts
from maxkernel_nb.widgets.html import render_fragment, render_page
from maxkernel_nb.widgets.text import one_line, plain, render_text


def form_of(options: dict[str, Any], file: str | None) -> str:
    """The form asked for by an option, else by the file's name, else HTML. Raises ``UsageError`` for two."""
    asked = [form for form in REPORT_FORMS if options.get(form)]
    if len(asked) > 1:
        raise UsageError(f"A report is written in one form; keep one of {', '.join(f'--{form}' for form in asked)}.")
    named = (file or "").rpartition(".")[2].lower()
    return asked[0] if asked else named if named in REPORT_FORMS else "html"


def report_bytes(doc: Document, form: str) -> bytes:
    """HTML page, Markdown, a picture of the charts, or a notebook of one cell. Raises ``UsageError`` where a picture
    has nothing to show yet."""
    if form == "png":
        return _picture(doc)
    text = {"html": render_page, "md": _markdown, "ipynb": _notebook}[form](doc)
    return text.encode()


def _markdown(doc: Document) -> str:
    source = f"\n## {doc.source.title}\n\n~~~~python\n{plain(doc.source.text)}\n~~~~\n" if doc.source else ""
    return f"# {one_line(doc)}\n\n~~~~text\n{render_text(doc)}~~~~\n{source}"


def _notebook(doc: Document) -> str:
    run = doc.header.run_id
    data = {"text/html": render_fragment(doc), "text/plain": one_line(doc)}
    shown = {"output_type": "display_data", "data": data, "metadata": {}}
    cell = {"cell_type": "code", "id": "report", "execution_count": None, "metadata": {},
            "source": f"%maxkernel show {run}", "outputs": [shown]}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def _picture(doc: Document) -> bytes:
    """The headline and every chart, one below the other."""
    from PIL import Image

    drawn = (*charts(doc.profile), *graph_charts(doc.graph))
    if not drawn:
        raise UsageError(f"Run {doc.header.run_id} has no charts yet; its report can be written with --html or --md.")
    parts = [Image.open(io.BytesIO(png)).convert("RGB") for png in (_headline(doc, drawn[0]), *(c.png for c in drawn))]
    whole = Image.new("RGB", (max(p.width for p in parts), sum(p.height for p in parts)), "white")
    top = 0
    for part in parts:
        whole.paste(part, (0, top))
        top += part.height
    buffer = io.BytesIO()
    whole.save(buffer, format="PNG")
    return buffer.getvalue()


def _headline(doc: Document, like: Chart) -> bytes:
    from matplotlib.figure import Figure

    head, width = doc.header, like.figure.get_figwidth()
    evidence = f" ({head.evidence.kind} {head.evidence.error})".replace(" )", ")") if head.evidence else ""
    figure = Figure(figsize=(width, 0.8), dpi=like.figure.dpi)
    figure.text(0.02, 0.62, plain(f"{head.headline}{evidence}"), fontsize=12, weight="bold", parse_math=False)
    figure.text(0.02, 0.2, plain(f"{head.title} on {head.chip}, {head.headline_detail}, run {head.run_id}"), fontsize=9,
                parse_math=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
