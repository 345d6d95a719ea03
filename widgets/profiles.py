"""A profile as a notebook shows it: text, and HTML with the charts inside."""

from __future__ import annotations

from typing import Any

from maxkernel_nb.document.model import ProfileView
from maxkernel_nb.widgets.charts import charts
from maxkernel_nb.widgets.html import render_profile


def profile_bundle(view: ProfileView, title: str) -> dict[str, Any]:
    """The MIME bundle of a profile; ``title`` names it for screen readers. Equal views give equal bundles."""
    return {"text/plain": profile_text(view), "text/html": render_profile(view, title, charts(view))}


def profile_text(view: ProfileView) -> str:
    """Each side's bottleneck with its evidence, and how the second compares with the first."""
    parts = ["\n".join((s.label, *(f"  {x}" for x in s.lines or (f"{s.time} {s.evidence}.",)))) for s in view.sides]
    if len(view.sides) == 2 and all(side.ms > 0 for side in view.sides):
        first, second = view.sides
        ratio = first.ms / second.ms
        word = "faster" if ratio >= 1 else "slower"
        parts.append(f"{second.label} is {max(ratio, 1 / ratio):.2f}x {word} than {first.label}, modelled.")
    return "\n\n".join(parts)
