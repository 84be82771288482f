"""The questions about one run that the service answers beside intervals, as plain values for JSON.

`Knowledge` puts the predictor, the label searches and the training facts together once, when the service starts.
`Candidates` chooses from a list of triples for `POST /v1/select`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unkgcp._version import __version__
from unkgcp.conformal.selection import Places, Range
from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph
from unkgcp.graph.known_facts import Facts
from unkgcp.methods.intervals import Intervals
from unkgcp.run.answers import LABELS, answer, as_lists, evidence_of, known_facts, masses, without
from unkgcp.run.chooser import Choice, Chooser, Selector
from unkgcp.run.completion import EXPECTED, SHORTLIST, presumption
from unkgcp.run.predictor import Predictor
from unkgcp.run.questions import completer_of
from unkgcp.service.batching import Batcher
from unkgcp.service.limits import Jobs, Problem, Settings, quoted
from unkgcp.service.lookups import LabelSearch, Surroundings, with_labels
from unkgcp.service.requests import DEFAULT_LEVEL, Selecting, to_text

# Training facts that one request for `without` goes through. For each fact that is left out these are all of them.
LEFT_OUT = 2_000_000
MOST_LEFT_OUT = 12
KEPT = 16  # conditions whose calibration facts stay scored


class Knowledge:
    """Answers from one run; every method may be called from several threads."""

    def __init__(self, predictor: Predictor, settings: Settings) -> None:
        self.predictor, self._settings = predictor, settings
        vocabulary = predictor.model.vocabulary
        self._labels = {"entities": vocabulary.entities, "relations": vocabulary.relations}
        self._search = {kind: LabelSearch(labels) for kind, labels in self._labels.items()}
        facts = predictor.facts
        self._surroundings = None if facts is None else Surroundings(predictor, facts)

    def about(self) -> dict[str, Any]:
        """What is being served."""
        predictor, method = self.predictor, self.predictor.method
        data = predictor.provenance.get("data", {}).get("name")
        return {
            "version": __version__,
            # without its folder, which clients need not know
            "data": None if data is None else PurePath(str(data)).name,
            "model": predictor.model.called,
            "method": method.name,
            "guarantee": predictor.guarantee,
            "calibration_facts": method.size,
            "entities": len(self._labels["entities"]),
            "relations": len(self._labels["relations"]),
            "facts": None if self._surroundings is None else self._surroundings.size,
            "max_triples": self._settings.max_triples,
            "max_k": self._settings.max_k,
        }

    def labels(self, kind: str, prefix: str, limit: int, anywhere: bool) -> dict[str, Any]:
        """Labels of `entities` or `relations` that begin with (or hold) what was typed."""
        found = self._search[kind].find(prefix, limit, anywhere)
        if self._surroundings is None:
            facts = [None] * len(found.ids)
        else:
            facts = self._surroundings.counts[kind][found.ids].tolist()
        labels = self._labels[kind].take(found.ids).to_pylist()
        told = zip(labels, facts, strict=True)
        return {"labels": [{"label": label, "facts": count} for label, count in told], "more": found.more}

    def complete(
        self,
        head: str | None,
        relation: str,
        tail: str | None,
        *,
        levels: Sequence[float],
        exclude_known: bool,
        **options: Any,
    ) -> dict[str, Any]:
        """The best tails of (head, relation, ?) or heads of (?, relation, tail), each with its whole answer.

        One level gives plain numbers, several give a list for each completion, which are then ranked by the first.
        `options` are `k` and `rank_by` of `Predictor.complete`.
        """
        h, r, t = self._ids(head, relation, tail)
        if exclude_known and self._surroundings is None:
            raise Problem(404, "this run holds no training facts to exclude; fit it again to have them")
        level = levels[0] if len(levels) == 1 else list(levels)
        found = self.predictor.complete(
            head, relation, tail, confidence=level, exclude_known=exclude_known, **options
        )
        assert found.labels is not None
        labels = {name: found.labels.column(name).to_pylist() for name in LABELS}
        known = {} if self._surroundings is None else self._surroundings.known(h, r, t)
        places = self.predictor.model.vocabulary.entity_ids(labels["tail" if tail is None else "head"])
        columns = {**labels, **as_lists(found), "known": [known.get(place) for place in places.tolist()]}
        notes = [presumption(self.predictor)]
        notes += [self.predictor.method.caution(level) for level in dict.fromkeys(levels)]
        return {
            "confidence": level,
            "answers": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
            "notes": [note for note in notes if note is not None],
        }

    def answers(self, head: str | None, relation: str, tail: str | None, **options: Any) -> dict[str, Any]:
        """The answer set of (head, relation, ?) or (?, relation, tail), of which at most `k` are listed.

        `options` are those of `Predictor.answers`. The first question of its kind waits for a calibration.
        """
        self._ids(head, relation, tail)
        found = self.predictor.answers(head, relation, tail, **options)
        told = zip(found.entities.to_pylist(), found.share.tolist(), strict=True)
        return {
            "confidence": found.confidence,
            "min_confidence": options["min_confidence"],
            "size": found.size,
            "candidates": found.candidates,
            "everything": found.everything,
            "known": found.known,
            "answers": [
                {
                    "rank": rank,
                    "head": entity if head is None else head,
                    "relation": relation,
                    "tail": entity if tail is None else tail,
                    "share": share,
                }
                for rank, (entity, share) in enumerate(told, 1)
            ],
            "more": found.size > len(found),
            "calibration_facts": found.calibration,
            "promise": found.promise,
            "notes": found.notes,
        }

    def evidence(self, head: str, relation: str, tail: str, limit: int) -> dict[str, Any]:
        """The training facts around a query."""
        if self._surroundings is None:
            raise Problem(404, "this run holds no training facts; fit it again to have them")
        return self._surroundings.around(head, relation, tail, limit)

    def asked_by_completion(self, k: int, rank_by: str) -> int:
        """How many triples the method is asked for to find the best k, or could be asked for in the same time."""
        if completer_of(self.predictor) is not None:
            return max(k, EXPECTED)
        if self.predictor.method.own_answers:
            return max(k, SHORTLIST)
        return int(self.predictor.model.seen_entities.sum()) if rank_by == "lower" else k

    def distribution(self, head: str, relation: str, tail: str) -> dict[str, Any]:
        """What the model believes of the confidence of a triple."""
        self._checked(head, relation, tail)
        query = (head, relation, tail)
        told = answer(self.predictor, [query], DEFAULT_LEVEL)
        assert told.value is not None
        assert told.belief is not None
        cells = zip(*(column.tolist() for column in masses(self.predictor, query)), strict=True)
        return {
            "score": float(told.score[0]),
            "value": float(told.value[0]),
            "belief": float(told.belief[0]),
            "cells": [{"low": low, "high": high, "mass": min(mass, 1.0)} for low, high, mass in cells],
        }

    def without(self, head: str, relation: str, tail: str, level: float) -> dict[str, Any]:
        """What would be answered without each of the closest training facts, those that change it most first."""
        query, ids = (head, relation, tail), self._checked(head, relation, tail)
        facts = known_facts(self.predictor)
        if len(facts) > LEFT_OUT:
            raise Problem(
                422,
                f"the run has {len(facts):,} training facts; leaving one out is offered up to {LEFT_OUT:,}",
            )
        close = closest(facts, *ids)
        tried = close[: min(MOST_LEFT_OUT, LEFT_OUT // len(facts))].tolist()
        now = answer(self.predictor, [query], level)
        columns = (facts.head, facts.relation, facts.tail, facts.confidence)
        named = with_labels(Facts(*(column[tried] for column in columns)), self.predictor.model.vocabulary)
        found = [
            {**fact, **_ends(other), "change": float(now.score[0]) - float(other.score[0])}
            for fact, other in zip(named, without(self.predictor, query, tried, level), strict=True)
        ]
        found.sort(key=lambda one: -abs(one["change"]))
        note = (
            f"{len(tried):,} of {len(close):,} training facts around this triple were left out, one at a time, of what "
            "the model is told; it was not learned again"
        )
        return {**_ends(now), "facts": found, "around": len(close), "note": note}

    def _checked(self, head: str, relation: str, tail: str) -> tuple[int, int, int]:
        """Ids of a triple; a label without a training fact is a `Problem`, and so is a run without a distribution."""
        try:
            evidence_of(self.predictor)
        except InputError as error:
            raise Problem(404, str(error)) from None
        r = self._id("relation", relation)
        return self._id("entity", head), r, self._id("entity", tail)

    def _ids(self, head: str | None, relation: str, tail: str | None) -> tuple[int | None, int, int | None]:
        """Ids of the labels of a question; a label without a training fact is a `Problem`."""
        r = self._id("relation", relation)
        h, t = (None if label is None else self._id("entity", label) for label in (head, tail))
        return h, r, t

    def _id(self, kind: Literal["entity", "relation"], label: str) -> int:
        model = self.predictor.model
        if kind == "entity":
            found, seen = model.vocabulary.entity_ids([label]), model.seen_entities
        else:
            found, seen = model.vocabulary.relation_ids([label]), model.seen_relations
        if found[0] < 0 or not seen[found[0]]:
            listed = "entities" if kind == "entity" else "relations"
            raise Problem(404, f"no training fact has the {kind} {quoted(label)}; see /v1/{listed}")
        return int(found[0])


def _ends(answers: Intervals) -> dict[str, float]:
    """Score and interval of a single answer at one level."""
    return {
        "score": float(answers.score[0]),
        "lower": float(answers.lower[0]),
        "upper": float(answers.upper[0]),
    }


def closest(facts: Graph, head: int, relation: int, tail: int) -> NDArray[np.intp]:
    """Rows of the facts around a triple: first those between its two entities, then those of its relation with one of
    them in the same place, then all others of either; of each kind the most confident first."""
    h, r, t = facts.head, facts.relation, facts.tail
    between = ((h == head) & (t == tail)) | ((h == tail) & (t == head))
    same = (r == relation) & ((h == head) | (t == tail))
    rows = np.flatnonzero((h == head) | (t == tail) | (h == tail) | (t == head))
    order = np.lexsort((-facts.confidence[rows], ~same[rows], ~between[rows]))
    return rows[order]


class Candidates:
    """Chooses among the candidates of a request, with a bound on the share of wrong ones.

    The candidates are answered and placed in slices, beside all other requests (`unkgcp.service.batching`). When the
    last of them is placed, `unkgcp.run.chooser` decides, as it does for `Predictor.select` and `unkgcp predict
    --select`. What it needs of the calibration facts depends on the condition alone, and is kept for the conditions
    asked for last.
    """

    def __init__(self, predictor: Predictor, batcher: Batcher, settings: Settings) -> None:
        self._predictor, self._batcher, self._settings = predictor, batcher, settings
        self._jobs = Jobs(settings, 1, "selection")
        # by condition, the one asked for last at the end; only the thread of the jobs reads and changes it
        self._selectors: OrderedDict[Range, Selector] = OrderedDict()

    async def select(self, body: Selecting) -> bytes:
        """The JSON of the answers, with a p-value for each candidate and whether it is selected."""
        choice = Choice.of(body.condition, body.fdr)
        self._check_time()
        chooser = await self._jobs.run(partial(self._chooser, choice))
        text, places = await self._batcher.place(body.asked, chooser)
        return await self._jobs.run(partial(self._told, body, chooser, text, places))

    def close(self) -> None:
        self._jobs.close()

    def _check_time(self) -> None:
        """Refuse where scoring the calibration facts would take too long, since a thread cannot be stopped."""
        facts, limit, cost = self._predictor.method.size, self._settings.answer_seconds, self._batcher.cost
        if cost.known and (seconds := cost.seconds(facts, 1)) > limit:
            raise Problem(
                422,
                f"to choose, this run scores its {facts:,} calibration facts first, in about {seconds:.0f} seconds, "
                f"more than {limit:g}; use unkgcp predict --select",
            )

    def _chooser(self, choice: Choice) -> Chooser:
        selector = self._selectors.pop(choice.condition, None)
        chooser = Chooser(self._predictor, choice, selector)
        self._selectors[choice.condition] = chooser.selector
        if len(self._selectors) > KEPT:
            self._selectors.popitem(last=False)
        return chooser

    def _told(self, body: Selecting, chooser: Chooser, text: bytes, places: Places) -> bytes:
        """The answers with what was chosen: more fields at the end of their JSON object."""
        verdict = chooser.verdict(places, chooser.cuts(chooser.reference.count(places)))
        more = {
            "p_value": verdict.p_value.tolist(),
            **{name: chosen.tolist() for name, chosen in verdict.selected.items()},
            "condition": str(chooser.choice.condition),
            "fdr": body.fdr,
            "guarantee": self._predictor.as_fitted(chooser.promise),
        }
        return text[:-1] + b"," + to_text(more)[1:]
