"""The sub-agents that Claude fills: one file each, with what it is given, what it must give back, and its prompt."""

from __future__ import annotations

from maxkernel_nb.authors.claude.roles.base import Role
from maxkernel_nb.authors.claude.roles.debugger import DEBUGGER
from maxkernel_nb.authors.claude.roles.explainer import EXPLAINER
from maxkernel_nb.authors.claude.roles.implementer import IMPLEMENTER
from maxkernel_nb.authors.claude.roles.planner import PLANNER
from maxkernel_nb.authors.claude.roles.profiler import PROFILER
from maxkernel_nb.authors.claude.roles.reviewer import REVIEWER
from maxkernel_nb.authors.claude.roles.tester import TESTER
from maxkernel_nb.authors.claude.roles.tuner import TUNER

ROLES: tuple[Role, ...] = (PLANNER, IMPLEMENTER, DEBUGGER, TESTER, TUNER, PROFILER, REVIEWER, EXPLAINER)

__all__ = ["ROLES", "Role"]
