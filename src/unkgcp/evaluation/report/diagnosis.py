"""What the report of a run is made of: the evaluation, the answers at one level, and more slices of the test facts.

All test facts count, as they do for `unkgcp evaluate`, so that the figures of both agree.

>>> diagnose(predictor, dataset).level["positive"]["coverage"]     # doctest: +SKIP
0.902
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import unkgcp.evaluation.metrics as metrics
from unkgcp.errors import InputError
from unkgcp.evaluation.assessment import AnsweredTest, JudgedRows, ask, judge
from unkgcp.evaluation.report.page_parts import readable
from unkgcp.evaluation.slices import TENTHS, Slices, bands_of, equal_slices, figures_of
from unkgcp.graph.datasets import Dataset
from unkgcp.run.predictor import Predictor

SHOWN = (0.5, 0.8, 0.85, 0.9, 0.95, 0.99)
"""The levels of the table and of the curves."""


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """All figures of a run on its test facts; `confidence` is the main level of the report."""

    confidence: float
    answers: AnsweredTest
    result: dict[str, Any]
    """The result of `assessment.judge`, and of it the main level."""
    level: dict[str, Any]
    rows: JudgedRows
    """The answers at the main level."""
    slices: Mapping[str, Sequence[Mapping[str, Any]]]
    """By `doubt`, `degree`, `relation` and `prediction`: name, n, coverage, sharpness and band of each slice.

    Every relation is a slice here, the largest first.
    """

    @property
    def figures(self) -> dict[str, Any]:
        """The figures of all test facts at the main level."""
        figures: dict[str, Any] = self.level["positive"]
        return figures

    @property
    def intervals(self) -> bool:
        """Whether confidences are intervals themselves."""
        return self.answers.truth.ndim == 2


def diagnose(predictor: Predictor, dataset: Dataset, confidence: float = 0.9) -> Diagnosis:
    """All figures of a run on the test facts of a data set."""
    if dataset.splits.test.ends is not None and "length" not in predictor.method.needs:
        raise InputError(
            f"the run predicts single confidences, and those of {dataset.name} are intervals; "
            "report on a run that was fitted on such facts"
        )
    shown = sorted({*SHOWN, confidence})
    answers = ask(predictor, dataset, shown)  # refuses a data set without test facts
    if not answers.answered.any():
        raise InputError(
            f"the model knows the entities and relation of none of the {len(answers.truth):,} test facts of "
            f"{dataset.name}; report on facts about known entities"
        )
    result, place = judge(answers), shown.index(confidence)
    level, rows = result["levels"][place], answers.at(place)
    slices = {
        by: [
            {**row, "name": _range(row["from"], row["to"], digits)} for row in level["positive"]["slices"][by]
        ]
        for by, digits in (("doubt", 3), ("degree", 0))
    }
    return Diagnosis(
        confidence, answers, result, level, rows, slices | _more_slices(answers, rows, confidence)
    )


def _range(low: float, high: float, digits: int = 3) -> str:
    return f"{low:.{digits}f}\u2013{high:.{digits}f}"


def _more_slices(
    answers: AnsweredTest, rows: JudgedRows, confidence: float
) -> dict[str, list[dict[str, Any]]]:
    """Slices by relation and by tenth of the prediction."""
    relation = answers.dataset.splits.test.relation
    codes, member, n = np.unique(relation, return_inverse=True, return_counts=True)
    order = np.argsort(-n, kind="stable")
    names = readable(answers.dataset, "relations", codes[order].tolist())
    by_relation = Slices("relation", [{"name": name} for name in names], np.argsort(order)[member])
    tenths = equal_slices("prediction", rows.prediction, TENTHS)
    named = [{"name": _range(row["from"], row["to"])} for row in tenths.about]
    cut = [by_relation, Slices("prediction", named, tenths.member)]
    (bands,) = bands_of([part.member for part in cut], answers.sizes, [confidence])
    if answers.sizes is not None:  # facts without calibration facts have the whole range, which covers
        bands = [[[1.0, 1.0] if band is None else band for band in of_one_way] for of_one_way in bands]
    scores = metrics.interval_scores(rows.truth, rows.lower, rows.upper, confidence)
    return figures_of(cut, (rows.inside, rows.width, scores), bands)
