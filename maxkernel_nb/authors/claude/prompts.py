"""The long stable part of every request: tools, rules with the guide, and the task. The same bytes all run long.

The task's part is journaled when it is first made, so that a resumed run sends the same bytes and the cache holds.
"""

from __future__ import annotations

from typing import Any

from maxkernel_nb import events as ev
from maxkernel_nb.authors.base import TaskView
from maxkernel_nb.authors.claude.desk import Desk
from maxkernel_nb.authors.claude.keys import Redactor
from maxkernel_nb.authors.claude.render import profile_text
from maxkernel_nb.authors.claude.roles.base import render
from maxkernel_nb.authors.claude.tools import tool_list, tool_schemas
from maxkernel_nb.errors import TaskError
from maxkernel_nb.knowledge import guide

_TASK_KEY = "task"
_MARK = {"type": "ephemeral"}


def prefix(desk: Desk, view: TaskView,
           redact: Redactor) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """Tool schemas, system blocks, and the first block of the first message."""
    known = desk.state.conversations.get(_TASK_KEY)
    if known is None:
        desk.record(ev.ConversationOpened(key=_TASK_KEY, role="task", prompt=redact(task_text(desk, view))))
        known = desk.state.conversations[_TASK_KEY]
    system = [{"type": "text", "text": system_text(), "cache_control": _MARK}]
    return tool_schemas(), system, {"type": "text", "text": known.prompt, "cache_control": _MARK}


def system_text() -> str:
    tools = [{"name": name, "description": description} for name, description in tool_list()]
    return render("system.jinja", tools=tools, guide=guide())


def task_text(desk: Desk, view: TaskView) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in sorted(desk.state.versions.items()) if k != "maxkernel-nb")
    return render("task.jinja", task=view.task, chip=chip_text(view.task.chip), versions=versions or "unknown",
                  baseline=profile_text(view.baseline or desk.state.baseline), exemplar=_exemplar(view))


def chip_text(name: str) -> str:
    """The facts a plan needs, in one line."""
    from maxkernel_nb.tpu.chips import chip

    c = chip(name)
    return (f"{c.device_tflops:.0f} bf16 TFLOP/s, HBM {c.device_hbm_gbs:.0f} GB/s, VMEM {c.vmem_bytes / 2**20:.0f} MiB "
            f"(scoped limit {c.scoped_vmem_bytes / 2**20:.0f} MiB by default), MXU {c.mxu_size} x {c.mxu_size}, "
            f"{c.clock_ghz:.2f} GHz")


def _exemplar(view: TaskView) -> Any:
    """The exemplar nearest to the reference; None when the live function is gone or traces to nothing known."""
    from maxkernel_nb.knowledge.exemplars import nearest

    try:
        jaxpr = view.trace(view.task.timing_case.name)
    except TaskError:
        return None
    return nearest(jaxpr)[0] if jaxpr is not None else None
