"""What a strict page leaves of an output: GitHub strips styles, scripts, classes, ids and event handlers."""

from __future__ import annotations

from html.parser import HTMLParser

KEPT = {"src", "alt", "width", "href", "colspan", "rowspan", "open", "start"}
GONE = {"style", "script", "iframe", "form", "button", "input"}
VOID = {"img", "br", "hr", "input"}
BLOCKS = {"p", "li", "tr", "h2", "h3", "h4", "summary", "figcaption", "pre", "table", "section", "article", "div"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hidden, self.words = 0, []

    def handle_starttag(self, tag, attrs):
        if tag in GONE and tag not in VOID:
            self.hidden += 1
        if self.hidden:
            return
        known = dict(attrs)
        if tag == "img":
            self.words.append(f"\n[picture: {known.get('alt', '')}]")
        elif tag in BLOCKS:
            self.words.append("\n## " if tag in ("h2", "h3", "h4") else "\n")
        elif tag in ("td", "th"):
            self.words.append(" | ")

    def handle_endtag(self, tag):
        if tag in GONE and tag not in VOID:
            self.hidden -= 1
        elif tag in ("pre", "h2", "h3", "h4"):
            self.words.append("\n")

    def handle_data(self, data):
        if not self.hidden:
            self.words.append(data)


def as_read(html: str) -> str:
    """The text of ``html`` as a person reads it without any style: one line a block, cells apart by bars."""
    reader = _Reader()
    reader.feed(html)
    lines = (line.rstrip() for line in "".join(reader.words).split("\n"))
    return "\n".join(line for line in lines if line.strip(" |#")) + "\n"
