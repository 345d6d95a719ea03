"""Markdown of plans and answers as safe HTML: CommonMark and tables by markdown-it-py.

Raw HTML, links and pictures are shown as they are written. ``frontend/src/markdown.ts`` sets the JavaScript twin of the
same parser the same way, so that panel and report agree.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

OFF = ["link", "image", "autolink", "reference", "html_inline", "html_block", "entity"]


def to_html(text: str) -> Markup:
    """Safe HTML of ``text``: every character of it is escaped, only the parser's own tags are added."""
    return Markup(_parser().render(text).rstrip("\n"))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(OFF)
    parser.core.ruler.push("headings_as_strong", _headings)
    return parser


def _headings(state: Any) -> None:
    """The report has headings of its own: one in a text is a strong line."""
    for at, token in enumerate(state.tokens):
        if token.type == "heading_open":
            inner = state.tokens[at + 1]
            inner.children = [_strong("strong_open", 1), *inner.children, _strong("strong_close", -1)]
        if token.type in ("heading_open", "heading_close"):
            token.tag = "p"


def _strong(kind: str, nesting: Any) -> Any:
    from markdown_it.token import Token

    return Token(kind, "strong", nesting)
