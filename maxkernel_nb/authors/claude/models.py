"""What is known about each model: its price (dated data in ``models.json``) and what a request to it may say."""

from __future__ import annotations

import functools
import json
import re
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from maxkernel_nb.errors import UsageError
from maxkernel_nb.events import ModelUsage
from maxkernel_nb.values import Value

DEFAULT_MODEL = "claude-opus-5-5"


class ModelFacts(Value):
    """Prices in USD per million tokens. Prompts over ``above`` tokens (0: no such step) cost ``above_factor`` times.

    ``thinking``: what to send as ``thinking.type``, empty to send nothing. ``effort``: takes ``output_config.effort``.
    ``max_output`` and ``context`` in tokens.
    """

    name: str
    input: float
    output: float
    cache_write: float
    cache_read: float
    above: int = 0
    above_factor: float = 1.0
    thinking: str = ""
    effort: bool = False
    max_output: int = 32000
    context: int = 200000

    def dollars(self, usage: ModelUsage) -> float:
        factor = self.above_factor if self.above and usage.all_input > self.above else 1.0
        cost = (usage.input_tokens * self.input + usage.cache_write_tokens * self.cache_write
                + usage.cache_read_tokens * self.cache_read + usage.output_tokens * self.output)
        return factor * cost / 1e6


class ModelTable(Value):
    checked: str  # the day the prices were read
    source: str
    models: tuple[ModelFacts, ...]

    def find(self, model: str) -> ModelFacts | None:
        """The entry for ``model``, also under a dated name, a Bedrock name or a Vertex name; None when unknown."""
        plain = re.sub(r"^(?:\w+\.)?anthropic\.", "", model)
        plain = re.sub(r"(?:-|@)20\d{6}(?:-v\d+(?::\d+)?)?$|-v\d+(?::\d+)?$|@default$", "", plain)
        return next((m for m in self.models if m.name == plain), None)


def model_table(override: str | Path | None = None) -> ModelTable:
    """The shipped table, or a person's own (same form). Raises ``UsageError`` when that file cannot be used."""
    if override is None:
        return _shipped()
    try:
        return ModelTable.from_dict(json.loads(Path(override).read_text()))
    except (OSError, ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"The price table {override} cannot be used ({reason}); write it like models.json.") from error


def price_markdown() -> str:
    """The README's table of the shipped prices."""
    table = _shipped()
    lines = ["| Model | Input | Output | Cache write | Cache read |", "|---|---|---|---|---|"]
    for m in table.models:
        name = f"`{m.name}`" + (" (the default)" if m.name == DEFAULT_MODEL else "")
        step = f"; {m.above_factor:g} times that for prompts over {m.above:,} tokens" if m.above else ""
        lines.append(f"| {name} | {m.input:g} | {m.output:g} | {m.cache_write:g} | {m.cache_read:g}{step} |")
    return "\n".join([*lines, "", f"US dollars per million tokens, as published on {table.checked}."])


@functools.cache
def _shipped() -> ModelTable:
    text = resources.files("maxkernel_nb.authors.claude").joinpath("models.json").read_text()
    return ModelTable.from_dict(json.loads(text))
