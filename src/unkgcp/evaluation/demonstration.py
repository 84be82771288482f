"""`unkgcp demo`: fit the demo graph, and compare the intervals with the best possible and with the paper's methods.

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

from unkgcp.evaluation.assessment import LEVELS, JudgedRows, evaluate
from unkgcp.evaluation.evaluation_texts import kind_table, main_level
from unkgcp.evaluation.tables import FigureTable, draw_interval, number
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.graph.demo_graph import Oracle, generate
from unkgcp.graph.facts import Graph
from unkgcp.methods import predictor_class
from unkgcp.run import provenance
from unkgcp.run.calibration import Report, silent
from unkgcp.run.fitting import fit, recalibrate
from unkgcp.run.predictor import Predictor
from unkgcp.training.config import config_for

PAPER = ("fpi", "cp", "unkgcp")
"""Methods of the paper that go with any trained model."""
MAIN = 0.9
EXAMPLES = 8


class Demonstration:
    """The demonstration; after `run` it holds the predictor, for saving, and the figures of the comparison."""

    predictor: Predictor
    figures: dict[str, Any]

    def run(self, report: Report = silent) -> Iterator[str]:
        """Do all the work; yields what to show, as soon as it is known."""
        dataset, oracle = load_dataset("demo"), generate().oracle
        yield introduction(dataset)
        predictors: dict[str, Predictor] = {}
        if importlib.util.find_spec("lightgbm") is not None:
            predictors["evidence"] = fit(dataset, report=report)
        if importlib.util.find_spec("torch") is not None:
            trained = fit(dataset, config_for("ukge", "demo"), method="unkgcp", report=report)
            for name in PAPER:
                predictors[name] = recalibrate(trained, dataset.splits.calibration, name)
        self.figures = comparison(predictors, dataset.splits.test, oracle)
        yield comparison_text(self.figures)
        chosen = predictors.get("evidence") or predictors["unkgcp"]
        chosen.provenance["data"] = provenance.describe("demo", dataset, seed=0, options={})
        self.predictor = replace(chosen, metrics=evaluate(chosen, dataset))
        yield (
            f"By kind of question, {chosen.method.name} at {MAIN:.0%}:\n"
            f"{kind_table(main_level(self.predictor.metrics)['positive'])}\n"
            "worst: lowest coverage of a part of these facts, such as those of one relation"
        )
        yield examples(self.predictor, dataset.splits.test)


def introduction(dataset: Dataset) -> str:
    """What the demo graph is, in two sentences."""
    graph, splits = dataset.graph, dataset.splits
    return (
        f"The demo graph: {len(graph):,} facts about {graph.n_entities:,} invented people, companies,\n"
        f"cities, skills and products in {graph.n_relations} relations. {len(splits.train):,} are learned from,\n"
        f"{len(splits.calibration):,} calibrate the intervals and {len(splits.test):,} test them."
    )


def comparison(predictors: dict[str, Predictor], test: Graph, oracle: Oracle) -> dict[str, Any]:
    """Coverage, width and interval score of every method at every level, and what is best possible."""
    methods: dict[str, Any] = {}
    for name, predictor in predictors.items():
        answers = predictor.interval(test, LEVELS)
        figures = [
            JudgedRows.of(answers, test.truth, place).figures(level) for place, level in enumerate(LEVELS)
        ]
        methods[name] = {"guarantee": predictor_class(name).guarantee, **_columns(figures)}
    central = [oracle.central(test, level) for level in LEVELS]
    unknown = np.full(len(test), np.nan)
    best = [
        JudgedRows(unknown, ends[:, 0], ends[:, 1], test.truth, unknown).figures(level)
        for ends, level in zip(central, LEVELS, strict=True)
    ]
    return {"levels": LEVELS, "methods": methods, "best_possible": _columns(best)}


def _columns(figures: list[dict[str, Any]]) -> dict[str, list[float]]:
    return {name: [at[name] for at in figures] for name in ("coverage", "sharpness", "interval_score")}


def comparison_text(compared: dict[str, Any]) -> str:
    """The object of `comparison` at the main level as a table, with a line for each of its words."""
    place = LEVELS.index(MAIN)
    table = FigureTable([f"at {MAIN:.0%}", "coverage", "mean width", "interval score"])
    for name, figures in [*compared["methods"].items(), ("best possible", compared["best_possible"])]:
        table.add(
            name, *(number(figures[figure][place]) for figure in ("coverage", "sharpness", "interval_score"))
        )
    explained = (
        "evidence: the default"
        if "evidence" in compared["methods"]
        else "evidence is left out: it needs LightGBM (pip install lightgbm numba)",
        "fpi, cp, unkgcp: the paper's methods on a UKGE model"
        if "cp" in compared["methods"]
        else "the paper's methods are left out: they need torch (pip install torch numba)",
        "best possible: the quantiles of someone who knows the true distribution",
        "interval score: width and misses together; smaller is better",
    )
    return "\n".join([table.terminal(), "", *explained])


def examples(predictor: Predictor, test: Graph, confidence: float = MAIN) -> str:
    """Some test facts with their interval drawn: [ ] interval, ● prediction, x true confidence."""
    chosen = test[_spread(test)]
    answers, labels = predictor.interval(chosen, [confidence]), chosen.table()
    rows = JudgedRows.of(answers, chosen.truth, 0)
    triples = zip(*(labels[column].to_pylist() for column in ("head", "relation", "tail")), strict=True)
    names = [" ".join(triple) for triple in triples]
    width = max(map(len, names))
    lines = [
        f"{name.ljust(width)}  {draw_interval(lower, upper, None if np.isnan(value) else value, truth, 31)}"
        for name, lower, upper, value, truth in zip(
            names, rows.lower, rows.upper, rows.prediction.tolist(), chosen.confidence, strict=True
        )
    ]
    title = f"Test facts, {confidence:.0%} intervals from 0 to 1 ([ ] interval, ● prediction, x truth):"
    return "\n".join([title, "", *lines])


def _spread(test: Graph) -> NDArray[np.intp]:
    """One test fact of each of several relations, the first of each: (EXAMPLES,)."""
    _, first = np.unique(test.relation, return_index=True)
    return np.asarray(first[np.linspace(0, len(first) - 1, EXAMPLES).astype(np.intp)])
