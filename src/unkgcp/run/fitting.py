"""From a data set to a calibrated predictor, and from a trained predictor to another calibration.

What it is: the order of the steps and what each may look at. Under `strict`, calibration facts are seen
once, at calibration; under `paper`, early stopping looks at them too, as the paper's experiments did, and
the provenance says so. What it is not: a trainer (`unkgcp.training`) or an interval method
(`unkgcp.methods`).

>>> predictor = fit(dataset, config_for("ukge"), method="unkgcp", seed=0)     # doctest: +SKIP
>>> recalibrate(predictor, dataset.splits.calibration, method="cp")          # doctest: +SKIP
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unkgcp.errors import InputError, TrainedFactsWarning
from unkgcp.graph import Graph
from unkgcp.graph.negatives import KINDS, corrupt
from unkgcp.methods import IntervalPredictor, predictor_class
from unkgcp.progress import Progress, Silent
from unkgcp.run.population import check_population
from unkgcp.run.predictor import Predictor, calibrate
from unkgcp.run.untrained import check_apart

if TYPE_CHECKING:
    from unkgcp.evidence import EvidenceModel
    from unkgcp.graph.datasets import Dataset
    from unkgcp.training import Model, TrainConfig

PROTOCOLS = ("strict", "paper")
QUICK_EPOCHS = 10
# a stage of the work (its title, its length) -> where its progress goes
Report = Callable[[str, float | None], AbstractContextManager[Progress]]


def silent(title: str, total: float | None) -> AbstractContextManager[Progress]:
    """Report nothing."""
    return nullcontext(Silent())


def fit(
    dataset: Dataset,
    config: TrainConfig,
    *,
    method: str = "unkgcp",
    seed: int = 0,
    protocol: str = "strict",
    per: str | None = None,
    quick: bool = False,
    allow_empty: bool = False,
    population: str = "asserted",
    kinds: Sequence[str] = KINDS,
    share: float | None = None,
    device: str = "auto",
    report: Report = silent,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> Predictor:
    """Train on the training facts and calibrate on the calibration facts.

    `per="relation"` promises coverage per relation, for methods that offer it. `quick` is for the evidence method:
    it trains no cross-fitted backbones, and the one that intervals then do not use for ten epochs at most. So is
    `allow_empty`: no value for the facts it doubts most where single values alone would cover more than was asked.
    `population`, `kinds` and `share` are those of `calibrate`: whether queries may be no facts.
    `checkpoint` is a folder in which training keeps its state; with `resume` it goes on from there. After
    Ctrl-C, or when the loss is no longer a number, the best model so far is calibrated; the provenance then
    says under `stopped` why.
    """
    from unkgcp.training import TrainingError, train, train_length, train_quantiles

    if protocol not in PROTOCOLS:
        raise InputError(f"protocol is {protocol!r} but must be one of {', '.join(PROTOCOLS)}")
    splits = dataset.splits
    method, valued = method_for(method, splits.train, config)
    check_population(population, kinds, share, method, per)
    if quick:
        if not predictor_class(method).needs_evidence:
            raise InputError(f"--quick goes with --method evidence, not with {method}; leave it out")
        config = replace(config, epochs=min(config.epochs, QUICK_EPOCHS))
    settings = method_options(method, dataset.name, protocol, per, allow_empty)
    validation, stopping = _validation(dataset, config, protocol)
    with warnings.catch_warnings():
        # refused before hours of training and not after; whatever else is to be said comes at calibration
        warnings.simplefilter("ignore", TrainedFactsWarning)
        check_apart(splits.train, None if protocol == "paper" else validation, splits.calibration)
    start = time.monotonic()
    with report(f"training {config.model}", config.epochs) as progress:
        try:
            model = train(
                splits.train,
                config.model,
                seed=seed,
                config=config,
                validation=validation,
                softlogic=dataset.softlogic_for(protocol),
                device=device,
                progress=progress,
                checkpoint=None if checkpoint is None else checkpoint / "model.safetensors",
                resume=resume,
            )
            stopped = "stopped by the user" if model.interrupted else None
        except TrainingError as error:
            if error.model is None:
                raise
            model, stopped = error.model, str(error)
    quantiles: dict[float, Model] = {}
    if predictor_class(method).needs_quantiles:
        if stopped is not None:
            raise KeyboardInterrupt if model.interrupted else InputError(stopped)
        with report("training quantile models", config.epochs) as progress:
            quantiles = train_quantiles(
                splits.train,
                config.model,
                seed=seed,
                config=config,
                validation=validation,
                device=device,
                progress=progress,
            )
        if any(quantile.interrupted for quantile in quantiles.values()):
            raise KeyboardInterrupt
    if predictor_class(method).needs_length:
        with report("training the model of lengths", config.epochs) as progress:
            valued["length"] = train_length(
                splits.train,
                seed=seed,
                config=config,
                validation=validation,
                device=device,
                progress=progress,
            )
        if valued["length"].interrupted:
            raise KeyboardInterrupt
    trained = time.monotonic()
    extra: dict[str, Any] = {}
    if predictor_class(method).needs_evidence:
        if model.interrupted:
            raise KeyboardInterrupt
        extra["evidence"] = _evidence(model, config, quick, device, report)
    learned = time.monotonic()
    predictor = calibrate(
        model,
        splits.calibration,
        method,
        negatives=calibration_negatives(dataset, seed) if protocol == "paper" else None,
        quantiles=quantiles,
        population=population,
        kinds=kinds,
        share=share,
        protocol=protocol,
        **extra,
        **valued,
        **settings,
    )
    times = {"training": trained - start, "calibration": time.monotonic() - learned}
    if extra:
        times["evidence"] = learned - trained
    provenance = {
        "protocol": protocol,
        "data": {"name": dataset.name, "hashes": dict(dataset.hashes)},
        "early_stopping": stopping,
        "stopped": stopped,
        "times": {step: round(seconds, 3) for step, seconds in times.items()},
        "history": model.history,
    }
    return replace(predictor, provenance=provenance)


def _evidence(model: Model, config: TrainConfig, quick: bool, device: str, report: Report) -> EvidenceModel:
    """What the training facts say, with the scores of cross-fitted backbones unless it is to be quick."""
    assert model.facts is not None
    train = model.facts.graph(model.vocabulary)
    if quick:
        from unkgcp.evidence import learn

        with report("learning from the evidence", None):
            return learn(train, seed=model.seed)
    from unkgcp.evidence.crossfit import FOLDS
    from unkgcp.evidence.evidence_model import learn_with_backbone

    with report("cross-fitting, learning from the evidence", 2 * FOLDS) as progress:
        return learn_with_backbone(train, config, seed=model.seed, device=device, progress=progress)


def recalibrate(
    predictor: Predictor, facts: Graph, method: str, *, negatives: Graph | None = None, **options: Any
) -> Predictor:
    """Another method, or other calibration facts, for a trained model. Nothing is trained.

    Facts on which the model was trained must not be among them (`unkgcp.run.untrained`).
    """
    if predictor_class(method).needs_quantiles and not predictor.quantiles:
        raise InputError(
            f"the run has no quantile models, which {method} needs; fit it with --method {method}"
        )
    method, valued = method_for(method, facts)
    options |= valued | length_for(method, predictor.method)
    if predictor_class(method).needs_evidence and (evidence := getattr(predictor.method, "evidence", None)):
        options.setdefault("evidence", evidence)
    start = time.monotonic()
    again = calibrate(
        predictor.model,
        facts,
        method,
        negatives=negatives,
        quantiles=predictor.quantiles,
        protocol=predictor.provenance.get("protocol", "strict"),
        **options,
    )
    times = {**predictor.provenance.get("times", {}), "calibration": round(time.monotonic() - start, 3)}
    return replace(again, provenance={**predictor.provenance, "times": times})


def method_options(
    method: str, data: str, protocol: str, per: str | None = None, allow_empty: bool = False
) -> dict[str, Any]:
    """The settings of a method: those of the paper's experiments on a data set, and those that were asked for."""
    options: dict[str, Any] = {} if per is None else {"per": per}
    if allow_empty:
        if not predictor_class(method).needs_evidence:
            raise InputError(f"--allow-empty goes with --method evidence, not with {method}; leave it out")
        options["allow_empty"] = True
    # the paper's numbers on CN15k need the entropy at 0.5 M + 0.5, which its text does not say
    if (method, data, protocol) == ("unkgcp", "cn15k", "paper"):
        options["mapped_entropy"] = True
    return options


def calibration_negatives(dataset: Dataset, seed: int) -> Graph:
    """One corruption of each calibration fact, none of them a training fact, confidence 0."""
    return corrupt(dataset.splits.calibration, dataset.splits.train, seed=seed)


def _validation(dataset: Dataset, config: TrainConfig, protocol: str) -> tuple[Graph | None, str]:
    """Facts for early stopping (None: the trainer holds some out of the training facts), and a sentence."""
    if protocol == "paper":
        return dataset.splits.calibration, (
            "on the calibration facts, as in the paper: they also selected the model, "
            "so the guarantee is not strict"
        )
    if len(dataset.splits.validation):
        return dataset.splits.validation, "on the validation facts"
    return None, f"on {config.validation_fraction:.0%} of the training facts, held out"


# Which method answers where confidences are intervals, and the model of their length.

JOINT = "joint"
# what a user asks for -> how errors of the middle are measured
NORMALISED = {"unkgcp": True, "cp": False}


def method_for(method: str, facts: Graph, config: TrainConfig | None = None) -> tuple[str, dict[str, Any]]:
    """The method, with its options, that answers what was asked for on such facts.

    Where confidences are intervals, `unkgcp` and `cp` stand for one joint threshold of both ends, with and without
    the entropy as a unit; methods for plain numbers are refused there, and those for intervals elsewhere. `config` is
    that of the models to be trained, if any.
    """
    needs_length = predictor_class(method).needs_length
    if facts.ends is None:
        if needs_length:
            raise InputError(
                f"method {method!r} is for confidences that are intervals, with columns lower and upper; "
                "choose another, unkgcp for instance"
            )
        return method, {}
    if config is not None and config.uses_pool:
        raise InputError("lengths of confidences do not go with passleaf's pseudo-labels; use ukge or beurre")
    if method in NORMALISED:
        return JOINT, {"normalised": NORMALISED[method]}
    if not needs_length:
        raise InputError(
            f"method {method!r} predicts one number, but these confidences are intervals: "
            "use unkgcp, cp, joint or mean-length"
        )
    return method, {"normalised": True}


def length_for(method: str, trained: IntervalPredictor) -> dict[str, Any]:
    """The model of lengths that a run's method has, for another method that needs one."""
    if not predictor_class(method).needs_length:
        return {}
    length = getattr(trained, "length", None)
    if length is None:
        raise InputError(
            "the run has no model of lengths: fit it on facts with columns lower and upper, not with --from"
        )
    return {"length": length}
