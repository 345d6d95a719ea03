"""What line magics return: small objects that show themselves, as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Text:
    """Sentences or preformatted text, shown as they are."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Table:
    """Rows under named columns. Shown as an HTML table in a notebook and aligned in a terminal."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    empty: str = ""

    def __repr__(self) -> str:
        if not self.rows:
            return self.empty
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
                for line in lines]
        return "\n".join(([self.caption] if self.caption else []) + text)

    def _repr_html_(self) -> str:
        if not self.rows:
            return f"<p>{html.escape(self.empty)}</p>"
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        head = _cells("th scope='col'", "th", self.columns)
        body = "".join(f"<tr>{_cells('td', 'td', row)}</tr>" for row in self.rows)
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class Tables:
    """Several tables, one below the other."""

    tables: tuple[Table, ...]

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self.tables))

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables)


def _cells(opening: str, closing: str, values: Sequence[str]) -> str:
    style = "text-align:left"
    return "".join(f"<{opening} style='{style}'>{html.escape(value)}</{closing}>" for value in values)


@dataclass(frozen=True)
class Bundle:
    """A MIME bundle made elsewhere (a frozen report)."""

    data: dict[str, Any] = field(repr=False)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return self.data

    def __repr__(self) -> str:
        return str(self.data.get("text/plain", ""))
