"""One run behind the port: the questions that the service answers about it, as plain values for JSON.

All numbers come from the run's `Predictor`. Requests for intervals share one thread, and one call of the model for
whatever waits: a large request asks piece by piece, so that small ones are answered in between; pieces take turns, and
the one whose turn it is also answers those that wait for the same levels. Every other question is a method that may be
called from several threads, and `ask` has one of them do so.

>>> run = ServedRun("run", predictor, settings, metrics)                     # doctest: +SKIP
>>> columns = await run.intervals(triples, [0.8, 0.9])                       # doctest: +SKIP
>>> response = await run.ask(run.distribution, "TP53", "binding", "MDM2")    # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from pathlib import PurePath
from typing import Any

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from unkgcp._version import __version__
from unkgcp.errors import InputError
from unkgcp.graph.facts import Triples
from unkgcp.methods.intervals import Intervals
from unkgcp.run.answers import LABELS, answer, as_lists, evidence_of, masses, without
from unkgcp.run.chooser import Choice, Chooser
from unkgcp.run.completion import presumption
from unkgcp.run.predictor import Predictor
from unkgcp.service.gate import Metrics
from unkgcp.service.lookups import LabelSearch, Surroundings
from unkgcp.service.schema import DEFAULT_LEVEL, AnswersRequest, SelectRequest, quoted
from unkgcp.service.settings import Settings

CALL = 1024  # triples of one call of the model, which cost about four times as much as a hundred
# Training facts that one request for `effects` goes through. For each fact that is left out these are all of them.
LEFT_OUT_WORK = 2_000_000
MAX_LEFT_OUT = 12
SET_FIGURES = ("confidence", "size", "candidates", "known", "status", "calibration", "promise", "notes")
KIND_FIGURES = ("n", "coverage", "sharpness", "interval_score")


Confidence = float | list[float]
Columns = dict[str, list[Any]]


@dataclass(slots=True, eq=False)
class Piece:
    """Triples of one request, and their answers as soon as there are some."""

    triples: Sequence[Sequence[str]]
    confidence: Confidence
    answers: Columns | None = None


class ServedRun:
    """Answers from one run, all from one event loop.

    It has answered once, so that whatever is loaded, compiled or sorted at first use is there before the first request.
    """

    def __init__(self, name: str, predictor: Predictor, settings: Settings, metrics: Metrics) -> None:
        self.name, self.predictor, self.settings, self._metrics = name, predictor, settings, metrics
        vocabulary, facts = predictor.model.vocabulary, predictor.facts
        self._labels = {"entities": vocabulary.entities, "relations": vocabulary.relations}
        self._search = {kind: LabelSearch(labels) for kind, labels in self._labels.items()}
        self._surroundings = None if facts is None else Surroundings(facts.graph(vocabulary), vocabulary)
        self.about = self._about()
        self._caution = lru_cache(256)(predictor.method.caution)
        self._waiting: list[Piece] = []
        self._waiting_triples = 0
        self._turn = asyncio.Lock()  # first come, first served
        self._model_thread = ThreadPoolExecutor(1, f"unkgcp-model-{name}")
        self._threads = ThreadPoolExecutor(3, f"unkgcp-{name}")
        self._working: set[asyncio.Future[Response]] = set()
        for head, relation, tail in self.about["examples"][:1]:
            predictor.interval([(head, relation, tail)])
            with suppress(InputError):  # a label such as "?" cannot be completed
                predictor.complete(head, relation, k=1)

    async def intervals(self, triples: Sequence[Sequence[str]], confidence: Confidence) -> Columns:
        """The columns of the answers, in the order of the triples."""
        if self._waiting_triples + len(triples) > self.settings.max_waiting:
            raise _busy("too many triples are waiting")
        self._waiting_triples += len(triples)
        try:
            starts = range(0, max(len(triples), 1), CALL)
            answers = [await self._answered(Piece(triples[i : i + CALL], confidence)) for i in starts]
        finally:
            self._waiting_triples -= len(triples)
        return {name: list(chain.from_iterable(part[name] for part in answers)) for name in answers[0]}

    async def _answered(self, piece: Piece) -> Columns:
        self._waiting.append(piece)
        try:
            async with self._turn:
                if piece.answers is None:
                    waiting = (one for one in self._waiting if one is not piece and one.answers is None)
                    alike = [piece, *(one for one in waiting if one.confidence == piece.confidence)]
                    sizes = accumulate(len(one.triples) for one in alike)
                    pieces = [one for one, size in zip(alike, sizes, strict=True) if size <= CALL]
                    # where this request is given up, or its call fails, the others ask when it is their turn
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._model_thread, self._call, pieces)
        finally:
            self._waiting.remove(piece)
        assert piece.answers is not None
        return piece.answers

    def _call(self, pieces: Sequence[Piece]) -> None:
        """Give all pieces their answers, by one call of the model in its thread."""
        triples = [triple for piece in pieces for triple in piece.triples]
        labels = ([triple[place] for triple in triples] for place in range(3))
        ids = Triples(*self.predictor.model.vocabulary.triple_ids(*labels))
        columns = as_lists(answer(self.predictor, ids, pieces[0].confidence))
        self._metrics.called(self.name, len(pieces), columns)
        ends = accumulate((len(piece.triples) for piece in pieces), initial=0)
        for piece, (i, j) in zip(pieces, pairwise(ends), strict=True):
            piece.answers = {name: column[i:j] for name, column in columns.items()}

    async def ask(self, question: Callable[..., Any], *arguments: Any, **options: Any) -> Response:
        """The JSON of what a question gives, made in one of the threads."""
        if len(self._working) >= self.settings.max_questions:
            raise _busy("too many questions are waiting")
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, lambda: json_of(question(*arguments, **options)))
        # a thread cannot be stopped: it counts until it ends, even when nobody waits for it any more
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        return await asyncio.shield(future)

    def _about(self) -> dict[str, Any]:
        """What is being served."""
        predictor, method, facts = self.predictor, self.predictor.method, self._surroundings
        data = predictor.provenance.get("data", {}).get("name")
        return {
            "version": __version__,
            "run": self.name,
            # without its folder, which clients need not know
            "data": None if data is None else PurePath(str(data)).name,
            "model": predictor.model.called,
            "method": method.name,
            "guarantee": predictor.guarantee,
            "calibration_facts": method.size,
            "entities": len(self._labels["entities"]),
            "relations": len(self._labels["relations"]),
            "facts": None if facts is None else len(facts.facts),
            "fitted": predictor.provenance.get("created"),
            "kinds": figures_by_kind(predictor.metrics),
            "examples": [] if facts is None else facts.examples(),
            "max_triples": self.settings.max_triples,
            "max_body": self.settings.max_body,
        }

    def labels(self, kind: str, prefix: str, limit: int, anywhere: bool) -> dict[str, Any]:
        """Labels of `entities` or `relations` that begin with (or hold) what was typed."""
        ids, more = self._search[kind].find(prefix, limit, anywhere)
        surroundings = self._surroundings
        facts = [None] * len(ids) if surroundings is None else surroundings.counts[kind][ids].tolist()
        labels = self._labels[kind].take(ids).to_pylist()
        entries = [{"label": label, "facts": count} for label, count in zip(labels, facts, strict=True)]
        return {"labels": entries, "more": more}

    def notes(self, confidence: float | list[float]) -> list[str]:
        """What to know about intervals at these levels."""
        levels = confidence if isinstance(confidence, list) else [confidence]
        return list(dict.fromkeys(filter(None, map(self._caution, levels))))

    def complete(self, head: str | None, relation: str, tail: str | None, **options: Any) -> dict[str, Any]:
        """The columns of the best completions; `options` are those of `Predictor.complete`."""
        best = self.predictor.complete(head, relation, tail, **options)
        assert best.labels is not None
        labels = {name: best.labels.column(name).to_pylist() for name in LABELS}
        known = {} if self._surroundings is None else self._surroundings.known(head, relation, tail)
        return {
            "confidence": options["confidence"],
            **labels,
            **as_lists(best),
            "known": [known.get(label) for label in labels["tail" if tail is None else "head"]],
            "presumption": presumption(self.predictor),
            "notes": self.notes(options["confidence"]),
        }

    def answers(self, request: AnswersRequest) -> dict[str, Any]:
        """The answer set of a question. The first question of its kind waits for a calibration."""
        options = request.model_dump(include={"confidence", "k", "min_confidence", "per"})
        answer_set = self.predictor.answers(request.head, request.relation, request.tail, **options)
        members = zip(answer_set.entities.to_pylist(), answer_set.share.tolist(), strict=True)
        listed = [{"entity": entity, "share": share} for entity, share in members]
        return {"answers": listed, **{name: getattr(answer_set, name) for name in SET_FIGURES}}

    def select(self, request: SelectRequest) -> dict[str, Any]:
        """The columns of `interval`, with a p-value for each candidate and whether it is selected."""
        chooser = Chooser(self.predictor, Choice.of(request.condition, request.fdr))
        triples = chooser.triples([(head, relation, tail) for head, relation, tail in request.triples])
        places = chooser.places(triples)
        cuts = chooser.cuts(chooser.reference.count(places))
        return {
            "confidence": request.confidence,
            **as_lists(chooser.answering(cuts, request.confidence)(triples, places)),
            "condition": str(chooser.choice.condition),
            "fdr": request.fdr,
            "guarantee": self.predictor.as_fitted(chooser.promise),
            "notes": self.notes(request.confidence),
        }

    def evidence(self, head: str, relation: str, tail: str, limit: int) -> dict[str, Any]:
        """The training facts around a query."""
        if self._surroundings is None:
            raise HTTPException(404, "this run holds no training facts; fit it again to have them")
        return self._surroundings.around(head, relation, tail, limit)

    def distribution(self, head: str, relation: str, tail: str) -> dict[str, Any]:
        """What the model believes of the confidence of a triple."""
        query = (head, relation, tail)
        self._answer(query, DEFAULT_LEVEL)
        cells = zip(*(column.tolist() for column in masses(self.predictor, query)), strict=True)
        return {"cells": [{"low": low, "high": high, "mass": mass} for low, high, mass in cells]}

    def effects(self, head: str, relation: str, tail: str, level: float) -> dict[str, Any]:
        """What would be answered without each of the closest training facts, those that change it most first."""
        query = (head, relation, tail)
        now = self._answer(query, level)
        train, vocabulary = evidence_of(self.predictor).evidence.train, self.predictor.model.vocabulary
        surroundings = Surroundings(train, vocabulary)
        if len(train) > LEFT_OUT_WORK:
            raise HTTPException(
                422,
                f"the run has {len(train):,} training facts; leaving one out is offered up to {LEFT_OUT_WORK:,}",
            )
        close = surroundings.closest(*query)
        tried = close[: min(MAX_LEFT_OUT, LEFT_OUT_WORK // len(train))]
        others = without(self.predictor, query, tried.tolist(), level)
        effects = [
            {**fact, **_ends(other), "change": float(now.score[0]) - float(other.score[0])}
            for fact, other in zip(surroundings.named(tried), others, strict=True)
        ]
        effects.sort(key=lambda effect: -abs(effect["change"]))
        note = (
            f"{len(tried):,} of {len(close):,} training facts around this triple were left out, one at a time, of what "
            "the model is told; it was not learned again"
        )
        return {**_ends(now), "facts": effects, "note": note}

    def _answer(self, query: tuple[str, str, str], level: float) -> Intervals:
        """The answer to a triple that has a distribution and training facts; 404 for another."""
        try:
            evidence_of(self.predictor)
        except InputError as error:
            raise HTTPException(404, str(error)) from None
        answers = answer(self.predictor, [query], level)
        if answers.status[0] != "ok":
            what = answers.status[0].removeprefix("unknown-")
            raise HTTPException(404, f"no training fact has this {what} in {quoted(query)}; see /v1/entities")
        return answers


def _busy(sentence: str) -> HTTPException:
    return HTTPException(503, f"{sentence}; try again in a second", {"Retry-After": "1"})


def json_of(value: Any) -> Response:
    """JSON of plain values; what is not finite becomes null."""
    return Response(to_json(value, inf_nan_mode="null"), media_type="application/json")


def _ends(answers: Intervals) -> dict[str, float]:
    """Score and interval of a single answer at one level."""
    return {name: float(getattr(answers, name)[0]) for name in ("score", "lower", "upper")}


def figures_by_kind(metrics: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Figures of the test facts by kind of query, at the level closest to 0.9; nothing for a run without them."""
    levels = [level for level in metrics.get("levels", []) if level.get("positive", {}).get("kinds")]
    if not levels:
        return {}
    level = min(levels, key=lambda one: abs(one["confidence"] - DEFAULT_LEVEL))
    return {
        kind: {"confidence": level["confidence"], **{name: figures.get(name) for name in KIND_FIGURES}}
        for kind, figures in level["positive"]["kinds"].items()
    }
