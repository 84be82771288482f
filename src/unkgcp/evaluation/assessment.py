"""How a run is judged: it is asked about the test facts once, and every figure is computed from these answers.

What it is: `ask` collects the answers at all levels. `judge` computes the figures that `unkgcp evaluate --json` prints
and that a run keeps as `metrics.json`; `evaluate` is both in one step. `decisions` says how good it is to keep and drop
triples by their interval. What it is not: a table of the paper (those repeat it over seeds and models).

Test facts about unknown entities or relations count: their interval is the whole range, which covers at width 1. They
have no score, so that `mse` and `mae` are those of the known facts; `unknown` says how many have none.

>>> evaluate(predictor, dataset)["levels"][0]["positive"]["coverage"]     # doctest: +SKIP
0.8031
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import unkgcp.evaluation.metrics as metrics
import unkgcp.evaluation.slices as slices
from unkgcp.conformal.ranks import ExactLevels, exact_levels, ranks, smoothed_coverages
from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Triples, in_vocabulary
from unkgcp.graph.objects import to_triples
from unkgcp.methods.intervals import Intervals
from unkgcp.methods.method import IntervalPredictor
from unkgcp.methods.partitions import Partitioned
from unkgcp.run.predictor import Predictor

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset
    from unkgcp.progress import Progress

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

LEVELS = (0.8, 0.85, 0.9, 0.95)
WORK = 100
"""Progress counts up to this: percent."""
ASKED, DESCRIBED = 45, 60
"""Where progress stands when all queries are answered and when their doubt is known, about as an evidence run takes."""
PIECE = 1 << 16  # queries between two reports of progress; fewer are judged in a moment and reported once


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
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
    known: Mask
    """Which test facts are about entities and a relation that the model knows: (n,)."""
    taken_in: int
    """How many test facts are left out because an update brought them into the run."""


def ask(
    predictor: Predictor,
    dataset: Dataset,
    confidence: Sequence[float] | ExactLevels = LEVELS,
    progress: Progress | None = None,
) -> Answers:
    """Ask a run about the test facts and negatives of a data set; progress goes up to `ASKED`."""
    if not len(dataset.splits.test.head):
        raise InputError(f"{dataset.name} has no test facts to evaluate on; give a data set that has some")
    dataset, taken_in = not_taken_in(predictor, dataset)
    if not len(dataset.splits.test.head):
        raise InputError(
            f"updates of the run have taken in all test facts of {dataset.name}, which are no test any more; "
            "name other facts with --data"
        )
    splits, vocabulary = dataset.splits, predictor.model.vocabulary
    facts = splits.test
    negatives, origin = negatives_of(dataset, predictor.model.seed)
    if predictor.provenance.get("updates"):
        from unkgcp.run.calibration import without_held

        negatives = negatives[without_held(predictor, negatives, [])]
    ids, other_ids = to_triples(facts, vocabulary), to_triples(negatives, vocabulary)
    taken = np.concatenate([splits.train.keys, splits.validation.keys, splits.calibration.keys])
    overlap_free, truth, truth_of_negatives = ~np.isin(facts.keys, taken), facts.truth, negatives.truth
    n, of = len(facts.head), len(negatives.head)
    exactly = confidence if isinstance(confidence, ExactLevels) else exact_levels(confidence)
    if predictor.negative is None:
        both = Triples(*map(np.concatenate, zip(ids, other_ids, strict=True)))
        found, of_negatives = _in_pieces(predictor.method, both, exactly, progress, 0, n + of).cut(n)
    else:
        found = _in_pieces(predictor.method, ids, exactly, progress, 0, n + of)
        of_negatives = _in_pieces(predictor.negative, other_ids, exactly, progress, n, n + of)
    return Answers(
        predictor=predictor,
        dataset=dataset,
        levels=list(map(float, exactly.levels)),
        ids=ids,
        truth=truth,
        overlap_free=overlap_free,
        facts=found,
        negatives=negatives,
        truth_of_negatives=truth_of_negatives,
        of_negatives=of_negatives,
        origin=origin,
        known=found.code == 0,
        taken_in=taken_in,
    )


def _in_pieces(
    method: IntervalPredictor,
    triples: Triples,
    levels: ExactLevels,
    progress: Progress | None,
    before: int,
    total: int,
) -> Intervals:
    """The method's answers, asked in pieces to report progress; `before` of `total` queries were answered before."""
    n = len(triples.head)
    if progress is None or total <= PIECE:
        return method.interval(triples, levels)
    found = []
    for start in range(0, max(n, 1), PIECE):
        found.append(method.interval(Triples(*(column[start : start + PIECE] for column in triples)), levels))
        progress.update(round(ASKED * (before + min(start + PIECE, n)) / total, 1), "asking")
    return Intervals.joined(found)


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
    dataset: Dataset,
    confidence: Sequence[float] = LEVELS,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Ask a run about a data set and judge its answers, see `judge`; progress goes up to `WORK`."""
    return judge(ask(predictor, dataset, confidence, progress), progress)


def judge(answers: Answers, progress: Progress | None = None) -> dict[str, Any]:
    """Figures at each level for test facts (`positive`), negatives (`negative`) and both (`mixed`).

    `taken_in` (updated runs only) counts the test facts that an update brought into the run; they are left out.
    `overlap_free` are the test facts whose triple is in neither the training nor the calibration facts.
    Negatives are judged with the run's own threshold, calibrated on facts, which predictions use too. A run of the
    paper's protocol has a second threshold for them, calibrated on corrupted calibration facts; `negative_threshold`
    says which was used. In the open world facts and negatives are judged by the hull of both, as predictions are.
    `per` names the partitions in whose groups the method promises its level; None if it offers no groups.
    `positive` also has what `slices.judge_slices` finds at each level among the known test facts: coverage by doubt,
    degree and relation with bands, the worst of each, and ERT. `ties` has coverage with ties broken at random at each
    level: coverage above its band may come from ties, which are harmless, or from facts unlike those of calibration.
    `empty` has, level by level, the share of test facts whose interval is empty and the coverage of the others; None
    if no interval is empty.
    """
    predictor, method = answers.predictor, answers.predictor.method
    negatives = _rows(answers.of_negatives, answers.truth_of_negatives)
    facts = _rows(answers.facts, answers.truth)
    overlap_free = Rows(*(column[answers.overlap_free] for column in facts))
    both = Rows(*(np.concatenate(pair) for pair in zip(facts, negatives, strict=True)))
    asserted = answers.facts.no_fact is None
    conditional = _conditional(answers, facts, None if len(both.score) <= PIECE else progress)
    return {
        "data": answers.dataset.name,
        "model": predictor.model.called,
        "method": method.name,
        "seed": predictor.model.seed,
        "per": ",".join(method.per) or "none" if isinstance(method, Partitioned) else None,
        "negatives": answers.origin,
        # what the threshold that negatives are judged with was calibrated on
        "negative_threshold": "negatives"
        if predictor.negative is not None
        else "facts"
        if asserted
        else "both",
        "population": "asserted" if asserted else "open",
        "unknown": {
            "positive": int((~answers.known).sum()),
            "negative": int((answers.of_negatives.code != 0).sum()),
        },
        **({"taken_in": answers.taken_in} if predictor.provenance.get("updates") else {}),
        "levels": [
            {
                "confidence": level,
                "positive": {
                    **_figures(facts, place, level),
                    "overlap_free": _figures(overlap_free, place, level),
                    **conditional[place],
                },
                "negative": _figures(negatives, place, level),
                "mixed": _figures(both, place, level),
            }
            for place, level in enumerate(answers.levels)
        ],
        "ties": _ties(answers),
        "empty": _empty(facts, answers.levels),
    }


class Rows(NamedTuple):
    """Answers and labels of the same n triples: scores (n,), ends (n, levels) each, both ends of the label (n, 2)."""

    score: Floats
    lower: Floats
    upper: Floats
    truth: Floats


def _rows(answers: Intervals, truth: Floats) -> Rows:
    """truth: (n,), or (n, 2) where labels are intervals; a number is an interval with two equal ends."""
    both_ends = truth if truth.ndim == 2 else np.stack([truth, truth], axis=1)
    return Rows(answers.score.astype(np.float64), answers.lower, answers.upper, both_ends)


def _figures(rows: Rows, place: int, level: float) -> dict[str, float | int | None]:
    """n, coverage, sharpness, interval score, mse and mae at one level; None where n is 0.

    A label that is an interval is covered if all of it is; its error is that of its middle. The interval score is
    also None where it is infinite, which happens at level 1 if a label is missed.
    """
    lower, upper = rows.lower[:, place], rows.upper[:, place]
    known = ~np.isnan(rows.score)
    score, middle = rows.score[known], metrics.middle(rows.truth[known])
    found = {
        "coverage": metrics.coverage(rows.truth, lower, upper),
        "sharpness": metrics.sharpness(lower, upper),
        "interval_score": metrics.interval_score(rows.truth, lower, upper, level),
        "mse": metrics.mse(score, middle),
        "mae": metrics.mae(score, middle),
    }
    return {"n": len(lower), **{key: metrics.finite(value) for key, value in found.items()}}


def known_triples(answers: Answers) -> Triples:
    """The known test facts, in the ids of the model."""
    return Triples(*(column[answers.known] for column in answers.ids))


def training_facts(answers: Answers) -> Graph:
    """The facts that the model keeps of its training, else the training facts of the data set, in the model's ids."""
    model = answers.predictor.model
    if model.facts is not None:
        return model.facts.graph(model.vocabulary)
    train = answers.dataset.splits.train.over(model.vocabulary)
    return train[in_vocabulary(train)]


def _conditional(answers: Answers, facts: Rows, progress: Progress | None) -> list[dict[str, Any]]:
    """The result of `slices.judge_slices` at each level; empty where no test fact is known."""
    predictor, known = answers.predictor, answers.known
    if not known.any():
        return [{} for _ in answers.levels]
    asked, rows = known_triples(answers), Rows(*(column[known] for column in facts))
    queries = slices.describe(predictor.method, training_facts(answers), asked, rows.score)
    sizes = predictor.method.threshold_sizes(asked, queries.doubt)
    told = None
    if progress is not None:
        from unkgcp.progress import Part

        progress.update(DESCRIBED, "judging")
        told = Part(progress, DESCRIBED, WORK, len(answers.levels))
    cut = slices.slices_of(queries, predictor.model.vocabulary.relations.to_pylist())
    columns, seed = (rows.truth, rows.lower, rows.upper), predictor.model.seed
    return slices.judge_slices(queries, cut, *columns, answers.levels, sizes=sizes, seed=seed, progress=told)


def _empty(rows: Rows, levels: Sequence[float]) -> list[dict[str, Any]] | None:
    """Share of facts with an empty interval, and coverage of those with another, at each level."""
    empty = np.isnan(rows.lower)
    if not empty.any():
        return None
    found = []
    for place, level in enumerate(levels):
        others = ~empty[:, place]
        inside = metrics.coverage(rows.truth[others], rows.lower[others, place], rows.upper[others, place])
        figures = {"share": float(empty[:, place].mean()), "coverage_of_others": metrics.finite(inside)}
        found.append({"confidence": level, **figures})
    return found


def _ties(answers: Answers) -> list[dict[str, Any]] | None:
    """`confidence`, `coverage_smoothed` and `band` (low, high) of test facts at each level; unknown facts are covered.

    None for a method that ranks no scores, and in the open world, whose hulls have two thresholds. The band is None
    where every relation has a threshold of its own, and where the rank of the level is 0 or above the calibration size.
    """
    known, method, count = answers.known, answers.predictor.method, int(answers.known.sum())
    if not count:
        return None
    score = None if method.own_answers else answers.facts.score[known].astype(np.float64)
    triples, one_threshold = known_triples(answers), method.one_threshold
    standing = method.standing(triples, answers.truth[known], score)
    if standing is None:
        return None
    size, unknown = int(standing.size[0]), len(known) - count
    smoothed = smoothed_coverages(standing, answers.levels, unknown)
    found = []
    for level, (k,), coverage in zip(answers.levels, ranks(answers.levels, [size]), smoothed, strict=True):
        band = None
        if one_threshold and 1 <= k <= size:
            band = [(end * count + unknown) / len(known) for end in metrics.rank_band(k, size, count)]
        found.append({"confidence": level, "coverage_smoothed": coverage, "band": band})
    return found


def decisions(answers: Answers, threshold: float) -> dict[str, Any]:
    """Decisions about the test facts (`positive`) and about these and the negatives (`mixed`) at each level."""
    predictor, negative = answers.predictor, answers.of_negatives
    if predictor.negative is not None:  # a user who filters does not know which triples are negatives
        negative = predictor.interval(answers.negatives, answers.levels)
    parts = (answers.facts, negative)
    truth = np.concatenate([answers.dataset.splits.test.confidence, answers.negatives.confidence])
    score = np.concatenate([part.score for part in parts]).astype(np.float64)
    lower = np.concatenate([part.lower for part in parts])
    upper = np.concatenate([part.upper for part in parts])
    rows = {"positive": slice(len(answers.facts.score)), "mixed": slice(None)}
    return {
        "threshold": threshold,
        "levels": [
            {"confidence": level}
            | {
                name: decide(truth[some], lower[some, place], upper[some, place], score[some], threshold)
                for name, some in rows.items()
            }
            for place, level in enumerate(answers.levels)
        ],
    }


def decide(truth: Floats, lower: Floats, upper: Floats, score: Floats, threshold: float) -> dict[str, Any]:
    """How good decisions by intervals are; every column (n,), score NaN if unknown.

    A triple is good if its label is at least the threshold. It is kept if its whole interval is at least the
    threshold and dropped if its whole interval is below; otherwise there is no decision. `accuracy` is the share of
    right decisions among those made, `precision` that of good triples among those kept, `wrong` the share of wrong
    decisions among all triples, `score_accuracy` the accuracy of the score alone, by which an unknown triple is
    dropped. None where there is nothing to divide by.
    """
    good, keep, drop = truth >= threshold, lower >= threshold, upper < threshold
    decided, right = keep | drop, (keep & good) | (drop & ~good)
    by_score = np.nan_to_num(score, nan=-np.inf) >= threshold

    def share(rows: Mask, of: int) -> float | None:
        return int(rows.sum()) / of if of else None

    n = len(truth)
    return {
        "n": n,
        "kept": share(keep, n),
        "dropped": share(drop, n),
        "abstained": share(~decided, n),
        "accuracy": share(right, int(decided.sum())),
        "precision": share(keep & good, int(keep.sum())),
        "wrong": share(decided & ~right, n),
        "score_accuracy": share(by_score == good, n),
    }
