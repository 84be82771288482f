"""CV+ for graphs of a few hundred facts: every fact trains and calibrates.

What it is: K models, each trained without one fold of the facts, and one on all of them for the score; the interval
method `cv+` made of these. What it is not: for large graphs, where a calibration set costs little and promises more.

>>> predictor = fit_folds(dataset, config_for("ukge"), folds=10, method="unkgcp", seed=0)     # doctest: +SKIP
>>> predictor.method.caution(0.9)                                                             # doctest: +SKIP
'cv+ with 10 folds of 270 facts: at confidence 0.9 coverage is guaranteed to be at least 0.736, usually ...'
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from unkgcp.conformal.cross import draw_folds
from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, concatenate
from unkgcp.methods import create
from unkgcp.methods.cv_plus import SCORES
from unkgcp.run.fitting import Report, silent
from unkgcp.run.predictor import Predictor

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset
    from unkgcp.training import Model, TrainConfig

FOLDS = 10


def fit_folds(
    dataset: Dataset,
    config: TrainConfig,
    *,
    folds: int = FOLDS,
    method: str = "unkgcp",
    seed: int = 0,
    device: str = "auto",
    report: Report = silent,
) -> Predictor:
    """Train `folds` models and one more on the training, validation and calibration facts, which all count alike.

    `method` is `unkgcp` or `cp`. Soft-logic facts are not used: they may have been inferred from the very facts that
    a model has to do without. The test facts are not touched.
    """
    if method not in SCORES:
        raise InputError(f"cv+ goes with {' or '.join(SCORES)}, not with {method!r}")
    facts = concatenate([dataset.splits.train, dataset.splits.validation, dataset.splits.calibration])
    if not 2 <= folds <= len(facts) // 2:
        raise InputError(
            f"{folds} folds of {len(facts):,} facts; choose from 2 to half the number of facts, with --folds"
        )
    fold = draw_folds(len(facts), folds, seed)
    config = replace(config, softlogic_weight=0.0)
    start = time.monotonic()
    parts = [(f"training {config.model}", facts)]
    parts += [
        (f"training {config.model} without fold {k + 1} of {folds}", facts[fold != k]) for k in range(folds)
    ]
    point, *members = (_train(part, config, seed, device, report, title) for title, part in parts)
    trained = time.monotonic()
    # the very folds that the members were trained without: drawn again, they would be others
    ranked = create("cv+", members=members, base=method, fold=fold).calibrate(point, facts)
    predictor = Predictor(point, ranked)
    times = {"training": trained - start, "calibration": time.monotonic() - trained}
    provenance = {
        "protocol": "strict",
        "data": {"name": dataset.name, "hashes": dict(dataset.hashes)},
        "early_stopping": f"on {config.validation_fraction:.0%} of each model's own facts, held out",
        "stopped": None,
        "times": {step: round(seconds, 3) for step, seconds in times.items()},
        "history": point.history,
    }
    return replace(predictor, provenance=provenance)


def _train(facts: Graph, config: TrainConfig, seed: int, device: str, report: Report, title: str) -> Model:
    from unkgcp.training import train

    with report(title, config.epochs) as progress:
        model = train(facts, config.model, seed=seed, config=config, device=device, progress=progress)
    if model.interrupted:
        raise KeyboardInterrupt  # with a model missing there is no interval
    return model
