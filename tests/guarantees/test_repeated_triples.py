"""With a split by triple the promise holds for triples; the coverage of single rows is a little lower."""

from __future__ import annotations

import numpy as np
import pytest

from tests.worlds import vocabulary
from unkgcp.conformal import ranks
from unkgcp.graph import Graph, split

LEVEL, RUNS = 0.9, 4000


@pytest.mark.parametrize(("calibrating", "rows"), [(22, 1), (22, 2), (22, 3), (22, 20), (221, 2), (221, 20)])
def test_rows_of_triples_kept_together(calibrating: int, rows: int) -> None:
    """All rows of a triple carry one confidence, the extreme case. Each mean is within five standard errors.

    With m calibration triples of r rows each the rank is k = ceil(a (m r + 1)), and a row of another triple is
    inside with probability ceil(k / r) / (m + 1), which is at least a - a (1 - 1 / r) / (m + 1).
    """
    runs = RUNS if calibrating < 100 else RUNS // 10
    triples = 2 * calibrating
    ids = np.repeat(np.arange(triples, dtype=np.int32), rows)
    words = vocabulary(triples)
    rank = ranks.rank(LEVEL, calibrating * rows)
    expected = -(-rank // rows) / (calibrating + 1)
    assert expected >= LEVEL - LEVEL * (1 - 1 / rows) / (calibrating + 1)
    inside = []
    for seed in range(runs):
        confidence = np.repeat(np.random.default_rng((seed, 1)).random(triples), rows)
        graph = Graph(ids, np.zeros_like(ids), ids, confidence, words)
        parts = split(graph, calibration=0.5, test=0.25, seed=seed, hold_out="triples")
        assert len(parts.calibration) == calibrating * rows
        threshold = np.sort(parts.calibration.confidence)[rank - 1]
        inside.append(np.mean(parts.test.confidence <= threshold))
    print(f"{calibrating} triples of {rows} rows: {np.mean(inside):.4f}, in theory {expected:.4f}")
    assert abs(np.mean(inside) - expected) < 5 * np.std(inside) / runs**0.5
