"""How requests for intervals share the model: small ones are answered at once, large ones in slices.

What counts is seconds, not triples: `Cost` knows from earlier calls how long a request will take.

- A small request is answered in the event loop, together with all that arrived in the same moment, because handing it
  to a thread would take longer than answering it. No request waits for a batch to fill.
- Any other request is cut into slices of some milliseconds that run in one thread. Each slice is taken from the request
  with the highest ratio of the time since it came to all its work. Shorter requests therefore go ahead of longer ones,
  but not for ever, since the ratio of a long one grows too. Requests for the same levels share a slice.
- Candidates to choose from (`POST /v1/select`) are answered in slices too, and placed in the same slice.
- A request that cannot be answered in time beside all that waits is refused at once.

>>> text = await Batcher(predictor, settings, metrics).answer(asked)     # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import ceil
from typing import NamedTuple

import numpy as np

from unkgcp.conformal.selection import Places
from unkgcp.graph.facts import Triples
from unkgcp.run.answers import answer, as_lists
from unkgcp.run.chooser import Chooser
from unkgcp.run.predictor import Predictor
from unkgcp.service.limits import Cost, Metrics, Problem, Settings, Threads
from unkgcp.service.lookups import Lookup
from unkgcp.service.requests import Asked, to_text

SMALL = 0.002  # seconds of a request that is answered in the event loop
TOGETHER = 0.004  # seconds of small requests that are answered by one call there
SLICE = 0.01  # seconds of one slice of a larger request
MOST_NOTES = 10_000  # levels whose notes are remembered
PROBES = ((1, 1), (32, 1), (32, None))  # triples and levels (None: the most allowed) of the first calls
TOO_LATE = Problem(503, "the model is too busy to answer in time; try again later")
STOPPING = Problem(503, "the service is stopping; try again later")

Columns = dict[str, bytes]
"""The JSON of some rows of each column, without the brackets around it."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that waits for its answer, or for the rest of it.

    chooser: for candidates only, which are placed besides being answered; `places` are those found so far.
    begun: triples that are answered or in the slice that is being answered.
    """

    asked: Asked
    answer: asyncio.Future[bytes]
    arrived: float
    chooser: Chooser | None = None
    places: list[Places] = field(default_factory=list)
    begun: int = 0
    parts: list[Columns] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.asked.head)

    @property
    def left(self) -> int:
        return self.size - self.begun

    @property
    def levels(self) -> int:
        return len(self.asked.levels)

    @property
    def works(self) -> int:
        """How often the work of an answer is done: placing a candidate takes at most as long as answering it."""
        return 1 if self.chooser is None else 2

    def like(self, other: Waiting) -> bool:
        """Whether one call of the model can answer rows of both."""
        return self.asked.levels == other.asked.levels and self.chooser is other.chooser


class Part(NamedTuple):
    """Some rows of a request, to be answered in one call of the model."""

    of: Waiting
    rows: slice

    @property
    def size(self) -> int:
        return int(self.rows.stop - self.rows.start)


class Batcher:
    """Answers the requests for one run, all from one event loop."""

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
            self.cost = Cost()  # only the second time counts, since much is loaded and compiled in the first
            for size, levels in PROBES:
                level = tuple(np.linspace(0.5, 0.95, levels or self._settings.max_levels).tolist())
                asked = Asked((head,) * size, (relation,) * size, (tail,) * size, level, False)
                self._columns([Part(Waiting(asked, None, 0.0), slice(0, size))])  # type: ignore[arg-type]

    async def answer(self, asked: Asked) -> bytes:
        """The JSON of the answers, in the order of the triples."""
        return (await self._answered(asked)).answer.result()

    async def place(self, asked: Asked, chooser: Chooser) -> tuple[bytes, Places]:
        """The same for candidates to choose from, and the place of each: (n,)."""
        waiting = await self._answered(asked, chooser)
        return waiting.answer.result(), np.concatenate(waiting.places)

    async def _answered(self, asked: Asked, chooser: Chooser | None = None) -> Waiting:
        """The request when its answer is there."""
        loop = asyncio.get_running_loop()
        waiting = Waiting(asked, loop.create_future(), time.monotonic(), chooser)
        seconds = self._work(waiting)
        small = seconds <= SMALL and chooser is None and all(level in self._notes for level in asked.levels)
        self._admit(waiting.size, seconds, small)
        self._rows += waiting.size
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
            await waiting.answer
        finally:
            timer.cancel()
            self._rows -= waiting.size
        return waiting

    def close(self) -> None:
        self._threads.close()

    def _admit(self, size: int, seconds: float, small: bool) -> None:
        """Refuse what would not be answered in time: alone, or beside what waits already."""
        limit = self._settings.answer_seconds
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
            sentence = f"too much is waiting; try again in {pause} seconds"
            raise Problem(429, sentence, {"Retry-After": str(pause)})

    def _left(self, one: Waiting) -> float:
        """Seconds of work that a request still needs."""
        return one.works * self.cost.seconds(one.left, one.levels)

    def _work(self, one: Waiting) -> float:
        """Seconds of work of a whole request."""
        return one.works * self.cost.seconds(one.size, one.levels)

    # small requests, in the event loop

    def _gather(self, loop: asyncio.AbstractEventLoop, before: int) -> None:
        """Answer the small requests. While more of them keep arriving, wait for these to join the call."""
        if before < len(self._small) and self._seconds(self._small) < TOGETHER:
            loop.call_soon(self._gather, loop, len(self._small))
            return
        batch = self._take_small()
        if batch:
            whole = [Part(one, slice(0, one.size)) for one in batch]
            try:
                for one, columns in zip(batch, self._columns(whole), strict=True):
                    self._give(one, [columns])
            except Exception as error:
                self._fail(batch, error)
        if (
            self._small
        ):  # called again, and not in a loop here, so that the event loop does other things in between
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
                rows = slice(one.begun, min(one.begun + room, one.size))
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
