"""What axe finds on a page."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

AXE = Path(__file__).resolve().parents[2] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"


def serious(page: Page, selector: str) -> list[tuple[str, str, str]]:
    """What axe finds serious or worse in one part of the page: rule, element, what is wrong."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("selector => axe.run(selector, {resultTypes: ['violations']})", selector)
    return [(v["id"], node["html"][:200], node["failureSummary"]) for v in found["violations"]
            if v["impact"] in ("serious", "critical") for node in v["nodes"][:3]]
