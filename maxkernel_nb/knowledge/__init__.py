"""What is known about Pallas and TPUs, in our own words: a guide, exemplar kernels, and the installed jax's own API."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def guide() -> str:
    """The guide, Markdown, a few thousand tokens. The same bytes in every run, so that it can be cached."""
    return resources.files(__name__).joinpath("guide.md").read_text()
