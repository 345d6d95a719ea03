"""Times that others published for the references, and whether they apply to the programs we have.

``v6e_published.csv``: median milliseconds on a v6e that the original benchmark's results name, measured with an
early-2026 compiler. Not ours, and not measured again; shown beside modelled times only.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files


@cache
def _table() -> dict[str, tuple[float, str]]:
    text = (files("jaxbench") / "v6e_published.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["variant"] == "baseline"]
    return {r["workload"]: (float(r["v6e_median_ms"]), "" if r["applies"] == "yes" else r["applies"]) for r in rows}


def v6e(task: str) -> tuple[float, str] | None:
    """(ms, remark) of the reference, no remark where it applies as it is. None where nothing is published."""
    return _table().get(task)
