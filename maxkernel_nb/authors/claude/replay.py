"""Replays a recorded run: the same sub-agents and tools, with the model's replies read from a journal.

Example notebooks run this way without a key: every verdict is judged anew, only the model is recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from maxkernel_nb import events as ev
from maxkernel_nb.authors.claude.author import ClaudeAuthor
from maxkernel_nb.authors.claude.client import Request, Talk
from maxkernel_nb.authors.claude.errors import ModelUnavailable
from maxkernel_nb.authors.claude.settings import ClaudeSettings
from maxkernel_nb.authors.claude.stream import Reply
from maxkernel_nb.events import AnyEvent
from maxkernel_nb.journal import read_events


class Recording:
    """A model client that gives, conversation by conversation, what was once said. It costs nothing and says so."""

    def __init__(self, events: Iterable[AnyEvent]) -> None:
        self._replies: dict[str, list[ev.ModelReplied]] = defaultdict(list)
        for event in events:
            if isinstance(event, ev.ConversationClosed) and event.failed:
                self._replies.pop(event.key, None)
            elif isinstance(event, ev.ModelReplied) and not event.problem:
                self._replies[event.key].append(event)

    async def call(self, request: Request, talk: Talk) -> Reply:
        key = getattr(talk, "key", "")
        if not self._replies[key]:
            raise ModelUnavailable(
                f"The recording holds no further reply for {key!r}; run with a key, or record the run again."
            )
        event = self._replies[key].pop(0)
        for block in event.content:
            talk.said(block.get("text", "") or block.get("thinking", ""))
        return Reply(content=event.content, stop_reason=event.stop_reason, usage=ev.ModelUsage())


def replay_author(run_folder: Path | str, settings: ClaudeSettings | None = None) -> ClaudeAuthor:
    """An author that repeats the run journaled in ``run_folder``. Raises ``JournalError`` when there is none."""
    return ClaudeAuthor(settings or ClaudeSettings(), client=Recording(read_events(Path(run_folder))))
