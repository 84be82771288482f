"""A small data set on disk, and stored scores made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worlds import random_ids, vocabulary
from unkgcp.graph import Dataset, Graph, Splits, write

QUICK = "dimension: 4\nepochs: 4\nvalidate_every: 2\nbatch_size: 64\nnegatives: 2\nlearning_rate: 0.02\n"


def small_graph(n: int = 900) -> Graph:
    """Confidences that pile up in the middle, rounded so that some are equal."""
    rng = np.random.default_rng(0)
    return Graph(*random_ids(n, 30, 2, rng), np.round(rng.beta(2, 2, size=n), 3), vocabulary(30, 2))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set folder named `tiny` with train, val and test files, and quick.yaml beside it."""
    place = tmp_path_factory.mktemp("data")
    graph = small_graph()
    for name, part in (("train", graph[:600]), ("val", graph[600:750]), ("test", graph[750:])):
        (place / "tiny").mkdir(exist_ok=True)
        write(part, place / "tiny" / f"{name}.tsv")
    (place / "quick.yaml").write_text(QUICK)
    return place


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    """Train 600, calibration 150, test 148 facts (some repeat training triples) and 140 negatives."""
    graph = small_graph()
    negatives = graph[:140].with_confidence(np.zeros(140))
    return Dataset("tiny", Splits(graph[:600], graph[600:750], graph[752:], graph[:0]), negatives)


def by_hand(dataset: Dataset, seed: int = 0, unknown: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Scores of every part: the labels with noise, the first `unknown` test facts without a score."""
    from unkgcp.evaluation.reproduction.scoring import parts_of

    rng = np.random.default_rng(seed)
    scores = {}
    for name, part in parts_of(dataset, seed).items():
        noise = rng.normal(0, 0.1 if "negative" in name else 0.2, size=len(part))
        scores[name] = np.clip(part.confidence + np.abs(noise), 0.01, 0.99).astype(np.float32)
    scores["test"][:unknown] = np.nan
    return scores
