"""The implementer: writes the kernel of a plan."""

from __future__ import annotations

from pydantic import Field, model_validator

from maxkernel_nb.authors.claude.roles.base import Role, Submission

KERNEL_TOOLS = ("check_kernel", "compile_kernel", "profile_kernel", "look_up_api", "read_exemplar", "read_attempt",
                "ask_person")


class KernelDraft(Submission):
    source: str = Field(default="", description="The whole Python module. Leave empty when attempt is given.")
    attempt: str = Field(default="", description="The id of an attempt you had checked and hand in as it is.")
    note: str = Field(description="One line: what this kernel does differently.")

    @model_validator(mode="after")
    def _one_of_both(self) -> KernelDraft:
        if bool(self.source.strip()) == bool(self.attempt.strip()):
            raise ValueError("give either source or attempt")
        return self


IMPLEMENTER = Role("implementer", KernelDraft, "submit_kernel",
                   "Hand in the kernel: its source, or an attempt's id. Ends your work; it is then judged in full.",
                   tools=KERNEL_TOOLS, max_calls=4)
