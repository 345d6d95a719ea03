"""The static report: HTML that reads with every style stripped, without scripts, with PNG charts inside."""

from __future__ import annotations

import base64
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from maxkernel_nb.document.model import Document, ProfileView
from maxkernel_nb.widgets import markdown
from maxkernel_nb.widgets.charts import Chart, charts
from maxkernel_nb.widgets.graph_charts import graph_charts
from maxkernel_nb.widgets.limits import LINE
from maxkernel_nb.widgets.text import plain

if TYPE_CHECKING:
    from jinja2 import Template

_HERE = Path(__file__).parent
MARKS = {"pass": "✓", "fail": "✗", "declined": "–", "infrastructure": "!", "done": "✓", "running": "…", "ended": "–",
         "partly": "◐"}


_DRAWING = threading.Lock()  # matplotlib draws for one thread at a time


def render_fragment(doc: Document, pictures: bool = True) -> str:
    """To embed in a notebook's output or another page: one ``<article>`` and its own scoped style."""
    with _DRAWING:
        drawn, graphs = (charts(doc.profile), graph_charts(doc.graph)) if pictures else ((), ())
    return _template("report.jinja").render(doc=doc, pictures=drawn, graphs=graphs, css=_css())


def render_profile(view: ProfileView, title: str, pictures: tuple[Chart, ...]) -> str:
    """One ``<article>`` with a profile alone."""
    return _template("profile.jinja").render(view=view, title=title, pictures=pictures, css=_css())


def render_page(doc: Document) -> str:
    """A whole self-contained HTML file."""
    return _template("page.jinja").render(doc=doc, article=Markup(render_fragment(doc)))


def python_html(source: str) -> Markup:
    """``source`` highlighted by Pygments with ``mkn-t-`` classes; long lines are cut."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    lines = (line if len(line) <= LINE else f"{line[:LINE]}…" for line in plain(source).split("\n"))
    return Markup(highlight("\n".join(lines), PythonLexer(), HtmlFormatter(nowrap=True, classprefix="mkn-t-")))


def _markdown(text: str) -> Markup:
    return markdown.to_html(plain(text))


def data_uri(chart: Chart) -> str:
    return "data:image/png;base64," + base64.b64encode(chart.png).decode()


@cache
def _css() -> Markup:
    return Markup((_HERE / "report.css").read_text(encoding="utf-8"))


@cache
def _template(name: str) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters.update(markdown=_markdown, python=python_html, data_uri=data_uri)
    environment.globals.update(MARKS=MARKS)
    return environment.get_template(name)
