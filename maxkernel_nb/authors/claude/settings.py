"""How Claude is reached and how hard each sub-agent thinks. Environment variables, or arguments from Python."""

from __future__ import annotations

import os
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from maxkernel_nb.authors.claude.models import DEFAULT_MODEL
from maxkernel_nb.config import variable
from maxkernel_nb.errors import UsageError
from maxkernel_nb.options import CLAUDE
from maxkernel_nb.values import Value

Effort = Literal["low", "medium", "high", "xhigh", "max"]
SUB_AGENTS = ("planner", "implementer", "debugger", "tester", "tuner", "profiler", "reviewer", "explainer")


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

    @field_validator("models", "efforts", mode="before")
    @classmethod
    def _by_sub_agent(cls, given: Any) -> Any:
        """A dict, or its text: ``planner=max, tester=low``."""
        if isinstance(given, str):
            pairs = [part.partition("=") for part in given.split(",") if part.strip()]
            given = {name.strip(): value.strip() for name, _, value in pairs}
        for name, value in given.items() if isinstance(given, dict) else ():
            if name not in SUB_AGENTS or not value:
                raise ValueError(f"write SUB-AGENT=VALUE, sub-agents are {', '.join(SUB_AGENTS)}")
        return given

    def model_for(self, role: str) -> str:
        return self.models.get(role, self.model)


_BASE_URL = "ANTHROPIC_BASE_URL"  # the SDK's own variable, below ours


def settings_from_environment(**given: object) -> ClaudeSettings:
    """Arguments before variables before defaults. Raises ``UsageError`` naming the setting that cannot be used."""
    variables = {option.field: variable(option) for option in CLAUDE}
    found = {field: os.environ[name] for field, name in variables.items() if os.environ.get(name)}
    if os.environ.get(_BASE_URL):
        found.setdefault("base_url", os.environ[_BASE_URL])
    try:
        return ClaudeSettings(**{**found, **given})  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        name = variables.get(field, field)
        why = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{name} cannot be {first['input']!r}: {why}; change it or leave it out.") from error
