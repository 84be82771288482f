"""What the other files of the service share: limits, refusals, threads, the cost of a call, and counters.

`Settings` is one frozen record, the same for every request. Importing this file imports neither FastAPI nor uvicorn.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from starlette.responses import Response

MEBIBYTE = 1 << 20

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and access.

    token: what `Authorization: Bearer ...` must carry, None for no check.
    hosts: names that the `Host` header may carry, None for any. A service on loopback without a token checks the
        header, so that no web page can reach the service under a name of its own.
    max_body: bytes of a request body.
    max_held: bytes of all bodies that have begun to arrive, and bytes of all answers that clients have not read yet. If
        there are more, bodies are refused, and the slowest readers are dropped.
    max_triples, max_levels: triples and levels of one request. max_k: completions of one request.
    max_waiting: triples of all requests that wait for the model; more are refused until some are answered. It bounds
        memory. Time is bounded by `answer_seconds`: a request that would take longer beside all that waits is refused.
    max_jobs: questions other than intervals that wait or run, for each kind of question; more are refused.
    max_connections: connections that are open. If there are more, the one is dropped that has been idle, or has been
        sending a request, for longest.
    body_seconds, answer_seconds, read_seconds: how long a request may take to arrive, to be answered, and its answer to
        be read by the client.
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
        """How long the service waits for its requests when it is told to stop: as long as they may take otherwise."""
        return self.body_seconds + self.answer_seconds + 1


class Problem(Exception):
    """A request that is answered with an error: a status and one sentence, as JSON `{"error": "..."}`."""

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


class Threads:
    """A few threads with a common name, used from one event loop.

    They start with the first work and end when the service stops, which may be started again.
    """

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


class Jobs:
    """Answers questions other than intervals, which must not wait behind them, in threads of their own.

    More are refused when too many wait, and a question is answered in time or not at all.
    """

    def __init__(self, settings: Settings, threads: int, name: str) -> None:
        self._settings = settings
        self._count = 0
        self._threads = Threads(threads, name)

    async def run(self, work: Callable[[], Result], seconds: float = 0.0) -> Result:
        """The result of `work`, which is expected to take so many seconds."""
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


LARGEST = 1 << 16  # triples of one call: its memory stays small
NEW = 0.25  # weight of the latest call in a running mean
GUESS = 1e-3  # seconds for a triple at one level before anything was measured, rather too many than too few


class Cost:
    """What a call of the model costs: seconds for a triple, by the number of levels and the size of the call.

    Methods differ a thousandfold (a microsecond for a triple with `unkgcp`, milliseconds with `cv+` over many facts),
    so the cost is learned from the calls themselves, as running means.

    >>> cost = Cost()
    >>> cost.learn(triples=64, levels=1, seconds=0.01)
    >>> round(cost.seconds(640, 1), 6), cost.triples(0.05, 1)
    (0.1, 256)

    A call has a fixed cost beside that of its triples, so a triple costs less in a larger call. What was not measured
    is taken from smaller calls or from other numbers of levels, and is then rather too high than too low. A slow first
    measurement, for example while something is compiled, is corrected by the next call of any smaller size.
    """

    def __init__(self) -> None:
        # levels -> size of a call, as the power of two that is at most that -> seconds for a triple
        self._rates: dict[int, dict[int, float]] = {}
        self._lock = Lock()

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._rates)

    def learn(self, triples: int, levels: int, seconds: float) -> None:
        """A call with so many triples and levels took so long."""
        if triples < 1:
            return
        with self._lock:
            rates = self._rates.setdefault(levels, {})
            size, rate = 1 << (triples.bit_length() - 1), seconds / triples
            rates[size] = rate if size not in rates else rates[size] + NEW * (rate - rates[size])

    def seconds(self, triples: int, levels: int) -> float:
        """How long a call will take, rather too long than too short."""
        if triples < 1:
            return 0.0
        with self._lock:
            if not self._rates:
                return GUESS * triples * levels
            if levels in self._rates:
                return _seconds(self._rates[levels], triples)
            # with twice the levels a method takes at most twice as long
            every = self._rates.items()
            return min(_seconds(rates, triples) * max(1.0, levels / measured) for measured, rates in every)

    def triples(self, seconds: float, levels: int) -> int:
        """How many triples can be answered in that time, as a power of two; at least one."""
        triples = 1
        while triples < LARGEST and self.seconds(2 * triples, levels) <= seconds:
            triples *= 2
        return triples


def _seconds(rates: dict[int, float], triples: int) -> float:
    below = [rate for size, rate in rates.items() if size <= triples]
    if below:
        return triples * min(below)
    smallest = min(
        rates
    )  # a call smaller than all that were measured takes no longer than the smallest of those
    return 2 * smallest * rates[smallest]


# Counters in the text format that Prometheus reads. They are written by hand: a dozen lines of text are no reason to
# ask users to install a client library.

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REQUESTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
# a request that did not arrive in time, an answer that was not read in time, idle while there were too many connections
DROPPED = ("slow", "unread", "crowded")


class Histogram:
    """How many observations are at most each bound, their number and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def samples(self, labels: str = "") -> Iterator[str]:
        within = 0
        comma, braces = (",", f"{{{labels}}}") if labels else ("", "")
        for bound, count in zip([*(f"{bound:g}" for bound in self.bounds), "+Inf"], self.counts, strict=True):
            within += count
            yield f'_bucket{{{labels}{comma}le="{bound}"}} {within}'
        yield f"_sum{braces} {self.total:.9g}"
        yield f"_count{braces} {within}"


class Metrics:
    """Everything that is counted."""

    def __init__(self, version: str, runs: Mapping[str, tuple[str, str]]) -> None:
        """`runs`: model and method of each run that is served, by its name."""
        self._infos = [
            f'version="{version}",model="{_escaped(model)}",method="{method}"'
            + (f',run="{_escaped(name)}"' if len(runs) > 1 else "")
            for name, (model, method) in runs.items()
        ]
        self._start = time.time()
        self._lock = Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._triples = 0
        self._calls = 0
        self._together = Histogram(REQUESTS)
        self._dropped = dict.fromkeys(DROPPED, 0)
        self.in_flight = 0

    def request(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        with self._lock:
            self._requests[path, status] = self._requests.get((path, status), 0) + 1
            if path not in self._seconds:
                self._seconds[path] = Histogram(SECONDS)
            self._seconds[path].add(seconds)

    def batch(self, triples: int, requests: int) -> None:
        """The model answered so many triples of so many requests in one call."""
        with self._lock:
            self._triples += triples
            self._calls += 1
            self._together.add(requests)

    def drop(self, why: str) -> None:
        """A connection was dropped, for one of the reasons `DROPPED`."""
        with self._lock:
            self._dropped[why] += 1

    def text(self) -> str:
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        requests = (
            f'{{path="{_escaped(path)}",status="{status}"}} {count}'
            for (path, status), count in sorted(self._requests.items())
        )
        seconds = (
            sample
            for path, histogram in sorted(self._seconds.items())
            for sample in histogram.samples(f'path="{_escaped(path)}"')
        )
        dropped = (f'{{why="{why}"}} {count}' for why, count in self._dropped.items())
        metrics: list[tuple[str, str, str, Iterable[str]]] = [
            ("info", "gauge", "What is being served.", (f"{{{info}}} 1" for info in self._infos)),
            (
                "start_time_seconds",
                "gauge",
                "When the service started, in Unix time.",
                [f" {self._start:.3f}"],
            ),
            ("requests_in_flight", "gauge", "Requests that are being answered.", [f" {self.in_flight}"]),
            ("requests_total", "counter", "Requests answered, by path and status.", requests),
            ("request_seconds", "histogram", "Time to answer a request, by path.", seconds),
            ("dropped_connections_total", "counter", "Clients that were dropped, by reason.", dropped),
            ("triples_total", "counter", "Triples answered with an interval.", [f" {self._triples}"]),
            ("model_calls_total", "counter", "Calls of the model, each for a batch.", [f" {self._calls}"]),
            (
                "batch_requests",
                "histogram",
                "Requests answered by one call of the model.",
                self._together.samples(),
            ),
        ]
        for name, kind, text, samples in metrics:
            yield f"# HELP unkgcp_{name} {text}"
            yield f"# TYPE unkgcp_{name} {kind}"
            yield from (f"unkgcp_{name}{sample}" for sample in samples)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
