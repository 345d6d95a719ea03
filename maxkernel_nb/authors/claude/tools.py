"""The tools a model may call: one registry, from which the schemas sent and the list in the prompt are generated.

Every tool answers in text. All are offered to every sub-agent (so the request's prefix stays the same bytes and is
cached); what a sub-agent may use is decided here when it calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from maxkernel_nb.authors.base import TaskView
from maxkernel_nb.authors.claude.desk import Desk
from maxkernel_nb.authors.claude.render import profile_text, verdicts_text, whole_lines
from maxkernel_nb.authors.claude.roles import ROLES, Role
from maxkernel_nb.authors.kernel_text import NotAKernel, make_candidate
from maxkernel_nb.task import Candidate, GateName

_READ_LINES = 400


class Refused(ValueError):
    """A tool call that cannot be done; the message tells the model what to do instead."""


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KernelArguments(Arguments):
    source: str = Field(default="", description="The whole Python module; leave empty when attempt is given.")
    attempt: str = Field(default="", description="The id of an earlier attempt.")

    @model_validator(mode="after")
    def _one_of_both(self) -> KernelArguments:
        if bool(self.source.strip()) == bool(self.attempt.strip()):
            raise ValueError("give either source or attempt")
        return self


class NameArguments(Arguments):
    name: str = Field(max_length=200)


class QuestionArguments(Arguments):
    question: str = Field(max_length=2000)


@dataclass
class Bench:
    """What the tools of one conversation work on."""

    desk: Desk
    view: TaskView
    role: Role
    key: str
    asked: int = 0

    def candidate(self, source: str, attempt: str, note: str, parent: str | None = None) -> Candidate:
        """Raises ``Refused`` for an unknown attempt, or a text that is no kernel of this task."""
        if attempt:
            known = self.desk.state.candidates.get(attempt.strip())
            if known is None:
                ids = ", ".join(list(self.desk.state.candidates)[-6:]) or "none yet"
                raise Refused(f"There is no attempt {attempt!r}; there are: {ids}.")
            return known.candidate
        try:
            return make_candidate(self.view.task, source, "claude", note, parent)
        except NotAKernel as error:
            raise Refused(f"The source cannot be judged: {error}.") from None


@dataclass(frozen=True)
class Tool:
    name: str
    description: str
    arguments: type[BaseModel]
    run: Callable[[Bench, Any], Awaitable[str]] = field(repr=False)

    def schema(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "input_schema": _schema(self.arguments)}


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema without the titles pydantic adds, which only cost tokens."""
    def strip(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: strip(v) for k, v in node.items() if not (k == "title" and isinstance(v, str))}
        return [strip(v) for v in node] if isinstance(node, list) else node

    return strip(model.model_json_schema())


async def _judge(bench: Bench, given: KernelArguments, gates: Sequence[GateName], verb: str) -> str:
    candidate = bench.candidate(given.source, given.attempt, f"{bench.role.name}'s draft")
    if unknown := await asyncio.to_thread(_unknown_names, candidate.source):
        return f"Not judged, at no cost: {unknown}"
    judged = await bench.desk.judge(candidate, gates)
    text = f"Attempt {candidate.id}, {verb}:\n{verdicts_text(judged.assessment.verdicts)}"
    return f"{text}\n{profile_text(judged.profile)}" if judged.profile is not None else text


def _unknown_names(source: str) -> str:
    from maxkernel_nb.knowledge.api_check import unknown_names

    return "; ".join(n.text() for n in unknown_names(source)[:5])


async def _check(bench: Bench, given: KernelArguments) -> str:
    return await _judge(bench, given, (GateName.SCREEN, GateName.TRACE, GateName.CHECK), "checked")


async def _compile(bench: Bench, given: KernelArguments) -> str:
    return await _judge(bench, given, (GateName.SCREEN, GateName.TRACE, GateName.COMPILE), "compiled")


async def _profile(bench: Bench, given: KernelArguments) -> str:
    gates = (GateName.SCREEN, GateName.TRACE, GateName.COMPILE, GateName.MODEL)
    return await _judge(bench, given, gates, "compiled and modelled")


async def _look_up(bench: Bench, given: NameArguments) -> str:
    from maxkernel_nb.knowledge.api_lookup import look_up

    return (await asyncio.to_thread(look_up, given.name)).text()


async def _read_exemplar(bench: Bench, given: NameArguments) -> str:
    from maxkernel_nb.knowledge.exemplars import EXEMPLARS

    for exemplar in EXEMPLARS:
        if exemplar.name == given.name.strip():
            return exemplar.source
    raise Refused(f"There is no exemplar {given.name!r}; there are: {', '.join(e.name for e in EXEMPLARS)}.")


async def _read_attempt(bench: Bench, given: NameArguments) -> str:
    known = bench.desk.state.candidates.get(given.name.strip())
    if known is None:
        ids = ", ".join(list(bench.desk.state.candidates)[-6:]) or "none yet"
        raise Refused(f"There is no attempt {given.name!r}; there are: {ids}.")
    return f"{whole_lines(known.candidate.source, _READ_LINES)}\n{verdicts_text(known.verdicts)}"


async def _read_reference(bench: Bench, given: Arguments) -> str:
    return whole_lines(bench.view.task.source, _READ_LINES)


async def _ask(bench: Bench, given: QuestionArguments) -> str:
    bench.asked += 1
    answer = await bench.desk.ask(f"{bench.key}:ask:{bench.asked}", given.question)
    return "Nobody can be asked in this run: decide yourself and note what you assumed." if answer is None else answer


TOOLS: tuple[Tool, ...] = (
    Tool("check_kernel", "Runs a kernel on the small shapes against the reference (TPU semantics, no compiler). Slow.",
         KernelArguments, _check),
    Tool("compile_kernel", "Compiles a kernel at full shapes with the real TPU compiler; gives its errors. Seconds.",
         KernelArguments, _compile),
    Tool("profile_kernel", "Compiles a kernel and models its time from the compiler's schedule. Seconds.",
         KernelArguments, _profile),
    Tool("look_up_api", "Signature and documentation of a name in the INSTALLED jax, e.g. pltpu.CompilerParams; close "
         "matches when it does not exist. Free.", NameArguments, _look_up),
    Tool("read_exemplar", "A verified kernel to learn from: matmul, rownorm or attention. Free.", NameArguments,
         _read_exemplar),
    Tool("read_attempt", "Source and verdicts of an earlier attempt by its id. Free.", NameArguments, _read_attempt),
    Tool("read_reference", "The reference's source. Free; it is also in the task.", Arguments, _read_reference),
    Tool("ask_person", "Asks the person at the notebook, when there is one. Only for what you cannot decide.",
         QuestionArguments, _ask),
)
_BY_NAME = {tool.name: tool for tool in TOOLS}
ALWAYS_ALLOWED = ("read_reference",)


def tool_list() -> list[tuple[str, str]]:
    """``(name, description)`` of every tool, submit tools last: what the prompt prints."""
    return [(t.name, t.description) for t in TOOLS] + [(r.submit, f"({r.name}) {r.submit_help}") for r in ROLES]


def tool_schemas() -> list[dict[str, Any]]:
    """What is sent. The same for every sub-agent, in a fixed order."""
    submits = [{"name": r.submit, "description": f"For the {r.name} only. {r.submit_help}",
                "input_schema": _schema(r.answer)} for r in ROLES]
    return [t.schema() for t in TOOLS] + submits


async def use(bench: Bench, name: str, given: dict[str, Any]) -> str:
    """Does one tool call. Raises ``Refused`` for a tool this sub-agent may not use, or arguments that do not fit."""
    if name not in (*bench.role.tools, *ALWAYS_ALLOWED) or name not in _BY_NAME:
        allowed = ", ".join((*bench.role.tools, *ALWAYS_ALLOWED, bench.role.submit))
        raise Refused(f"The {bench.role.name} may not use {name!r}; it may use: {allowed}.")
    tool = _BY_NAME[name]
    try:
        arguments = tool.arguments.model_validate(given)
    except ValidationError as error:
        raise Refused(f"{name}: {invalid(error)}") from None
    return await tool.run(bench, arguments)


def invalid(error: ValidationError) -> str:
    """A validation error in one line a model can act on."""
    found = [f"{'.'.join(map(str, e['loc'])) or 'input'}: {e['msg'].removeprefix('Value error, ')}"
             for e in error.errors()[:4]]
    return "; ".join(found)
