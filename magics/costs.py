"""``%maxkernel cost``: what a run spent, and where its model calls went."""

from __future__ import annotations

from typing import Any

from maxkernel_nb.magics.views import Table, Tables

_COLUMNS = ("Model calls", "Calls", "Tokens in", "from the cache", "Tokens out", "Dollars", "Not used")


def cost_tables(state: Any) -> Tables:
    """The meters with their caps; with model calls, also those by sub-agent and by round."""
    from maxkernel_nb.document.build import document

    rows = tuple((meter.label, meter.used, meter.cap or "no cap") for meter in document(state).meters)
    spent = Table(("Spent", "Used", "Cap"), rows, caption=f"Run {state.run_id}")
    return Tables((spent, _calls(state)) if state.calls else (spent,))


def _calls(state: Any) -> Table:
    from maxkernel_nb.authors.claude.costs import cost_table

    table = cost_table(state)
    return Table(_COLUMNS, tuple(_row(line) for line in (*table.by_agent, *table.by_round, table.total)),
                 caption="Model calls by sub-agent, by round, and in all (prices of the shipped table, or yours)")


def _row(line: Any) -> tuple[str, ...]:
    """Dollars without their sign: a notebook typesets what stands between two of them."""
    unpriced = f" and {line.unpriced} of unknown price" if line.unpriced else ""
    return (line.name, str(line.calls), f"{line.input_tokens:,}", f"{line.cached_share:.0%}",
            f"{line.output_tokens:,}", f"{line.dollars:.4f}{unpriced}", str(line.thrown_away))
