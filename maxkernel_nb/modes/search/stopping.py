"""When a search has done enough: at the roofline, on a plateau, or with its budget."""

from __future__ import annotations

import math

from maxkernel_nb.budget import Budget
from maxkernel_nb.engine.graph import Graph
from maxkernel_nb.events import Spend

NEAR_ROOFLINE = 1.08  # modelled time over the roofline's; closer is within the model's own error
_KEPT = 0.1  # share of the wall time that is kept for the fastest kernel's full check
_MORE_KEPT = 3  # judgements for further checks, at most
CONFIDENCE = 0.9
CHANCE = 0.1  # a plateau: a further draw has less than this chance to bring a faster kernel


def plateau_length(confidence: float = CONFIDENCE, chance: float = CHANCE) -> int:
    """Draws in a row without a gain after which the chance of a gain is below ``chance`` with this confidence.

    Taking draws as independent with one unknown chance (uniform before the first), n failures in a row leave it above
    p with probability (1 - p) ** (n + 1).
    """
    return math.ceil(math.log(1 - confidence) / math.log(1 - chance)) - 1


def at_roofline(graph: Graph, roofline_ms: float) -> str:
    if not roofline_ms or graph.lead_ms is None or graph.lead_ms > NEAR_ROOFLINE * roofline_ms:
        return ""
    return f"The best kernel's {graph.lead_ms:.4g} ms is within {NEAR_ROOFLINE - 1:.0%} of the roofline."


def on_a_plateau(graph: Graph) -> str:
    """Counts observed draws that cost a judgement since the last gain, or since a person last asked for more."""
    since = max([graph.improved_at, *(at - 1 for at in graph.pinned.values())])
    idle = sum(1 for n, seen in graph.observed.items() if n > since and seen.cost)
    if graph.best is None or idle < plateau_length():
        return ""
    return (f"The search has levelled off: {idle} kernels in a row brought nothing faster; with {CONFIDENCE:.0%} "
            f"confidence fewer than 1 in {1 / CHANCE:.0f} further ones would.")


def out_of_judgements(graph: Graph, budget: Budget, in_flight: int) -> str:
    """One judgement is kept for the full check of a winner, more where such checks failed."""
    kept = 1 + min(_MORE_KEPT, graph.refused)
    if budget.judged is None or graph.cost + in_flight + kept < budget.judged:
        return ""
    return f"The budget of {budget.judged} candidates judged is used up; raise it with --budget and resume."


def out_of_time(budget: Budget, spend: Spend) -> str:
    if budget.wall_seconds is None or spend.wall_seconds < (1 - _KEPT) * budget.wall_seconds:
        return ""
    return (f"Of the budget of {budget.wall_seconds:g} wall seconds the last {_KEPT:.0%} is kept for the fastest "
            "kernel's full check; raise it with --budget and resume.")
