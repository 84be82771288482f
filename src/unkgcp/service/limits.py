"""What the service allows, how it says no, and the threads that keep to it.

`Settings` is one frozen record, the same for every request. Importing this imports neither FastAPI nor uvicorn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from starlette.responses import Response

MEBIBYTE = 1 << 20

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and access.

    token: what `Authorization: Bearer ...` must carry, None for no check.
    hosts: names that the `Host` header may carry, None for any. A service on loopback without a token checks
        it, so that no web page can reach it under a name of its own.
    max_body: bytes of a request body. max_held: bytes of all bodies that have begun to arrive, and of all answers that
        clients have not read yet; beyond it bodies are refused and the slowest readers are dropped.
    max_triples, max_levels: of one request. max_k: completions of one request.
    max_waiting: triples of all requests that wait for the model; more are refused until some are answered. It bounds
        memory; time is bounded by `answer_seconds`, since what would take longer beside all that waits is refused.
    max_jobs: completions and evidence that wait or run; more are refused.
    max_connections: open ones; beyond it those are dropped that have been idle or sending a request for longest.
    body_seconds: a request must have arrived by then. answer_seconds: and be answered by then. read_seconds: and its
        client have read the answer by then.
    """

    token: bytes | None = None
    hosts: frozenset[str] | None = None
    max_body: int = 4 * MEBIBYTE
    max_held: int = 256 * MEBIBYTE
    max_triples: int = 10_000
    max_levels: int = 20
    max_k: int = 1000
    max_waiting: int = 200_000
    max_jobs: int = 64
    max_connections: int = 1000
    body_seconds: float = 10.0
    answer_seconds: float = 30.0
    read_seconds: float = 30.0

    @property
    def grace_seconds(self) -> float:
        """How long requests on their way have when the service is told to stop: as long as at any other time."""
        return self.body_seconds + self.answer_seconds + 1


# What went wrong, said to a client: a status and one sentence, as JSON `{"error": "..."}`.


class Problem(Exception):
    """A request that is answered with an error. Raised anywhere behind the border of the service."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence
        self.headers = dict(headers or {})

    def response(self) -> Response:
        from starlette.responses import JSONResponse

        return JSONResponse({"error": self.sentence}, self.status, self.headers)


def quoted(value: object, longest: int = 60) -> str:
    """A client's own words inside a sentence, cut to a length that fits."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


# Threads that start with the first work and end when the service stops; it may be started again.


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


# Other questions in threads of their own, so that intervals never wait behind them.


class Jobs:
    """Runs functions in threads; refuses more when too many wait, and answers in time or not at all."""

    def __init__(self, settings: Settings, threads: int, name: str) -> None:
        self._settings = settings
        self._count = 0
        self._threads = Threads(threads, name)

    async def run(self, work: Callable[[], Result], seconds: float = 0.0) -> Result:
        """The result of `work`, which is expected to take so long."""
        if seconds > self._settings.answer_seconds:  # a thread cannot be stopped, so it must not begin
            raise Problem(
                422,
                f"this would take this run about {seconds:.0f} seconds, more than "
                f"{self._settings.answer_seconds:g}; ask for less, or rank by score",
            )
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
            future.exception()  # asked for, so that asyncio does not complain where the client has gone
