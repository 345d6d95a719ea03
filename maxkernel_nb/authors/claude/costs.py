"""What a run's model calls cost: in all, by sub-agent and by round, with the cached share of the input."""

from __future__ import annotations

import re
from collections import defaultdict

from maxkernel_nb.engine.state import ModelCall, RunState
from maxkernel_nb.values import Value


class CostLine(Value):
    """``dollars`` leaves out ``unpriced`` calls; ``cached_share`` is of input tokens, 0..1; ``thrown_away``: calls that
    were paid for and not used (cut streams, answers that did not fit)."""

    name: str
    calls: int
    input_tokens: int
    output_tokens: int
    cached_share: float
    dollars: float
    unpriced: int
    thrown_away: int


class CostTable(Value):
    total: CostLine
    by_agent: tuple[CostLine, ...]
    by_round: tuple[CostLine, ...]


def cost_table(state: RunState) -> CostTable:
    agents: dict[str, list[ModelCall]] = defaultdict(list)
    rounds: dict[str, list[ModelCall]] = defaultdict(list)
    names = _persons_rounds(state) if state.mode == "hitl" else [_round_of(call.key) for call in state.calls]
    for call, name in zip(state.calls, names, strict=True):
        agents[call.role].append(call)
        rounds[name].append(call)
    return CostTable(
        total=_line("all", list(state.calls)), by_agent=tuple(_line(n, c) for n, c in sorted(agents.items())),
        by_round=tuple(_line(n, c) for n, c in sorted(rounds.items(), key=lambda item: _natural(item[0]))),
    )


def _round_of(key: str) -> str:
    """Conversations are named after their step: ``implement:2/implementer``, ``repair:2.1/debugger``."""
    step = key.partition("/")[0]
    match = re.match(r"(plan|attack|implement|repair)(?::(\d+)(\.\d+)?)?$", step)
    if match is None:
        return "aside"
    if match[1] == "repair" and match[2] and not match[3]:  # repair:1 belongs to the first round
        return "round 1"
    return f"round {match[2] or 1}"


def _persons_rounds(state: RunState) -> list[str]:
    """A person's steps are numbered by their answers; there, a round begins with each reading of the profile."""
    attacks: list[str] = []
    names = []
    for call in state.calls:
        if call.key.startswith("attack") and call.key not in attacks:
            attacks.append(call.key)
        names.append("aside" if _round_of(call.key) == "aside" else f"round {len(attacks) + 1}")
    return names


def _natural(name: str) -> tuple[int, str]:
    number = name.rpartition(" ")[2]
    return (int(number), "") if number.isdigit() else (10**6, name)


def _line(name: str, calls: list[ModelCall]) -> CostLine:
    given = sum(c.usage.all_input for c in calls)
    cached = sum(c.usage.cache_read_tokens for c in calls)
    return CostLine(
        name=name, calls=len(calls), input_tokens=given, output_tokens=sum(c.usage.output_tokens for c in calls),
        cached_share=cached / given if given else 0.0, dollars=sum(c.dollars or 0.0 for c in calls),
        unpriced=sum(c.dollars is None for c in calls), thrown_away=sum(bool(c.problem) for c in calls),
    )
