"""How a run is judged: it is asked about the test facts once, and every figure is computed from these answers.

What it is: `ask` collects the answers at all levels. `judge` computes the figures that `unkgcp evaluate --json` prints
and that a run keeps as `metrics.json`; `evaluate` is both in one step. What it is not: a table of the paper (those
repeat it over seeds and models).

All test facts count, those about unknown entities or relations too: where nothing is predicted for them their interval
is the whole range, which covers at width 1, and their error is left out. `unknown` says how many these are.

>>> evaluate(predictor, splits.test)["levels"][0]["positive"]["coverage"]     # doctest: +SKIP
0.8031
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unkgcp.evaluation.metrics as metrics
import unkgcp.evaluation.slices as slices
from unkgcp.conformal.ranks import ExactLevels, exact_levels
from unkgcp.conformal.units import one_row_per_unit
from unkgcp.errors import InputError
from unkgcp.evaluation.query_groups import ThresholdGroups, threshold_groups
from unkgcp.evaluation.slices import Floats, Mask, QueryFeatures
from unkgcp.graph.datasets import Dataset, read
from unkgcp.graph.facts import Graph, Splits, Triples, both_ends, contained, in_vocabulary
from unkgcp.graph.kinds import KINDS, Kinds
from unkgcp.graph.objects import to_triples
from unkgcp.graph.symmetry import symmetric_as_in
from unkgcp.methods.intervals import Intervals
from unkgcp.methods.method import IntervalPredictor, some_rows
from unkgcp.methods.partitions import Partitioned
from unkgcp.progress import Part, Progress, Silent
from unkgcp.run.predictor import Predictor

LEVELS = (0.8, 0.85, 0.9, 0.95)
WORK = 100
"""Progress counts up to this: percent."""
ASKED = 45
"""Where progress stands when all queries are answered, about as an evidence run takes."""
PIECE = 1 << 16  # queries between two reports of progress
SAMPLED = 20_000  # test facts that show how much coverage equal confidences make unavoidable


@dataclass(frozen=True, slots=True, eq=False)
class AnsweredTest:
    """The answers of a run about the test facts of a data set, and about negatives, at all levels.

    Negatives are those of the data set or, where it has none, corrupted test facts; `origin` says which.
    """

    predictor: Predictor
    dataset: Dataset
    levels: Sequence[float]
    ids: Triples
    """The test facts in the ids of the model."""
    truth: Floats
    """Their labels: (n,), or (n, 2) where confidences are intervals."""
    overlap_free: Mask
    """Which of them have a triple that is in neither the training nor the calibration facts: (n,)."""
    facts: Intervals
    negatives: Graph
    truth_of_negatives: Floats
    of_negatives: Intervals
    """By a second threshold, calibrated on negatives, in runs of the paper's protocol; else by the run's only one."""
    origin: str
    answered: Mask
    """Which test facts have a prediction and an interval of their own, not just the whole range: (n,)."""
    taken_in: int
    """How many test facts are left out because an update brought them into the run."""
    train: Graph
    """The facts that the model keeps of its training, else those of the data set, in the ids of the model."""
    queries: QueryFeatures
    kind: NDArray[np.int8]
    """The kind of each test fact by its place in `KINDS`: (n,)."""
    sizes: NDArray[np.int64] | None
    """How many calibration facts set the threshold of each test fact, (n,); None if no threshold is set by rank."""
    group: ThresholdGroups | None
    """Groups of test facts whose hits follow a law; None where none does."""
    unit: NDArray[np.intp]
    """The number of what each test fact came with, as calibration counts it: (n,); equal for facts of one unit."""

    def at(self, place: int) -> JudgedRows:
        """The answers at one level."""
        return JudgedRows.of(self.facts, self.truth, place)


def ask(
    predictor: Predictor,
    dataset: Dataset,
    confidence: Sequence[float] | ExactLevels = LEVELS,
    progress: Progress | None = None,
) -> AnsweredTest:
    """Ask a run about the test facts and negatives of a data set; progress goes up to `ASKED`."""
    dataset, taken_in = not_taken_in(predictor, dataset)
    if not len(dataset.splits.test.head):
        raise InputError(
            f"updates of the run have taken in all test facts of {dataset.name}, which are no test any more; "
            "name other facts with --data"
            if taken_in
            else f"{dataset.name} has no test facts to evaluate on; give a data set that has some"
        )
    splits, vocabulary = dataset.splits, predictor.model.vocabulary
    facts = splits.test
    negatives, origin = negatives_of(dataset, predictor.model.seed)
    if predictor.provenance.get("updates"):
        from unkgcp.run.calibration import without_held

        negatives = negatives[without_held(predictor, negatives, [])]
    ids, other_ids = to_triples(facts, vocabulary), to_triples(negatives, vocabulary)
    taken = np.concatenate([splits.train.keys, splits.validation.keys, splits.calibration.keys])
    overlap_free, truth, truth_of_negatives = (
        ~contained(facts.keys, np.sort(taken)),
        facts.truth,
        negatives.truth,
    )
    asking = Part(progress or Silent(), 0, ASKED, len(facts) + len(negatives))
    exactly = confidence if isinstance(confidence, ExactLevels) else exact_levels(confidence)
    facts_answers = _in_pieces(predictor.method, ids, exactly, asking, 0)
    answered = ~np.isnan(facts_answers.score)
    train, usable = training_facts(predictor, dataset), some_rows(ids, np.flatnonzero(answered))
    doubt, sizes, group = _behind(predictor.method, usable, answered, facts_answers.score)
    of_negatives = _in_pieces(predictor.negative or predictor.method, other_ids, exactly, asking, len(facts))
    kinds = Kinds.of(train, len(predictor.model.seen_entities), len(predictor.model.seen_relations))
    return AnsweredTest(
        predictor=predictor,
        dataset=dataset,
        levels=list(map(float, exactly.levels)),
        ids=ids,
        truth=truth,
        overlap_free=overlap_free,
        facts=facts_answers,
        negatives=negatives,
        truth_of_negatives=truth_of_negatives,
        of_negatives=of_negatives,
        origin=origin,
        answered=answered,
        taken_in=taken_in,
        train=train,
        queries=QueryFeatures.of(train, ids, facts_answers.score.astype(np.float64), doubt),
        kind=kinds.codes(ids),
        sizes=sizes,
        group=group,
        unit=_units(predictor.method, facts.over(vocabulary)),
    )


def _units(method: IntervalPredictor, facts: Graph) -> NDArray[np.intp]:
    """The unit of each fact; one with a label that the vocabulary lacks is a unit of its own: (n,)."""
    alone = np.stack([np.full(len(facts), -1), np.arange(len(facts))], axis=1)
    if method.tells_kinds:
        alone = np.where(in_vocabulary(facts)[:, None], method.units(facts), alone)
    return np.unique(alone, axis=0, return_inverse=True)[1].ravel()


def _behind(
    method: IntervalPredictor, usable: Triples, answered: Mask, score: NDArray[np.float32]
) -> tuple[Floats, NDArray[np.int64] | None, ThresholdGroups | None]:
    """The method's doubt of each test fact, how many calibration facts set its threshold, and its group: (n,) each.

    asked: the answered ones. An unknown fact has no doubt and no calibration facts behind it.
    """
    doubt = np.full(len(answered), np.nan)
    if not answered.any():
        return doubt, None, None
    values = method.doubt(usable, None if method.own_answers else score[answered].astype(np.float64))
    doubt[answered] = values
    sizes, group = (
        method.threshold_sizes(usable, values),
        threshold_groups(method, usable, values),
    )
    if group is not None:
        group = ThresholdGroups(_filled(answered, group.code, -1), _filled(answered, group.size, 0))
    return doubt, None if sizes is None else _filled(answered, sizes, 0), group


def training_facts(predictor: Predictor, dataset: Dataset) -> Graph:
    """The facts that the model keeps of its training, else the training facts of the data set, in the model's ids."""
    model = predictor.model
    if model.facts is not None:
        return model.facts.graph(model.vocabulary)
    train = dataset.splits.train.over(model.vocabulary)
    return train[in_vocabulary(train)]


def _in_pieces(
    method: IntervalPredictor, triples: Triples, levels: ExactLevels, asking: Progress, before: int
) -> Intervals:
    """The method's answers, asked in pieces to report progress; so many queries were answered before."""
    pieces = []
    for start in range(0, max(len(triples.head), 1), PIECE):
        piece = Triples(*(column[start : start + PIECE] for column in triples))
        pieces.append(method.interval(piece, levels))
        asking.update(before + start + len(piece.head), "asking")
    return Intervals.joined(pieces)


def not_taken_in(predictor: Predictor, dataset: Dataset) -> tuple[Dataset, int]:
    """The data set without the test facts that an update brought into the run, and how many these are."""
    if not predictor.provenance.get("updates"):
        return dataset, 0
    from unkgcp.run.calibration import without_held

    splits = dataset.splits
    kept = without_held(predictor, splits.test, [splits.train, splits.validation, splits.calibration])
    if kept.all():
        return dataset, 0
    return replace(dataset, splits=replace(splits, test=splits.test[kept])), int((~kept).sum())


def negatives_of(dataset: Dataset, seed: int) -> tuple[Graph, str]:
    """The data set's own negatives, or one corruption of each test fact; and which of the two."""
    if dataset.negatives is not None:
        return dataset.negatives, "data set"
    from unkgcp.graph.negatives import corrupt

    return corrupt(dataset.splits.test, dataset.splits.train, seed=seed), "sampled"


def evaluate(
    predictor: Predictor,
    data: Any,
    confidence: Sequence[float] = LEVELS,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Ask a run about test facts and judge its answers, see `judge`; progress goes up to `WORK`.

    data: a graph of test facts, a data set, of which the test part is taken, or whatever `unkgcp.read` takes.
    """
    return judge(ask(predictor, test_data(predictor, data), confidence, progress), progress)


def test_data(predictor: Predictor, data: Any) -> Dataset:
    """Test facts as a data set, beside the facts that the run has learned from and calibrated with."""
    if isinstance(data, Dataset):
        return data
    model, graph = predictor.model, data if isinstance(data, Graph) else read(data, symmetric="none")
    if graph.splits is not None:
        return Dataset("graph", graph.splits)
    graph, ranked = symmetric_as_in(graph, model.vocabulary), predictor.method.ranked
    trained = None if model.facts is None else model.facts.graph(model.vocabulary)
    used = [
        graph[:0] if facts is None else replace(facts, vocabulary=model.vocabulary).over(graph.vocabulary)
        for facts in (trained, ranked)
    ]
    train, calibration = (facts[in_vocabulary(facts)] for facts in used)
    return Dataset("graph", Splits(train, calibration, graph, graph[:0]))


@dataclass(frozen=True, slots=True, eq=False)
class JudgedRows:
    """Answers and labels of the same n triples at one level: (n,) each, `truth` also (n, 2)."""

    score: Floats
    """NaN where nothing is predicted, as is `value`."""
    lower: Floats
    upper: Floats
    truth: Floats
    value: Floats
    """The median where the method has a distribution, else the score."""

    @classmethod
    def of(cls, answers: Intervals, truth: Floats, place: int) -> JudgedRows:
        score = answers.score.astype(np.float64)
        value = score if answers.value is None else answers.value
        return cls(score, answers.lower[:, place], answers.upper[:, place], truth, value)

    def some(self, rows: Mask | NDArray[np.intp]) -> JudgedRows:
        columns = (self.score, self.lower, self.upper, self.truth, self.value)
        return JudgedRows(*(column[rows] for column in columns))

    def joined(self, other: JudgedRows) -> JudgedRows:
        columns = [
            (rows.score, rows.lower, rows.upper, both_ends(rows.truth), rows.value) for rows in (self, other)
        ]
        return JudgedRows(*map(np.concatenate, zip(*columns, strict=True)))

    @property
    def prediction(self) -> Floats:
        """What is predicted beside the interval and lies inside of it: (n,), NaN where nothing is."""
        inside = np.clip(self.value, self.lower, self.upper)
        return np.where(np.isnan(inside), self.value, inside)

    @property
    def inside(self) -> Mask:
        return metrics.contains(self.truth, self.lower, self.upper)

    @property
    def width(self) -> Floats:
        return metrics.widths(self.lower, self.upper)

    def figures(self, level: float) -> dict[str, Any]:
        """`n`, then figures; None where there is nothing to judge.

        A label that is an interval is covered if all of it is; its error is that of its middle. Errors are those of the
        prediction; those of the score, which is the mean where the method has one, stand beside them. The interval
        score is also None where it is infinite, which happens at level 1 if a label is missed.
        """
        predicted, width = ~np.isnan(self.score), self.width
        middle, prediction, score = (
            metrics.middle(self.truth)[predicted],
            self.prediction[predicted],
            self.score[predicted],
        )
        figures = {
            "coverage": metrics.coverage(self.truth, self.lower, self.upper),
            "sharpness": metrics.sharpness(self.lower, self.upper),
            "median_width": float(np.median(width)) if len(width) else math.nan,
            "interval_score": metrics.interval_score(self.truth, self.lower, self.upper, level),
            "mse": metrics.mse(prediction, middle),
            "mae": metrics.mae(prediction, middle),
            "mse_of_score": metrics.mse(score, middle),
            "mae_of_score": metrics.mae(score, middle),
        }
        return {"n": len(width), **{key: metrics.finite(value) for key, value in figures.items()}}


def judge(answers: AnsweredTest, progress: Progress | None = None) -> dict[str, Any]:
    """Figures at each level for test facts (`positive`), negatives (`negative`) and both (`mixed`).

    `positive` has, beside the figures of `JudgedRows.figures`: `band`, what chance allows coverage if the promise is
    kept, and `verdict` (see `verdict_on`); `knowing_nothing`, the figures of the two quantiles of all training
    confidences; what `slices.judge_slices` finds; `ert`; `least_possible` (see there); `overlap_free`, the figures of
    facts whose triple is in neither the training nor the calibration facts; and `kinds`, the same for the facts of each
    kind with their `share` of all.

    Negatives are judged with the run's own threshold, calibrated on facts, which predictions use too. A run of the
    paper's protocol has a second threshold for them, calibrated on corrupted calibration facts; `negative_threshold`
    says which was used. In the open world facts and negatives are judged by the hull of both, as predictions are.
    `taken_in` counts the test facts that an update brought into the run; they are left out. `per` names the partitions
    in whose groups the method promises its level; None if it offers no groups.
    """
    predictor, method = answers.predictor, answers.predictor.method
    asserted, least = answers.facts.no_fact is None, least_possible(answers)
    judging = Part(progress or Silent(), ASKED, WORK, 1)
    positive, levels = _judge_facts(answers, judging), []
    for place, level in enumerate(answers.levels):
        facts = answers.at(place)
        negatives = JudgedRows.of(answers.of_negatives, answers.truth_of_negatives, place)
        more = {
            "least_possible": None if least is None else least[place],
            "overlap_free": facts.some(answers.overlap_free).figures(level),
        }
        figures = {"confidence": level, "positive": positive[place] | more}
        levels.append(
            {**figures, "negative": negatives.figures(level), "mixed": facts.joined(negatives).figures(level)}
        )
    return {
        "data": answers.dataset.name,
        "model": predictor.model.called,
        "method": method.name,
        "seed": predictor.model.seed,
        "facts": {
            "training": len(answers.train),
            "calibration": method.size,
            "test": len(answers.truth),
        },
        "per": ",".join(method.per) or "none"
        if isinstance(method, Partitioned) and method.takes_groups
        else None,
        "promised": not method.guarantee.startswith("none"),
        "negatives": answers.origin,
        # what the threshold that negatives are judged with was calibrated on
        "negative_threshold": "negatives"
        if predictor.negative is not None
        else "facts"
        if asserted
        else "both",
        "population": "asserted" if asserted else "open",
        "unknown": {
            "positive": int((answers.facts.code != 0).sum()),
            "negative": int((answers.of_negatives.code != 0).sum()),
        },
        "taken_in": answers.taken_in,
        "levels": levels,
    }


def _judge_facts(answers: AnsweredTest, progress: Progress) -> list[dict[str, Any]]:
    """The figures of all test facts at each level, with those of each kind."""
    n = len(answers.truth)
    rows_of_kind = {
        kind: answers.kind == code for code, kind in enumerate(KINDS) if (answers.kind == code).any()
    }
    steps = 1 + len(rows_of_kind) + len(answers.levels)
    whole: list[dict[str, Any]] = [
        {**level, "kinds": {}} for level in _judge_part(answers, np.ones(n, np.bool_))
    ]
    for step, (kind, rows) in enumerate(rows_of_kind.items(), 1):
        progress.update(step / steps, "judging")
        for level, figures in zip(whole, _judge_part(answers, rows), strict=True):
            level["kinds"][kind] = {"share": float(rows.mean()), **figures}
    table, complete, seed = answers.queries.table(), answers.queries.complete, answers.predictor.model.seed
    for place, level in enumerate(whole):
        inside = answers.at(place).inside[complete]
        level["ert"] = slices.excess_risk(table, inside, answers.levels[place], seed=seed)
        progress.update((2 + len(rows_of_kind) + place) / steps, "judging")
    return whole


def _judge_part(answers: AnsweredTest, rows: Mask) -> list[dict[str, Any]]:
    """The figures of some test facts at each level, with the band and the verdict, and slices among them.

    `coverage` counts each of the `units` once, as promise and band do; `coverage_of_rows` counts all facts.
    """
    model, method, truth = answers.predictor.model, answers.predictor.method, answers.truth[rows]
    sliced = slices.judge_slices(
        answers.queries.some(rows),
        model.vocabulary.relations.to_pylist(),
        (truth, answers.facts.lower[rows], answers.facts.upper[rows]),
        answers.levels,
        sizes=None if answers.sizes is None else answers.sizes[rows],
    )
    unit, size = np.unique(answers.unit[rows], return_inverse=True, return_counts=True)[1:]
    cases = None
    if answers.group is not None and not method.guarantee.startswith("none"):
        drawn = one_row_per_unit(unit)
        cases = ThresholdGroups(*(column[rows][drawn] for column in answers.group)).cases()
    by_level = []
    for place, level in enumerate(answers.levels):
        part = answers.at(place).some(rows)
        figures = part.figures(level)
        # facts that came together count as one, as in calibration
        of_units = metrics.finite((np.bincount(unit, part.inside) / size).mean())
        figures |= {"units": len(size), "coverage": of_units, "coverage_of_rows": figures["coverage"]}
        figures["band"] = None if cases is None else list(metrics.summed_band(cases, level))
        figures["verdict"] = verdict_on(figures)
        nothing = metrics.knowing_nothing(answers.train.truth, truth, level)
        by_level.append({**figures, "knowing_nothing": nothing, **sliced[place]})
    return by_level


def _filled(answered: Mask, values: NDArray[Any], other: int) -> NDArray[np.int64]:
    """The values of answered rows, and another number for the others: (n,)."""
    column = np.full(len(answered), other, np.int64)
    column[answered] = values
    return column


def verdict_on(figures: dict[str, Any]) -> str | None:
    """`kept`, or `above` or `below` what chance allows; None where there is no band."""
    if figures["band"] is None:
        return None
    if slices.below_band(figures):
        return "below"
    return "above" if figures["coverage"] > figures["band"][1] + slices.SLACK else "kept"


def least_possible(answers: AnsweredTest) -> list[float] | None:
    """The coverage at each level of the smallest answers that a method may give; single values make it more than that.

    A threshold that is the score of many labels covers all of them or none. With a floor an answer holds the mass that
    was asked for, as far as it is needed, and all of a single value that it reaches. Unknown facts are covered. None
    for a method whose thresholds are no ranks.
    """
    method, group = answers.predictor.method, answers.group
    rows = np.flatnonzero(answers.answered)
    rows = np.sort(np.random.default_rng(0).permutation(rows)[:SAMPLED])
    if group is None or not len(rows):
        return None
    queries, truth = some_rows(answers.ids, rows), answers.truth[rows]
    scores, floors = method.nonconformity(queries, truth), method.floor_scores(queries, truth)
    if scores is None:
        return None
    # the sign says on which side a label lies
    scores = scores if "length" in method.needs else np.abs(scores)
    floors = np.zeros(len(rows)) if floors is None else floors
    members = [np.flatnonzero(group.code[rows] == code) for code in np.unique(group.code[rows])]
    shares = [
        sum(_covered(scores[each], floors[each], level) for each in members) / len(rows)
        for level in answers.levels
    ]
    return [float(1 - answers.answered.mean() * (1 - share)) for share in shares]


def _covered(scores: Floats, floors: Floats, level: float) -> float:
    """How many of the scores of a group the smallest threshold reaches that reaches the level and the floor."""
    n = len(scores)
    place = min(int(level * n), n - 1)
    threshold = max(np.sort(scores)[place], min(np.sort(floors)[place], level))
    # one score at its rank is no atom
    return max(level * n, float((scores <= threshold).sum()) - 1)
