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

from unkgcp.conformal.ranking import Standing
from unkgcp.conformal.ranks import Confidence, rank, smoothed_exceeds
from unkgcp.errors import InputError
from unkgcp.evaluation import metrics
from unkgcp.evaluation.metrics import coverage_band
from unkgcp.evaluation.monitor.watch import keeps_scores
from unkgcp.evaluation.text import number, table
from unkgcp.graph import Graph
from unkgcp.graph.facts import Triples
from unkgcp.graph.negatives import corrupt
from unkgcp.graph.queries import to_triples
from unkgcp.methods import Intervals
from unkgcp.methods.open_world import OpenWorld
from unkgcp.run import Predictor

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
    calibration (`unkgcp.evaluation.assessment`). `empty` has, level by level, the share of test facts whose
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


# Coverage above the band: harmless ties, or facts unlike those of calibration?


def smoothed_coverage(standing: Standing, confidence: Confidence, unknown: int = 0) -> float:
    """The mean probability of being covered with ties broken at random; `unknown` more facts always are."""
    covered = float(smoothed_exceeds(*standing, confidence).sum())
    return (covered + unknown) / (len(standing.below) + unknown)


def tie_figures(
    predictor: Predictor, facts: Graph, known: NDArray[np.bool_], levels: Sequence[float]
) -> list[dict[str, Any]] | None:
    """`confidence`, `coverage_smoothed` and `band` (low, high) of test facts at each level; unknown facts are covered.

    None for a method that ranks no scores, and in the open world, whose hulls have two thresholds. The band is None
    where every relation has a threshold, and where the answer at a level is no matter of rank.
    """
    ids, unknown = to_triples(facts, predictor.model.vocabulary), int((~known).sum())
    asked = Triples(*(column[known] for column in ids))
    standing = predictor.method.standing(asked, facts.truth[known]) if len(asked.head) else None
    if standing is None:
        return None
    one = keeps_scores(predictor.method)
    return [
        {
            "confidence": level,
            "coverage_smoothed": smoothed_coverage(standing, level, unknown),
            "band": _band(standing, level, unknown) if one else None,
        }
        for level in levels
    ]


def _band(standing: Standing, level: float, unknown: int) -> list[float] | None:
    known, size = len(standing.below), int(standing.size[0])
    if not 1 <= rank(level, size) <= size:
        return None
    ends = coverage_band(size, known, level)
    return [(end * known + unknown) / (known + unknown) for end in ends]


# Confidence filtering: keep triples whose whole interval is good, drop those whose whole one is not, else abstain.

Floats = NDArray[np.float64]

THRESHOLD = 0.7


def decisions(
    predictor: Predictor, dataset: Dataset, confidence: Sequence[float], threshold: float = THRESHOLD
) -> dict[str, Any]:
    """Decisions about the test facts (`positive`) and about these and as many negatives (`mixed`) at each level."""
    pass

    facts = dataset.splits.test
    negatives, _ = negatives_of(dataset, predictor.model.seed)
    levels = [float(level) for level in confidence]
    positive, negative = predictor.interval(facts, levels), predictor.interval(negatives, levels)
    truth = np.concatenate([facts.confidence, negatives.confidence])
    score = np.concatenate([positive.score, negative.score])
    lower, upper = (
        np.concatenate([getattr(answers, end) for answers in (positive, negative)])
        for end in ("lower", "upper")
    )
    n = len(facts)
    return {
        "threshold": threshold,
        "levels": [
            {
                "confidence": level,
                "positive": decide(truth[:n], lower[:n, place], upper[:n, place], score[:n], threshold),
                "mixed": decide(truth, lower[:, place], upper[:, place], score, threshold),
            }
            for place, level in enumerate(levels)
        ],
    }


def decisions_text(result: dict[str, Any]) -> str:
    """The same for people."""
    names = ("kept", "dropped", "abstained", "accuracy", "precision", "wrong", "score_accuracy")
    rows = [
        [f"{level['confidence']:g} {part}", *(number(level[part][name], 4) for name in names)]
        for level in result["levels"]
        for part in ("positive", "mixed")
    ]
    heading = f"keep or drop at {result['threshold']:g} (facts, then facts and negatives)"
    return heading + "\n\n" + table(["level", *(name.replace("_", " ") for name in names)], rows)


def decide(
    truth: Floats,
    lower: Floats,
    upper: Floats,
    score: NDArray[np.floating[Any]],
    threshold: float = THRESHOLD,
) -> dict[str, Any]:
    """Shares and accuracies of decisions about labels (n,) with intervals (n,) and scores (n,), NaN if unknown.

    `accuracy` is the share of right decisions among those made, `precision` that of good triples among those kept,
    `wrong` the share of wrong decisions among all triples, `score_accuracy` the accuracy of the score alone, where
    an unknown triple is dropped. None where there is nothing to divide by.
    """
    good = truth >= threshold
    keep, drop = lower >= threshold, upper < threshold
    decided = keep | drop
    right = (keep & good) | (drop & ~good)
    by_score = np.nan_to_num(score.astype(np.float64), nan=-np.inf) >= threshold
    n = len(truth)
    return {
        "n": n,
        "kept": _share(keep, n),
        "dropped": _share(drop, n),
        "abstained": _share(~decided, n),
        "accuracy": _share(right, int(decided.sum())),
        "precision": _share(keep & good, int(keep.sum())),
        "wrong": _share(decided & ~right, n),
        "score_accuracy": _share(by_score == good, n),
    }


def _share(rows: NDArray[np.bool_], of: int) -> float | None:
    return int(rows.sum()) / of if of else None
