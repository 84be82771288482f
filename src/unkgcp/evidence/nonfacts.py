"""How much a triple looks like a fact: learned from the training facts and corruptions of them.

Boosted trees see what an evidence model is told about a query. Facts and corrupted facts are both asked as queries of
a graph without them. What comes out promises nothing; a promise comes from a calibration on other corruptions
(`unkgcp.methods.open_world`).

>>> likeness = learn_likeness(model, seed=0)            # doctest: +SKIP
>>> likeness(queries)                                   # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evidence.crossfit import fold_of_rows
from unkgcp.evidence.evidence_model import CHUNK, HELD_OUT, MOST_LEARNED, EvidenceModel
from unkgcp.evidence.trees import Boosting, Trees
from unkgcp.graph.facts import HasTriples, Triples
from unkgcp.graph.negatives import KINDS, corrupt

TREES = Boosting(rounds=200)
FOLDS = 5  # of a model without backbones; one with backbones uses their folds
FACT = 1  # the class of facts; 0 is that of corrupted ones


@dataclass(frozen=True, eq=False)
class FactLikeness:
    """P(fact), if facts and corruptions were equally frequent, as the trees see it."""

    model: EvidenceModel
    trees: Trees

    def __call__(self, triples: HasTriples) -> NDArray[np.float64]:
        out = np.empty(len(triples.head))
        for start in range(0, len(out), CHUNK):
            part = slice(start, start + CHUNK)
            queries = Triples(triples.head[part], triples.relation[part], triples.tail[part])
            out[part] = self.trees.probabilities(self.model.features(queries).table)[:, FACT]
        return out

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.trees.arrays()

    @classmethod
    def restore(cls, model: EvidenceModel, arrays: Mapping[str, NDArray[Any]]) -> FactLikeness:
        """The same again; ValueError if the arrays do not fit the model."""
        trees = Trees.restore(arrays)
        if trees.features != model.columns or trees.total != FACT + 1:
            raise ValueError(
                "the trees that tell facts from others were learned from other features: fit it again with this version"
            )
        return cls(model, trees)


def learn_likeness(
    model: EvidenceModel,
    *,
    seed: int = 0,
    fold: NDArray[np.int8] | None = None,
    kinds: Sequence[str] = KINDS,
    trees: Boosting = TREES,
) -> FactLikeness:
    """Learn from the training facts of an evidence model, 100,000 at most, and a corruption of each, the kinds in turn.

    The facts are cut into folds. Those of one fold and their corruptions are asked as queries of a graph that has only
    the others, as will be the case with real queries. It would not do to leave out a fact for its own row alone: its
    corruption would then find the fact beside it in the graph, which corruptions of other facts do not, and trees
    learn that first.

    `fold`: (N,) that of the backbones, if the model has some; a fact and its corruption are told the score of the
    backbone that saw neither.
    """
    train = model.evidence.train
    if fold is None:
        fold = fold_of_rows(len(train), seed, FOLDS)
    chosen = np.zeros(len(train), bool)
    chosen[np.random.default_rng((seed, 0x1EA2)).permutation(len(train))[:MOST_LEARNED]] = True
    tables, labels = [], []
    for place in range(int(fold.max()) + 1):
        rest, own = train[fold != place], train[(fold == place) & chosen]
        graph = replace(model, evidence=model.evidence.over(rest))
        others = [
            corrupt(own[turn :: len(kinds)], train, seed=_seed(seed, place, turn), kind=kind)
            for turn, kind in enumerate(kinds)
        ]
        for triples, label in ((own, FACT), *((each, 0) for each in others)):
            if len(triples):
                tables.append(graph.features(triples, np.full(len(triples), place, np.int8)).table)
                labels.append(np.full(len(triples), label, np.int64))
    table, answer = np.concatenate(tables), np.concatenate(labels)
    held = np.random.default_rng((seed, 0x0BE4)).random(len(table)) < HELD_OUT
    learned = replace(trees, seed=seed).learn(
        table[~held], answer[~held], table[held], answer[held], FACT + 1
    )
    return FactLikeness(model, learned)


def _seed(*numbers: int) -> int:
    """Another stream of corruptions than the ones drawn for calibration and test."""
    return int(np.random.SeedSequence((0xC0, *numbers)).generate_state(1)[0])
