"""How requests for intervals share the model: one thread, and one call for whatever waits.

A large request asks piece by piece, so that small ones are answered in between. Pieces take turns; the one whose turn
it is also answers those that wait for the same levels, in one call of the model. A piece has as many triples as the
model answers in some milliseconds, by its latest calls.

>>> columns = await Batcher("run", predictor, settings, metrics).answer(triples, [0.9])     # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from starlette.exceptions import HTTPException

from unkgcp.run.answers import answer, as_lists
from unkgcp.run.predictor import Predictor
from unkgcp.service.settings import Settings
from unkgcp.service.telemetry import Metrics

CALL_SECONDS = 0.03  # of one call, about
LARGEST_CALL = 1 << 14  # triples
Confidence = float | list[float]
Columns = dict[str, list[Any]]


def busy(sentence: str) -> HTTPException:
    return HTTPException(503, f"{sentence}; try again in a second", {"Retry-After": "1"})


@dataclass(slots=True, eq=False)
class Piece:
    """Triples of one request, and their answers as soon as there are some."""

    triples: Sequence[Sequence[str]]
    confidence: Confidence
    answers: Columns | None = None


class Batcher:
    """Answers the requests for one run, all from one event loop."""

    def __init__(self, name: str, predictor: Predictor, settings: Settings, metrics: Metrics) -> None:
        self.name, self.predictor, self.settings, self.metrics = name, predictor, settings, metrics
        self._waiting: list[Piece] = []
        self._waiting_triples = 0
        self._turn = asyncio.Lock()  # first come, first served
        self._thread = ThreadPoolExecutor(1, "unkgcp-model")
        self._seconds_per_triple = 1e-4

    async def answer(self, triples: Sequence[Sequence[str]], confidence: Confidence) -> Columns:
        """The columns of the answers, in the order of the triples."""
        if self._waiting_triples + len(triples) > self.settings.max_waiting:
            raise busy("too many triples are waiting")
        self._waiting_triples += len(triples)
        columns: Columns = {}
        answered = 0
        try:
            while not columns or answered < len(triples):
                piece = Piece(triples[answered : answered + self._call_size()], confidence)
                for name, column in (await self._answered(piece)).items():
                    columns.setdefault(name, []).extend(column)
                answered += len(piece.triples)
        finally:
            self._waiting_triples -= len(triples)
        return columns

    def _call_size(self) -> int:
        """How many triples a call may have."""
        return max(16, min(LARGEST_CALL, int(CALL_SECONDS / self._seconds_per_triple)))

    async def _answered(self, piece: Piece) -> Columns:
        self._waiting.append(piece)
        try:
            async with self._turn:
                if piece.answers is None:
                    # where this request is given up, or its call fails, the others ask when it is their turn
                    pieces = self._together_with(piece)
                    loop = asyncio.get_running_loop()
                    replies = await loop.run_in_executor(self._thread, self._call, pieces)
                    for one, columns in zip(pieces, replies, strict=True):
                        one.answers = columns
        finally:
            self._waiting.remove(piece)
        assert piece.answers is not None
        return piece.answers

    def _together_with(self, first: Piece) -> list[Piece]:
        """The piece, and those that wait for the same levels, until a call has as many triples as it may have."""
        pieces, room = [first], self._call_size() - len(first.triples)
        for piece in self._waiting:
            alike = piece is not first and piece.answers is None and piece.confidence == first.confidence
            if alike and room > 0:
                pieces.append(piece)
                room -= len(piece.triples)
        return pieces

    def _call(self, pieces: Sequence[Piece]) -> list[Columns]:
        """One call of the model, in its thread; the columns of each piece."""
        start = time.perf_counter()
        triples = [(h, r, t) for piece in pieces for h, r, t in piece.triples]
        columns = as_lists(answer(self.predictor, triples, pieces[0].confidence))
        self.metrics.called(self.name, len(pieces), columns)
        seconds = (time.perf_counter() - start) / max(len(triples), 1)
        self._seconds_per_triple += 0.25 * (seconds - self._seconds_per_triple)
        ends = list(accumulate((len(piece.triples) for piece in pieces), initial=0))
        return [{name: column[i:j] for name, column in columns.items()} for i, j in pairwise(ends)]
