"""The explainer answers a person's question about the work, beside whatever else is going on."""

from __future__ import annotations

from typing import Any

from maxkernel_nb import events as ev
from maxkernel_nb.authors.model_errors import ModelError
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import BudgetExceeded
from maxkernel_nb.values import Value


class Explanation(Value):
    text: str


async def explain(runtime: Runtime, question: str, key: str | None = None) -> str:
    """The answer, also journaled. When it cannot be had the reason is the answer: a question never ends a run."""
    author: Any = runtime.author
    if getattr(author, "explain", None) is None:
        text = f"This run's author ({author.name}) answers no questions; start a run with --author claude for that."
    else:
        text = await _ask(runtime, author, question, key or f"explain:{runtime.run.state.seq}")
    told = ev.Explained(question=question, answer=text)
    if told not in runtime.run.state.explanations:
        runtime.run.emit(told)
    return text


async def _ask(runtime: Runtime, author: Any, question: str, key: str) -> str:
    async def work() -> Explanation:
        return Explanation(text=await author.explain(runtime.view, question))

    try:
        return (await runtime.step(key, "explainer", "Answer a question", work, Explanation)).text
    except (ModelError, BudgetExceeded) as error:
        return f"No answer: {error}"


async def explain_beside(runtime: Runtime, question: str) -> None:
    """For a question asked at any time, from any thread: see ``Run.ask``."""
    from maxkernel_nb.agents.seat import seat

    if not runtime.run.state.conversations:
        seat(runtime)
    await explain(runtime, question)
    if runtime.done:  # asked after the end: the journal is given back again
        runtime.run.close()
