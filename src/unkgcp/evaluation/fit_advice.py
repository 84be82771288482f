"""The advice that `unkgcp fit` ends with: whether evidence intervals would be better, whether the model learned much.

Both are measured in seconds on the training facts that early stopping held out from the model. For the comparison a
small evidence model is learned from the other training facts; then both methods are calibrated on one half of the
held-out facts and judged on the other. Neither calibration nor test facts are used, so that choosing a method by this
figure breaks no promise. The comparison favours the run: its model's epoch was chosen on the held-out facts, and the
small evidence model learns from fewer facts and in fewer rounds than `--method evidence` does.

>>> gain, line = advice(predictor, dataset, "run")     # doctest: +SKIP
>>> gain                                               # doctest: +SKIP
Gain(own=0.753, evidence=0.085)
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from unkgcp.evaluation.metrics import interval_score
from unkgcp.graph.datasets import Dataset
from unkgcp.graph.facts import Graph
from unkgcp.graph.known_facts import hold_out_known
from unkgcp.methods import IntervalPredictor, create
from unkgcp.methods.method import status_codes
from unkgcp.run.predictor import Predictor

if TYPE_CHECKING:
    from unkgcp.evidence import EvidenceModel

METHODS = ("cp", "unkgcp")
LEVEL = 0.9
LEAST = 400
"""With fewer held-out facts the figure would say little."""
MOST = 500_000
"""With more training facts it would take more than some seconds."""
LEARNED, ROUNDS, RATE = 10_000, 15, 0.3
"""The small evidence model: facts it learns from and rounds of boosting, at most, and how much a round learns. Twice
the rounds at half the rate take up to twice as long and change interval scores little (demo 0.61 to 0.64, NL27k 0.087
to 0.089, CN15k 0.55 to 0.54, PPI5k 0.059 both)."""
WORTH = 0.9
"""Evidence is worth a word if its interval score is at most this share of the run's."""


class Gain(NamedTuple):
    """Interval scores at 90 % on the same held-out facts: that of the run's method and that of evidence."""

    own: float
    evidence: float


class HeldOut(NamedTuple):
    """The training facts that a model learned from, and those known to it that early stopping looked at."""

    rest: Graph
    held: Graph


def advice(predictor: Predictor, dataset: Dataset, run: str) -> tuple[Gain | None, str | None]:
    """What evidence would gain, where that can be measured, and the line that `unkgcp fit` ends with, if any."""
    parts = held_out(predictor, dataset)
    if parts is None:
        return None, None
    found = gain(predictor, parts)
    return found, gain_sentence(found, run) or learned_sentence(learned(predictor, parts))


def gain(predictor: Predictor, parts: HeldOut) -> Gain | None:
    """What evidence would gain; None where it cannot be measured soundly and quickly.

    That is so without LightGBM, after an interrupted training, and for graphs that are too small or too large.
    """
    model, method, (rest, held) = predictor.model, predictor.method, parts
    if not LEAST <= len(held.head) <= MOST - len(rest.head):
        return None
    if model.interrupted or importlib.util.find_spec("lightgbm") is None:
        return None
    held = held[np.random.default_rng(model.seed).permutation(len(held))]
    evidence = _small_evidence(rest, model.seed)
    half = len(held) // 2
    own = create(method.name, **method.options()).calibrate(model, held[:half])
    other = create("evidence", evidence=evidence).calibrate(evidence, held[:half])
    return Gain(_score(own, held[half:]), _score(other, held[half:]))


def _small_evidence(train: Graph, seed: int) -> EvidenceModel:
    """Evidence learned in seconds: from some training facts, in few rounds, and without ranking completions."""
    from unkgcp.evidence import learn
    from unkgcp.evidence.trees import Boosting

    few = Boosting(rounds=ROUNDS, learning_rate=RATE)
    return learn(train, seed=seed, suggested=few, elsewhere=few, most=LEARNED, completions=False)


def _score(method: IntervalPredictor, facts: Graph) -> float:
    found = method.interval(facts, LEVEL)
    return interval_score(facts.confidence, found.lower, found.upper, LEVEL)


class Learned(NamedTuple):
    """Mean squared errors on the facts that early stopping looked at: the model's, and that of one value for all."""

    model: float
    mean: float


def learned(predictor: Predictor, parts: HeldOut) -> Learned | None:
    """How a trained model compares with the mean of the training facts; None where that cannot be told."""
    model, (rest, held) = predictor.model, parts
    if not model.config.trains or not len(held.head):
        return None
    error = model.score(held.head, held.relation, held.tail) - held.confidence
    return Learned(float(np.mean(error**2)), float(np.mean((rest.confidence.mean() - held.confidence) ** 2)))


def learned_sentence(found: Learned | None) -> str | None:
    """The line for a model that learned nothing from too few facts; None where it learned something."""
    if found is None or found.model < found.mean:
        return None
    return (
        f"the model predicts held-out training facts no better than their mean does (squared error {found.model:.2g}, "
        f"that of the mean {found.mean:.2g}): it has too few facts or too few epochs; "
        "--method evidence --quick learns from fewer"
    )


def held_out(predictor: Predictor, dataset: Dataset) -> HeldOut | None:
    """The facts to measure on; None for methods other than `METHODS`, for interval confidences, and without such facts.

    Under the paper's protocol there are none: early stopping looks at the calibration facts.
    """
    strict = predictor.provenance.get("protocol", "strict") == "strict"
    if not strict or predictor.method.name not in METHODS or dataset.splits.train.ends is not None:
        return None
    model, rest, held = predictor.model, dataset.splits.train, dataset.splits.validation
    if not len(held):  # the same slice as the trainer held out
        rest, held = hold_out_known(rest, model.config.validation_fraction)
    return HeldOut(rest, held[status_codes(model, held) == 0])


def gain_sentence(found: Gain | None, run: str) -> str | None:
    """The line about what evidence would gain; None where that is little or was not measured."""
    if found is None or found.evidence > WORTH * found.own:
        return None
    return (
        f"evidence intervals: interval score {found.evidence:.2g} instead of {found.own:.2g} at {LEVEL:g} on held-out "
        f"training facts; unkgcp fit --from {run} --method evidence -o {run}-evidence"
    )
