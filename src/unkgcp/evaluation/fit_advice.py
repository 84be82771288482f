"""What evidence intervals would gain over those of a fitted run, measured on held-out training facts in seconds.

Early stopping looked at a slice of the training facts that the model did not learn from. A small evidence model is
learned from the other training facts. Then both methods are calibrated on one half of the slice and judged on the
other. Neither calibration nor test facts are touched, so that whoever chooses a method by this figure breaks no
promise. Where it errs it errs against evidence: the slice has chosen the epoch of the model, and the small evidence
model learns from fewer facts and in fewer rounds than `--method evidence` does.

>>> gain(predictor, dataset)     # doctest: +SKIP
Gain(own=0.753, evidence=0.085)
"""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

import numpy as np

from unkgcp.evaluation.metrics import interval_score
from unkgcp.graph.datasets import Dataset
from unkgcp.graph.facts import Graph
from unkgcp.graph.known import hold_out_known
from unkgcp.methods import IntervalPredictor, create
from unkgcp.methods.method import status_codes
from unkgcp.run.fitting import small_evidence
from unkgcp.run.predictor import Predictor

METHODS = ("cp", "unkgcp")
LEVEL = 0.9
LEAST = 400
"""Held-out facts below which the figure would say little."""
MOST = 500_000
"""Training facts above which it would take more than some seconds."""
WORTH = 0.9
"""The share of the run's interval score that evidence must stay below to be worth a word."""


class Gain(NamedTuple):
    """Interval scores at 90 % on the same held-out facts: that of the run's method and that of evidence."""

    own: float
    evidence: float


def gain(predictor: Predictor, dataset: Dataset) -> Gain | None:
    """What evidence would gain; None where it cannot be measured soundly and quickly.

    That is so without LightGBM, for other methods than the paper's, where early stopping looked at the calibration
    facts (`--protocol paper`), where confidences are intervals, and for graphs that are too small or too large.
    """
    model, method, train = predictor.model, predictor.method, dataset.splits.train
    strict = predictor.provenance.get("protocol", "strict") == "strict"
    measurable = method.name in METHODS and strict and train.ends is None and len(train) <= MOST
    if not measurable or model.interrupted or importlib.util.find_spec("lightgbm") is None:
        return None
    rest, held = _held_out(predictor, dataset)
    if len(held) < LEAST:
        return None
    held = held[np.random.default_rng(model.seed).permutation(len(held))]
    evidence = small_evidence(rest, model.seed)
    half = len(held) // 2
    own = create(method.name, **method.options()).calibrate(model, held[:half])
    other = create("evidence", evidence=evidence).calibrate(evidence, held[:half])
    return Gain(_score(own, held[half:]), _score(other, held[half:]))


def _score(method: IntervalPredictor, facts: Graph) -> float:
    found = method.interval(facts, LEVEL)
    return interval_score(facts.confidence, found.lower, found.upper, LEVEL)


class Learned(NamedTuple):
    """Mean squared errors on the facts that early stopping looked at: the model's, and that of one value for all."""

    model: float
    mean: float


def learned(predictor: Predictor, dataset: Dataset) -> Learned | None:
    """Whether a trained model knows more than the mean of the training facts; None where that cannot be told."""
    model, train = predictor.model, dataset.splits.train
    strict = predictor.provenance.get("protocol", "strict") == "strict"
    if (
        not model.config.trains
        or predictor.method.name not in METHODS
        or not strict
        or train.ends is not None
    ):
        return None
    rest, held = _held_out(predictor, dataset)
    if not len(held):
        return None
    error = model.score(held.head, held.relation, held.tail) - held.confidence
    return Learned(float(np.mean(error**2)), float(np.mean((rest.confidence.mean() - held.confidence) ** 2)))


def learned_sentence(found: Learned | None) -> str | None:
    """A line for whoever has so few facts that a model learns nothing from them; None where it learns something."""
    if found is None or found.model < found.mean:
        return None
    return (
        f"the model predicts held-out training facts no better than their mean does (squared error {found.model:.2g}, "
        f"that of the mean {found.mean:.2g}): it has too few facts or too few epochs; "
        "--method evidence --quick learns from fewer"
    )


def _held_out(predictor: Predictor, dataset: Dataset) -> tuple[Graph, Graph]:
    """Training facts that the model learned from, and those that early stopping looked at, if they are known."""
    model, rest, held = predictor.model, dataset.splits.train, dataset.splits.validation
    if not len(held):  # the same slice as the trainer held out
        rest, held = hold_out_known(rest, model.config.validation_fraction)
    return rest, held[status_codes(model, held) == 0]


def gain_sentence(found: Gain | None, run: str) -> str | None:
    """The line that `unkgcp fit` ends with; None where there is nothing to gain or nothing was measured."""
    if found is None or found.evidence > WORTH * found.own:
        return None
    return (
        f"evidence intervals: interval score {found.evidence:.2g} instead of {found.own:.2g} at {LEVEL:g} on held-out "
        f"training facts; unkgcp fit --from {run} --method evidence -o {run}-evidence"
    )
