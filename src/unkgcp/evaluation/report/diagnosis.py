"""Everything a report says about a run, as numbers: levels, slices, other methods, remarkable facts.

Coverage is judged on the facts whose entities and relation the model knows: an unknown one gets the whole range,
which always covers and would flatter the figure. Every method is asked once, for all levels; what follows is
arithmetic on its answers.

>>> diagnose(predictor, dataset).levels[3].coverage     # doctest: +SKIP
0.902
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import unkgcp.evaluation.metrics as metrics
from unkgcp.errors import InputError
from unkgcp.evaluation.assessment import LEVELS, ask, judge
from unkgcp.evaluation.metrics import coverage_bands, worst_slab_coverage
from unkgcp.evaluation.report.html import readable_relations
from unkgcp.graph.facts import Graph, Triples
from unkgcp.graph.queries import to_triples
from unkgcp.methods import IntervalPredictor, Intervals, create
from unkgcp.methods.intervals import MODES, columns
from unkgcp.run.fitting import method_options
from unkgcp.run.predictor import Predictor
from unkgcp.run.untrained import check_untrained, only_repeats

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset

SHOWN = (0.5, 0.8, 0.85, 0.9, 0.95, 0.99)
RIVALS = ("fpi", "qr", "cp", "unkgcp", "shortest")  # none needs training, but for the models of qr
INTERVAL_RIVALS = ("joint", "mean-length")  # the same where confidences are intervals
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
class Answered:
    """The known test facts and their answers at one level; every column (n,), but `ends`.

    `ends`, (n, 2), are lower and upper end of each true confidence, the same where it is a number; `middle` is the
    confidence itself or the middle between them.
    """

    facts: Graph
    ends: Floats
    middle: Floats
    score: Floats
    lower: Floats
    upper: Floats
    modes: tuple[NDArray[Any], ...] = ()
    """The columns `MODES`, (n,) each, of a method that answers from a distribution; nothing otherwise."""

    @property
    def inside(self) -> NDArray[np.bool_]:
        return metrics.contains(self.ends, self.lower, self.upper)

    @property
    def outside(self) -> Floats:
        """How far the true confidence reaches out of its interval; below zero where it does not, NaN if it is empty."""
        reach: Floats = np.maximum(self.lower - self.ends[:, 0], self.ends[:, 1] - self.upper)
        return reach

    @property
    def width(self) -> Floats:
        return metrics.widths(self.lower, self.upper)

    @property
    def error(self) -> Floats:
        return np.abs(self.score - self.middle)


@dataclass(frozen=True, slots=True, eq=False)
class Rival:
    """A method on the same model, calibrated on the same facts, at `LEVELS`: every column (levels,).

    `answered` are its answers at the main level, None where it predicts other scores than the run does: only methods
    around the same prediction can be compared error by error.
    """

    name: str
    guarantee: str
    coverage: Floats
    sharpness: Floats
    answered: Answered | None


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
    best: Floats | None
    intervals: bool
    """Whether confidences are intervals themselves."""


def diagnose(predictor: Predictor, dataset: Dataset, confidence: float = 0.9) -> Diagnosis:
    """All figures of a run on the test facts of a data set."""
    if dataset.splits.test.ends is not None and "length" not in predictor.method.needs:
        raise InputError(
            f"the run predicts single confidences, and those of {dataset.name} are intervals; "
            "report on a run that was fitted on such facts"
        )
    shown = sorted({*SHOWN, confidence})
    answers = ask(predictor, dataset, shown)  # refuses a data set without test facts
    evaluation = judge(answers)
    test, method = dataset.splits.test, predictor.method
    answer, known = answers.facts, answers.known
    if not known.any():
        raise InputError(
            f"the model knows the entities and relation of none of the {len(test):,} test facts of {dataset.name}; "
            "report on facts about known entities"
        )
    size = calibrated_on(method)
    facts = test[known]
    middle, truth, intervals = facts.confidence, facts.truth, facts.ends is not None
    ends = truth if intervals else np.column_stack([middle, middle])

    def answered(answer: Intervals, at: int, rows: Any = slice(None)) -> Answered:
        score = answer.score[rows].astype(np.float64)
        told = columns(answer)
        modes = tuple(np.asarray(told[name])[rows] for name in MODES if name in told)
        return Answered(facts, ends, middle, score, answer.lower[rows, at], answer.upper[rows, at], modes)

    own = [answered(answer, at, known) for at in range(len(shown))]
    bands = [None] * len(shown) if size is None else coverage_bands(size, [(len(facts), at) for at in shown])
    levels = [_level(*each) for each in zip(shown, own, bands, strict=True)]
    main = own[shown.index(confidence)]
    asked = Triples(*(column[known] for column in answers.ids))
    compared = sorted({*LEVELS, confidence})
    rivals = _rivals(predictor, dataset)
    theirs = {name: rival.interval(asked, compared) for name, rival in rivals.items() if rival is not method}
    found = {
        name: {level: answered(answer, at) for at, level in enumerate(compared)}
        for name, answer in theirs.items()
    }
    found[method.name] = dict(zip(shown, own, strict=True))
    by_relation, by_prediction, by_width = _slices(main, dataset, confidence, size)
    return Diagnosis(
        predictor,
        dataset,
        confidence,
        not method.guarantee.startswith("none"),
        evaluation,
        levels,
        main,
        by_relation,
        by_prediction,
        by_width,
        _worst_slab(main, dataset, predictor.model.seed),
        _correlation(main),
        [_rival(name, rival.guarantee, found[name], main, confidence) for name, rival in rivals.items()],
        _best(dataset, facts),
        intervals,
    )


def calibrated_on(method: IntervalPredictor) -> int | None:
    """Calibration facts behind the one threshold of a method, for which hits are beta-binomial; None if not so.

    Methods without a promise have no law, several thresholds (one a group, or one of the middle and one of the
    length) or models (CV+) have another one.
    """
    several = "members" in method.needs or method.name == "mean-length" or not method.one_threshold
    return None if several or method.guarantee.startswith("none") else method.size


def _level(confidence: float, found: Answered, band: tuple[float, float] | None) -> Level:
    lower, upper = found.lower, found.upper
    return Level(
        confidence,
        float(found.inside.mean()),
        metrics.sharpness(lower, upper),
        float(np.median(found.width)),
        metrics.interval_score(found.ends, lower, upper, confidence),
        band,
    )


def _slices(answered: Answered, dataset: Dataset, confidence: float, size: int | None) -> list[Slices]:
    """By relation (largest first), by decile of the prediction, by decile of the width."""
    columns = answered.ends, answered.lower, answered.upper

    relation = metrics.coverage_by_group(*columns, answered.facts.relation)
    order = np.argsort(-relation.n, kind="stable")
    relation = metrics.Slices(
        relation.key[order], relation.n[order], relation.coverage[order], relation.sharpness[order]
    )
    prediction = metrics.coverage_by_prediction(answered.score, *columns)
    width = metrics.coverage_by_width(*columns)
    named = [
        (readable_relations(dataset, relation.key.tolist()), relation),
        (_ranges(prediction.key, answered.score), prediction),
        (_ranges(width.key, answered.width), width),
    ]
    if size is None:
        return [Slices(names, found, None) for names, found in named]
    cases = [(n, confidence) for _, found in named for n in found.n.tolist()]
    bands = iter(coverage_bands(size, cases, SLICE_MASS))
    return [Slices(names, found, list(islice(bands, len(names)))) for names, found in named]


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
    columns = answered.score, answered.middle, answered.lower, answered.upper
    rho = metrics.width_error_correlation(*columns)
    return rho, *metrics.spearman_interval(rho, len(answered.score))


def _rivals(predictor: Predictor, dataset: Dataset) -> dict[str, IntervalPredictor]:
    """The methods that cost no further training, on the run's own model and calibration facts, and the run's own."""
    method, model, record = predictor.method, predictor.model, predictor.provenance
    calibration, again = dataset.splits.calibration, record.get("recalibrated")
    elsewhere = isinstance(again, Mapping) and again.get("data") is not None
    # CV+ has no calibration facts apart. Evidence runs carry a backbone, but their intervals do not use its score.
    alone = "members" in method.needs or "evidence" in method.needs
    if elsewhere or alone or not len(calibration):
        return {method.name: method}
    triples, protocol = to_triples(calibration, model.vocabulary), record.get("protocol", "strict")
    facts = Graph(*triples, calibration.confidence, model.vocabulary, calibration.ends)
    with only_repeats(dataset.split_here):
        check_untrained(model, facts, protocol)
    names = [name for name in RIVALS if name != "qr" or predictor.quantiles]
    options = {name: method_options(name, dataset.name, protocol) for name in names}
    if "qr" in options:
        options["qr"]["quantiles"] = predictor.quantiles
    if facts.ends is not None:
        options = {
            name: {"length": predictor.models()["length"], "normalised": True} for name in INTERVAL_RIVALS
        }
    found = {
        name: method if name == method.name else create(name, **own).calibrate(model, facts)
        for name, own in options.items()
    }
    return found | {method.name: method}


def _rival(
    name: str, guarantee: str, found: Mapping[float, Answered], main: Answered, confidence: float
) -> Rival:
    chosen = [found[level] for level in LEVELS]
    same = np.array_equal(found[confidence].score, main.score)
    return Rival(
        name,
        guarantee,
        np.array([one.inside.mean() for one in chosen]),
        np.array([metrics.sharpness(one.lower, one.upper) for one in chosen]),
        found[confidence] if same else None,
    )


def _best(dataset: Dataset, facts: Graph) -> Floats | None:
    """Mean width of the shortest intervals of someone who knows the true distribution: the demo graph only."""
    if dataset.name != "demo" or "demo" not in dataset.hashes:
        return None
    from unkgcp.graph.demo import generate

    oracle = generate().oracle
    return np.array([oracle.width(facts, level) for level in LEVELS])
