"""The debugger: repairs a kernel that a gate refused, from the gate's own findings."""

from __future__ import annotations

from pydantic import Field

from maxkernel_nb.authors.claude.roles.base import Role
from maxkernel_nb.authors.claude.roles.implementer import KERNEL_TOOLS, KernelDraft


class Repair(KernelDraft):
    cause: str = Field(description="One sentence: why the kernel failed.")
    lesson: str = Field(default="", description="A short general rule worth remembering for later kernels, or empty.")


DEBUGGER = Role("debugger", Repair, "submit_repair",
                "Hand in the repaired kernel: its source, or an attempt's id. Ends your work; it is judged in full.",
                tools=KERNEL_TOOLS, max_calls=4)
