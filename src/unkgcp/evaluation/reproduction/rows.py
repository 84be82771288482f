"""Stored scores in the place of a model, so that every interval method works on them unchanged.

A stored row is its own "entity": a triple (i, 0, i) asks for the score of row i, and a row without a score is
an unknown entity. Calibration, test facts and negatives of a cell are rows of one long column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.graph import Graph, Vocabulary

PARTS = ("calibration", "calibration_negatives", "test", "negatives")


@dataclass(frozen=True, eq=False)
class StoredScores:
    """A scorer (see `unkgcp.conformal.predictors.Scorer`) over rows; column: (n,), NaN where unknown."""

    column: NDArray[np.float32]

    @property
    def seen_entities(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.column)

    @property
    def seen_relations(self) -> NDArray[np.bool_]:
        return np.ones(1, dtype=np.bool_)

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.column[np.asarray(head)]
        return found


@dataclass(frozen=True, eq=False)
class Rows:
    """The stored rows of one cell: its scorer, the graph of each part, and the quantile models' scorers."""

    model: StoredScores
    graphs: dict[str, Graph]
    quantiles: dict[float, StoredScores]

    @classmethod
    def of(
        cls,
        scores: Mapping[str, NDArray[Any]],
        truth: Mapping[str, NDArray[np.float64]],
        quantiles: Mapping[str, NDArray[Any]] | None = None,
    ) -> Rows:
        """From a score file, the labels of every part and, where there is one, a file of quantile scores."""
        nobody = Vocabulary.of([], [])
        graphs, begin = {}, 0
        for part in PARTS:
            size = len(scores[part])
            if truth[part].shape != (size,):
                raise ValueError(f"{size} scores of {part} stand beside {len(truth[part])} labels")
            rows = np.arange(begin, begin + size, dtype=np.int32)
            graphs[part] = Graph(rows, np.zeros(size, np.int32), rows, truth[part], nobody)
            begin += size
        column = np.concatenate([scores[part] for part in PARTS])
        taus = {} if quantiles is None else dict(enumerate(quantiles["quantiles"].tolist()))
        others = {}
        for place, tau in taus.items():
            assert quantiles is not None
            blank = np.full(begin, np.nan, np.float32)
            for part in ("test", "negatives"):
                blank[graphs[part].head] = quantiles[part][place]
            others[float(tau)] = StoredScores(blank)
        return cls(StoredScores(column), graphs, others)

    def scores(self, part: str) -> NDArray[np.float32]:
        """Stored scores of a part: (n,), NaN where unknown."""
        found: NDArray[np.float32] = self.model.column[self.graphs[part].head]
        return found
