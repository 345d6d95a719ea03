"""Mode ``search``: a graph of kernels, explored under a budget."""

from __future__ import annotations

from maxkernel_nb.agents.measurer import measure_likely
from maxkernel_nb.agents.seat import seat
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import BudgetExceeded
from maxkernel_nb.events import RunOutcome

__all__ = ["search"]


async def search(runtime: Runtime) -> tuple[RunOutcome, str]:
    """Explores until the roofline, a plateau, the budget or the person ends it, then proposes the best kernel."""
    from maxkernel_nb.modes.auto import prepare, propose, why_keep_reference

    seat(runtime)
    await prepare(runtime)
    try:
        runtime.note(await _explore(runtime))
    except BudgetExceeded as error:
        if runtime.run.state.best is None:
            raise
        runtime.note(f"{error} The best kernel so far is proposed.", "warning")
    if (reason := why_keep_reference(runtime)) is not None:
        return RunOutcome.KEPT_REFERENCE, reason
    return await propose(runtime)


async def _explore(runtime: Runtime) -> str:
    from maxkernel_nb.modes.search.choose import strategy_named
    from maxkernel_nb.modes.search.explore import Explorer
    from maxkernel_nb.modes.search.world import AuthorWorld

    world, settings = AuthorWorld(runtime), runtime.settings
    await world.open()
    strategy = strategy_named(settings.strategy, world, settings.budget.judged, settings.seed)
    explorer = Explorer(runtime, world, strategy, settings.width)
    reason = await explorer.run()
    known = runtime.run.state.candidates
    timed = [n for n in explorer.graph.nodes.values() if n.timed and n.ms is not None and n.id in known]
    await measure_likely(runtime, [(n.ms, known[n.id].candidate) for n in timed if n.ms is not None])
    return reason
