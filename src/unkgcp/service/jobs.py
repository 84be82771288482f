"""Slower questions (completions, evidence) in a few threads, so that quick ones never wait behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from unkgcp.service.problems import Problem
from unkgcp.service.settings import Settings
from unkgcp.service.threads import Threads

Result = TypeVar("Result")

THREADS = 2


class Jobs:
    """Runs functions in threads; refuses more when too many wait, and answers in time or not at all."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._count = 0
        self._threads = Threads(THREADS, "job")

    async def run(self, work: Callable[[], Result]) -> Result:
        if self._count >= self._settings.max_jobs:
            raise Problem(429, "too many questions are waiting; try again in a second", {"Retry-After": "1"})
        future = self._threads.run(work)
        self._count += 1
        future.add_done_callback(self._done)
        try:
            async with asyncio.timeout(self._settings.answer_seconds):
                # a thread cannot be stopped: it counts until it ends, even when nobody waits for it any more
                return await asyncio.shield(future)
        except TimeoutError:
            raise Problem(503, "there was no answer in time; try again later") from None

    def close(self) -> None:
        self._threads.close()

    def _done(self, future: asyncio.Future[Result]) -> None:
        self._count -= 1
        if not future.cancelled():
            future.exception()  # seen, also when its client has gone
