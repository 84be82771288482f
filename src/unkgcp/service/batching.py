"""Requests that wait at the same time are answered by one call of the model.

Whatever is waiting when the model is free becomes one batch; as long as more requests arrive at the same moment they
join it, but nobody waits for a batch to fill. A small batch is answered in the event loop, because handing it to a
thread would take longer than answering it; a large one runs in a thread, so that other requests are served meanwhile.

>>> text = await Batcher(predictor, settings, metrics).answer(asked)     # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import chain, repeat
from typing import NamedTuple, TypeVar

import numpy as np

from unkgcp.graph.facts import Triples
from unkgcp.run.answers import answer, as_lists
from unkgcp.run.predictor import Predictor
from unkgcp.service.middleware import Metrics
from unkgcp.service.request_body import Asked, Problem, to_text
from unkgcp.service.settings import Settings
from unkgcp.tabular.label_index import Ids

INLINE = 4096  # triples times levels that are answered without a thread: a few milliseconds
LARGEST = 1 << 16  # triples of one call of the model
GATHERED = 2048  # triples beyond which a call is no cheaper a triple
TOO_LATE = Problem(503, "the model is too busy to answer in time; try again later")


class Waiting(NamedTuple):
    """A request in the queue."""

    asked: Asked
    answer: asyncio.Future[bytes]


class Batcher:
    """Answers requests of one event loop."""

    def __init__(self, predictor: Predictor, settings: Settings, metrics: Metrics) -> None:
        self._predictor, self._settings, self._metrics = predictor, settings, metrics
        self._queue: deque[Waiting] = deque()
        self._rows = 0  # triples in the queue
        self._busy = False  # a batch is on its way
        self._threads = Threads(1, "model")
        vocabulary = predictor.model.vocabulary
        self._entities, self._relations = Lookup(vocabulary.entity_ids), Lookup(vocabulary.relation_ids)
        self._caution = lru_cache(1024)(predictor.method.caution)

    async def answer(self, asked: Asked) -> bytes:
        """The JSON of the answers, in the order of the triples."""
        if self._rows + len(asked.head) > self._settings.max_waiting:
            raise Problem(429, "too many triples are waiting; try again in a second", {"Retry-After": "1"})
        loop = asyncio.get_running_loop()
        waiting = Waiting(asked, loop.create_future())
        self._queue.append(waiting)
        self._rows += len(asked.head)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._gather, loop, 0)
        timer = loop.call_later(self._settings.answer_seconds, self._fail, [waiting], TOO_LATE)
        try:
            return await waiting.answer
        finally:
            timer.cancel()

    def close(self) -> None:
        self._threads.close()

    def _gather(self, loop: asyncio.AbstractEventLoop, before: int) -> None:
        """Let those that arrived in the same moment, and are still on their way here, join the batch."""
        if before < len(self._queue) and self._rows < GATHERED:
            loop.call_soon(self._gather, loop, len(self._queue))
        else:
            self._next(loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer what is waiting, until nothing is or a thread has taken over."""
        while batch := self._take():
            levels = batch[0].asked.levels
            if sum(len(one.asked.head) for one in batch) * len(levels) > INLINE:
                work = self._threads.run(partial(self._answer, batch))
                work.add_done_callback(partial(self._finish, loop, batch))
                return
            try:
                self._give(batch, self._answer(batch))
            except Exception as error:
                self._fail(batch, error)
        self._busy = False

    def _finish(
        self, loop: asyncio.AbstractEventLoop, batch: list[Waiting], done: asyncio.Future[list[bytes]]
    ) -> None:
        if done.cancelled():
            self._fail(batch, Problem(503, "the service is stopping"))
        elif (error := done.exception()) is not None:
            self._fail(batch, error)
        else:
            self._give(batch, done.result())
        self._next(loop)

    def _take(self) -> list[Waiting]:
        """The requests at the front of the queue that ask for the same levels, as many as fit in one call."""
        batch: list[Waiting] = []
        rows = 0
        later: list[Waiting] = []
        while self._queue and rows < LARGEST:
            one = self._queue.popleft()
            if one.answer.done():  # its client has gone, or has waited too long
                self._rows -= len(one.asked.head)
            elif batch and one.asked.levels != batch[0].asked.levels:
                later.append(one)
            else:
                batch.append(one)
                rows += len(one.asked.head)
        self._queue.extendleft(reversed(later))
        self._rows -= rows
        return batch

    def _answer(self, batch: Sequence[Waiting]) -> list[bytes]:
        """One call of the model for all requests of the batch, then the text of each."""
        asked = [one.asked for one in batch]
        levels = asked[0].levels
        sizes = [len(one.head) for one in asked]
        total = sum(sizes)
        # heads and tails of all requests in one lookup, first all heads, then all tails
        columns = [one.head for one in asked] + [one.tail for one in asked]
        entity = self._entities.ids(list(chain.from_iterable(columns)))
        relation = self._relations.ids(list(chain.from_iterable([one.relation for one in asked])))
        triples = Triples(entity[:total], relation, entity[total:])
        found = answer(self._predictor, triples, list(levels))
        self._metrics.batch(total, len(batch))
        notes = [note for level in dict.fromkeys(levels) if (note := self._caution(level)) is not None]
        texts, start = [], 0
        for one, size in zip(asked, sizes, strict=True):
            told = as_lists(found, slice(start, start + size), one.single)
            start += size
            said = {"confidence": levels[0] if one.single else levels, **told, "notes": notes}
            texts.append(to_text(said))
        return texts

    def _give(self, batch: Sequence[Waiting], texts: Sequence[bytes]) -> None:
        for one, text in zip(batch, texts, strict=True):
            if not one.answer.done():
                one.answer.set_result(text)

    def _fail(self, batch: Sequence[Waiting], error: BaseException) -> None:
        for one in batch:
            if not one.answer.done():
                one.answer.set_exception(error)


# Labels to ids for small batches: labels asked before are remembered.

MOST = 1_000_000


class Lookup:
    """Ids of labels, -1 for an unknown one; `find` answers for those not seen before."""

    def __init__(self, find: Callable[[Sequence[str]], Ids]) -> None:
        self._find = find
        self._known: dict[str, int] = {}

    def ids(self, labels: Sequence[str]) -> Ids:
        """(n,) int32."""
        ids = np.fromiter(map(self._known.get, labels, repeat(-1)), np.int32, len(labels))
        missing = np.flatnonzero(ids < 0)
        if len(missing):
            new = [labels[place] for place in missing.tolist()]
            ids[missing] = found = self._find(new)
            if len(self._known) < MOST:
                self._known.update(
                    (label, one) for label, one in zip(new, found.tolist(), strict=True) if one >= 0
                )
        return ids


# Slower questions (completions, evidence) in a few threads, so that quick ones never wait behind them.

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


# Threads that come with the first work and go when the service stops, however often it is started.


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
