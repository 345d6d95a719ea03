"""Putting Python source together: wrapped comments, indentation, the helpers every rendered kernel shares."""

from __future__ import annotations

import textwrap

BLOCK_HELPER = '''
def _block(size, limit, unit):
    """At most ``limit``, in whole ``unit``s, and small enough for two steps, so that copies overlap with work."""
    if size <= unit:
        return size
    half = -(-size // 2)
    return min(limit, -(-half // unit) * unit)
'''


def comment(*paragraphs: str) -> str:
    lines: list[str] = []
    for paragraph in paragraphs:
        lines += textwrap.wrap(paragraph, 96, break_on_hyphens=False) or [""]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def indent(lines: list[str] | str, depth: int = 1) -> str:
    text = lines if isinstance(lines, str) else "\n".join(lines)
    return textwrap.indent(text, "    " * depth)


def joined(items: list[str]) -> str:
    """A tuple's text: ``a, b`` or ``a,``."""
    return ", ".join(items) + ("," if len(items) == 1 else "")
