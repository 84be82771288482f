"""The evidence model: from a query to the distribution of its confidence.

There are two boosted models. The first gives the probabilities that the confidence is one of the values that other
facts of the pair suggest, the second the probabilities of cells for all other confidences. Both get the features of the
query (`features`) and, if there are any, cross-fitted backbone scores. The distribution is not calibrated. Like a
backbone, the model has a `score`, the mean of the distribution.

>>> model = learn(splits.train)                                        # doctest: +SKIP
>>> model.distribution(splits.test).median()                           # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evidence.candidate_ranking import QUESTIONS, Completer, learn_completer
from unkgcp.evidence.crossfit import CrossFit, cross_fit, fold_of_rows, shortened
from unkgcp.evidence.distribution import Cells, Distribution
from unkgcp.evidence.fact_groups import FactOrder, Ints, Values, commonest
from unkgcp.evidence.features import FREQUENT, Evidence, Features
from unkgcp.evidence.pairs import SLOTS
from unkgcp.evidence.trees import Boosting, Trees, arrays_of
from unkgcp.graph.facts import Graph, HasTriples, Triples, Vocabulary
from unkgcp.graph.known_facts import under
from unkgcp.progress import Part, Progress, Silent
from unkgcp.training.config import TrainConfig
from unkgcp.training.model import seen

HELD_OUT, MOST_HELD_OUT = (
    0.05,
    10_000,
)  # share of the training facts that stop the boosting, and at most how many
MOST_LEARNED = 100_000  # facts that boosting learns from; the graph they are asked of may be larger
MOST_OF_RELATION, MOST_ASKED = 200, 10_000  # training facts in `asked_again`: of each relation, and in all
SUGGESTED, ELSEWHERE = Boosting(rounds=100), Boosting(rounds=80)
CHUNK = 1 << 15  # queries that are answered together
WORK = 100  # the total that `learn` reports as progress; `PARTS` says where each of its parts ends, by time
PARTS = {"completions": 40, "asking": 50, "suggested": 65, "elsewhere": WORK}


class LeftOut(NamedTuple):
    """Doubt and nonconformity of training facts, which show how doubtful and strange queries will be."""

    doubt: NDArray[np.float64]
    """(n,) the doubt of randomly drawn facts."""
    relation: Ints
    strangeness: NDArray[np.float64]
    """(m,) relation and nonconformity of some facts of every relation."""


@dataclass(frozen=True, eq=False)
class EvidenceModel:
    """The distribution of the confidence of any query, as `learn` learned it."""

    evidence: Evidence
    cells: Cells
    suggested: Trees
    """The probabilities that the confidence is suggested value 0, 1, 2, or none of them."""
    elsewhere: Trees
    """The probability of each class of cells, if the confidence is none of the suggested values."""
    backbone: CrossFit | None = None
    completer: Completer | None = None
    """It ranks the candidates for the missing entity of a question; a run of an older version has none."""
    aside: Ints | None = None
    """Rows of the training facts that stopped the boosting and were not learned from; None in older runs."""

    @cached_property
    def seen_entities(self) -> NDArray[np.bool_]:
        return seen(self.evidence.train)[0]

    @cached_property
    def seen_relations(self) -> NDArray[np.bool_]:
        return seen(self.evidence.train)[1]

    @property
    def columns(self) -> int:
        """The number of features of a query, including backbone scores."""
        return len(self.evidence.names) + (self.backbone.columns if self.backbone else 0)

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        """The mean of each query's distribution: (n,)."""
        out = np.empty(len(head), np.float32)
        for start in range(0, len(head), CHUNK):
            part = slice(start, start + CHUNK)
            ids = (np.asarray(column[part], np.int32) for column in (head, relation, tail))
            out[part] = self.distribution(Triples(*ids)).mean()
        return out

    def distribution(self, triples: HasTriples) -> Distribution:
        """The distributions of all queries together; it takes memory, so ask for some ten thousand at most."""
        return self._distribution(self.features(triples))

    def features(self, triples: HasTriples, fold: NDArray[np.int8] | None = None) -> Features:
        """The features of queries, with scores by the backbones of given folds (n,) or of the folds of queries."""
        return self._with_backbone(self.evidence.features(triples), triples, fold)

    def _distribution(self, found: Features) -> Distribution:
        table, slots = found
        values, there = self.evidence.values, slots >= 0
        mass = np.where(there, self.suggested.probabilities(table)[:, :SLOTS], 0.0)
        rest = np.maximum(1.0 - mass.sum(axis=1, keepdims=True), 0.0)
        return Distribution(
            self.cells,
            rest * self.elsewhere.probabilities(table),
            np.where(there, values.low[slots], 0.0),
            np.where(there, values.high[slots], 0.0),
            mass,
        )

    @cached_property
    def asked_again(self) -> LeftOut:
        """Doubt and nonconformity of some training facts, each asked as a query of a graph without it."""
        train, of_relations = self.evidence.train, self.rows_of_relations()
        some = np.sort(np.random.default_rng(0xD0B7).permutation(len(train))[:MOST_ASKED])
        rows = np.unique(np.concatenate([some, of_relations]))
        strange, doubt = self.left_out(rows)
        place = np.searchsorted(rows, of_relations)
        return LeftOut(
            doubt[np.searchsorted(rows, some)], train.relation[of_relations].astype(np.int64), strange[place]
        )

    def left_out(self, rows: Ints, empty: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Nonconformity and doubt, (n,) each, of training facts, each asked as a query of a graph without it.

        Doubt is the mass outside the first cell. The backbone that scores a fact may have been trained on it. `empty`:
        whether intervals may be empty, which gives other scores.
        """
        train = self.evidence.train
        scores, doubt = np.empty(len(rows)), np.empty(len(rows))
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            told = self._with_backbone(self.evidence.leave_one_out(part), train[part])
            found = self._distribution(told)
            scores[start : start + CHUNK] = found.scores(train[part].confidence, empty)
            doubt[start : start + CHUNK] = 1.0 - found.modes().belief
        return scores, doubt

    def rows_of_relations(self, most: int = MOST_OF_RELATION) -> Ints:
        """Rows of up to `most` training facts of each relation, spread evenly over its facts: (n,)."""
        train = self.evidence.train
        order = FactOrder.of([(train.relation, np.arange(len(train)))], [train.n_relations, len(train)])
        starts, rows = order.first, order.keys  # the key of a fact is its row
        chosen = [np.zeros(0, np.int64)]
        for start, size in zip(starts, np.diff(starts), strict=False):
            some = min(int(size), most)
            chosen.append(start + -(-np.arange(some) * size // max(some, 1)))
        return np.asarray(rows[np.concatenate(chosen)])

    def _with_backbone(
        self, found: Features, triples: HasTriples, fold: NDArray[np.int8] | None = None
    ) -> Features:
        if self.backbone is None:
            return found
        scores = self.backbone.scores(triples, fold)
        return Features(np.concatenate([found.table, scores], axis=1, dtype=np.float32), found.slots)

    def over(self, train: Graph) -> EvidenceModel:
        """The same trees with features from a graph that has grown; earlier rows and ids keep their meaning.

        Confidences may differ. A backbone knows nothing of new entities, so that a model with a backbone cannot grow.
        """
        if self.backbone is not None:
            raise ValueError("a model with cross-fitted backbones has to be learned again")
        evidence = self.evidence.grown(train)
        return replace(
            self,
            evidence=evidence,
            cells=self.cells.over(self.evidence.values, evidence.values),
            completer=None if self.completer is None else self.completer.over(train),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything except the backbone, as plain arrays."""
        train = self.evidence.train
        arrays: dict[str, NDArray[Any]] = {
            **{name: getattr(train, name) for name in ("head", "relation", "tail", "confidence")},
            "entities": np.array(train.n_entities),
            "relations": np.array(train.n_relations),
            "frequent": self.evidence.frequent,
        }
        if self.aside is not None:
            arrays["aside"] = self.aside
        parts = {
            "values": arrays_of(self.evidence.values),
            "cells": arrays_of(self.cells),
            "suggested": self.suggested.arrays(),
            "elsewhere": self.elsewhere.arrays(),
            "completing": {} if self.completer is None else self.completer.arrays(),
        }
        for part, own in parts.items():
            arrays |= {f"{part}.{name}": array for name, array in own.items()}
        return arrays

    def with_backbone(self, backbone: CrossFit | None) -> EvidenceModel:
        """The same model with other copies of the cross-fitted backbones."""
        completer = self.completer
        if completer is not None and completer.backbone is not None:
            completer = replace(completer, backbone=backbone)
        return replace(self, backbone=backbone, completer=completer)

    @classmethod
    def restore(
        cls,
        arrays: Mapping[str, NDArray[Any]],
        entities: int,
        relations: int,
        backbone: CrossFit | None = None,
    ) -> EvidenceModel:
        """The model that `arrays` stored, of a graph with so many entities and relations.

        ValueError if the arrays do not fit together or belong to another graph. They are checked before they are used,
        so that memory is bounded by their own size and that of the graph.
        """
        try:
            train = _restore_facts(arrays, entities, relations)
            frequent = arrays.get("frequent")
            values = Values.of(train.confidence if frequent is None else _joined(train.confidence, frequent))
            for name, array in arrays_of(values).items():
                if not np.array_equal(arrays[f"values.{name}"], array):
                    raise ValueError("the values of the evidence are not those of its facts")
            cells = Cells.restore(under("cells.", arrays), len(values))
            completing = under("completing.", arrays)
            completer = Completer.restore(completing, train, backbone) if completing else None
        except (KeyError, IndexError) as error:
            raise ValueError(f"the evidence lacks {error}") from None
        top = FREQUENT if frequent is None else values.code(frequent).astype(np.int64)
        model = cls(
            Evidence.of(train, values, top),
            cells,
            Trees.restore(under("suggested.", arrays)),
            Trees.restore(under("elsewhere.", arrays)),
            backbone,
            completer,
            arrays.get("aside"),
        )
        model._check()
        return model

    def _check(self) -> None:
        aside = np.zeros(0, np.int64) if self.aside is None else self.aside
        if aside.dtype != np.int64 or aside.ndim != 1 or not (np.diff(aside) > 0).all():
            raise ValueError("the facts that the evidence has not learned from are damaged")
        if len(aside) and not 0 <= aside[0] <= aside[-1] < len(self.evidence.train):
            raise ValueError("the evidence names facts that it does not have")
        if self.elsewhere.total != self.cells.classes or self.suggested.total != SLOTS + 1:
            raise ValueError("the trees of the evidence tell other classes apart than there are")
        if not self.columns == self.suggested.features == self.elsewhere.features:
            raise ValueError(
                "the trees of the evidence were learned from other features: fit it again with this version"
            )


def learn(
    train: Graph,
    *,
    seed: int = 0,
    backbone: CrossFit | None = None,
    out_of_fold: NDArray[np.float32] | None = None,
    fold: NDArray[np.int8] | None = None,
    suggested: Boosting = SUGGESTED,
    elsewhere: Boosting = ELSEWHERE,
    most: int = MOST_LEARNED,
    completions: bool = True,
    progress: Progress | None = None,
) -> EvidenceModel:
    """Learn from the proper training set alone.

    A twentieth of the facts (at most 10,000) is taken out of the graph; their features, those of queries, decide when
    boosting stops. At most `most` of the others are learned from, each with the fact itself left out of its features.
    The model then answers from the whole graph. `backbone` adds its scores to the features; `out_of_fold` (N, columns)
    are its scores of the training facts. With `fold` (N,), the fold of each training fact, the backbone also helps to
    rank completions; without `completions` no ranking of them is learned.
    """
    if len(train) < 20:
        raise InputError(
            f"{len(train)} training facts are too few for the evidence method; it needs at least 20"
        )
    if (backbone is None) != (out_of_fold is None):
        raise ValueError("backbone scores need both the models and the scores of the training facts")
    parts = _parts(progress or Silent(), len(train), most, suggested.rounds, elsewhere.rounds)
    # To save memory there is one index of the graph at a time; that of the whole graph comes last, without the tables.
    completer = None
    if completions:
        ranking = None if fold is None else backbone
        asking = parts["completions"]
        completer = learn_completer(train, seed=seed, backbone=ranking, fold=fold, progress=asking)
    values = Values.of(train.confidence)
    table, slots, codes, held, aside = _rows(values, train, seed, out_of_fold, most, parts["asking"])
    label = _slot_labels(slots, codes)
    first = replace(suggested, seed=seed).learn(
        table[~held], label[~held], table[held], label[held], SLOTS + 1, progress=parts["suggested"]
    )
    none = label == SLOTS
    cells = Cells.of(values, codes[none] if none.any() else codes)
    kind = cells.class_of_value[codes]
    fit, stop = none & ~held, none & held
    if not fit.any():
        fit, stop = ~held, held
    second = replace(elsewhere, seed=seed).learn(
        table[fit], kind[fit], table[stop], kind[stop], cells.classes, progress=parts["elsewhere"]
    )
    del table, slots
    whole = Evidence.of(train, values)
    parts["elsewhere"].update(elsewhere.rounds, "values learned")
    return EvidenceModel(whole, cells, first, second, backbone, completer, aside)


def learn_with_backbone(
    train: Graph,
    config: TrainConfig,
    *,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> EvidenceModel:
    """Train ten backbones (five folds, two variants), then learn from evidence and their scores."""
    fold = fold_of_rows(len(train), seed)
    (backbone,) = cross_fit(train, shortened(config), [seed], fold, device=device, progress=progress)
    return learn(train, seed=seed, backbone=backbone, out_of_fold=backbone.scores(train, fold), fold=fold)


def _parts(whole: Progress, facts: int, most: int, *rounds: int) -> dict[str, Part]:
    """The progress of each part of `learn`, counted in questions, in facts, and in rounds of boosting."""
    totals = (min(facts // 10, QUESTIONS), min(facts, most), *rounds)
    begins = (0, *PARTS.values())
    every = zip(PARTS.items(), begins, totals, strict=False)
    return {name: Part(whole, begin, end, total) for (name, end), begin, total in every}


def _rows(
    values: Values,
    train: Graph,
    seed: int,
    out_of_fold: NDArray[np.float32] | None,
    most: int,
    progress: Progress,
) -> tuple[NDArray[np.float32], Ints, Ints, NDArray[np.bool_], Ints]:
    """Features, suggested values, codes and whether held out, of all facts to learn from, and the rows held out."""
    rng = np.random.default_rng((seed, 0xE71D))
    order = rng.permutation(len(train))
    size = max(1, min(round(HELD_OUT * len(train)), MOST_HELD_OUT))
    aside, learned = np.sort(order[:size]), np.sort(order[size : size + most])
    del order
    inside = np.ones(len(train), bool)
    inside[aside] = False
    own = values.code(train.confidence)
    # the frequent values are those of the whole graph, since other values may be more frequent in a part
    part = Evidence.of(train[inside], values, commonest(own, len(values), FREQUENT))
    told = part.leave_one_out(learned - np.searchsorted(aside, learned), progress)  # their rows in the part
    asked = part.features(train[aside])
    rows = np.concatenate([learned, aside])
    table = np.concatenate([told.table, asked.table])
    slots = np.concatenate([told.slots, asked.slots])
    codes, held = own[rows].astype(np.int64), ~inside[rows]
    if out_of_fold is not None:
        table = np.concatenate([table, np.asarray(out_of_fold, np.float32)[rows]], axis=1)
    return table, slots, codes, held, aside


def _slot_labels(slots: Ints, codes: Ints) -> Ints:
    """The slot of the suggested value that each label equals, SLOTS if there is none: (n,)."""
    hit = (slots == codes[:, None]) & (codes >= 0)[:, None]
    return np.where(hit.any(axis=1), hit.argmax(axis=1), SLOTS).astype(np.int64)


def _restore_facts(arrays: Mapping[str, NDArray[Any]], entities: int, relations: int) -> Graph:
    """The stored training facts over a vocabulary of numbers; the run keeps the labels elsewhere."""
    for name, size in (("entities", entities), ("relations", relations)):
        if arrays[name].shape != () or arrays[name].dtype.kind not in "iu" or int(arrays[name]) != size:
            raise ValueError(f"the evidence belongs to another graph, not to one with {size:,} {name}")
    confidence = np.asarray(arrays["confidence"])
    plain = confidence.dtype == np.float64 and confidence.ndim == 1 and len(confidence) > 0
    if not plain or not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError("the evidence's confidences are damaged")
    columns = []
    for name, limit in (("head", entities), ("relation", relations), ("tail", entities)):
        column = np.asarray(arrays[name])
        plain = column.dtype == np.int32 and column.shape == confidence.shape
        if not plain or not ((column >= 0) & (column < limit)).all():
            raise ValueError(f"the evidence's {name} column is damaged")
        columns.append(column)
    head, relation, tail = columns
    return Graph(head, relation, tail, confidence, Vocabulary.numbered(entities, relations))


def _joined(confidence: NDArray[np.float64], frequent: NDArray[Any]) -> NDArray[np.float64]:
    """The confidences from which the values of stored evidence come; ValueError if `frequent` is damaged."""
    good = frequent.dtype == np.float64 and frequent.ndim == 1 and len(frequent) <= FREQUENT
    if not good or not ((frequent >= 0) & (frequent <= 1)).all() or len(np.unique(frequent)) < len(frequent):
        raise ValueError("the frequent values of the evidence are damaged")
    return np.concatenate([confidence, frequent])
