"""The evidence model: from a query to the distribution of its confidence.

What it is: two boosted models in a row. The first says whether the confidence is one of the values that other facts
of the pair suggest (and which), the second in which cell it lies if it is none of them. Both see what the training
graph says about the query (`features`) and, if there are any, cross-fitted backbone scores. What it is not:
calibrated. It is a `Scorer` like any backbone: `score` is the mean of the distribution.

>>> model = learn(splits.train)                                        # doctest: +SKIP
>>> model.distribution(splits.test).median()                           # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evidence.cells import Cells, Distribution, Values
from unkgcp.evidence.features import Evidence, Features, HasTriples
from unkgcp.evidence.pairs import SLOTS
from unkgcp.evidence.statistics import Ints
from unkgcp.evidence.trees import Boosting, Trees
from unkgcp.graph import Graph, Vocabulary, concatenate

HELD_OUT, MOST_HELD_OUT = 0.05, 10_000
MOST_LEARNED = 100_000  # facts that boosting sees; the graph it is told about is whole
MOST_OF_RELATION = 200  # training facts that say how strange a relation is
SUGGESTED = Boosting(rounds=100)
ELSEWHERE = Boosting(rounds=80)
CHUNK = 1 << 15


class Scores(Protocol):
    """Further features, made for training facts as for queries: cross-fitted backbone scores."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def scores(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        """Of queries: (n, columns)."""


@dataclass(frozen=True, eq=False)
class EvidenceModel:
    """What `learn` returns."""

    evidence: Evidence
    cells: Cells
    suggested: Trees
    """P(the confidence is suggested value 0, 1, 2, or none of them)."""
    elsewhere: Trees
    """P(class of cell), if it is none of them."""
    backbone: Scores | None = None

    @property
    def seen_entities(self) -> NDArray[np.bool_]:
        seen = np.zeros(self.evidence.train.n_entities, bool)
        seen[self.evidence.train.head] = seen[self.evidence.train.tail] = True
        return seen

    @property
    def seen_relations(self) -> NDArray[np.bool_]:
        seen = np.zeros(self.evidence.train.n_relations, bool)
        seen[self.evidence.train.relation] = True
        return seen

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        """The mean of each query's distribution: (n,)."""
        out = np.empty(len(head), np.float32)
        for start in range(0, len(head), CHUNK):
            part = slice(start, start + CHUNK)
            out[part] = self.distribution(Query(head[part], relation[part], tail[part])).mean()
        return out

    def distribution(self, triples: HasTriples) -> Distribution:
        """Of all the queries at once: ask for at most some ten thousand at a time."""
        found = self.evidence.features(triples)
        return self._distribution(self._with_backbone(found.table, triples), found.slots)

    def _distribution(self, table: NDArray[np.float32], slots: Ints) -> Distribution:
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

    def strangeness_of_relations(self, most: int = MOST_OF_RELATION) -> tuple[Ints, NDArray[np.float64]]:
        """Relation and nonconformity, (n,) each, of up to `most` training facts a relation, spread over its facts.

        Each is asked as a query of a graph without it; a backbone may have seen it, as it has those beside it.
        """
        train = self.evidence.train
        order = np.argsort(train.relation, kind="stable")
        size = np.bincount(train.relation)[train.relation[order]]
        place = np.arange(len(order)) - np.searchsorted(train.relation[order], train.relation[order])
        # of a relation with more facts those at which place * most / size reaches the next whole number
        kept = (size <= most) | (place * most // size > (place - 1) * most // size)
        rows = order[kept]
        scores = np.empty(len(rows))
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            found, facts = self.evidence.leave_one_out(part), train[part]
            table = self._with_backbone(found.table, facts)
            scores[start : start + CHUNK] = self._distribution(table, found.slots).scores(facts.confidence)
        return train.relation[rows].astype(np.int64), scores

    def _with_backbone(self, table: NDArray[np.float32], triples: HasTriples) -> NDArray[np.float32]:
        if self.backbone is None:
            return table
        own = self.backbone.scores(triples.head, triples.relation, triples.tail)
        return np.concatenate([table, own], axis=1)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything but the backbone, as plain arrays."""
        train, values = self.evidence.train, self.evidence.values
        arrays: dict[str, NDArray[Any]] = {
            "head": train.head,
            "relation": train.relation,
            "tail": train.tail,
            "confidence": train.confidence,
            "entities": np.array(train.n_entities),
            "relations": np.array(train.n_relations),
        }
        arrays |= {f"values.{field.name}": getattr(values, field.name) for field in fields(values)}
        arrays |= {
            f"cells.{field.name}": np.asarray(getattr(self.cells, field.name)) for field in fields(self.cells)
        }
        arrays |= {f"suggested.{name}": array for name, array in self.suggested.arrays().items()}
        return arrays | {f"elsewhere.{name}": array for name, array in self.elsewhere.arrays().items()}

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], backbone: Scores | None = None) -> EvidenceModel:
        """The model again; ValueError if the arrays do not fit together."""
        try:
            train = _restore_facts(arrays)
            values = Values(*(np.asarray(arrays[f"values.{field.name}"]) for field in fields(Values)))
            columns = {field.name: np.array(arrays[f"cells.{field.name}"]) for field in fields(Cells)}
        except (KeyError, IndexError) as error:
            raise ValueError(f"the evidence lacks {error}") from None
        cells = Cells(**{**columns, "classes": int(columns["classes"])})  # type: ignore[arg-type]
        model = cls(
            Evidence.of(train, values),
            cells,
            Trees.restore(_under("suggested.", arrays)),
            Trees.restore(_under("elsewhere.", arrays)),
            backbone,
        )
        model._check()
        return model

    def _check(self) -> None:
        cells, columns = (
            self.cells,
            len(self.evidence.names) + len(self.backbone.names if self.backbone else ()),
        )
        pieces = len(cells.low)
        good = (
            pieces > 0
            and len(cells.high) == len(cells.share) == len(cells.class_of_piece) == pieces
            and all(column.dtype == np.float64 for column in (cells.low, cells.high, cells.share))
            and cells.class_of_piece.dtype == np.int64
            and bool(((cells.class_of_piece >= 0) & (cells.class_of_piece < cells.classes)).all())
            and cells.low[0] == 0
            and cells.high[-1] == 1
            and bool((cells.low[1:] == cells.high[:-1]).all() and (cells.low <= cells.high).all())
            and bool((cells.share >= 0).all())
            and self.elsewhere.total == cells.classes
            and self.suggested.total == SLOTS + 1
        )
        if not good:
            raise ValueError("the cells of the evidence do not fit together")
        if not columns == self.suggested.features == self.elsewhere.features:
            raise ValueError(
                "the trees of the evidence were learned from other features: fit it again with this version"
            )


@dataclass(frozen=True, eq=False)
class Query:
    """Three columns of ids."""

    head: NDArray[Any]
    relation: NDArray[Any]
    tail: NDArray[Any]


def learn(
    train: Graph,
    *,
    seed: int = 0,
    backbone: Scores | None = None,
    out_of_fold: NDArray[np.float32] | None = None,
    others: Graph | None = None,
    suggested: Boosting = SUGGESTED,
    elsewhere: Boosting = ELSEWHERE,
) -> EvidenceModel:
    """Learn from the proper training set alone.

    A twentieth of the facts (at most 10,000) is taken out of the graph and asked as queries, to stop the boosting;
    the others (100,000 of them at most) are learned from, each with its own row left out of everything it is told.
    The model then answers from the whole graph. `backbone` with `out_of_fold` (N, columns), its scores of the
    training facts, adds scores. `others` are labelled triples that are not in the graph, to be learned from as well:
    corrupted facts with confidence 0.
    """
    if len(train) < 20:
        raise InputError(
            f"{len(train)} training facts are too few for the evidence method; it needs at least 20"
        )
    if (backbone is None) != (out_of_fold is None):
        raise ValueError("backbone scores need both the models and the scores of the training facts")
    everything = train if others is None else concatenate([train, others])
    whole = Evidence.of(train, Values.of(everything.confidence))
    table, slots, codes, held = _rows(whole, train, others, seed, backbone, out_of_fold)
    label = _slot_labels(slots, codes)
    first = replace(suggested, seed=seed).learn(
        table[~held], label[~held], table[held], label[held], SLOTS + 1
    )
    none = label == SLOTS
    cells = Cells.of(whole.values, codes[none] if none.any() else codes)
    kind = cells.class_of_value[codes]
    fit, stop = none & ~held, none & held
    if not fit.any():
        fit, stop = ~held, held
    second = replace(elsewhere, seed=seed).learn(
        table[fit], kind[fit], table[stop], kind[stop], cells.classes
    )
    return EvidenceModel(whole, cells, first, second, backbone)


def _rows(
    whole: Evidence,
    train: Graph,
    others: Graph | None,
    seed: int,
    backbone: Scores | None,
    out_of_fold: NDArray[np.float32] | None,
) -> tuple[NDArray[np.float32], Ints, Ints, NDArray[np.bool_]]:
    """Features, suggested values, label codes and whether held out, of all facts to learn from."""
    rng = np.random.default_rng((seed, 0xE71D))
    order = rng.permutation(len(train))
    size = max(1, min(round(HELD_OUT * len(train)), MOST_HELD_OUT))
    aside, learned = np.sort(order[:size]), np.sort(order[size : size + MOST_LEARNED])
    inside = np.ones(len(train), bool)
    inside[aside] = False
    part = whole.over(train[inside])
    told = part.leave_one_out((np.cumsum(inside) - 1)[learned])
    asked = part.features(train[aside])
    rows = np.concatenate([learned, aside])
    table = np.concatenate([told.table, asked.table])
    slots = np.concatenate([told.slots, asked.slots])
    codes, held = whole.codes[rows], ~inside[rows]
    if backbone is not None:
        table = np.concatenate([table, np.asarray(out_of_fold, np.float32)[rows]], axis=1)
    if others is None:
        return table, slots, codes, held
    more: Features = part.features(others)
    extra = more.table
    if backbone is not None:
        own = backbone.scores(others.head, others.relation, others.tail)
        extra = np.concatenate([extra, own], axis=1)
    apart = np.zeros(len(others), bool)
    apart[rng.choice(len(others), min(len(others) // 2, round(HELD_OUT * len(others))), replace=False)] = True
    return (
        np.concatenate([table, extra]),
        np.concatenate([slots, more.slots]),
        np.concatenate([codes, whole.values.code(others.confidence)]),
        np.concatenate([held, apart]),
    )


def _slot_labels(slots: Ints, codes: Ints) -> Ints:
    """Which suggested value each label equals, SLOTS if none: (n,)."""
    hit = (slots == codes[:, None]) & (codes >= 0)[:, None]
    return np.where(hit.any(axis=1), hit.argmax(axis=1), SLOTS).astype(np.int64)


def _restore_facts(arrays: Mapping[str, NDArray[Any]]) -> Graph:
    """The training facts over a vocabulary of numbers: labels are the bundle's business."""
    entities, relations = int(arrays["entities"]), int(arrays["relations"])
    if not (0 < entities < 2**31 and 0 < relations < 2**31):
        raise ValueError("the evidence has no entities or relations")
    ids = {"head": entities, "relation": relations, "tail": entities}
    columns = {name: np.asarray(arrays[name]) for name in ids}
    for name, limit in ids.items():
        column = columns[name]
        if column.dtype != np.int32 or column.ndim != 1 or not ((column >= 0) & (column < limit)).all():
            raise ValueError(f"the evidence's {name} column is damaged")
    confidence = np.asarray(arrays["confidence"], np.float64)
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError("the evidence's confidences are damaged")
    numbers = Vocabulary.of([str(i) for i in range(entities)], [str(i) for i in range(relations)])
    return Graph(columns["head"], columns["relation"], columns["tail"], confidence, numbers)


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
