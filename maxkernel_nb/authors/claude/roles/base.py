"""What a sub-agent is: a prompt, the tools it may use, and the typed answer it must submit."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from maxkernel_nb.authors.claude.settings import Effort


class Submission(BaseModel):
    """Base of the answers. Unknown fields are refused, so that a misread schema is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Role:
    """``submit`` is the name of the tool by which the answer is given; ``max_calls`` bounds one conversation.

    ``effort`` is the same for all: users of the API report that a request reads only what one of the same effort wrote
    to the prompt cache, and a second copy of the prefix costs more than a short answer's thinking saves.
    """

    name: str
    answer: type[Submission]
    submit: str
    submit_help: str
    tools: tuple[str, ...] = ()
    effort: Effort = "high"
    max_calls: int = 3

    def prompt(self, **values: Any) -> str:
        """The turn's text. An unknown or missing variable raises: templates are strict."""
        return render(f"{self.name}.jinja", **values)


@functools.cache
def _environment() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("maxkernel_nb.authors.claude", "roles"), undefined=jinja2.StrictUndefined,
        autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False,
    )


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values).strip() + "\n"
