"""Coverage, sharpness and error of a predictor on the test facts of a data set, as one plain object.

What it is: what `unkgcp evaluate --json` prints and a run keeps as `metrics.json`. What it is not: a table
of the paper (those repeat it over seeds and models).

Unknown test facts count: the whole range covers them at width 1. Their error is unknown, so `mse` and `mae`
are those of the known facts; how many are unknown stands beside.

>>> evaluate(predictor, dataset)["levels"][0]["positive"]["coverage"]     # doctest: +SKIP
0.8031
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.bundle import Predictor, to_triples
from unkgcp.conformal.predictors import Intervals
from unkgcp.conformal.predictors.open_world import OpenWorld
from unkgcp.errors import InputError
from unkgcp.evaluation import metrics
from unkgcp.evaluation.ties import tie_figures
from unkgcp.graph import Graph
from unkgcp.graph.negatives import corrupt

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset

LEVELS = (0.8, 0.85, 0.9, 0.95)


def evaluate(predictor: Predictor, dataset: Dataset, confidence: Sequence[float] = LEVELS) -> dict[str, Any]:
    """Figures at each level for test facts (`positive`), negatives (`negative`) and both (`mixed`).

    `overlap_free` are the test facts whose triple is in neither the training nor the calibration facts.
    Negatives come with the data set or, where it has none, are corrupted test facts (`negatives` says which).
    They are judged with the run's own threshold, calibrated on facts, which is the one that predictions use;
    a run of the paper's protocol has a second one, calibrated on corrupted calibration facts
    (`negative_threshold` says which was used). In the open world all are judged by the hull, as predictions are.
    `ties` tells, level by level, coverage of facts above its band because of ties from facts unlike those of
    calibration (`unkgcp.evaluation.ties`). `empty` has, level by level, the share of test facts whose
    interval is empty and the coverage of the others; None if none is.
    """
    facts = dataset.splits.test
    if not len(facts):
        raise InputError(f"{dataset.name} has no test facts to evaluate on; give a data set that has some")
    negatives, origin = negatives_of(dataset, predictor.model.seed)
    levels = [float(level) for level in confidence]
    positive = predictor.interval(facts, levels)
    judge = predictor.negative or predictor.method
    negative = judge.interval(to_triples(negatives, predictor.model.vocabulary), levels)
    free = ~np.isin(facts.keys, np.concatenate([part.keys for part in _known(dataset)]))
    truth, zeros = facts.truth, negatives.truth
    return {
        "data": dataset.name,
        "model": predictor.model.config.model,
        "method": predictor.method.name,
        "seed": predictor.model.seed,
        "negatives": origin,
        "negative_threshold": _threshold(predictor),
        "population": "asserted" if positive.no_fact is None else "open",
        "unknown": {"positive": int((positive.code != 0).sum()), "negative": int((negative.code != 0).sum())},
        "levels": [
            {
                "confidence": level,
                "positive": {
                    **figures([(positive, truth)], place),
                    "overlap_free": figures([(positive, truth)], place, free),
                },
                "negative": figures([(negative, zeros)], place),
                "mixed": figures([(positive, truth), (negative, zeros)], place),
            }
            for place, level in enumerate(levels)
        ],
        "ties": tie_figures(predictor, facts, positive.code == 0, levels),
        "empty": _empty(positive, truth, levels),
    }


def _threshold(predictor: Predictor) -> str:
    """What negatives are judged by: the calibration on facts, the one on negatives, or both as in the open world."""
    if predictor.negative is not None:
        return "negatives"
    return "both" if isinstance(predictor.method, OpenWorld) else "facts"


def _empty(
    answers: Intervals, truth: NDArray[np.float64], levels: Sequence[float]
) -> list[dict[str, Any]] | None:
    """Share of facts with an empty interval, and coverage of those with another, at each level."""
    empty = np.isnan(answers.lower)
    if not empty.any():
        return None
    found = []
    for place, level in enumerate(levels):
        rows = ~empty[:, place]
        inside = metrics.coverage(truth[rows], answers.lower[rows, place], answers.upper[rows, place])
        found.append(
            {
                "confidence": level,
                "share": float(empty[:, place].mean()),
                "coverage_of_others": None if math.isnan(inside) else inside,
            }
        )
    return found


def figures(
    parts: Sequence[tuple[Intervals, NDArray[np.float64]]],
    place: int,
    rows: NDArray[np.bool_] | slice = slice(None),
) -> dict[str, float | int | None]:
    """n, coverage, sharpness, mse and mae of answers and their labels at one level; None where n is 0.

    Labels are numbers (n,) or intervals (n, 2): these are covered if all of each is; errors are of the middle.
    """
    score = np.concatenate([answer.score[rows].astype(np.float64) for answer, _ in parts])
    lower = np.concatenate([answer.lower[rows, place] for answer, _ in parts])
    upper = np.concatenate([answer.upper[rows, place] for answer, _ in parts])
    truth = np.concatenate([metrics.middle(label[rows]) for _, label in parts])
    inside = [
        metrics.contains(label[rows], answer.lower[rows, place], answer.upper[rows, place])
        for answer, label in parts
    ]
    known = ~np.isnan(score)
    found = {
        "coverage": float(np.concatenate(inside).mean()) if len(truth) else math.nan,
        "sharpness": metrics.sharpness(lower, upper),
        "mse": metrics.mse(score[known], truth[known]),
        "mae": metrics.mae(score[known], truth[known]),
    }
    return {"n": len(truth), **{key: None if math.isnan(value) else value for key, value in found.items()}}


def negatives_of(dataset: Dataset, seed: int) -> tuple[Graph, str]:
    """The data set's own negatives, or one corruption of each test fact; and which of the two."""
    if dataset.negatives is not None:
        return dataset.negatives, "data set"
    return corrupt(dataset.splits.test, dataset.splits.train, seed=seed), "sampled"


def _known(dataset: Dataset) -> list[Graph]:
    return [dataset.splits.train, dataset.splits.validation, dataset.splits.calibration]
