"""`unkgcp demo`: train on the demo graph, calibrate every method, and compare them with the best possible intervals.

What it is: all steps, with a text after each. What it is not: a benchmark. The demo graph is invented; therefore its
oracle knows how good the best possible intervals are.

>>> for text in Demonstration().run(): print(text)     # doctest: +SKIP
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evaluation import metrics
from unkgcp.evaluation.assessment import LEVELS, evaluate
from unkgcp.evaluation.evaluation_texts import SCORE
from unkgcp.evaluation.slices import tenths_of_doubt
from unkgcp.evaluation.tables import Table, draw_interval, number
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.graph.demo_graph import Oracle, generate
from unkgcp.graph.facts import Graph
from unkgcp.methods import PREDICTORS
from unkgcp.run import provenance
from unkgcp.run.fitting import Report, fit, learn_evidence, recalibrate, silent
from unkgcp.run.predictor import Predictor
from unkgcp.training.config import config_for
from unkgcp.training.trainer import train_quantiles

METHODS = ("fpi", "qr", "cp", "unkgcp", "shortest")
MAIN = 0.9
"""The level at which methods are compared closely."""
QUANTILE_EPOCHS = 10
EXAMPLES = 8


class Demonstration:
    """The demonstration; after `run` it holds the last predictor, for saving, and the figures of the comparison."""

    predictor: Predictor
    figures: dict[str, Any]

    def run(self, report: Report = silent) -> Iterator[str]:
        """Do all the work; yields what to show, as soon as it is known."""
        dataset, oracle = load_dataset("demo"), generate().oracle
        yield introduction(dataset)
        config = config_for("ukge", "demo")
        first = fit(dataset, config, report=report)
        with report("training quantile models", QUANTILE_EPOCHS) as progress:
            # early stopping takes the same models however many epochs follow
            short = replace(config, epochs=QUANTILE_EPOCHS, validate_every=QUANTILE_EPOCHS)
            quantiles = train_quantiles(dataset.splits.train, config=short, progress=progress)
        trained = replace(first, quantiles=quantiles)
        calibration = dataset.splits.calibration
        predictors = {name: recalibrate(trained, calibration, name) for name in METHODS}
        if importlib.util.find_spec("lightgbm") is not None:
            evidence = learn_evidence(trained.model, config, quick=True, report=report)
            predictors["evidence"] = recalibrate(trained, calibration, "evidence", evidence=evidence)
        self.figures = comparison(predictors, dataset.splits.test, oracle)
        yield comparison_text(self.figures)
        chosen = predictors["unkgcp"]  # with the quantile models, so that a report compares all methods
        chosen.provenance["data"] = provenance.describe("demo", dataset, seed=0, options={})
        self.predictor = replace(chosen, metrics=evaluate(chosen, dataset))
        yield examples(self.predictor, dataset.splits.test)


def introduction(dataset: Dataset) -> str:
    """What the demo graph is, in two sentences."""
    graph, splits = dataset.graph, dataset.splits
    return (
        f"The demo graph: {len(graph):,} facts about {graph.n_entities:,} invented people, companies, cities,"
        f" skills and products in {graph.n_relations} relations.\n"
        f"A model learns from {len(splits.train):,} facts, {len(splits.calibration):,} calibrate the intervals "
        f"and {len(splits.test):,} test them."
    )


def comparison(predictors: dict[str, Predictor], test: Graph, oracle: Oracle) -> dict[str, Any]:
    """Figures of every method at every level, more of them at `MAIN`, what chance allows, and what is best possible."""
    methods, main = {}, LEVELS.index(MAIN)
    for name, predictor in predictors.items():
        result = predictor.interval(test, LEVELS)
        pairs = [(result.lower[:, place], result.upper[:, place]) for place in range(len(LEVELS))]
        known = result.code == 0
        inside = metrics.covered(test.confidence, *pairs[main])[known]
        doubtful, worst = tenths_of_doubt(predictor.method.doubt(test[known]), inside)
        methods[name] = {
            "guarantee": PREDICTORS[name].guarantee,
            "coverage": [metrics.coverage(test.confidence, *ends) for ends in pairs],
            "sharpness": [metrics.sharpness(*ends) for ends in pairs],
            "interval_score": metrics.interval_score(test.confidence, *pairs[main], MAIN),
            "most_doubtful": doubtful,
            "worst_tenth": worst,
        }
    size = predictors["cp"].method.size
    lower, upper = oracle.central(test, MAIN).T
    return {
        "levels": LEVELS,
        "methods": methods,
        "close_level": MAIN,
        "chance_allows": metrics.coverage_bands([size], [len(test)], LEVELS)[:, 0].tolist(),
        "best_possible": {
            "sharpness": [oracle.width(test, level) for level in LEVELS],
            "interval_score": metrics.interval_score(test.confidence, lower, upper, MAIN),
        },
    }


def comparison_text(found: dict[str, Any]) -> str:
    """The object of `comparison` as two tables, with an explanation of their words."""
    methods, best, main = found["methods"], found["best_possible"], LEVELS.index(MAIN)
    table = Table(["", *(cell for level in LEVELS for cell in (f"cover {level:g}", "width"))])
    close = Table(["", "coverage", "width", "interval score", "most doubtful tenth", "worst tenth"])
    for name, of in methods.items():
        pairs = list(zip(of["coverage"], of["sharpness"], strict=True))  # the paper's two
        table.add(name, *(number(figure) for pair in pairs for figure in pair))
        figures = (*pairs[main], of["interval_score"], of["most_doubtful"], of["worst_tenth"])
        close.add(name, *map(number, figures))
    bands = (f"{low:.3f}-{high:.3f}" for low, high in found["chance_allows"])
    table.add("chance allows", *(cell for band in bands for cell in (band, "")))
    widths = [number(width) for width in best["sharpness"]]
    table.add("best possible", *(cell for width in widths for cell in ("", width)))
    close.add("best possible", f"{MAIN:.3f}", widths[main], number(best["interval_score"]), "", "")
    promises = "\n".join(f"  {name}: {of['guarantee']}" for name, of in methods.items())
    without = "" if "evidence" in methods else f"\n{NO_EVIDENCE}"
    return (
        "Share of test facts whose confidence lies in its interval, and mean width of the intervals:\n\n"
        f"{table.terminal()}\n\n"
        f"The same at {MAIN:.0%}, with what cannot be had by giving up the hard facts:\n\n"
        f"{close.terminal()}\n\n"
        f"{SCORE}.\n"
        "Tenths are of the test facts by each method's own doubt; their figure is coverage.\n"
        "'best possible': mean width of the shortest intervals, and interval score of the quantiles, of someone who "
        f"knows the true distribution.{without}\n\n"
        f"Guarantee of each method:\n{promises}"
    )


NO_EVIDENCE = (
    "The method 'evidence' is left out: it needs LightGBM; install it with pip install 'unkgcp[evidence]'."
)


def examples(predictor: Predictor, test: Graph, confidence: float = MAIN) -> str:
    """Some test facts with their interval drawn: [ ] interval, ● score, x true confidence."""
    chosen = test[_spread(test)]
    result = predictor.interval(chosen, confidence)
    labels = chosen.table()
    columns = (labels[column].to_pylist() for column in ("head", "relation", "tail"))
    names = [" ".join(triple) for triple in zip(*columns, strict=True)]
    width = max(map(len, names))
    lines = [
        f"{name.ljust(width)}  {draw_interval(lower, upper, None if np.isnan(score) else score, truth)}"
        for name, lower, upper, score, truth in zip(
            names, result.lower, result.upper, result.score.tolist(), chosen.confidence, strict=True
        )
    ]
    title = f"Test facts with their {confidence:.0%} intervals from 0 to 1 ([ ] interval, ● score, x truth):"
    return "\n".join([title, "", *lines])


def _spread(test: Graph) -> NDArray[np.intp]:
    """One test fact of each of several relations, the first of each: (EXAMPLES,)."""
    _, first = np.unique(test.relation, return_index=True)
    chosen: NDArray[np.intp] = first[np.linspace(0, len(first) - 1, EXAMPLES).astype(np.intp)]
    return chosen
