"""Everything a report says about a run, as numbers: levels, slices, rivals, remarkable facts.

What it is: the figures, computed once from the run's own test facts. What it is not: a page; nothing here
knows HTML. Coverage is judged on the facts whose entities and relation the model knows: an unknown one gets
the whole range, which always covers and would flatter the figure.

>>> diagnose(predictor, dataset).levels[3].coverage     # doctest: +SKIP
0.902
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evaluation import metrics
from unkgcp.evaluation.assessment import LEVELS, evaluate
from unkgcp.evaluation.metrics import coverage_band, worst_slab_coverage
from unkgcp.evaluation.report.html import readable_relations
from unkgcp.graph import Graph
from unkgcp.methods import IntervalPredictor
from unkgcp.methods.interval_valued import MeanLength
from unkgcp.run import Predictor, recalibrate
from unkgcp.run.fitting import method_options

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset

SHOWN = (0.5, 0.8, 0.85, 0.9, 0.95, 0.99)
RIVALS = ("fpi", "qr", "cp", "unkgcp", "shortest")  # none needs training, but for the models of qr
VALUED = ("joint", "mean-length")  # the same where confidences are intervals
SLICE_MASS = 0.99
SLAB_SHARE = 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Level:
    """Figures of the known test facts at one level; `band` is what chance allows, None where no law says it."""

    confidence: float
    coverage: float
    sharpness: float
    median: float
    interval_score: float
    band: tuple[float, float] | None


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Coverage of disjoint slices of the known test facts, with the band of a slice of that size."""

    names: Sequence[str]
    found: metrics.Slices
    bands: Sequence[tuple[float, float]] | None

    def outside(self) -> int:
        """Slices covered less than chance allows if all facts were covered alike."""
        if self.bands is None:
            return 0
        return sum(c < low for c, (low, _) in zip(self.found.coverage.tolist(), self.bands, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Rival:
    """A method on the same model, calibrated on the same facts, at `LEVELS`: every column (levels,)."""

    name: str
    guarantee: str
    coverage: Floats
    sharpness: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """The known test facts and their answers at the main level; every column (n,)."""

    facts: Graph
    score: Floats
    lower: Floats
    upper: Floats

    @property
    def ends(self) -> Floats:
        """Lower and upper end of each true confidence, the same where it is a number: (n, 2)."""
        both = self.facts.ends
        return np.column_stack([self.facts.confidence] * 2) if both is None else both

    @property
    def inside(self) -> NDArray[np.bool_]:
        return metrics.contains(self.facts.truth, self.lower, self.upper)

    @property
    def outside(self) -> Floats:
        """How far the true confidence reaches out of its interval; below zero where it does not, NaN if it is empty."""
        ends: Floats = np.maximum(self.lower - self.ends[:, 0], self.ends[:, 1] - self.upper)
        return ends

    @property
    def width(self) -> Floats:
        return metrics.widths(self.lower, self.upper)

    @property
    def error(self) -> Floats:
        return np.abs(self.score - self.facts.confidence)


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """What is known of a run on its test facts. `best` are the oracle's widths at `LEVELS` on the demo graph."""

    predictor: Predictor
    dataset: Dataset
    confidence: float
    promised: bool
    evaluation: dict[str, Any]
    levels: Sequence[Level]
    answered: Answered
    by_relation: Slices
    by_prediction: Slices
    by_width: Slices
    worst_slab: float
    correlation: tuple[float, float, float]
    rivals: Sequence[Rival]
    rival_answers: Mapping[str, Answered]
    best: Floats | None

    @property
    def valued(self) -> bool:
        """Whether confidences are intervals themselves."""
        return self.answered.facts.ends is not None


def diagnose(predictor: Predictor, dataset: Dataset, confidence: float = 0.9) -> Diagnosis:
    """All figures of a run on the test facts of a data set."""
    if dataset.splits.test.ends is not None and "length" not in predictor.method.needs:
        raise InputError(
            f"the run predicts single confidences, and those of {dataset.name} are intervals; "
            "report on a run that was fitted on such facts"
        )
    shown = sorted({*SHOWN, confidence})
    evaluation = evaluate(predictor, dataset, shown)  # refuses a data set without test facts
    test, method = dataset.splits.test, predictor.method
    answer = predictor.interval(test, shown)
    known = answer.code == 0
    if not known.any():
        raise InputError(
            f"the model knows the entities and relation of none of the {len(test):,} test facts of {dataset.name}; "
            "report on facts about known entities"
        )
    size = calibrated_on(method)
    facts, score = test[known], answer.score[known].astype(np.float64)
    levels = [
        _level(level, facts.truth, answer.lower[known, at], answer.upper[known, at], size)
        for at, level in enumerate(shown)
    ]
    main = shown.index(confidence)
    answered = Answered(facts, score, answer.lower[known, main], answer.upper[known, main])
    rivals = _rivals(predictor, dataset)
    return Diagnosis(
        predictor,
        dataset,
        confidence,
        not method.guarantee.startswith("none"),
        evaluation,
        levels,
        answered,
        *_slices(answered, dataset, confidence, size),
        worst_slab=_worst_slab(answered, dataset, predictor.model.seed),
        correlation=_correlation(answered),
        rivals=[_rival(name, rival, facts) for name, rival in rivals.items()],
        rival_answers=_rival_answers(rivals, facts, score, confidence),
        best=_best(dataset, facts),
    )


def calibrated_on(method: IntervalPredictor) -> int | None:
    """Calibration facts behind the one threshold of a method, for which hits are beta-binomial; None if not so.

    Methods without a promise have no law, several thresholds (one a relation, or one of the middle and one of the
    length) or models (CV+) have another one.
    """
    several = "members" in method.needs or method.options().get("per") is not None
    several = several or isinstance(method, MeanLength)
    return None if several or method.guarantee.startswith("none") else method.size


def _level(confidence: float, truth: Floats, lower: Floats, upper: Floats, size: int | None) -> Level:
    return Level(
        confidence,
        metrics.coverage(truth, lower, upper),
        metrics.sharpness(lower, upper),
        float(np.median(metrics.widths(lower, upper))),
        metrics.interval_score(truth, lower, upper, confidence),
        None if size is None else coverage_band(size, len(truth), confidence),
    )


def _slices(
    answered: Answered, dataset: Dataset, confidence: float, size: int | None
) -> tuple[Slices, Slices, Slices]:
    """By relation (largest first), by decile of the prediction, by decile of the width."""
    columns = answered.facts.truth, answered.lower, answered.upper

    def banded(names: Sequence[str], found: metrics.Slices) -> Slices:
        if size is None:
            return Slices(names, found, None)
        bands = {n: coverage_band(size, n, confidence, SLICE_MASS) for n in set(found.n.tolist())}
        return Slices(names, found, [bands[n] for n in found.n.tolist()])

    relation = metrics.coverage_by_group(*columns, answered.facts.relation)
    order = np.argsort(-relation.n, kind="stable")
    relation = metrics.Slices(
        relation.key[order], relation.n[order], relation.coverage[order], relation.sharpness[order]
    )
    labels = readable_relations(dataset, relation.key.tolist())
    prediction = metrics.coverage_by_prediction(answered.score, *columns)
    width = metrics.coverage_by_width(*columns)
    return (
        banded(labels, relation),
        banded(_ranges(prediction.key, answered.score), prediction),
        banded(_ranges(width.key, answered.width), width),
    )


def _ranges(keys: NDArray[Any], values: Floats) -> list[str]:
    """`0.12-0.34` for each slice, from its lowest value to the next slice's."""
    if not len(values):
        return []
    ends = [*keys[1:].tolist(), float(values.max())]
    return [f"{low:.3f}\u2013{high:.3f}" for low, high in zip(keys.tolist(), ends, strict=True)]


def _worst_slab(answered: Answered, dataset: Dataset, seed: int) -> float:
    """Over prediction, width, how often head and tail occur in training, and how frequent the relation is."""
    train, facts = dataset.splits.train, answered.facts
    ends = np.concatenate([train.head, train.tail])
    degree = np.bincount(ends, minlength=facts.n_entities)
    frequency = np.bincount(train.relation, minlength=facts.n_relations)
    counts = degree[facts.head], degree[facts.tail], frequency[facts.relation]
    features = np.column_stack([answered.score, answered.width, *(np.log1p(count) for count in counts)])
    return worst_slab_coverage(
        features, answered.inside, rng=np.random.default_rng(seed), share=SLAB_SHARE, directions=200
    )


def _correlation(answered: Answered) -> tuple[float, float, float]:
    """Spearman's rank correlation of width and error, and its approximate 95 % interval."""
    middle = answered.facts.confidence
    rho = metrics.width_error_correlation(answered.score, middle, answered.lower, answered.upper)
    return rho, *metrics.spearman_interval(rho, len(answered.score))


def _rivals(predictor: Predictor, dataset: Dataset) -> dict[str, Predictor]:
    """The methods that cost no further training, on the run's own model and calibration facts, and the run's own."""
    method, record = predictor.method, predictor.provenance
    again = record.get("recalibrated")
    elsewhere = isinstance(again, Mapping) and again.get("data") is not None
    # CV+ has no calibration facts apart, and what stands beside evidence is a backbone that it only uses in passing
    alone = "members" in method.needs or "evidence" in method.needs
    if elsewhere or alone or not len(dataset.splits.calibration):
        return {method.name: predictor}
    rivals = RIVALS if dataset.splits.calibration.ends is None else VALUED
    names = [name for name in rivals if name != "qr" or predictor.quantiles]
    options = {name: method_options(name, dataset.name, record.get("protocol", "strict")) for name in names}
    found = {
        name: recalibrate(predictor, dataset.splits.calibration, name, **options[name])
        for name in names
        if name != method.name
    }
    order = dict.fromkeys([*names, method.name])
    return {name: found.get(name, predictor) for name in order}


def _rival_answers(
    rivals: Mapping[str, Predictor], facts: Graph, score: Floats, confidence: float
) -> dict[str, Answered]:
    """At the main level; only methods around the same prediction can be compared error by error."""
    answers = {name: rival.interval(facts, confidence) for name, rival in rivals.items()}
    return {
        name: Answered(facts, score, answer.lower, answer.upper)
        for name, answer in answers.items()
        if np.array_equal(answer.score.astype(np.float64), score)
    }


def _rival(name: str, rival: Predictor, facts: Graph) -> Rival:
    answer = rival.interval(facts, LEVELS)
    ends = [(answer.lower[:, at], answer.upper[:, at]) for at in range(len(LEVELS))]
    return Rival(
        name,
        rival.method.guarantee,
        np.array([metrics.coverage(facts.truth, *pair) for pair in ends]),
        np.array([metrics.sharpness(*pair) for pair in ends]),
    )


def _best(dataset: Dataset, facts: Graph) -> Floats | None:
    """Mean width of the shortest intervals of someone who knows the true distribution: the demo graph only."""
    if dataset.name != "demo" or "demo" not in dataset.hashes:
        return None
    from unkgcp.graph.demo import generate

    oracle = generate().oracle
    return np.array([oracle.width(facts, level) for level in LEVELS])
