"""Why an evidence run answers as it does: the distribution behind an answer, and what single facts did to it.

A fact's part in an answer is found by leaving it out: the same model is told of a training graph without that fact and
answers the same query. Nothing is learned or calibrated again, so it says what the fact told the model about this
query, not what the model would be like if it had never seen it; cross-fitted backbone scores keep what they learned
from it. Two facts that say the same may both seem to change nothing, since either is enough.

>>> masses(predictor, ("TP53", "binding", "MDM2"))[0]                                   # doctest: +SKIP
>>> without(predictor, ("TP53", "binding", "MDM2"), [17], 0.9)[0].score                 # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import Confidence
from unkgcp.errors import InputError
from unkgcp.evidence.evidence_model import EvidenceModel
from unkgcp.graph.facts import Graph, Triples
from unkgcp.graph.objects import to_triples
from unkgcp.methods.intervals import Intervals

if TYPE_CHECKING:
    from unkgcp.run.answers import Calibrated

Label = tuple[str, str, str]


class Masses(NamedTuple):
    """Stretches of [0, 1] from left to right and the probability of each, (m,) each; single values have no width."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    mass: NDArray[np.float64]


def masses(predictor: Calibrated, query: Label) -> Masses:
    """The distribution from which a query is answered; InputError for a run that has none."""
    found = evidence_of(predictor).distribution(to_triples([query], predictor.model.vocabulary))
    cells = found.cells
    low = np.concatenate([cells.low, found.slot_low[0]])
    high = np.concatenate([cells.high, found.slot_high[0]])
    mass = np.concatenate([found.class_mass[0][cells.class_of_piece] * cells.share, found.slot_mass[0]])
    order = np.lexsort((high, low))
    order = order[mass[order] > 0]
    return Masses(low[order], high[order], mass[order])


def without(
    predictor: Calibrated, query: Label, rows: Sequence[int], confidence: Confidence
) -> Iterator[Intervals]:
    """The answer to a query without each of these training facts (rows of `known_facts`) alone."""
    triples, train = to_triples([query], predictor.model.vocabulary), known_facts(predictor)
    for row in rows:
        left = np.delete(np.arange(len(train)), row)
        yield _over(predictor, train[left], triples, confidence)


def known_facts(predictor: Calibrated) -> Graph:
    """The training facts that answers are made from; InputError for a run that does not answer from facts."""
    return evidence_of(predictor).evidence.train


def evidence_of(predictor: Calibrated) -> EvidenceModel:
    model: EvidenceModel | None = predictor.method.evidence
    if model is None or predictor.method.for_open_world:
        raise InputError(
            "this run does not answer from a distribution over facts: fit one with --method evidence and without "
            "--population open"
        )
    return model


def _over(predictor: Calibrated, facts: Graph, triples: Triples, confidence: Confidence) -> Intervals:
    """The answers of the method as it is, told of other facts."""
    model = evidence_of(predictor)
    method = copy(predictor.method)
    method.evidence = replace(model, evidence=model.evidence.over(facts))
    return method.interval(triples, float(confidence))
