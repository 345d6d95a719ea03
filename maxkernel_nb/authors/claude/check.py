"""``python -m maxkernel_nb.authors.claude.check``: does Claude work from here, and what would a run cost?

Sends one short request (a few hundred tokens) with the key that a run would use.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from maxkernel_nb.authors.claude.client import ClaudeClient, ModelClient, Request
from maxkernel_nb.authors.claude.keys import Key, Redactor, need_key
from maxkernel_nb.authors.claude.models import ModelFacts, model_table
from maxkernel_nb.authors.claude.prompts import system_text
from maxkernel_nb.authors.claude.roles.explainer import EXPLAINER
from maxkernel_nb.authors.claude.settings import ClaudeSettings, settings_from_environment
from maxkernel_nb.authors.claude.stream import Reply
from maxkernel_nb.authors.claude.tools import tool_schemas
from maxkernel_nb.authors.model_errors import ModelError
from maxkernel_nb.errors import MaxKernelError
from maxkernel_nb.events import ModelUsage

_CHARS_PER_TOKEN = 3.5
_TURN_TOKENS, _TASK_TOKENS, _ANSWER_TOKENS, _CALLS_A_ROUND = 2500, 2500, 6000, 4


class _Quiet:
    def before(self, request: Request) -> None: ...
    def said(self, words: str) -> None: ...
    def lost(self, reply: Reply, why: str) -> None: ...
    def waiting(self, why: str, seconds: float) -> None: ...


def main(write: Callable[[str], object] = sys.stdout.write, client: ModelClient | None = None,
         key: Key | None = None) -> int:
    """Writes one line a finding; 0 when everything works."""
    try:
        settings = settings_from_environment(retries=1)
        if settings.provider == "anthropic" and client is None:
            key = key or need_key()
            write(f"key: found in {key.origin}\n")
        facts = _describe(settings, write)
        reply = asyncio.run(_ask(settings, client, key))
    except ModelError as error:
        write(f"not working: {error}\n")
        return 1
    except MaxKernelError as error:
        write(f"settings: {error}\n")
        return 2
    if not any(b["name"] == "submit_answer" for b in reply.tool_uses):
        write(f"the model answered, but not through the tool (stop reason {reply.stop_reason}); runs may fail\n")
        return 1
    cost = f", ${facts.dollars(reply.usage):.4f}" if facts is not None else ""
    write(f"answer: streamed, through a tool, in {reply.seconds:.1f} s, {reply.usage.all_input} tokens in, "
          f"{reply.usage.output_tokens} out{cost}\n")
    return 0


def _describe(settings: ClaudeSettings, write: Callable[[str], object]) -> ModelFacts | None:
    table = model_table(settings.prices)
    facts = table.find(settings.model)
    write(f"model: {settings.model} through {settings.provider}\n")
    if facts is None:
        write("price: not known for this model; tokens are counted, a dollar cap does not bind\n")
        return None
    rounds = settings.rounds + 1
    write(f"price: ${facts.input:g} in, ${facts.output:g} out per million tokens (as published on {table.checked})\n"
          f"a run of {rounds} rounds: about ${run_estimate(facts, rounds):.2f}, estimated; capped by --budget\n")
    return facts


def run_estimate(facts: ModelFacts, rounds: int) -> float:
    """Dollars of a run: the prefix written once and then read from the cache, four calls a round. An estimate."""
    prefix = int((len(system_text()) + len(str(tool_schemas()))) / _CHARS_PER_TOKEN) + _TASK_TOKENS
    calls = rounds * _CALLS_A_ROUND
    used = ModelUsage(cache_write_tokens=prefix + calls * _TURN_TOKENS, cache_read_tokens=prefix * (calls - 1),
                      output_tokens=calls * _ANSWER_TOKENS)
    return facts.dollars(used)


async def _ask(settings: ClaudeSettings, client: ModelClient | None, key: Key | None) -> Reply:
    facts = model_table(settings.prices).find(settings.model)
    schema = next(t for t in tool_schemas() if t["name"] == "submit_answer")
    question = "Call submit_answer with the text 'ready'."
    request = Request(
        model=settings.model, max_tokens=2000, tools=[schema], extra=_as_in_a_run(facts, settings),
        system=[{"type": "text", "text": "You answer through the tool submit_answer, nothing else."}],
        messages=[{"role": "user", "content": [{"type": "text", "text": question}]}],
    )
    if client is not None:
        return await client.call(request, _Quiet())
    real = ClaudeClient(settings, key, Redactor(key))
    try:
        return await real.call(request, _Quiet())
    finally:
        await real.close()


def _as_in_a_run(facts: ModelFacts | None, settings: ClaudeSettings) -> dict[str, object]:
    """What a run sends beside the messages, so that a model which does not take it is found out here."""
    extra: dict[str, object] = {}
    if facts is not None and facts.thinking:
        extra["thinking"] = {"type": facts.thinking, "display": "summarized"}
    if facts is not None and facts.effort:
        extra["output_config"] = {"effort": settings.efforts.get(EXPLAINER.name, EXPLAINER.effort)}
    return extra


if __name__ == "__main__":
    raise SystemExit(main())
