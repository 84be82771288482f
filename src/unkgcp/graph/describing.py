"""What a data set holds, counted: sizes, confidences, and whatever can spoil an experiment.

Repeats, overlap between parts, relations without training facts, negatives that are facts: all are counted,
none is repaired. The same figures are printed by `unkgcp data describe`.

>>> describe(load_dataset("ppi5k")).test_rows_in_train
2971
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.datasets import Dataset
from unkgcp.graph.facts import Graph, contained

BINS = 10
ATOM = 0.01  # a value that this share of the facts has is an atom
DECIMALS = 6  # of an atom: files print 1 as 0.9999999999999998, or come near it by computation


@dataclass(frozen=True, slots=True)
class Atom:
    """One confidence that many facts share."""

    value: float
    facts: int
    share: float


@dataclass(frozen=True, slots=True)
class Confidences:
    """Confidences of all facts; `histogram` counts ten equal bins of [0, 1], the last one closed."""

    minimum: float
    maximum: float
    mean: float
    standard_deviation: float
    histogram: list[int]
    atoms: list[Atom]


@dataclass(frozen=True, slots=True)
class Description:
    """Counts of a data set; the field names are the keys of `unkgcp data describe --json`.

    "In" compares triples, whatever their confidence: `test_rows_in_train` counts test rows whose triple is
    also in train or validation. "Unseen in training" means without a fact in train or validation.
    `softlogic_rows_held` are those of the `softlogic` rows that name a calibration or test triple.
    """

    data: str
    facts: int
    train: int
    validation: int
    calibration: int
    test: int
    entities: int
    relations: int
    entities_unseen_in_training: int
    relations_unseen_in_training: int
    test_rows_in_unseen_relations: int
    distinct_triples: int
    repeated_triples: int
    repeated_triples_with_other_confidence: int
    self_loops: int
    calibration_rows_in_train: int
    test_rows_in_train: int
    test_rows_in_calibration: int
    negatives: int
    negatives_that_are_facts: int
    softlogic: int
    softlogic_rows_held: int
    confidence: Confidences
    files: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe(dataset: Dataset) -> Description:
    """Count everything; seconds for ten million facts."""
    splits, graph = dataset.splits, dataset.graph
    keys = graph.keys
    learned = np.sort(keys[: len(splits.train) + len(splits.validation)])
    calibration, test = splits.calibration.keys, splits.test.keys
    seen = graph[: len(learned)]
    new_relations = _used(graph.relation, graph.n_relations) & ~_used(seen.relation, graph.n_relations)
    entities = _used(graph.head, graph.n_entities) | _used(graph.tail, graph.n_entities)
    seen_entities = _used(seen.head, graph.n_entities) | _used(seen.tail, graph.n_entities)
    ordered = np.sort(keys)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    negatives, softlogic = dataset.negatives, dataset.softlogic
    return Description(
        data=dataset.name,
        facts=len(graph),
        **{name: len(part) for name, part in splits.parts().items()},
        entities=int(entities.sum()),
        relations=int(_used(graph.relation, graph.n_relations).sum()),
        entities_unseen_in_training=int((entities & ~seen_entities).sum()),
        relations_unseen_in_training=int(new_relations.sum()),
        test_rows_in_unseen_relations=int(new_relations[splits.test.relation].sum()),
        distinct_triples=len(keys) - len(again),
        repeated_triples=len(np.unique(again)),
        repeated_triples_with_other_confidence=_conflicting(graph, keys, again),
        self_loops=graph.self_loops,
        calibration_rows_in_train=_count_in(calibration, learned),
        test_rows_in_train=_count_in(test, learned),
        test_rows_in_calibration=_count_in(test, np.sort(calibration)),
        negatives=0 if negatives is None else len(negatives),
        negatives_that_are_facts=0 if negatives is None else _count_in(negatives.keys, ordered),
        softlogic=0 if softlogic is None else len(softlogic),
        softlogic_rows_held=int(dataset.softlogic_held.sum()),
        confidence=_confidences(graph.confidence),
        files=dict(dataset.hashes),
    )


def _confidences(confidence: NDArray[np.float64]) -> Confidences:
    values, counts = np.unique(np.round(confidence, DECIMALS), return_counts=True)
    large = np.flatnonzero(counts >= ATOM * len(confidence))
    large = large[np.argsort(-counts[large], kind="stable")]
    atoms = [Atom(float(values[i]), int(counts[i]), float(counts[i] / len(confidence))) for i in large]
    return Confidences(
        minimum=float(confidence.min()),
        maximum=float(confidence.max()),
        mean=float(confidence.mean()),
        standard_deviation=float(confidence.std()),
        histogram=_histogram(confidence),
        atoms=atoms,
    )


def _histogram(confidence: NDArray[np.float64]) -> list[int]:
    # 0.7 belongs to [0.7, 0.8), though in binary it lies below seven tenths of the range
    bins = np.floor(confidence * BINS + 1e-9).astype(np.int64)
    counts: list[int] = np.bincount(np.clip(bins, 0, BINS - 1), minlength=BINS).tolist()
    return counts


def _used(ids: NDArray[np.int32], n: int) -> NDArray[np.bool_]:
    used = np.zeros(n, dtype=np.bool_)
    used[ids] = True
    return used


def _count_in(keys: NDArray[np.int64], ordered: NDArray[np.int64]) -> int:
    # sorted first, so that the search walks through memory in one direction
    return int(np.count_nonzero(contained(np.sort(keys), ordered)))


def _conflicting(graph: Graph, keys: NDArray[np.int64], again: NDArray[np.int64]) -> int:
    """Triples that occur with more than one confidence; only the rows of repeated triples are looked at."""
    rows = np.flatnonzero(contained(keys, again))
    order = rows[np.lexsort((graph.confidence[rows], keys[rows]))]
    same = keys[order[1:]] == keys[order[:-1]]
    other = graph.confidence[order[1:]] != graph.confidence[order[:-1]]
    return len(np.unique(keys[order[1:]][same & other]))
