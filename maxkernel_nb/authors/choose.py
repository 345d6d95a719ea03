"""Which author works on a run: ``recipes`` needs nothing, ``claude`` needs a key, ``both`` uses what there is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from maxkernel_nb.authors.base import Author
from maxkernel_nb.errors import UsageError

AUTHORS = ("recipes", "claude", "both")


def choose_author(name: str | None = None, claude: Mapping[str, Any] | None = None) -> tuple[Author, str]:
    """The author and a sentence for the person (empty when there is nothing to say).

    ``None``: both when a key exists, else recipes. A recording that ``MAXKERNEL_REPLAY`` names stands in for Claude.
    ``both`` without a key falls back to recipes with a note; ``claude`` without one raises ``NoKey``. Nothing is sent
    anywhere. ``claude``: fields of ``ClaudeSettings``, before the environment's. Raises ``UsageError`` for an unknown
    name or setting.
    """
    if name is not None and name not in AUTHORS:
        raise UsageError(f"There is no author {name!r}; use one of: {', '.join(AUTHORS)}.")
    from maxkernel_nb.authors.claude.keys import find_key
    from maxkernel_nb.authors.claude.settings import settings_from_environment

    if name == "recipes":
        return _recipes(), ""
    if recording := os.environ.get("MAXKERNEL_REPLAY"):
        from maxkernel_nb.authors.claude.replay import replay_author

        said = f"Claude's replies are read from the recording {recording}; verdicts are new."
        return _with_recipes(replay_author(recording)) if name == "both" else replay_author(recording), said
    settings = settings_from_environment(**claude or {})
    key = find_key() if settings.provider == "anthropic" else None
    if name != "claude" and key is None and settings.provider == "anthropic":
        note = "There is no Claude API key, so recipes alone write the kernels (see `%maxkernel help`)." if name else ""
        return _recipes(), note
    from maxkernel_nb.authors.claude.author import ClaudeAuthor

    asked = ClaudeAuthor(settings, key=key)
    if name == "claude":
        return asked, ""
    return _with_recipes(asked), ""


def _with_recipes(claude: Author) -> Author:
    from maxkernel_nb.authors.pool import BothAuthors

    return BothAuthors(_recipes(), claude)


def _recipes() -> Author:
    from maxkernel_nb.authors.recipe_author import RecipeAuthor

    return RecipeAuthor()
