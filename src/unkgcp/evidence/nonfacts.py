"""How much a triple looks like a fact, learned from the training facts and corruptions of them.

Boosted trees get the features of an evidence model, for facts and for corrupted facts, each from a graph without the
fact. Their answer carries no guarantee by itself; `unkgcp.methods.open_world` calibrates it on other corruptions.

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
from unkgcp.evidence.evidence_model import CHUNK, EvidenceModel
from unkgcp.evidence.folds import HELD_OUT, MOST
from unkgcp.evidence.trees import Boosting, Trees
from unkgcp.graph.facts import HasTriples, Triples
from unkgcp.graph.negatives import KINDS, corrupt

TREES = Boosting(rounds=200)
FOLDS = 5  # for an evidence model without backbones; one with backbones uses their folds
FACT = 1  # the class of facts; that of corrupted facts is 0


@dataclass(frozen=True, eq=False)
class FactLikeness:
    """The probability that a triple is a fact, estimated for as many facts as corruptions."""

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
        """The likeness that `arrays` stored; ValueError if the arrays do not fit the model."""
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
    """Learn from the training facts of an evidence model, 100,000 at most, and one corruption of each, of all kinds.

    The facts are cut into folds. The facts of one fold and their corruptions get features from a graph that has only
    the other folds, like real queries. If only the fact itself were left out, for its own row, then its corruption
    would still find the fact in the graph. Corruptions of facts that are not in the graph, like those of queries, do
    not, but trees would rely on it.

    `fold`: (N,) the folds of the backbones, if the model has some. A fact and its corruption then get the score of the
    backbone that saw neither.
    """
    train = model.evidence.train
    if fold is None:
        fold = fold_of_rows(len(train), seed, FOLDS)
    chosen = np.zeros(len(train), bool)
    chosen[np.random.default_rng((seed, 0x1EA2)).permutation(len(train))[:MOST]] = True
    tables, labels = [], []
    for place in range(int(fold.max()) + 1):
        rest, facts = train[fold != place], train[(fold == place) & chosen]
        graph = replace(model, evidence=model.evidence.over(rest))
        others = [
            corrupt(facts[turn :: len(kinds)], train, seed=_seed(seed, place, turn), kind=kind)
            for turn, kind in enumerate(kinds)
        ]
        for triples, label in ((facts, FACT), *((each, 0) for each in others)):
            if len(triples):
                tables.append(graph.features(triples, np.full(len(triples), place, np.int8)).table)
                labels.append(np.full(len(triples), label, np.int64))
    table, answer = np.concatenate(tables), np.concatenate(labels)
    held = np.random.default_rng((seed, 0x0BE4)).random(len(table)) * HELD_OUT < 1
    learned = replace(trees, seed=seed).learn(
        table[~held], answer[~held], table[held], answer[held], FACT + 1
    )
    return FactLikeness(model, learned)


def _seed(*numbers: int) -> int:
    """A seed for corruptions that differ from those drawn for calibration and test."""
    return int(np.random.SeedSequence((0xC0, *numbers)).generate_state(1)[0])
