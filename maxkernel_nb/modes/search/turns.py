"""Whose candidate goes to the gates next: cheap judgements before dear ones, and among equals the oldest draw."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """At most ``places`` holders at a time; the rest wait in the order of (dear, draw)."""

    def __init__(self, places: int) -> None:
        self.free = places
        self._waiting: list[tuple[bool, int, int, asyncio.Future[None]]] = []
        self._count = 0

    @asynccontextmanager
    async def turn(self, draw: int, dear: bool = False) -> AsyncIterator[None]:
        await self._enter(draw, dear)
        try:
            yield
        finally:
            self.free += 1
            self._next()

    async def _enter(self, draw: int, dear: bool) -> None:
        if self.free and not self._waiting:
            self.free -= 1
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waiting, (dear, draw, self._count, waiting))
        self._next()
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():  # it was given the place in the same moment
                self.free += 1
                self._next()
            raise

    def _next(self) -> None:
        while self.free and self._waiting:
            waiting = heapq.heappop(self._waiting)[-1]
            if not waiting.done():
                self.free -= 1
                waiting.set_result(None)
