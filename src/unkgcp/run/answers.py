"""From queries to answers: the one way for `predict`, for Ray and for the service; and why an answer is as it is.

`answer` takes a batch of queries, as labels or as ids, to answers. `answer_batch` writes them down for
Arrow (`predict` and Ray), `as_lists` for JSON (the service); both write every column there is
(`unkgcp.methods.intervals.columns`), so that the same query is told the same wherever it is asked. All of it is pure:
it reads nothing, keeps nothing and gives rows back in their order, so that several threads may call it. Queries with an
open place are for `unkgcp.run.completion`. `masses` and `without` say what is behind the answer of an evidence run.

>>> answer_batch(predictor, batch, confidence=0.9).schema.names     # doctest: +SKIP
['head', 'relation', 'tail', 'score', 'lower', 'upper', 'status']
>>> as_lists(answer(predictor, triples, [0.8, 0.9]))["lower"]       # doctest: +SKIP
[[0.68, 0.63], [0.0, 0.0]]
>>> without(predictor, ("TP53", "binding", "MDM2"), [17], 0.9)      # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from unkgcp.errors import InputError
from unkgcp.graph.facts import Triples
from unkgcp.graph.objects import Queries, to_triples
from unkgcp.methods.intervals import Floats, Intervals, Levels, as_batch, columns
from unkgcp.tabular.arrow_arrays import Coded

if TYPE_CHECKING:
    from unkgcp.conformal.ranks import Confidence
    from unkgcp.evidence.evidence_model import EvidenceModel
    from unkgcp.graph.known_facts import KnownFacts
    from unkgcp.methods.method import IntervalPredictor
    from unkgcp.training.model import Model

LABELS = ("head", "relation", "tail")
Label = tuple[str, str, str]


class Calibrated(Protocol):
    """What answers are made of, and the facts that are no news; `unkgcp.run.predictor.Predictor` is one."""

    @property
    def model(self) -> Model: ...

    @property
    def method(self) -> IntervalPredictor: ...

    @property
    def known(self) -> KnownFacts: ...


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


def as_lists(answers: Intervals) -> dict[str, list[Any]]:
    """The same columns as lists; what is null in Arrow is NaN here, which JSON writes as null.

    At several levels lower, upper and their like have a list for each row.
    """
    by_name = columns(answers).items()
    return {
        name: column.spelt() if isinstance(column, Coded) else column.tolist() for name, column in by_name
    }


# Why an evidence run answers as it does: the distribution behind an answer, and what single facts did to it.
#
# A fact's part in an answer is found by leaving it out: the same model is told of a training graph without that fact
# and answers the same query. Nothing is learned or calibrated again, so it says what the fact told the model about this
# query, not what the model would be like if it had never seen it; cross-fitted backbone scores keep what they learned
# from it. Two facts that say the same may both seem to change nothing, since either is enough.


def masses(predictor: Calibrated, query: Label) -> tuple[Floats, Floats, Floats]:
    """The distribution from which a query is answered; InputError for a run that has none.

    Lower ends, upper ends and probabilities of stretches of [0, 1] from left to right, (m,) each. The ends of a single
    value are equal.
    """
    distribution = evidence_of(predictor).distribution(to_triples([query], predictor.model.vocabulary))
    low, high, mass = (column[0] for column in distribution.stretches())
    order = np.lexsort((high, low))
    order = order[mass[order] > 0]
    return low[order], high[order], mass[order]


def without(
    predictor: Calibrated, query: Label, rows: Sequence[int], confidence: Confidence
) -> Iterator[Intervals]:
    """The answer to a query without each of these training facts (rows of those of its evidence) alone."""
    triples, model = to_triples([query], predictor.model.vocabulary), evidence_of(predictor)
    train, method = model.evidence.train, copy(predictor.method)
    for row in rows:
        left = train[np.delete(np.arange(len(train)), row)]
        method.evidence = replace(model, evidence=model.evidence.over(left))
        yield method.interval(triples, float(confidence))


def evidence_of(predictor: Calibrated) -> EvidenceModel:
    """What a run learned from its training facts; InputError for one that does not answer from facts."""
    model = predictor.method.evidence
    if model is None or predictor.method.for_open_world:
        raise InputError(
            "this run does not answer from a distribution over facts: fit one with --method evidence and without "
            "--population open"
        )
    return model
