"""The model answers what costs little at once, and what costs much in slices, so that nobody waits long for others.

Seconds count, not triples: `Cost` knows from earlier calls how long a request will take.

- A small request is answered in the event loop, together with all that arrived in the same moment: handing it to a
  thread would take longer than answering it. Nobody waits for a batch to fill.
- Any other is cut into slices of some milliseconds that run in one thread. After each slice the next is taken from
  the request with the highest ratio of the time since it came to all its work. Shorter requests so go ahead of longer
  ones, but not for ever, since the ratio of a long one grows, too. Requests for the same levels share a slice.
- Candidates to choose from (`POST /v1/select`) are answered in slices, too, and placed in the same slice.
- What cannot be answered in time beside all that waits is refused at once.

>>> text = await Batcher(predictor, settings, metrics).answer(asked)     # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import chain
from math import ceil
from threading import Lock
from typing import NamedTuple

import numpy as np

from unkgcp.conformal.selection import Places
from unkgcp.graph.facts import Triples
from unkgcp.run.answers import answer, as_lists
from unkgcp.run.choosing import Chooser
from unkgcp.run.predictor import Predictor
from unkgcp.service.limits import Problem, Settings, Threads
from unkgcp.service.lookups import Lookup
from unkgcp.service.middleware import Metrics
from unkgcp.service.request_body import Asked, to_text

SMALL = 0.002  # seconds of a request that is answered in the event loop
TOGETHER = 0.004  # seconds of small requests that are answered by one call there
SLICE = 0.01  # seconds of one slice of a larger request
MOST_NOTES = 10_000  # levels whose notes are remembered
PROBES = ((1, 1), (32, 1), (32, None))  # triples and levels (None: the most allowed) of the first calls
TOO_LATE = Problem(503, "the model is too busy to answer in time; try again later")
STOPPING = Problem(503, "the service is stopping; try again later")

Columns = dict[str, bytes]
"""The JSON of some rows of each column, without the brackets around it."""


class Waiting:
    """A request that waits for its answer, or for the rest of it."""

    __slots__ = ("answer", "arrived", "asked", "begun", "chooser", "notes", "parts", "places")

    def __init__(
        self, asked: Asked, answer: asyncio.Future[bytes], arrived: float, chooser: Chooser | None = None
    ) -> None:
        self.asked, self.answer, self.arrived = asked, answer, arrived
        self.chooser = chooser  # of candidates, which are placed besides being answered
        self.places: list[Places] = []
        self.begun = 0  # triples that are answered or in the slice on its way
        self.parts: list[Columns] = []
        self.notes: list[str] = []

    @property
    def left(self) -> int:
        return len(self.asked.head) - self.begun

    @property
    def levels(self) -> int:
        return len(self.asked.levels)

    @property
    def works(self) -> int:
        """How often the work of an answer is done: a candidate is also placed, which takes no longer than to answer."""
        return 1 if self.chooser is None else 2

    def like(self, other: Waiting) -> bool:
        """Whether one call of the model can answer rows of both."""
        return self.asked.levels == other.asked.levels and self.chooser is other.chooser


class Part(NamedTuple):
    """Some rows of a request in a call of the model."""

    of: Waiting
    rows: slice

    @property
    def size(self) -> int:
        return int(self.rows.stop - self.rows.start)


class Batcher:
    """Answers requests of one event loop."""

    def __init__(self, predictor: Predictor, settings: Settings, metrics: Metrics) -> None:
        self._predictor, self._settings, self._metrics = predictor, settings, metrics
        self.cost = Cost()
        self._small: deque[Waiting] = deque()
        self._queue: list[Waiting] = []
        self._rows = 0  # triples that wait
        self._gathering = self._slicing = False
        self._threads = Threads(1, "model")
        vocabulary = predictor.model.vocabulary
        self._entities, self._relations = Lookup(vocabulary.entity_ids), Lookup(vocabulary.relation_ids)
        self._notes: dict[float, str | None] = {}  # by level; for some methods they take a while

    def measure(self, triple: tuple[str, str, str]) -> None:
        """Ask for one triple a few times, so that the cost is known before the first request."""
        head, relation, tail = triple
        for _ in range(2):
            self.cost = Cost()  # the second time counts: in the first, much is loaded and compiled
            for size, levels in PROBES:
                level = tuple(np.linspace(0.5, 0.95, levels or self._settings.max_levels).tolist())
                asked = Asked((head,) * size, (relation,) * size, (tail,) * size, level, False)
                self._columns([Part(Waiting(asked, None, 0.0), slice(0, size))])  # type: ignore[arg-type]

    async def answer(self, asked: Asked) -> bytes:
        """The JSON of the answers, in the order of the triples."""
        loop = asyncio.get_running_loop()
        return await self._wait(Waiting(asked, loop.create_future(), time.monotonic()), loop)

    async def place(self, asked: Asked, chooser: Chooser) -> tuple[bytes, Places]:
        """The same for candidates to choose from, and the place of each: (n,)."""
        loop = asyncio.get_running_loop()
        waiting = Waiting(asked, loop.create_future(), time.monotonic(), chooser)
        return await self._wait(waiting, loop), np.concatenate(waiting.places)

    async def _wait(self, waiting: Waiting, loop: asyncio.AbstractEventLoop) -> bytes:
        asked = waiting.asked
        seconds = self._work(waiting)
        small = (
            seconds <= SMALL
            and waiting.chooser is None
            and all(level in self._notes for level in asked.levels)
        )
        self._admit(asked, seconds, small)
        self._rows += len(asked.head)
        if small:
            self._small.append(waiting)
            if not self._gathering:
                self._gathering = True
                loop.call_soon(self._gather, loop, 0)
        else:
            self._queue.append(waiting)
            if not self._slicing:
                self._slice()
        timer = loop.call_later(self._settings.answer_seconds, self._fail, [waiting], TOO_LATE)
        try:
            return await waiting.answer
        finally:
            timer.cancel()
            self._rows -= len(asked.head)

    def close(self) -> None:
        self._threads.close()

    def _admit(self, asked: Asked, seconds: float, small: bool) -> None:
        """Refuse what would not be answered in time: alone, or beside what waits already."""
        limit, size = self._settings.answer_seconds, len(asked.head)
        if self.cost.known and seconds > limit:
            fits = max(1, int(size * limit / seconds / 2))
            raise Problem(
                422,
                f"{size:,} triples would take this run about {seconds:.0f} seconds, more than {limit:g}; "
                f"send at most {fits:,} in one request",
            )
        # the thread is shared: until this one is answered, each other one gets about as much of it
        before = 0.0 if small else sum(min(self._left(one), seconds) for one in self._queue)
        if (before and before + seconds > limit) or self._rows + size > self._settings.max_waiting:
            pause = max(1, ceil(min(before, limit)))
            raise Problem(
                429, f"too much is waiting; try again in {pause} seconds", {"Retry-After": str(pause)}
            )

    def _left(self, one: Waiting) -> float:
        """Seconds of work that a request still needs."""
        return one.works * self.cost.seconds(one.left, one.levels)

    def _work(self, one: Waiting) -> float:
        """Seconds of work of a whole request."""
        return one.works * self.cost.seconds(len(one.asked.head), one.levels)

    # small requests, in the event loop

    def _gather(self, loop: asyncio.AbstractEventLoop, before: int) -> None:
        """Let those that arrived in the same moment, and are still on their way here, join the call."""
        if before < len(self._small) and self._seconds(self._small) < TOGETHER:
            loop.call_soon(self._gather, loop, len(self._small))
            return
        batch = self._take_small()
        if batch:
            whole = [Part(one, slice(0, len(one.asked.head))) for one in batch]
            try:
                for one, columns in zip(batch, self._columns(whole), strict=True):
                    self._give(one, [columns])
            except Exception as error:
                self._fail(batch, error)
        if self._small:  # the event loop does other things in between
            loop.call_soon(self._gather, loop, len(self._small))
        else:
            self._gathering = False

    def _take_small(self) -> list[Waiting]:
        """The first small requests that ask for the same levels, as many as one call answers quickly."""
        batch: list[Waiting] = []
        later: list[Waiting] = []
        while self._small:
            one = self._small.popleft()
            if one.answer.done():  # its client has gone, or has waited too long
                continue
            if batch and one.asked.levels != batch[0].asked.levels:
                later.append(one)
                continue
            batch.append(one)
            if self._seconds(batch) > TOGETHER:
                break
        self._small.extendleft(reversed(later))
        return batch

    def _seconds(self, batch: Sequence[Waiting]) -> float:
        return self.cost.seconds(sum(one.left for one in batch), max(one.levels for one in batch))

    # larger ones, in slices

    def _slice(self) -> None:
        """Have the thread answer the next slice; when it is done, the next one."""
        parts = self._take()
        self._slicing = bool(parts)
        if parts:
            work = self._threads.run(partial(self._columns, parts))
            work.add_done_callback(partial(self._finish, parts))

    def _take(self) -> list[Part]:
        """The next slice: rows of the request that has waited longest for so much work, and of others like it."""
        self._queue = [one for one in self._queue if not one.answer.done()]
        if not self._queue:
            return []
        now = time.monotonic()
        order = sorted(self._queue, key=lambda one: (one.arrived - now) / max(self._work(one), 1e-9))
        first = order[0]
        room = self.cost.triples(SLICE / first.works, first.levels)
        parts = []
        for one in order:
            if room and one.like(first):
                rows = slice(one.begun, min(one.begun + room, len(one.asked.head)))
                parts.append(Part(one, rows))
                room -= parts[-1].size
                one.begun = rows.stop
        whole = {id(part.of) for part in parts if not part.of.left}
        self._queue = [one for one in self._queue if id(one) not in whole]
        return parts

    def _finish(self, parts: list[Part], done: asyncio.Future[list[Columns]]) -> None:
        of = [part.of for part in parts]
        if done.cancelled():
            self._fail([*of, *self._queue], STOPPING)
        elif (error := done.exception()) is not None:
            self._fail(of, error)
        else:
            for one, columns in zip(of, done.result(), strict=True):
                one.parts.append(columns)
                if not one.left:
                    self._give(one, one.parts)
        self._slice()

    # what both do

    def _columns(self, parts: Sequence[Part]) -> list[Columns]:
        """One call of the model for all parts, then the text of each."""
        start = time.perf_counter()
        levels = parts[0].of.asked.levels
        sizes = [part.size for part in parts]
        total = sum(sizes)
        # heads and tails of all parts in one lookup, first all heads, then all tails
        heads = [part.of.asked.head[part.rows] for part in parts]
        tails = [part.of.asked.tail[part.rows] for part in parts]
        entity = self._entities.ids(list(chain.from_iterable([*heads, *tails])))
        relation = self._relations.ids(
            list(chain.from_iterable([part.of.asked.relation[part.rows] for part in parts]))
        )
        triples = Triples(entity[:total], relation, entity[total:])
        found = answer(self._predictor, triples, list(levels))
        texts, first = [], 0
        for part, size in zip(parts, sizes, strict=True):
            told = as_lists(found, slice(first, first + size), part.of.asked.single)
            texts.append({name: to_text(column)[1:-1] for name, column in told.items()})
            first += size
        notes = self._notes_of(levels)
        for part in parts:
            part.of.notes = notes
        self.cost.learn(total, len(levels), time.perf_counter() - start)
        self._metrics.batch(total, len(parts))
        chooser = parts[0].of.chooser
        if chooser is not None:
            ends = np.cumsum(sizes)[:-1]
            for part, places in zip(parts, np.split(chooser.places(triples), ends), strict=True):
                part.of.places.append(places)
        return texts

    def _notes_of(self, levels: Sequence[float]) -> list[str]:
        """What to know about these levels."""
        if len(self._notes) > MOST_NOTES:
            self._notes = {}
        notes = self._notes
        for level in levels:
            if level not in notes:
                notes[level] = self._predictor.method.caution(level)
        return [note for level in dict.fromkeys(levels) if (note := notes[level]) is not None]

    def _give(self, one: Waiting, parts: Sequence[Columns]) -> None:
        """Put the text of an answer together."""
        if one.answer.done():
            return
        asked = one.asked
        said = [b'{"confidence":' + to_text(asked.levels[0] if asked.single else asked.levels)]
        said += [b'"%s":[%s]' % (name.encode(), b",".join(part[name] for part in parts)) for name in parts[0]]
        said.append(b'"notes":' + to_text(one.notes) + b"}")
        one.answer.set_result(b",".join(said))

    def _fail(self, batch: Sequence[Waiting], error: BaseException) -> None:
        for one in batch:
            if not one.answer.done():
                one.answer.set_exception(error)


# What a call of the model costs, learned from the calls themselves. Methods differ a thousandfold: a triple takes a
# microsecond with `unkgcp` and milliseconds with `cv+` over many facts. The number of triples therefore says little
# about the work that a request makes; the seconds of earlier calls do.

LARGEST = 1 << 16  # triples of one call: its memory stays small
NEW = 0.25  # weight of the latest call in a running mean
GUESS = 1e-3  # seconds for a triple at one level before anything was measured: rather too slow than too quick


class Cost:
    """Seconds for a triple, by the number of levels and the size of the call, each a running mean.

    >>> cost = Cost()
    >>> cost.learn(triples=64, levels=1, seconds=0.01)
    >>> round(cost.seconds(640, 1), 6), cost.triples(0.05, 1)
    (0.1, 256)

    A call has a fixed cost beside that of its triples, so that a triple of a large call is the cheaper one. Whatever
    was not measured is taken from smaller calls, or from more levels, and thus rather too high: a slow first
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
    smallest = min(rates)  # a larger call took no less than a smaller one will
    return 2 * smallest * rates[smallest]
