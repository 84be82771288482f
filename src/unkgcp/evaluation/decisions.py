"""Confidence filtering: keep triples whose whole interval is good, drop those whose whole one is not, else abstain.

What it is: the accuracy of decisions at a threshold. A triple is good when its true confidence is at least the
threshold (a negative, with confidence 0, is not). It is kept when the lower end of its interval reaches the
threshold, dropped when the upper end stays below it; otherwise the interval abstains. If intervals cover with
probability p, at most 1 - p of all triples are decided wrongly. Beside it stands the decision by the score alone,
which never abstains. What it is not: a choice of the threshold.

>>> decide(np.array([0.9, 0.1]), lower, upper, score, threshold=0.7)["accuracy"]     # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evaluation.text import number, table

if TYPE_CHECKING:
    from unkgcp.bundle import Predictor
    from unkgcp.graph.datasets import Dataset

Floats = NDArray[np.float64]

THRESHOLD = 0.7


def decisions(
    predictor: Predictor, dataset: Dataset, confidence: Sequence[float], threshold: float = THRESHOLD
) -> dict[str, Any]:
    """Decisions about the test facts (`positive`) and about these and as many negatives (`mixed`) at each level."""
    from unkgcp.evaluation.evaluate import negatives_of

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
