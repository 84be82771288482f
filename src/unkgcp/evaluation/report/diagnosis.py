"""Everything a report says about a run, as numbers: levels, slices, other methods, remarkable facts.

Coverage is judged on the facts whose entities and relation the model knows: an unknown one gets the whole range,
which always covers and would flatter the figure. Every method is asked once, for all levels; what follows is
arithmetic on its answers.

>>> diagnose(predictor, dataset).levels[3].coverage     # doctest: +SKIP
0.902
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import unkgcp.evaluation.metrics as metrics
from unkgcp.conformal.ranks import exact_levels
from unkgcp.errors import InputError
from unkgcp.evaluation.assessment import LEVELS, ask, judge, known_triples
from unkgcp.evaluation.report.page_parts import readable_relations
from unkgcp.evaluation.slices import TENTHS, bands_of, tenths_of_doubt
from unkgcp.graph.facts import Graph
from unkgcp.graph.objects import to_triples
from unkgcp.methods import IntervalPredictor, Intervals, create
from unkgcp.run.calibration import check_untrained, method_options, only_repeats
from unkgcp.run.predictor import Predictor

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset

SHOWN = (0.5, 0.8, 0.85, 0.9, 0.95, 0.99)
RIVALS = ("fpi", "qr", "cp", "unkgcp", "shortest")  # none needs training, but for the models of qr
INTERVAL_RIVALS = ("joint", "mean-length")  # the same where confidences are intervals

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Level:
    """Figures of the known test facts at one level; `band` is what chance allows, None where no law says it."""

    confidence: float
    coverage: float
    sharpness: float
    median: float
    interval_score: float
    worst_tenth: float | None
    """Coverage of the worst tenth by the method's own doubt."""
    band: tuple[float, float] | None


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Coverage of disjoint slices of the known test facts, with their bands, None where no law gives them."""

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
    interval_score: float
    worst_tenth: float
    """These two at the main level; the tenths are those of the method's own doubt."""
    answered: Answered | None


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """The shortest intervals of someone who knows the true distribution, and the least interval score there is."""

    sharpness: Floats
    """At `LEVELS`."""
    interval_score: float
    """At the main level, by the central intervals of the true distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """What is known of a run on its test facts. `best` is what the oracle of the demo graph can do."""

    predictor: Predictor
    dataset: Dataset
    confidence: float
    promised: bool
    evaluation: dict[str, Any]
    levels: Sequence[Level]
    answered: Answered
    by_doubt: Slices
    by_degree: Slices
    by_relation: Slices
    by_prediction: Slices
    by_width: Slices
    worst: Mapping[str, float | None]
    """Coverage where it is lowest, and the rest of what `slices.judge_slices` says of the main level."""
    ert: Mapping[str, float | None]
    correlation: tuple[float, float, float]
    rivals: Sequence[Rival]
    best: Best | None
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
    evaluation, dataset = judge(answers), answers.dataset
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

    def answered(answer: Intervals, rows: Any = slice(None)) -> list[Answered]:
        """Some rows of the answers, level by level."""
        score = answer.score[rows].astype(np.float64)
        told = (answer.value, answer.belief, answer.other, answer.other_belief)
        modes = tuple(column[rows] for column in told if column is not None)
        ends_at = zip(answer.lower[rows].T, answer.upper[rows].T, strict=True)
        return [Answered(facts, ends, middle, score, lower, upper, modes) for lower, upper in ends_at]

    own = answered(answer, known)
    bands = [None] * len(shown) if size is None else metrics.coverage_bands([size], [len(facts)], shown)[:, 0]
    judged = [level["positive"] for level in evaluation["levels"]]
    tenths = [level["worst"]["doubt"] for level in judged]
    levels = [_level(*each) for each in zip(shown, own, tenths, bands, strict=True)]
    main, conditional = own[shown.index(confidence)], judged[shown.index(confidence)]
    asked = known_triples(answers)
    compared = sorted({*LEVELS, confidence})
    rivals = _rivals(predictor, dataset)
    exactly, theirs, doubts = exact_levels(compared), {}, {}
    for name, rival in rivals.items():
        if rival is not method:
            theirs[name] = rival.interval(asked, exactly)
        score = (theirs[name].score if name in theirs else answer.score[known]).astype(np.float64)
        doubts[name] = rival.doubt(asked, None if rival.own_answers else score)
    found = {name: dict(zip(compared, answered(answer), strict=True)) for name, answer in theirs.items()}
    found[method.name] = dict(zip(shown, own, strict=True))
    sizes = method.threshold_sizes(asked)
    by_doubt, by_degree = (_as_judged(conditional["slices"][by], by) for by in ("doubt", "degree"))
    by_relation, by_prediction, by_width = _slices(main, dataset, confidence, sizes)
    return Diagnosis(
        predictor,
        dataset,
        confidence,
        not method.guarantee.startswith("none"),
        evaluation,
        levels,
        main,
        by_doubt,
        by_degree,
        by_relation,
        by_prediction,
        by_width,
        conditional["worst"],
        conditional["ert"],
        _correlation(main),
        [_rival(rival, found[name], doubts[name], main, confidence) for name, rival in rivals.items()],
        _best(dataset, facts, confidence),
        intervals,
    )


def calibrated_on(method: IntervalPredictor) -> int | None:
    """Calibration facts behind the one threshold of a method, for which hits are beta-binomial; None if not so.

    Methods without a promise have no law, several thresholds (one a group, or one of the middle and one of the
    length) or models (CV+) have another one.
    """
    several = "members" in method.needs or method.name == "mean-length" or not method.one_threshold
    return None if several or method.guarantee.startswith("none") else method.size


def _level(confidence: float, found: Answered, worst_tenth: float | None, band: Floats | None) -> Level:
    lower, upper = found.lower, found.upper
    return Level(
        confidence,
        float(found.inside.mean()),
        metrics.sharpness(lower, upper),
        float(np.median(found.width)),
        metrics.interval_score(found.ends, lower, upper, confidence),
        worst_tenth,
        None if band is None else (float(band[0]), float(band[1])),
    )


def _as_judged(rows: Sequence[Mapping[str, Any]], by: str) -> Slices:
    """Slices of `slices.judge_slices` as the page draws them."""
    digits = 3 if by == "doubt" else 0
    columns = (np.array([row[key] for row in rows]) for key in ("from", "n", "coverage", "sharpness"))
    bands = [row["band"] for row in rows]
    return Slices(
        [f"{row['from']:.{digits}f}\u2013{row['to']:.{digits}f}" for row in rows],
        metrics.Slices(*columns),
        None if None in bands else [(low, high) for low, high in bands],
    )


def _slices(
    answered: Answered, dataset: Dataset, confidence: float, sizes: NDArray[np.int64] | None
) -> list[Slices]:
    """By relation (largest first), by decile of the prediction, by decile of the width."""
    columns = answered.ends, answered.lower, answered.upper
    relation, bins = answered.facts.relation, metrics.equal_bins
    score, width = bins(answered.score, TENTHS), bins(answered.width, TENTHS)
    found = [metrics.coverage_by_group(*columns, group) for group in (relation, score, width)]
    order = np.argsort(-found[0].n, kind="stable")
    found[0] = metrics.Slices(*(getattr(found[0], f.name)[order] for f in fields(metrics.Slices)))
    names = [
        readable_relations(dataset, found[0].key.tolist()),
        _ranges(found[1].key, answered.score),
        _ranges(found[2].key, answered.width),
    ]
    if sizes is None:
        return [Slices(*pair, None) for pair in zip(names, found, strict=True)]
    cut: tuple[NDArray[Any], ...] = (relation, score, width)
    members = [_places(one.key, group) for one, group in zip(found, cut, strict=True)]
    (bands,) = bands_of(members, sizes, [confidence])
    # facts without calibration facts have the whole range, which covers
    return [
        Slices(called, one, [(1.0, 1.0) if band is None else (band[0], band[1]) for band in own])
        for called, one, own in zip(names, found, bands, strict=True)
    ]


def _places(keys: NDArray[Any], group: NDArray[Any]) -> NDArray[np.intp]:
    """Where the key of each row stands among the keys, which may be in any order: (n,)."""
    order = np.argsort(keys, kind="stable")
    return order[np.searchsorted(keys[order], group)]


def _ranges(keys: NDArray[Any], values: Floats) -> list[str]:
    """`0.12-0.34` for each slice, from its lowest value to the next slice's."""
    if not len(values):
        return []
    ends = [*keys[1:].tolist(), float(values.max())]
    return [f"{low:.3f}\u2013{high:.3f}" for low, high in zip(keys.tolist(), ends, strict=True)]


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
    elsewhere = elsewhere or bool(
        record.get("updates")
    )  # which brought calibration facts that the data set has not
    # CV+ has no calibration facts apart. Evidence runs may have a model, but their intervals do not use its score.
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
    method: IntervalPredictor,
    found: Mapping[float, Answered],
    doubt: Floats,
    main: Answered,
    confidence: float,
) -> Rival:
    chosen, own = [found[level] for level in LEVELS], found[confidence]
    same = np.array_equal(own.score, main.score)
    return Rival(
        method.name,
        method.guarantee,
        np.array([one.inside.mean() for one in chosen]),
        np.array([metrics.sharpness(one.lower, one.upper) for one in chosen]),
        metrics.interval_score(own.ends, own.lower, own.upper, confidence),
        tenths_of_doubt(doubt, own.inside)[1],
        own if same else None,
    )


def _best(dataset: Dataset, facts: Graph, confidence: float) -> Best | None:
    """What someone who knows the true distribution can do: the demo graph only."""
    if dataset.name != "demo" or "demo" not in dataset.hashes:
        return None
    from unkgcp.graph.demo_graph import generate

    oracle = generate().oracle
    ends = oracle.central(facts, confidence)
    return Best(
        np.array([oracle.width(facts, level) for level in LEVELS]),
        metrics.interval_score(facts.confidence, ends[:, 0], ends[:, 1], confidence),
    )
