"""The whole way on the demo graph: train, calibrate every method, compare with what is best possible.

What it is: the steps behind `unkgcp demo`, as text, a part at a time. What it is not: a benchmark; the
demo graph is invented, and that is why its oracle can say how wide the best possible intervals are.

>>> for text in Demonstration().run(): print(text)     # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from unkgcp.evaluation import metrics
from unkgcp.evaluation.assessment import LEVELS, evaluate
from unkgcp.evaluation.metrics import coverage_band
from unkgcp.evaluation.tables import Table, draw_interval
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.graph.demo import Oracle, generate
from unkgcp.graph.facts import Graph
from unkgcp.methods import PREDICTORS
from unkgcp.run import provenance
from unkgcp.run.fitting import Report, fit, recalibrate, silent
from unkgcp.run.predictor import Predictor
from unkgcp.training.config import config_for
from unkgcp.training.trainer import train_quantiles

METHODS = ("fpi", "qr", "cp", "unkgcp", "shortest")
QUANTILE_EPOCHS = 10
EXAMPLES = 8


class Demonstration:
    """Holds the predictor that the demonstration ends with, for saving."""

    predictor: Predictor

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
        yield comparison(predictors, dataset.splits.test, oracle)
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


def comparison(predictors: dict[str, Predictor], test: Graph, oracle: Oracle) -> str:
    """Coverage and width of every method at every level, what chance allows and what is best possible."""
    rows = []
    for name, predictor in predictors.items():
        result = predictor.interval(test, LEVELS)
        cells = [name]
        for place in range(len(LEVELS)):
            lower, upper = result.lower[:, place], result.upper[:, place]
            cells.append(f"{metrics.coverage(test.confidence, lower, upper):.3f}")
            cells.append(f"{metrics.sharpness(lower, upper):.3f}")
        rows.append(cells)
    size = predictors["cp"].method.size
    bands = (coverage_band(size, len(test), level) for level in LEVELS)
    rows.append(["chance allows", *(cell for low, high in bands for cell in (f"{low:.3f}-{high:.3f}", ""))])
    rows.append(
        ["best possible", *(cell for level in LEVELS for cell in ("", f"{oracle.width(test, level):.3f}"))]
    )
    header = ["", *(cell for level in LEVELS for cell in (f"cover {level:g}", "width"))]
    promises = "\n".join(f"  {name}: {PREDICTORS[name].guarantee}" for name in predictors)
    return (
        "Share of test facts whose confidence lies in its interval, and mean width of the intervals:\n\n"
        f"{Table(header, rows).terminal()}\n\n"
        f"Guarantee of each method:\n{promises}\n"
        "'best possible': mean width of the shortest intervals of someone who knows the true distribution."
    )


def examples(predictor: Predictor, test: Graph, confidence: float = 0.9) -> str:
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
