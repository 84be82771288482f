"""From queries to answers: the one way for `predict`, for Ray and for the service.

`answer` takes a batch of queries, as labels or as ids, to answers. `answer_batch` writes them down for
Arrow (`predict` and Ray), `as_lists` for JSON (the service); both write every column there is
(`unkgcp.methods.intervals.columns`), so that the same query is told the same wherever it is asked. All of it is pure:
it reads nothing, keeps nothing and gives rows back in their order, so that several threads may call it. Queries with an
open place are for `unkgcp.run.completion`.

>>> answer_batch(predictor, batch, confidence=0.9).schema.names     # doctest: +SKIP
['head', 'relation', 'tail', 'score', 'lower', 'upper', 'status']
>>> as_lists(answer(predictor, triples, [0.8, 0.9]))["lower"]       # doctest: +SKIP
[[0.68, 0.63], [0.0, 0.0]]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from unkgcp.graph.facts import Triples
from unkgcp.graph.objects import Queries, to_triples
from unkgcp.methods.intervals import BY_LEVEL, Intervals, Levels, as_batch, columns
from unkgcp.tabular.arrow_arrays import Coded

if TYPE_CHECKING:
    from unkgcp.methods.method import IntervalPredictor
    from unkgcp.training.model import Model

    class Calibrated(Protocol):
        """What answers are made of; `unkgcp.run.predictor.Predictor` is such a pair."""

        @property
        def model(self) -> Model: ...

        @property
        def method(self) -> IntervalPredictor: ...


LABELS = ("head", "relation", "tail")


def answer(predictor: Calibrated, queries: Queries, confidence: Levels = 0.9) -> Intervals:
    """Score, interval, status and whatever else the run's method tells of each query, in order.

    An unknown entity or relation gives the whole range [0, 1], no score, and a status that says so.
    """
    return predictor.method.interval(to_triples(queries, predictor.model.vocabulary), confidence)


def answer_batch(
    predictor: Calibrated, batch: pa.RecordBatch, confidence: Levels = 0.9, first: int = 0
) -> pa.RecordBatch:
    """head, relation and tail of a batch as given, then its answers; see `as_batch`.

    Labels are strings or dictionaries of strings. How many rows come before the batch (`first`) is of no consequence.
    """
    labels = dict(zip(LABELS, map(batch.column, LABELS), strict=True))
    triples = Triples(*predictor.model.vocabulary.triple_ids(*labels.values()))
    return as_batch(predictor.method.interval(triples, confidence), labels)


def as_lists(
    answers: Intervals, rows: slice = slice(None), only_first_level: bool = False
) -> dict[str, list[Any]]:
    """The same columns, of some rows, as lists; what is null in Arrow is NaN here, which JSON writes as null.

    At several levels lower, upper and their like have a list for each row, or with `only_first_level` one number.
    """
    told: dict[str, list[Any]] = {}
    for name, column in columns(answers).items():
        if isinstance(column, Coded):
            told[name] = Coded(column.code[rows], column.names).spelt()
        elif only_first_level and name in BY_LEVEL:
            told[name] = column[rows, 0].tolist()
        else:
            told[name] = column[rows].tolist()
    return told
