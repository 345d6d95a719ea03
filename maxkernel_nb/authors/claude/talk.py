"""One conversation of a sub-agent: its turns, its tools, its typed answer; every paid reply is journaled before use.

A resumed conversation is replayed from its recorded replies up to the first that is missing, so nothing is paid twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from maxkernel_nb import events as ev
from maxkernel_nb.authors.claude.client import ModelClient, Request
from maxkernel_nb.authors.claude.keys import Redactor
from maxkernel_nb.authors.claude.models import ModelFacts, ModelTable
from maxkernel_nb.authors.claude.roles.base import Submission
from maxkernel_nb.authors.claude.settings import ClaudeSettings
from maxkernel_nb.authors.claude.stream import Reply
from maxkernel_nb.authors.claude.tools import Bench, Refused, invalid, use
from maxkernel_nb.authors.model_errors import AttemptFailed, InvalidReply, ModelRefused, NoProgress, ReplyTruncated
from maxkernel_nb.errors import BudgetExceeded

A = TypeVar("A")
_BYTES_PER_TOKEN = 3.0  # low on purpose: the worst case must not be too small
_LEAST_OUTPUT = 2000  # tokens; below this an answer cannot be expected
_SAY_EVERY_S = 0.5
_SAY_CHARS = 1500
_CUT = "The connection was cut here. Go on exactly where your text ends, without repeating it."
_MARK = {"type": "ephemeral"}


class Conversation:
    """``run(understand)`` gives what ``understand(submission)`` makes of the answer.

    ``understand`` may raise ``Refused`` with what is wrong: like an answer that does not fit its schema, that is told
    to the model once; the second time ``InvalidReply`` is raised. Any ``AttemptFailed`` closes the conversation as
    failed.
    """

    def __init__(self, bench: Bench, client: ModelClient, settings: ClaudeSettings, table: ModelTable, redact: Redactor,
                 prefix: tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]) -> None:
        self.bench, self.client, self.settings, self.redact = bench, client, settings, redact
        self.tools, self.system, self.task_block = prefix
        self.role, self.desk, self.key = bench.role, bench.desk, bench.key
        self.model = settings.model_for(bench.role.name)
        self.facts: ModelFacts | None = table.find(self.model)
        self._used = 0  # recorded replies replayed so far
        self._complaints = 0
        self._calls_seen: dict[str, int] = {}
        self._max_tokens = settings.max_tokens
        self._began = time.monotonic()
        self._tail, self._said_at = "", 0.0

    async def run(self, prompt: str, understand: Callable[[Any], A]) -> A:
        known = self.desk.state.conversations.get(self.key)
        if known is None:
            prompt = self.redact(prompt)
            self.desk.record(ev.ConversationOpened(key=self.key, role=self.role.name, prompt=prompt))
        else:
            prompt = known.prompt
        try:
            answer = await self._turns(prompt, understand)
        except AttemptFailed as error:
            self.desk.record(ev.ConversationClosed(key=self.key, failed=True, reason=str(error)))
            raise
        if not self.desk.state.conversations[self.key].closed:
            self.desk.record(ev.ConversationClosed(key=self.key))
        return answer

    async def _turns(self, prompt: str, understand: Callable[[Any], A]) -> A:
        turn = {"type": "text", "text": prompt}
        messages: list[dict[str, Any]] = [{"role": "user", "content": [self.task_block, turn]}]
        for number in range(1, self.role.max_calls + 3):  # two more for complaints and cut streams
            reply = await self._reply(messages)
            if reply.stop_reason == "refusal":
                about = f" ({reply.detail})" if reply.detail else ""
                raise ModelRefused(f"Claude declined to work as the {self.role.name} on this task{about}.")
            messages.append({"role": "assistant", "content": list(reply.content) or [{"type": "text", "text": "..."}]})
            if reply.stop_reason == "cut" and not reply.tool_uses:
                messages.append({"role": "user", "content": [{"type": "text", "text": _CUT}]})
                continue
            answered, results = await self._answer_tools(reply, understand, last=number >= self.role.max_calls - 1)
            if answered is not None:
                return answered[0]
            messages.append({"role": "user", "content": results or [self._nothing_submitted()]})
        raise NoProgress(f"The {self.role.name} handed in nothing within {self.role.max_calls + 2} calls.")

    async def _answer_tools(self, reply: Reply, understand: Callable[[Any], A],
                            last: bool) -> tuple[tuple[A] | None, list[dict[str, Any]]]:
        results: list[dict[str, Any]] = []
        for block in reply.tool_uses:
            try:
                if block["name"] == self.role.submit:
                    return (self._submission(block["input"], understand),), []
                text, failed = await self._use(block), False
            except Refused as error:
                text, failed = str(error), True
                if block["name"] == self.role.submit:
                    self._complain(text)
            if last:
                text += f"\n\nThis was your last look: hand in with {self.role.submit} now."
            results.append({"type": "tool_result", "tool_use_id": block["id"], "content": self.redact(text),
                            **({"is_error": True} if failed else {})})
        return None, results

    def _submission(self, given: dict[str, Any], understand: Callable[[Any], A]) -> A:
        try:
            submission: Submission = self.role.answer.model_validate(given)
        except ValidationError as error:
            what = f"The answer does not fit: {invalid(error)}.\nCorrect it and call {self.role.submit}."
            raise Refused(what) from None
        return understand(submission)

    async def _use(self, block: dict[str, Any]) -> str:
        same = json.dumps([block["name"], block["input"]], sort_keys=True)
        self._calls_seen[same] = self._calls_seen.get(same, 0) + 1
        if self._calls_seen[same] > 2:
            raise NoProgress(f"The {self.role.name} called {block['name']} with the same arguments again and again.")
        return await use(self.bench, block["name"], block["input"])

    def _nothing_submitted(self) -> dict[str, Any]:
        text = f"You ended without calling {self.role.submit}, so nothing was handed in. Call it now."
        self._complain(f"it ended without calling {self.role.submit}, so nothing was handed in.")
        return {"type": "text", "text": text}

    def _complain(self, what: str) -> None:
        self._complaints += 1
        if self._complaints > 1:
            raise InvalidReply(f"The {self.role.name}'s answer was unusable twice: {self.redact(what.splitlines()[0])}")

    # -- one reply, recorded or bought -------------------------------------------------------------------------------

    async def _reply(self, messages: list[dict[str, Any]]) -> Reply:
        recorded = self.desk.state.conversations[self.key].replies
        if self._used < len(recorded):
            event = recorded[self._used]
            self._used += 1
            return Reply(content=event.content, stop_reason=event.stop_reason, usage=event.usage)
        await self.desk.checkpoint()
        reply = await self._call(messages)
        if reply.stop_reason == "max_tokens":
            reply = await self._with_more_room(reply, messages)
        self._record(reply)
        self._used += 1
        if reply.stop_reason == "model_context_window_exceeded":
            raise ReplyTruncated(f"The {self.role.name}'s conversation no longer fits into {self.model}'s context.")
        return reply

    async def _with_more_room(self, reply: Reply, messages: list[dict[str, Any]]) -> Reply:
        self._record(reply, problem=f"cut off at {self._max_tokens} tokens")
        most = self.facts.max_output if self.facts is not None else 2 * self._max_tokens
        self._max_tokens = min(2 * self._max_tokens, most)
        reply = await self._call(messages)
        if reply.stop_reason == "max_tokens":
            self._record(reply, problem=f"cut off at {self._max_tokens} tokens")
            raise ReplyTruncated(f"The {self.role.name}'s answer did not fit into {self._max_tokens} tokens.")
        return reply

    async def _call(self, messages: list[dict[str, Any]]) -> Reply:
        """What is used and what is journaled are the same bytes: secrets are taken out at once."""
        self._check_caps()
        reply = await self.client.call(self._request(messages), self)
        return reply.model_copy(update={"content": tuple(self.redact.data(list(reply.content)))})  # type: ignore[arg-type]

    def _request(self, messages: list[dict[str, Any]]) -> Request:
        extra: dict[str, Any] = {}
        if self.facts is not None and self.facts.thinking:
            extra["thinking"] = {"type": self.facts.thinking, "display": "summarized"}
        if self.facts is not None and self.facts.effort:
            extra["output_config"] = {"effort": self.settings.efforts.get(self.role.name, self.role.effort)}
        marked = [*messages[:-1], {**messages[-1], "content": _marked(messages[-1]["content"])}]
        request = Request(model=self.model, system=self.system, tools=self.tools, messages=marked,
                          max_tokens=self._max_tokens, extra=extra)
        return self._fitted(request)

    def _fitted(self, request: Request) -> Request:
        """With fewer output tokens when the budget allows no more. Raises ``BudgetExceeded`` when too few are left."""
        room = self._affordable_output(request)
        if room is not None and room < min(_LEAST_OUTPUT, request.max_tokens):
            raise BudgetExceeded(
                f"The next call of the {self.role.name} could cost more than is left of the budget; raise it with "
                "--budget and resume."
            )
        if room is None or room >= request.max_tokens:
            return request
        return Request(**{**request.__dict__, "max_tokens": int(room)})

    def _affordable_output(self, request: Request) -> float | None:
        """Output tokens that the caps leave after the input of this request, taken at its dearest; None: no cap."""
        budget, spend = self.desk.budget, self.desk.state.spend
        tokens = input_estimate(request)
        rooms: list[float] = []
        if budget.tokens is not None:
            rooms.append(budget.tokens - spend.input_tokens - spend.output_tokens - tokens)
        if budget.dollars is not None and self.facts is not None:
            dear = self.facts.dollars(ev.ModelUsage(cache_write_tokens=tokens))
            each = self.facts.dollars(ev.ModelUsage(cache_write_tokens=tokens, output_tokens=1)) - dear
            rooms.append((budget.dollars - spend.dollars - dear) / each)
        return min(rooms) if rooms else None

    def _record(self, reply: Reply, problem: str = "") -> None:
        self.desk.record(ev.ModelReplied(
            key=self.key, role=self.role.name, model=self.model, content=reply.content,
            stop_reason=reply.stop_reason, usage=reply.usage, seconds=reply.seconds, problem=problem,
            dollars=self.facts.dollars(reply.usage) if self.facts is not None else None,
        ))
        self._tail = ""

    # -- what the client tells ---------------------------------------------------------------------------------------

    def before(self, request: Request) -> None:
        self._check_caps()
        self._fitted(request)

    def _check_caps(self) -> None:
        spend, elapsed = self.desk.state.spend, time.monotonic() - self._began
        self.desk.budget.check(spend.model_copy(update={"wall_seconds": spend.wall_seconds + elapsed}))

    def said(self, words: str) -> None:
        self._tail = (self._tail + words)[-_SAY_CHARS:]
        now = time.monotonic()
        if now - self._said_at >= _SAY_EVERY_S:
            self._said_at = now
            self.desk.record(ev.ModelSaid(key=self.key, text=self.redact(self._tail)))

    def lost(self, reply: Reply, why: str) -> None:
        self._record(reply.model_copy(update={"content": ()}), problem=self.redact(why))

    def waiting(self, why: str, seconds: float) -> None:
        self.desk.record(ev.Noted(level="warning", text=f"{why[:1].upper()}{why[1:]}; trying again."))


def _marked(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same blocks with a cache mark on the last, so that the next turn pays only for what is new."""
    return [*content[:-1], {**content[-1], "cache_control": _MARK}]


def input_estimate(request: Request) -> int:
    """Tokens of a request, estimated from its bytes and never too few."""
    parts = json.dumps([request.system, request.tools, request.messages], ensure_ascii=False)
    return int(len(parts.encode()) / _BYTES_PER_TOKEN) + 1
