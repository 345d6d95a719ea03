"""The explainer: answers a person's question about the kernel, Pallas or the chip."""

from __future__ import annotations

from pydantic import Field

from maxkernel_nb.authors.claude.roles.base import Role, Submission


class Answer(Submission):
    text: str = Field(min_length=1, description="The answer in Markdown, short, for a person at a notebook.")


EXPLAINER = Role("explainer", Answer, "submit_answer", "Hand in the answer. Ends your work.",
                 tools=("look_up_api", "read_exemplar", "read_attempt"), max_calls=3)
