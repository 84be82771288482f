"""How much a triple looks like a fact: learned from the training facts and corruptions of them.

What it is: boosted trees over what the training graph says about a query, how closely its entities are joined
otherwise, and cross-fitted backbone scores where there are any. Training facts are seen as if they were not in the
graph, corrupted ones as queries: both as a query would be. What it is not: a promise; that comes from a calibration
on other corruptions (`unkgcp.conformal.predictors.open_world`).

>>> likeness = learn_likeness(model, seed=0)            # doctest: +SKIP
>>> likeness(queries)                                   # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.boosting import Boosting
from unkgcp.evidence.crossfit import CrossFit
from unkgcp.evidence.features import HasTriples
from unkgcp.evidence.model import CHUNK, HELD_OUT, EvidenceModel, Query
from unkgcp.evidence.neighbours import NAMES, Neighbours
from unkgcp.evidence.trees import Trees
from unkgcp.graph import Graph
from unkgcp.graph.negatives import corrupt

TREES = Boosting(rounds=300, leaves=63, patience=15)
FACT = 1  # the class of facts; 0 is that of corrupted ones


@dataclass(frozen=True, eq=False)
class FactLikeness:
    """P(fact), if facts and corruptions were equally frequent, as the trees see it."""

    model: EvidenceModel
    neighbours: Neighbours
    trees: Trees

    def __call__(self, triples: HasTriples) -> NDArray[np.float64]:
        out = np.empty(len(triples.head))
        for start in range(0, len(out), CHUNK):
            part = slice(start, start + CHUNK)
            query = Query(triples.head[part], triples.relation[part], triples.tail[part])
            out[part] = self.trees.probabilities(_table(self.model, self.neighbours, query))[:, FACT]
        return out

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.trees.arrays()

    @classmethod
    def restore(cls, model: EvidenceModel, arrays: Mapping[str, NDArray[Any]]) -> FactLikeness:
        """The same again; ValueError if the arrays do not fit the model."""
        trees = Trees.restore(arrays)
        columns = (
            len(model.evidence.names) + len(NAMES) + (len(model.backbone.names) if model.backbone else 0)
        )
        if trees.features != columns or trees.total != FACT + 1:
            raise ValueError("the trees that tell facts from others were learned from other features")
        return cls(model, Neighbours.of(model.evidence.train), trees)


def learn_likeness(
    model: EvidenceModel,
    *,
    seed: int = 0,
    out_of_fold: NDArray[np.float32] | None = None,
    trees: Boosting = TREES,
) -> FactLikeness:
    """Learn from the training facts of an evidence model and one uniform corruption of each.

    `out_of_fold`: (N, columns) backbone scores of the training facts, if the model has a backbone.
    """
    if (model.backbone is None) != (out_of_fold is None):
        raise ValueError(
            "a model with backbone scores needs those of the training facts, another one has none"
        )
    train = model.evidence.train
    neighbours = Neighbours.of(train)
    facts = [model.evidence.leave_one_out().table, neighbours.features(train)]
    if out_of_fold is not None:
        facts.append(np.asarray(out_of_fold, np.float32))
    # "2": other draws than those of calibration or test
    others: Graph = corrupt(train, train, seed=_seed(seed))
    table = np.concatenate([np.concatenate(facts, axis=1), _table(model, neighbours, others)])
    label = np.repeat(np.array([FACT, 0], np.int64), [len(train), len(others)])
    held = np.random.default_rng((seed, 0x0BE4)).random(len(table)) < HELD_OUT
    learned = replace(trees, seed=seed).learn(table[~held], label[~held], table[held], label[held], FACT + 1)
    return FactLikeness(model, neighbours, learned)


def out_of_fold_scores(model: EvidenceModel, fold: NDArray[np.int8]) -> NDArray[np.float32] | None:
    """Scores of the training facts by the backbones that did not see them; None without a backbone."""
    if not isinstance(model.backbone, CrossFit):
        return None
    return model.backbone.out_of_fold(model.evidence.train, fold)


def _table(model: EvidenceModel, neighbours: Neighbours, triples: HasTriples) -> NDArray[np.float32]:
    """Features of queries: (n, columns)."""
    parts = [model.evidence.features(triples).table, neighbours.features(triples)]
    if model.backbone is not None:
        parts.append(model.backbone.scores(triples.head, triples.relation, triples.tail))
    return np.concatenate(parts, axis=1)


def _seed(seed: int) -> int:
    """Another stream of corruptions than the ones drawn for calibration and test."""
    return int(np.random.SeedSequence((seed, 0xC0)).generate_state(1)[0])
