"""The little Markdown of plans: paragraphs, lists, headings, fences, `code`, **bold**, *emphasis*; all else is text.

``frontend/src/markdown.ts`` reads the same forms; anything that looks like HTML or a link is shown as it is written.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_INLINE = re.compile(r"`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(.*)")
_HEADING = re.compile(r"#{1,6}\s+(.*)")


def to_html(text: str) -> Markup:
    """Safe HTML of ``text``: every character of it is escaped, only our own tags are added."""
    parts = re.split(r"^```.*$", text, flags=re.MULTILINE)
    blocks = []
    for at, part in enumerate(parts):
        if at % 2:
            blocks.append(Markup("<pre><code>{}</code></pre>").format(part.strip("\n")))
        else:
            blocks += [_block(lines) for lines in _paragraphs(part)]
    return Markup("\n").join(blocks)


def _paragraphs(text: str) -> list[list[str]]:
    """Runs of lines of one kind: blank lines, headings and the edges of lists part them."""
    runs: list[list[str]] = [[]]
    for line in text.splitlines():
        last = runs[-1][-1] if runs[-1] else ""
        parts = not line.strip() or _HEADING.match(line) or _HEADING.match(last)
        if parts or (last and bool(_ITEM.match(line)) and not _ITEM.match(runs[-1][0])):
            runs.append([])
        if line.strip():
            runs[-1].append(line)
    return [run for run in runs if run]


def _block(lines: list[str]) -> Markup:
    if heading := _HEADING.match(lines[0]):
        return Markup("<p><strong>{}</strong></p>").format(_inline(heading[1]))
    if not _ITEM.match(lines[0]):
        return Markup("<p>{}</p>").format(_inline(" ".join(lines)))
    items: list[str] = []
    for line in lines:
        if item := _ITEM.match(line):
            items.append(item[1])
        else:
            items[-1] += " " + line.strip()
    return Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(_inline(i)) for i in items))


def _inline(text: str) -> Markup:
    out, at = Markup(""), 0
    for found in _INLINE.finditer(text):
        out += escape(text[at : found.start()])
        for tag, inner in zip(("code", "strong", "em"), found.groups(), strict=True):
            if inner is not None:
                out += Markup(f"<{tag}>{{}}</{tag}>").format(inner)
        at = found.end()
    return out + escape(text[at:])
