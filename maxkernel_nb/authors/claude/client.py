"""One call to Claude through the anthropic SDK: streamed, retried, never longer or dearer than agreed."""

from __future__ import annotations

import asyncio
import importlib
import random
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from maxkernel_nb.authors.claude.faults import (
    Fault,
    access_errors,
    classify,
    missing_package,
    no_access,
    transport_errors,
)
from maxkernel_nb.authors.claude.keys import Key, Redactor
from maxkernel_nb.authors.claude.settings import ClaudeSettings
from maxkernel_nb.authors.claude.stream import Accumulator, Reply
from maxkernel_nb.authors.model_errors import ModelError, ModelRejected, ModelUnavailable

_LONGEST_CALL_S = 1200.0


@dataclass(frozen=True)
class Request:
    """What is asked. The cached prefix is ``tools``, ``system``, then the first blocks of ``messages``."""

    model: str
    system: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    max_tokens: int
    extra: dict[str, Any] = field(default_factory=dict)


class Talk(Protocol):
    """What a call tells its caller while it goes on."""

    def before(self, request: Request) -> None:
        """Before every attempt, retries too; raises ``BudgetExceeded`` when its worst case is not affordable."""
        ...

    def said(self, words: str) -> None: ...

    def lost(self, reply: Reply, why: str) -> None:
        """A stream broke off after billing had begun and nothing of it is of use."""
        ...

    def waiting(self, why: str, seconds: float) -> None: ...


class ModelClient(Protocol):
    """``call`` gives a reply (``stop_reason`` ``cut``: the useful part of a broken one) or raises ``ModelError``."""

    async def call(self, request: Request, talk: Talk) -> Reply: ...


class ClaudeClient:
    """In order: ask ``talk.before``, stream, and on a fault that may pass wait and try again."""

    def __init__(self, settings: ClaudeSettings, key: Key | None, redact: Redactor) -> None:
        self._settings = settings
        self._key = key
        self._redact = redact
        self._sdk: Any = None

    async def call(self, request: Request, talk: Talk) -> Reply:
        why = ""
        await self._client()  # importing the SDK is no part of a call's time
        for attempt in range(self._settings.retries + 1):
            talk.before(request)
            heard, start = Accumulator(), time.monotonic()
            fault = await self._attempt(request, talk, heard)
            seconds = round(time.monotonic() - start, 3)
            if fault is None or heard.worth_keeping:
                return heard.reply(seconds)
            why = fault.sentence
            if heard.started:
                talk.lost(heard.reply(seconds), fault.sentence)
            if not fault.passing:
                raise ModelRejected(f"{fault.sentence[:1].upper()}{fault.sentence[1:].rstrip('.')}.")
            if attempt < self._settings.retries:
                await self._wait(attempt, fault, talk)
        raise ModelUnavailable(
            f"Claude gave no answer in {self._settings.retries + 1} tries ({why}); resume the run later."
        )

    async def _attempt(self, request: Request, talk: Talk, heard: Accumulator) -> Fault | None:
        sdk = await self._client()
        anthropic = importlib.import_module("anthropic")
        begun = False  # what goes wrong before the request is sent is a matter of how access is set up
        try:
            async with asyncio.timeout(_LONGEST_CALL_S):
                stream = await sdk.messages.create(
                    model=request.model, max_tokens=request.max_tokens, system=request.system, tools=request.tools,
                    messages=request.messages, stream=True, extra_body=request.extra or None,
                )
                begun = True
                async with stream:
                    async for event in stream:
                        words = heard.take(event)
                        if words:
                            talk.said(words)
        except (anthropic.AnthropicError, TimeoutError, *transport_errors()) as error:
            return classify(error, request.model, self._redact)
        except access_errors() as error:
            if begun:
                return classify(error, request.model, self._redact)
            return no_access(error, self._settings.provider, self._redact)
        if heard.complete:
            return None
        return Fault("the connection was cut in the middle of a reply", passing=True)

    async def _wait(self, attempt: int, fault: Fault, talk: Talk) -> None:
        limit = self._settings.max_wait_s
        if fault.wait_s is not None and fault.wait_s > limit:
            raise ModelUnavailable(
                f"Claude asks to wait {fault.wait_s:.0f} s ({fault.sentence}); resume the run after that."
            )
        seconds = min(limit, self._settings.first_wait_s * 2**attempt) * random.uniform(0.75, 1.0)
        seconds = max(seconds, fault.wait_s or 0.0)
        talk.waiting(fault.sentence, seconds)
        await asyncio.sleep(seconds)

    async def _client(self) -> Any:
        if self._sdk is None:
            anthropic = await asyncio.to_thread(_import_sdk)
            self._sdk = _make(anthropic, self._settings, self._key)
        return self._sdk

    async def close(self) -> None:
        if self._sdk is not None:
            await self._sdk.close()
            self._sdk = None


def _import_sdk() -> Any:
    try:
        return importlib.import_module("anthropic")
    except ImportError as error:
        raise ModelError(
            f"The package 'anthropic' cannot be imported ({error}); run `pip install anthropic` and restart the kernel."
        ) from error


def _make(anthropic: Any, settings: ClaudeSettings, key: Key | None) -> Any:
    """Vertex and Bedrock authenticate by the cloud's own means and need no Claude key."""
    if missing := missing_package(settings.provider):
        raise ModelRejected(missing)
    timeout = anthropic.Timeout(connect=20.0, read=settings.timeout_s, write=60.0, pool=20.0)
    common = {"timeout": timeout, "max_retries": 0, "base_url": settings.base_url}
    try:
        if settings.provider == "vertex":
            own = {"project_id": settings.project} if settings.project else {}  # else the one one is signed in to
            return anthropic.AsyncAnthropicVertex(region=settings.region or "global", **own, **common)
        if settings.provider == "bedrock":
            return anthropic.AsyncAnthropicBedrock(aws_region=settings.region or None, **common)
        value = key.reveal() if key is not None else None
        return anthropic.AsyncAnthropic(api_key=value, **common)
    except (anthropic.AnthropicError, ImportError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ModelRejected(f"Claude's {settings.provider} client cannot start: {reason}") from None
