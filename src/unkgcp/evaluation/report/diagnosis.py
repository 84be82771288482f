"""All figures of the report of a run: levels, slices, and other interval methods on the same model.

Coverage is judged on the facts whose entities and relation the model knows: an unknown fact gets the whole range,
which always covers and would flatter the figure. Every method is asked once, for all levels, and the figures are
computed from its answers.

>>> diagnose(predictor, dataset).levels[3].coverage     # doctest: +SKIP
0.902
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import unkgcp.evaluation.metrics as metrics
from unkgcp.conformal.ranks import exact_levels
from unkgcp.errors import InputError
from unkgcp.evaluation.assessment import LEVELS, ask, judge, known_triples
from unkgcp.evaluation.report.page_parts import readable_relations
from unkgcp.evaluation.slices import TENTHS, Slices, bands_of, figures_of, tenths_of_doubt
from unkgcp.graph.facts import Graph, Triples
from unkgcp.methods import IntervalPredictor, Intervals, create
from unkgcp.run.calibration import check_untrained, method_options, only_repeats
from unkgcp.run.predictor import Predictor

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset

SHOWN = (0.5, 0.8, 0.85, 0.9, 0.95, 0.99)
RIVALS = (
    "fpi",
    "qr",
    "cp",
    "unkgcp",
    "shortest",
)  # methods that need no training; qr if its models are there
INTERVAL_RIVALS = ("joint", "mean-length")  # the same where confidences are intervals

Floats = NDArray[np.float64]
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Level:
    """Figures of the known test facts at one level.

    `worst_tenth` is the coverage of the worst tenth by the method's own doubt; `band` is the coverage that chance
    allows, None where no law says it.
    """

    confidence: float
    coverage: float
    sharpness: float
    median: float
    interval_score: float
    worst_tenth: float | None
    band: tuple[float, float] | None


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
    """A method on the same model, calibrated on the same facts.

    `coverage` and `sharpness` are at `LEVELS`, (levels,) each; the other figures at the main level. The tenths are
    those of the method's own doubt. `answered` are its answers at the main level, None where it predicts other scores
    than the run does: only methods around the same prediction can be compared error by error.
    """

    name: str
    guarantee: str
    coverage: Floats
    sharpness: Floats
    interval_score: float
    worst_tenth: float
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
    """All figures of a run on its test facts; `confidence` is the main level of the report."""

    predictor: Predictor
    dataset: Dataset
    confidence: float
    promised: bool
    evaluation: dict[str, Any]
    """The result of `assessment.judge`."""
    levels: Sequence[Level]
    asked: Triples
    """The known test facts in the ids of the model."""
    answered: Answered
    slices: Mapping[str, Rows]
    """By `doubt`, `degree`, `relation`, `prediction` and `width`: name, n, coverage, sharpness and band of each slice.

    Bands are None throughout where no law gives them.
    """
    worst: Mapping[str, float | None]
    """This and `ert` are what `slices.judge_slices` says at the main level."""
    ert: Mapping[str, float | None]
    correlation: tuple[float, float, float]
    """Spearman's rank correlation of width and error, and its approximate 95 % interval."""
    rivals: Sequence[Rival]
    best: Best | None
    """What the oracle of the demo graph can do; None for other graphs."""
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
        """These rows of the answers, level by level."""
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
            score = None if rival.own_answers else theirs[name].score.astype(np.float64)
            doubts[name] = rival.doubt(asked, score)
    found = {name: dict(zip(compared, answered(answer), strict=True)) for name, answer in theirs.items()}
    worst_tenths = {name: tenths_of_doubt(doubts[name], found[name][confidence].inside)[1] for name in found}
    found[method.name] = dict(zip(shown, own, strict=True))
    worst_tenths[method.name] = conditional["worst"]["doubt"]
    judged_slices = {
        by: _named(conditional["slices"][by], digits) for by, digits in (("doubt", 3), ("degree", 0))
    }
    rho = metrics.width_error_correlation(main.score, middle, main.lower, main.upper)
    return Diagnosis(
        predictor=predictor,
        dataset=dataset,
        confidence=confidence,
        promised=not method.guarantee.startswith("none"),
        evaluation=evaluation,
        levels=levels,
        asked=asked,
        answered=main,
        slices=judged_slices | _slices(main, dataset, confidence, method.threshold_sizes(asked)),
        worst=conditional["worst"],
        ert=conditional["ert"],
        correlation=(rho, *metrics.spearman_interval(rho, len(middle))),
        rivals=[
            _rival(rival, found[name], worst_tenths[name], main, confidence) for name, rival in rivals.items()
        ],
        best=_best(dataset, facts, confidence),
        intervals=intervals,
    )


def calibrated_on(method: IntervalPredictor) -> int | None:
    """How many calibration facts set the one threshold of a method; its hits are then beta-binomial. None otherwise.

    Hits of a method without a promise follow no law. Those of a method with several thresholds (one a group, or one
    for the middle and one for the length) or several models (CV+) follow another law.
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


def _named(rows: Rows, digits: int) -> Rows:
    """Slices of `slices.judge_slices` with the range of each as its name; one without a band takes it from all."""
    without = any(row["band"] is None for row in rows)
    return [
        {**row, "name": _range(row["from"], row["to"], digits), "band": None if without else row["band"]}
        for row in rows
    ]


def _range(low: float, high: float, digits: int = 3) -> str:
    return f"{low:.{digits}f}\u2013{high:.{digits}f}"


def _slices(
    answered: Answered, dataset: Dataset, confidence: float, sizes: NDArray[np.int64] | None
) -> dict[str, Rows]:
    """Slices by relation (largest first), by tenth of the prediction and by tenth of the width."""
    codes, member, n = np.unique(answered.facts.relation, return_inverse=True, return_counts=True)
    order = np.argsort(-n, kind="stable")
    names = readable_relations(dataset, codes[order].tolist())
    cut = [
        Slices("relation", [{"name": name} for name in names], np.argsort(order)[member]),
        _tenths("prediction", answered.score),
        _tenths("width", answered.width),
    ]
    (bands,) = bands_of([part.member for part in cut], sizes, [confidence])
    if sizes is not None:  # facts without calibration facts have the whole range, which covers
        bands = [[[1.0, 1.0] if band is None else band for band in own] for own in bands]
    scores = metrics.interval_scores(answered.ends, answered.lower, answered.upper, confidence)
    return figures_of(cut, (answered.inside, answered.width, scores), bands)


def _tenths(by: str, values: Floats) -> Slices:
    """Tenths of the values, each named from its lowest value to the next tenth's."""
    lowest, member = np.unique(metrics.equal_bins(values, TENTHS), return_inverse=True)
    ends = [*lowest[1:].tolist(), float(values.max())]
    return Slices(by, [{"name": _range(*pair)} for pair in zip(lowest.tolist(), ends, strict=True)], member)


def _rivals(predictor: Predictor, dataset: Dataset) -> dict[str, IntervalPredictor]:
    """The methods that need no further training, calibrated on the run's facts around its model, and the run's own."""
    method, model, record = predictor.method, predictor.model, predictor.provenance
    calibration, again = dataset.splits.calibration, record.get("recalibrated")
    # the run was then calibrated on facts that the data set does not have
    elsewhere = (isinstance(again, Mapping) and again.get("data") is not None) or bool(record.get("updates"))
    # CV+ has no separate calibration facts. Evidence runs may have a model, but their intervals do not use its score.
    alone = "members" in method.needs or "evidence" in method.needs
    if elsewhere or alone or not len(calibration):
        return {method.name: method}
    facts, protocol = calibration.over(model.vocabulary), record.get("protocol", "strict")
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
    worst_tenth: float,
    main: Answered,
    confidence: float,
) -> Rival:
    """The figures of a method, from its answers by level; `main` are the run's own at the main level."""
    chosen, own = [found[level] for level in LEVELS], found[confidence]
    same = np.array_equal(own.score, main.score)
    return Rival(
        method.name,
        method.guarantee,
        np.array([one.inside.mean() for one in chosen]),
        np.array([metrics.sharpness(one.lower, one.upper) for one in chosen]),
        metrics.interval_score(own.ends, own.lower, own.upper, confidence),
        worst_tenth,
        own if same else None,
    )


def _best(dataset: Dataset, facts: Graph, confidence: float) -> Best | None:
    """What someone who knows the true distribution can do; None for all but the demo graph."""
    if dataset.name != "demo" or "demo" not in dataset.hashes:
        return None
    from unkgcp.graph.demo_graph import generate

    oracle = generate().oracle
    ends = oracle.central(facts, confidence)
    return Best(
        np.array([oracle.width(facts, level) for level in LEVELS]),
        metrics.interval_score(facts.confidence, ends[:, 0], ends[:, 1], confidence),
    )
