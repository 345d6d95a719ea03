"""How Claude is reached and how hard each sub-agent thinks. Environment variables, or arguments from Python."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field, ValidationError

from maxkernel_nb.authors.claude.models import DEFAULT_MODEL
from maxkernel_nb.errors import UsageError
from maxkernel_nb.values import Value

Effort = Literal["low", "medium", "high", "xhigh", "max"]


class ClaudeSettings(Value):
    """``models`` and ``efforts`` override by sub-agent; one model for all shares the prompt cache between them.

    ``provider``: the Anthropic API or anything that speaks it at ``base_url``, or Claude on Google Cloud (``vertex``,
    with ``region`` and ``project``) or AWS (``bedrock``, with ``region``). ``timeout_s`` is the longest silence of a
    stream; ``max_wait_s`` the longest wait before one retry. ``prices``: a file in the form of ``models.json``.
    """

    model: str = DEFAULT_MODEL
    models: dict[str, str] = Field(default_factory=dict)
    efforts: dict[str, Effort] = Field(default_factory=dict)
    provider: Literal["anthropic", "vertex", "bedrock"] = "anthropic"
    base_url: str | None = None
    region: str = ""
    project: str = ""
    max_tokens: int = 24000
    retries: int = 5
    first_wait_s: float = 1.0
    max_wait_s: float = 60.0
    timeout_s: float = 180.0
    rounds: int = 4  # of looking for a faster kernel after the first
    patience: int = 2  # rounds without a better kernel before the search has levelled off
    review: bool = False  # have each kernel read for risks before it is judged, in auto too
    stress: bool = True  # draw unusual inputs once a run for every kernel that would win
    share_lessons: bool = False  # keep lessons for the project's later runs
    prices: str | None = None

    def model_for(self, role: str) -> str:
        return self.models.get(role, self.model)


_VARIABLES = {
    "model": "MAXKERNEL_CLAUDE_MODEL", "provider": "MAXKERNEL_CLAUDE_PROVIDER",
    "base_url": "ANTHROPIC_BASE_URL", "region": "MAXKERNEL_CLAUDE_REGION",
    "project": "MAXKERNEL_CLAUDE_PROJECT", "rounds": "MAXKERNEL_CLAUDE_ROUNDS", "prices": "MAXKERNEL_CLAUDE_PRICES",
    "share_lessons": "MAXKERNEL_SHARE_LESSONS", "review": "MAXKERNEL_CLAUDE_REVIEW",
}


def settings_from_environment(**given: object) -> ClaudeSettings:
    """Arguments before variables before defaults. Raises ``UsageError`` naming the variable that cannot be used."""
    found = {field: os.environ[name] for field, name in _VARIABLES.items() if os.environ.get(name)}
    try:
        return ClaudeSettings(**{**found, **given})  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        name = _VARIABLES.get(field, field)
        raise UsageError(f"{name} cannot be {first['input']!r}: {first['msg']}; change it or leave it out.") from error
