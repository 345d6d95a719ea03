"""Replays a recorded run: the same sub-agents and tools, with the model's replies read from a journal.

Example notebooks run this way without a key: every verdict is judged anew, only the model is recorded.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from maxkernel_nb import events as ev
from maxkernel_nb.authors.claude.author import ClaudeAuthor
from maxkernel_nb.authors.claude.client import Request, Talk
from maxkernel_nb.authors.claude.settings import ClaudeSettings
from maxkernel_nb.authors.claude.stream import Reply
from maxkernel_nb.authors.model_errors import ModelUnavailable
from maxkernel_nb.errors import JournalError
from maxkernel_nb.events import AnyEvent, event_from_dict
from maxkernel_nb.journal import read_events
from maxkernel_nb.store import write_atomically


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


def replay_author(recording: Path | str, settings: ClaudeSettings | None = None) -> ClaudeAuthor:
    """An author that repeats what is recorded in a run's folder, or in a file that ``export`` wrote.

    Raises ``JournalError`` when there is nothing to read there.
    """
    return ClaudeAuthor(settings or ClaudeSettings(), client=Recording(_read(Path(recording))))


def export(run_folder: Path | str, file: Path | str) -> int:
    """Writes a run's model replies, and nothing else of it, as JSON lines. Gives their number."""
    kept = [e for e in read_events(Path(run_folder)) if isinstance(e, ev.ModelReplied | ev.ConversationClosed)]
    lines = [json.dumps(e.to_dict(), separators=(",", ":")) for e in kept]
    write_atomically(Path(file), ("\n".join(lines) + "\n").encode())
    return sum(isinstance(e, ev.ModelReplied) for e in kept)


def _read(recording: Path) -> list[AnyEvent]:
    if recording.is_dir():
        return read_events(recording)
    try:
        return [event_from_dict(json.loads(line)) for line in recording.read_text().splitlines()]
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise JournalError(f"The recording {recording} cannot be read ({reason}); name a run's folder.") from error
