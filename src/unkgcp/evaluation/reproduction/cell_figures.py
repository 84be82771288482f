"""The figures of one cell, from its stored scores: coverage, sharpness, errors, and the paper's two analyses.

There are three thresholds. One comes from calibration facts and judges test facts. One comes from calibration negatives
and judges test negatives, which presumes that a user knows which queries are negatives. One comes from both pooled
(`combined`) and needs no such knowledge, so that it is the one that can be used in practice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal import SplitConformal
from unkgcp.conformal.scores import Recipe, Score
from unkgcp.evaluation import metrics
from unkgcp.evaluation.reproduction import Block, label
from unkgcp.evaluation.reproduction.scoring import parts_of
from unkgcp.evaluation.slices import tenths_of_doubt
from unkgcp.graph.facts import Graph, Vocabulary, concatenate
from unkgcp.methods import IntervalPredictor, Intervals, create
from unkgcp.methods.split_methods import ConformalPredictor
from unkgcp.run.calibration import method_options

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset

LEVEL = 0.9
KINDS = ("coverage", "sharpness", "interval_score", "worst_tenth")
"""The figures of intervals; cells that were measured by earlier versions have the first two, the paper's."""
# for each judgement the parts that calibrate its threshold, and the part that is judged
JUDGED = {
    "positive": (("calibration",), "test"),
    "negative": (("calibration_negatives",), "negatives"),
    "combined_positive": (("calibration", "calibration_negatives"), "test"),
    "combined_negative": (("calibration", "calibration_negatives"), "negatives"),
}
PARTS = ("calibration", "calibration_negatives", "test", "negatives")


@dataclass(frozen=True, eq=False)
class StoredScores:
    """Stored scores in the place of a model, so that interval methods work on them unchanged (`unkgcp.methods.Scorer`).

    A row stands for its own head and tail. column: (n,), NaN where the score is unknown.
    """

    column: NDArray[np.float32]

    @property
    def seen_entities(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.column)

    @property
    def seen_relations(self) -> NDArray[np.bool_]:
        return np.ones(1, dtype=np.bool_)

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.column[np.asarray(head)]
        return found


@dataclass(frozen=True, eq=False)
class Rows:
    """The stored rows of one cell: its scorer, the graph of each part, and the quantile models' scorers."""

    model: StoredScores
    graphs: dict[str, Graph]
    quantiles: dict[float, StoredScores]

    @classmethod
    def of(
        cls,
        scores: Mapping[str, NDArray[Any]],
        truth: Mapping[str, NDArray[np.float64]],
        quantiles: Mapping[str, NDArray[Any]] | None = None,
    ) -> Rows:
        """From a score file, the labels of every part and, where there is one, a file of quantile scores."""
        nobody = Vocabulary.of([], [])
        graphs, begin = {}, 0
        for part in PARTS:
            size = len(scores[part])
            if truth[part].shape != (size,):
                raise ValueError(f"{size} scores of {part} stand beside {len(truth[part])} labels")
            rows = np.arange(begin, begin + size, dtype=np.int32)
            graphs[part] = Graph(rows, np.zeros(size, np.int32), rows, truth[part], nobody)
            begin += size
        column = np.concatenate([scores[part] for part in PARTS])
        others = {}
        if quantiles is not None:
            for place, tau in enumerate(quantiles["quantiles"].tolist()):
                own = np.full(begin, np.nan, np.float32)
                for part in ("test", "negatives"):
                    own[graphs[part].head] = quantiles[part][place]
                others[tau] = StoredScores(own)
        return cls(StoredScores(column), graphs, others)

    def scores(self, part: str) -> NDArray[np.float32]:
        """Stored scores of a part: (n,), NaN where unknown."""
        found: NDArray[np.float32] = self.model.column[self.graphs[part].head]
        return found


def measure(
    block: Block,
    seed: int,
    dataset: Dataset,
    levels: Sequence[float],
    scores: Mapping[str, NDArray[Any]],
    quantiles: Mapping[str, NDArray[Any]] | None,
    predictors: Sequence[str],
) -> dict[str, Any]:
    """The figures of one cell as plain values."""
    started = time.monotonic()
    parts = parts_of(dataset, seed)
    rows = Rows.of(scores, {name: part.confidence for name, part in parts.items()}, quantiles)
    splits = dataset.splits
    seen = np.concatenate([part.keys for part in (splits.train, splits.validation, splits.calibration)])
    free = ~np.isin(splits.test.keys, seen)
    makers = predictors_of(block, rows, predictors)
    asked = sorted({*levels, LEVEL})
    found = {name: _judge(maker, rows, asked, free, levels) for name, maker in makers.items()}
    compared = [name for name in makers if name != "unkgcp-plain"]
    return {
        "kind": "cell",
        "protocol": block.protocol,
        "data": label(block.data),
        "model": block.model,
        "seed": seed,
        "levels": list(levels),
        "n": _counts(dataset, rows, free),
        "errors": errors(rows, free),
        "predictors": {name: figures for name, (figures, _) in found.items()},
        "conditionality": {
            "level": LEVEL,
            **{
                part: _conditionality(rows, part, {name: found[name][1][part] for name in compared}, asked)
                for part in ("positive", "negative")
            },
        },
        "calibration_size": {
            "level": LEVEL,
            "draws": DRAWS,
            **{part: _calibration_size(rows, part, makers, seed) for part in ("positive", "negative")},
        },
        "measuring_seconds": round(time.monotonic() - started, 3),
    }


def predictors_of(block: Block, rows: Rows, wanted: Sequence[str]) -> dict[str, Any]:
    """name -> function that makes the uncalibrated predictor.

    Where the paper's experiments map the entropy (CN15k), `unkgcp-plain` is the method without the mapping.
    """
    options = method_options("unkgcp", label(block.data), block.protocol)
    makers: dict[str, Any] = {"fpi": lambda: create("fpi")}
    if rows.quantiles:
        makers["qr"] = lambda: create("qr", quantiles=rows.quantiles)
    makers["cp"] = lambda: create("cp")
    makers["unkgcp"] = lambda: create("unkgcp", **options)
    if options:
        makers["unkgcp-plain"] = lambda: create("unkgcp")
    return {name: maker for name, maker in makers.items() if name.split("-")[0] in wanted}


Judged = tuple[dict[str, Any], dict[str, Intervals]]


def _judge(
    maker: Any, rows: Rows, asked: Sequence[float], free: NDArray[np.bool_], levels: Sequence[float]
) -> Judged:
    """The figures of one predictor for each entry of `JUDGED` and for overlap-free test facts, and its answers."""
    places = [asked.index(level) for level in levels]
    fitted: dict[tuple[str, ...], IntervalPredictor] = {}
    figures: dict[str, Any] = {}
    answers: dict[str, Intervals] = {}
    for name, (sources, part) in JUDGED.items():
        if sources not in fitted:
            fitted[sources] = maker().calibrate(rows.model, concatenate([rows.graphs[s] for s in sources]))
        answers[name] = fitted[sources].interval(rows.graphs[part], asked)
        graph = rows.graphs[part]
        doubt = np.full(len(graph), np.nan)
        known = answers[name].code == 0
        doubt[known] = fitted[sources].doubt(graph[known])
        figures[name] = _figures(answers[name], graph.confidence, doubt, asked, places)
        if name == "positive":
            figures["overlap_free"] = _figures(answers[name], graph.confidence, doubt, asked, places, free)
    return figures, answers


def _figures(
    answer: Intervals,
    truth: NDArray[np.float64],
    doubt: NDArray[np.float64],
    asked: Sequence[float],
    places: list[int],
    rows: slice | NDArray[np.bool_] = slice(None),
) -> dict[str, list[float | None]]:
    """Each figure at each level; None where there are no rows. doubt: (n,), NaN where unknown.

    `worst_tenth` is the lowest coverage among tenths of the known rows by the method's own doubt.
    """
    truth, known = truth[rows], ~np.isnan(doubt[rows])
    found: dict[str, list[float | None]] = {kind: [] for kind in KINDS}
    for place in places:
        lower, upper = answer.lower[rows, place], answer.upper[rows, place]
        inside = metrics.covered(truth, lower, upper)
        _, worst = tenths_of_doubt(doubt[rows][known], inside[known])
        figures = (
            metrics.coverage(truth, lower, upper),
            metrics.sharpness(lower, upper),
            metrics.interval_score(truth, lower, upper, asked[place]),
            worst,
        )
        for kind, figure in zip(KINDS, figures, strict=True):
            found[kind].append(metrics.finite(figure))
    return found


def errors(rows: Rows, free: NDArray[np.bool_]) -> dict[str, dict[str, float | None]]:
    """Errors of the scores; rows without a score are left out."""
    test, negatives = rows.graphs["test"], rows.graphs["negatives"]
    sets = {
        "positive": test,
        "negative": negatives,
        "mixed": concatenate([test, negatives]),
        "overlap_free": test[free],
    }
    return {name: _error(rows, part) for name, part in sets.items()}


def _error(rows: Rows, part: Graph) -> dict[str, float | None]:
    score = rows.model.column[part.head].astype(np.float64)
    known = ~np.isnan(score)
    pair = score[known], part.confidence[known]
    return {"mse": metrics.finite(metrics.mse(*pair)), "mae": metrics.finite(metrics.mae(*pair))}


def _conditionality(
    rows: Rows, part: str, answers: Mapping[str, Intervals], asked: Sequence[float]
) -> dict[str, Any]:
    facts = rows.graphs[JUDGED[part][1]]
    score = rows.scores(JUDGED[part][1]).astype(np.float64)
    known = ~np.isnan(score)
    truth = facts.confidence[known]
    error = np.abs(score[known] - truth)
    edges, member = metrics.error_bins(error)
    place = list(asked).index(LEVEL)
    found = {}
    for name, answer in answers.items():
        lower, upper = answer.lower[known, place], answer.upper[known, place]
        inside = metrics.covered(truth, lower, upper)
        found[name] = width_by_error(error, member, upper - lower, inside)
    return {
        "edges": edges.tolist(),
        "count": np.bincount(member, minlength=len(edges) - 1).tolist(),
        "predictors": found,
    }


def _calibration_size(rows: Rows, part: str, makers: Mapping[str, Any], seed: int) -> dict[str, Any]:
    source, target = JUDGED[part][0][0], JUDGED[part][1]
    calibration, test = (
        (rows.scores(name).astype(np.float64), rows.graphs[name].confidence) for name in (source, target)
    )
    found: dict[str, Any] = {}
    sizes: list[int] = []
    for name in ("cp", "unkgcp"):
        if name not in makers:
            continue
        predictor = makers[name]()
        assert isinstance(predictor, ConformalPredictor)
        score = predictor.score()
        assert not isinstance(score, Recipe)  # these scores learn nothing from calibration facts
        curve = size_curve(score, calibration, test, seed, LEVEL)
        sizes = curve.pop("sizes")
        found[name] = curve
    return {"sizes": sizes, "predictors": found}


def _counts(dataset: Dataset, rows: Rows, free: NDArray[np.bool_]) -> dict[str, int]:
    unknown = {name: int(np.isnan(rows.scores(name)).sum()) for name in rows.graphs}
    return {
        "train": len(dataset.splits.train),
        **{name: len(graph) for name, graph in rows.graphs.items()},
        "overlap_free": int(free.sum()),
        "unknown_calibration": unknown["calibration"],
        "unknown_test": unknown["test"],
        "unknown_negatives": unknown["negatives"],
    }


# How many calibration facts are enough? (The paper's Figures 3 and 14-18.)

Floats = NDArray[np.float64]
DRAWS = 10
SMALLEST = 10


def sizes(total: int) -> list[int]:
    """10, 20, 40, ... below `total`, then `total`."""
    found = []
    size = SMALLEST
    while size < total:
        found.append(size)
        size *= 2
    return [*found, total]


def size_curve(
    score: Score,
    calibration: tuple[Floats, Floats],
    test: tuple[Floats, Floats],
    seed: int,
    confidence: float = 0.9,
    draws: int = DRAWS,
) -> dict[str, Any]:
    """Mean and standard deviation of coverage and sharpness at each size.

    `calibration` and `test` are (prediction, truth); a test row without a prediction (NaN) has the whole range.
    """
    prediction, truth = (column[~np.isnan(calibration[0])] for column in calibration)
    known = ~np.isnan(test[0])
    asked, label = test[0][known], test[1][known]
    unit = score.prepare(asked, None)
    strange = np.sort(score.score(asked, label, unit))
    unknown = int((~known).sum())
    result: dict[str, list[float]] = {
        key: [] for key in ("coverage", "coverage_sd", "sharpness", "sharpness_sd")
    }
    steps = sizes(len(prediction))
    for place, size in enumerate(steps):
        rng = np.random.default_rng([seed, place])
        found = []
        for _ in range(draws if size < len(prediction) else 1):
            chosen = rng.choice(len(prediction), size, replace=False)
            threshold = (
                SplitConformal(score).calibrate(prediction[chosen], truth[chosen]).threshold(confidence)
            )
            hits = int(np.searchsorted(strange, threshold, side="right")) + unknown
            width = _width(asked, threshold, unit) + unknown
            found.append((hits / len(known), width / len(known)))
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=1 if len(found) > 1 else 0)
        for key, value in zip(result, (mean[0], spread[0], mean[1], spread[1]), strict=True):
            result[key].append(float(value))
    return {"sizes": steps, **result}


def _width(asked: Floats, threshold: float, unit: NDArray[np.floating[Any]] | None) -> float:
    """Sum of the widths of prediction -+ threshold unit, cut to [0, 1]."""
    if threshold == np.inf:
        return float(len(asked))
    radius = threshold if unit is None else threshold * unit
    width = np.minimum(asked + radius, 1.0) - np.maximum(asked - radius, 0.0)
    return float(np.maximum(width, 0.0).sum())


# Do wide intervals mark hard queries? Mean width against absolute error (the paper's Figures 2 and 9-13).


def width_by_error(
    error: Floats, member: NDArray[np.intp], width: Floats, inside: NDArray[np.bool_]
) -> dict[str, Any]:
    """Mean width of covering intervals a bin, their number, and the rank correlation with the error."""
    mean, covered = metrics.width_by_bin(member, width, inside)
    rho = metrics.width_error_correlation(error[inside], 0 * error[inside], 0 * width[inside], width[inside])
    low, high = metrics.spearman_interval(rho, int(inside.sum()))
    return {
        "width": [metrics.finite(value) for value in mean.tolist()],
        "covered": covered.tolist(),
        "spearman": metrics.finite(rho),
        "spearman_low": metrics.finite(low),
        "spearman_high": metrics.finite(high),
    }
