"""The questions about one run that the service answers beside intervals, as plain values for JSON.

All numbers come from the run's `Predictor`; every method may be called from several threads.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from starlette.exceptions import HTTPException

from unkgcp._version import __version__
from unkgcp.errors import InputError
from unkgcp.methods.intervals import Intervals
from unkgcp.run.answers import LABELS, answer, as_lists, evidence_of, masses, without
from unkgcp.run.chooser import Choice, Chooser
from unkgcp.run.completion import presumption
from unkgcp.run.predictor import Predictor
from unkgcp.service.lookups import LabelSearch, Surroundings
from unkgcp.service.schema import DEFAULT_LEVEL, MAX_K, AnswersRequest, SelectRequest, quoted
from unkgcp.service.settings import Settings

# Training facts that one request for `effects` goes through. For each fact that is left out these are all of them.
LEFT_OUT_WORK = 2_000_000
MAX_LEFT_OUT = 12
KIND_FIGURES = ("n", "coverage", "sharpness", "interval_score")


class RunQueries:
    """Answers from one run."""

    def __init__(self, name: str, predictor: Predictor, settings: Settings) -> None:
        self.name, self.predictor, self._settings = name, predictor, settings
        vocabulary = predictor.model.vocabulary
        self._labels = {"entities": vocabulary.entities, "relations": vocabulary.relations}
        self._search = {kind: LabelSearch(labels) for kind, labels in self._labels.items()}
        facts = predictor.facts
        self._surroundings = None if facts is None else Surroundings(facts.graph(vocabulary))

    def about(self) -> dict[str, Any]:
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
            "max_triples": self._settings.max_triples,
            "max_body": self._settings.max_body,
            "max_k": MAX_K,
        }

    def labels(self, kind: str, prefix: str, limit: int, anywhere: bool) -> dict[str, Any]:
        """Labels of `entities` or `relations` that begin with (or hold) what was typed."""
        ids, more = self._search[kind].find(prefix, limit, anywhere)
        known = self._surroundings
        facts = [None] * len(ids) if known is None else known.counts[kind][ids].tolist()
        labels = self._labels[kind].take(ids).to_pylist()
        entries = [{"label": label, "facts": count} for label, count in zip(labels, facts, strict=True)]
        return {"labels": entries, "more": more}

    def notes(self, confidence: float | list[float]) -> list[str]:
        """What to know about intervals at these levels."""
        levels = confidence if isinstance(confidence, list) else [confidence]
        cautions = dict.fromkeys(self.predictor.method.caution(level) for level in levels)
        return [caution for caution in cautions if caution is not None]

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
        found = self.predictor.answers(request.head, request.relation, request.tail, **options)
        members = zip(found.entities.to_pylist(), found.share.tolist(), strict=True)
        names = ("confidence", "size", "candidates", "known", "status", "calibration", "promise", "notes")
        listed = [
            {"rank": rank, "entity": entity, "share": share}
            for rank, (entity, share) in enumerate(members, 1)
        ]
        return {"answers": listed, **{name: getattr(found, name) for name in names}}

    def select(self, request: SelectRequest) -> dict[str, Any]:
        """The columns of `interval`, with a p-value for each candidate and whether it is selected."""
        triples = [(head, relation, tail) for head, relation, tail in request.triples]
        chooser = Chooser(self.predictor, Choice.of(request.condition, request.fdr))
        answers = self.predictor.select(triples, request.condition, request.fdr, request.confidence)
        return {
            "confidence": request.confidence,
            **as_lists(answers),
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
        self._known_ids(head, relation, tail)
        query = (head, relation, tail)
        score = float(answer(self.predictor, [query], DEFAULT_LEVEL).score[0])
        cells = zip(*(column.tolist() for column in masses(self.predictor, query)), strict=True)
        return {"score": score, "cells": [{"low": low, "high": high, "mass": m} for low, high, m in cells]}

    def effects(self, head: str, relation: str, tail: str, level: float) -> dict[str, Any]:
        """What would be answered without each of the closest training facts, those that change it most first."""
        query, ids = (head, relation, tail), self._known_ids(head, relation, tail)
        surroundings = Surroundings(evidence_of(self.predictor).evidence.train)
        total = len(surroundings.facts)
        if total > LEFT_OUT_WORK:
            raise HTTPException(
                422,
                f"the run has {total:,} training facts; leaving one out is offered up to {LEFT_OUT_WORK:,}",
            )
        close = surroundings.closest(*ids)
        tried = close[: min(MAX_LEFT_OUT, LEFT_OUT_WORK // total)]
        now = answer(self.predictor, [query], level)
        effects = [
            {**fact, **_ends(other), "change": float(now.score[0]) - float(other.score[0])}
            for fact, other in zip(
                surroundings.named(tried), without(self.predictor, query, tried.tolist(), level), strict=True
            )
        ]
        effects.sort(key=lambda effect: -abs(effect["change"]))
        note = (
            f"{len(tried):,} of {len(close):,} training facts around this triple were left out, one at a time, of what "
            "the model is told; it was not learned again"
        )
        return {**_ends(now), "facts": effects, "note": note}

    def _known_ids(self, head: str, relation: str, tail: str) -> tuple[int, int, int]:
        """Ids of a triple; a label without a training fact is 404, and so is a run without a distribution."""
        try:
            evidence_of(self.predictor)
        except InputError as error:
            raise HTTPException(404, str(error)) from None
        model = self.predictor.model
        h, t = model.vocabulary.entity_ids([head, tail]).tolist()
        r = int(model.vocabulary.relation_ids([relation])[0])
        seen = {head: h >= 0 and model.seen_entities[h], tail: t >= 0 and model.seen_entities[t]}
        seen[relation] = seen.get(relation, True) and r >= 0 and model.seen_relations[r]
        for label, is_seen in seen.items():
            if not is_seen:
                raise HTTPException(404, f"no training fact has {quoted(label)}; see /v1/entities")
        return h, r, t


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
