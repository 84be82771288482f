"""Threads that come with the first work and go when the service stops, however often it is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class Threads:
    """A few threads with a common name; used from one event loop."""

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        """The result of `work`, called in one of the threads."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
