"""From facts to a calibrated predictor, and from a trained predictor to another calibration.

This file has the order of the steps, and which facts each step may use. Under the protocol `strict`, calibration facts
are seen once, at calibration; under `paper`, early stopping looks at them too, as the paper's experiments did, and the
provenance says so. `fit_folds` is for graphs of a few hundred facts: with CV+ every fact trains and calibrates. The
models are trained by `unkgcp.training`, the interval methods are in `unkgcp.methods`.

>>> predictor = fit("facts.tsv")                                             # doctest: +SKIP
>>> predictor = fit(dataset, model="ukge", method="unkgcp", seed=0)          # doctest: +SKIP
>>> recalibrate(predictor, dataset.splits.calibration, method="cp")          # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from unkgcp.errors import InputError, missing
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.graph.facts import Graph, Splits, concatenate
from unkgcp.graph.negatives import KINDS, corrupt
from unkgcp.methods import IntervalPredictor, check_promise, create, predictor_class
from unkgcp.run.calibration import (
    Report,
    calibrate,
    calibrated,
    check_apart,
    learn_evidence,
    method_options,
    only_repeats,
    silent,
)
from unkgcp.run.predictor import Predictor
from unkgcp.run.provenance import describe, fitted
from unkgcp.training.config import GIVEN, NONE, TrainConfig, config_for
from unkgcp.training.model import Model, NoModel

PROTOCOLS = ("strict", "paper")
FOLDS = 10
NORMALISED = {"unkgcp": True, "cp": False}
"""Where confidences are intervals: whether this method has the errors of the middle in units of the entropy."""


def choice(
    method: str | None, model: str | None, protocol: str = "strict", intervals: bool = False
) -> tuple[str, str]:
    """The interval method and the model that are meant where only one of them is named, or none.

    Evidence without a model is what most people want. A model alone, or the paper's protocol, asks for the paper's way,
    and so do confidences that are `intervals` themselves, of which evidence knows nothing.

    >>> choice(None, None), choice(None, "beurre"), choice("cp", None)
    (('evidence', 'none'), ('unkgcp', 'beurre'), ('cp', 'ukge'))
    """
    if method is None:
        method = "evidence" if model in (None, NONE) and protocol != "paper" and not intervals else "unkgcp"
    return method, model or ("ukge" if predictor_class(method).asks_model else NONE)


def as_dataset(data: Any, seed: int, reading: Mapping[str, Any]) -> Dataset:
    """Facts in whatever form `unkgcp.read` takes them, in parts; a graph that has parts already keeps them."""
    if isinstance(data, Dataset):
        return data
    splits = data.splits if isinstance(data, Graph) else data
    if isinstance(splits, Splits):
        return Dataset(type(data).__name__, splits)
    return load_dataset(data, seed=seed, **reading)


def fit(
    data: Any,
    config: TrainConfig | None = None,
    *,
    method: str | None = None,
    model: str | None = None,
    seed: int = 0,
    protocol: str = "strict",
    per: str | None = None,
    device: str = "auto",
    report: Report = silent,
    checkpoint: Path | None = None,
    resume: bool = False,
    **options: Any,
) -> Predictor:
    """Train on the training facts and calibrate on the calibration facts.

    `data` is what `unkgcp.read` takes (a file, a name, a folder, a data frame, a graph), or a `Dataset`; one file or
    object is split first, by `seed`. `options` are those of `unkgcp.graph.load_dataset` (columns, scale, test, ...),
    and `population` and `kinds` of `calibrate`, which say whether queries may be no facts.
    Without `method` and `model` intervals come from evidence, with no model; `choice` says what one of them alone
    means. `config` has other training settings than those of the model's preset, and names the model.
    `per` names the groups in each of which coverage is promised, for methods that offer it ("doubt,relation", "none",
    see `unkgcp.methods.partitions`); None leaves them to the method. The model `none` goes with the evidence method and
    needs no torch; with any other model evidence uses its cross-fitted scores.
    `checkpoint` is a folder in which training keeps its state; with `resume` it goes on from there. After
    Ctrl-C, or when the loss is no longer a number, the best model so far is calibrated; the provenance then
    says under `stopped` why.
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"protocol is {protocol!r} but must be one of {', '.join(PROTOCOLS)}")
    population, kinds = options.pop("population", "asserted"), options.pop("kinds", KINDS)
    dataset = as_dataset(data, seed, options)
    splits, strict = dataset.splits, protocol != "paper"
    config, kind, settings = plan(dataset, config, method, model, protocol, per)
    check_promise(kind, per, population, kinds)
    validation, stopping = _validation(dataset, config, protocol)
    with only_repeats(dataset.split_here):  # before hours of training
        check_apart(splits.train, validation if strict else None, splits.calibration)
    times: dict[str, float] = {}
    if config.model == NONE:
        models = Models(NoModel.of(splits.train, seed), None, {}, {})
    else:
        same: dict[str, Any] = {"seed": seed, "config": config, "validation": validation, "device": device}
        softlogic = dataset.softlogic_for(protocol)
        with _timed(times, "training"):
            models = _train(splits.train, softlogic, kind.needs, checkpoint, resume, report, same)
    if "evidence" in kind.needs:
        refuse_interrupted(models.main)
        with _timed(times, "evidence"):
            settings["evidence"] = learn_evidence(models.main, splits.calibration, config, device, report)
    with _timed(times, "calibration"), report("calibrating", None):
        predictor = calibrated(
            kind,
            models.main,
            splits.calibration,
            negatives=None if strict else calibration_negatives(dataset, seed),
            quantiles=models.quantiles,
            population=population,
            kinds=kinds,
            **models.lengths,
            **settings,
        )
    provenance = fitted(dataset, models.main, protocol, stopping, models.stopped, times)
    if isinstance(data, str | PathLike):
        provenance["data"] = describe(str(data), dataset, seed, options)
    return replace(predictor, provenance=provenance).remembering(splits.validation, splits.test)


def plan(
    dataset: Dataset,
    config: TrainConfig | None,
    method: str | None,
    model: str | None,
    protocol: str,
    per: str | None,
) -> tuple[TrainConfig, type[IntervalPredictor], dict[str, Any]]:
    """What `fit` is to train, the method and its options; InputError where they do not go together or with the data."""
    train = dataset.splits.train
    method, model = choice(method, config.model if config else model, protocol, train.ends is not None)
    config = config or config_for(model, dataset.name, protocol)
    method, settings = method_for(method, train, config)
    kind = predictor_class(method)
    check_model(config, kind, protocol)
    return config, kind, settings | method_options(method, dataset.name, protocol, per)


class Models(NamedTuple):
    """The models of a run: the main one, why its training ended early if it did, and those the method needs besides."""

    main: Model
    stopped: str | None
    quantiles: dict[float, Model]
    lengths: dict[str, Model]
    """The model of lengths by its name, for confidences that are intervals."""


@contextmanager
def _timed(times: dict[str, float], step: str) -> Iterator[None]:
    """Note how many seconds a step takes."""
    start = time.monotonic()
    yield
    times[step] = time.monotonic() - start


def _train(
    facts: Graph,
    softlogic: Graph | None,
    needs: Sequence[str],
    checkpoint: Path | None,
    resume: bool,
    report: Report,
    same: dict[str, Any],
) -> Models:
    """All models that are trained for a run; same: what they have in common."""
    try:
        main, stopped = _main_model(facts, softlogic, checkpoint, resume, report, same)
        return Models(main, stopped, *further_models(facts, needs, main, stopped, report, same))
    except ModuleNotFoundError as error:
        raise InputError(f"{missing(error)}; --method evidence alone needs no model") from None


def _main_model(
    train_facts: Graph,
    softlogic: Graph | None,
    checkpoint: Path | None,
    resume: bool,
    report: Report,
    same: dict[str, Any],
) -> tuple[Model, str | None]:
    """The main model of a run, and why its training ended early if it did. same: as in `further_models`."""
    from unkgcp.training.loop import TrainingError
    from unkgcp.training.trainer import train

    config = same["config"]
    with report(f"training {config.model}", config.epochs) as progress:
        try:
            model = train(
                train_facts,
                softlogic=softlogic,
                progress=progress,
                checkpoint=None if checkpoint is None else checkpoint / "model.safetensors",
                resume=resume,
                **same,
            )
        except TrainingError as error:
            if error.model is None:
                raise
            return error.model, str(error)
    return model, "stopped by the user" if model.interrupted else None


def further_models(
    train_facts: Graph,
    needs: Sequence[str],
    model: Model,
    stopped: str | None,
    report: Report,
    same: dict[str, Any],
) -> tuple[dict[float, Model], dict[str, Any]]:
    """The quantile models by quantile, and the model of lengths by its name, where the method needs them.

    stopped: why the training of the main `model` ended early. same: what all models of the run are trained with.
    """
    quantiles, lengths, epochs = {}, {}, same["config"].epochs
    if "quantiles" in needs:
        if stopped is not None:
            raise KeyboardInterrupt if model.interrupted else InputError(stopped)
        from unkgcp.training.trainer import train_quantiles

        with report("training quantile models", epochs) as progress:
            quantiles = train_quantiles(train_facts, progress=progress, **same)
        refuse_interrupted(*quantiles.values())
    if "length" in needs:
        from unkgcp.training.trainer import train_length

        with report("training the model of lengths", epochs) as progress:
            lengths["length"] = train_length(train_facts, progress=progress, **same)
        refuse_interrupted(*lengths.values())
    return quantiles, lengths


def check_model(config: TrainConfig, method: type[IntervalPredictor], protocol: str) -> None:
    """InputError where there is to be no model although what was asked for needs one, or needs further ones."""
    further = {"quantiles", "length", "evidence"}.intersection(method.needs)
    refusals = {
        "a model of your own is not trained here: calibrate it in Python with unkgcp.calibrate(model, facts)": (
            config.model == GIVEN
        ),
        f"{config.model} goes with cp, unkgcp and shortest, not with {method.name}, for which further "
        "models would have to be trained; name another method, or --model ukge": config.of_pykeen and further,
        f"--model {NONE} goes with --method evidence, which makes intervals without a model, "
        f"not with {method.name}; name a model or that method": config.model == NONE and method.asks_model,
        f"--protocol paper says how a model is trained, and --model {NONE} (evidence alone) trains none; "
        "name a model, or leave the protocol out": config.model == NONE and protocol == "paper",
    }
    for sentence, is_refused in refusals.items():
        if is_refused:
            raise InputError(sentence)


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

    Each of the models is trained without one fold of the facts; the one trained on all of them gives the score, and
    `cv+` makes the intervals. `method` is `unkgcp` or `cp`. Soft-logic facts are not used: they may have been inferred
    from the very facts that a model has to do without. The test facts are not touched. It is not for large graphs,
    where a calibration set costs little and promises more.

    >>> fit_folds(dataset, config_for("ukge"), folds=10).method.caution(0.9)               # doctest: +SKIP
    'cv+ with 10 folds of 270 facts: at confidence 0.9 coverage is guaranteed to be at least 0.736, usually ...'
    """
    from unkgcp.conformal.cross import draw_folds
    from unkgcp.methods.cv_plus import SCORES
    from unkgcp.training.trainer import train

    if method not in SCORES:
        raise InputError(f"cv+ goes with {' or '.join(SCORES)}, not with {method!r}")
    check_model(config, predictor_class(method), "strict")
    facts = concatenate([dataset.splits.train, dataset.splits.validation, dataset.splits.calibration])
    if not 2 <= folds <= len(facts) // 2:
        raise InputError(
            f"{folds} folds of {len(facts):,} facts; choose from 2 to half the number of facts, in the setting folds"
        )
    fold = draw_folds(len(facts), folds, seed)
    config = replace(config, softlogic_weight=0.0)
    times: dict[str, float] = {}
    training_sets = [(f"training {config.model}", facts)]
    training_sets += [
        (f"training {config.model} without fold {k + 1} of {folds}", facts[fold != k]) for k in range(folds)
    ]
    models = []
    for title, graph in training_sets:
        with _timed(times, title), report(title, config.epochs) as progress:
            model = train(graph, config.model, seed=seed, config=config, device=device, progress=progress)
        refuse_interrupted(model)
        models.append(model)
    point, *members = models
    times = {"training": sum(times.values())}
    # the folds that the members were trained without must be handed on: drawn again, they would be others
    with _timed(times, "calibration"):
        ranked = create("cv+", members=members, base=method, fold=fold).calibrate(point, facts)
    stopping = f"on {config.validation_fraction:.0%} of each model's own facts, held out"
    predictor = Predictor(point, ranked, provenance=fitted(dataset, point, "strict", stopping, None, times))
    return predictor.remembering(dataset.splits.test)


def refuse_interrupted(*models: Model) -> None:
    """KeyboardInterrupt if the training of one of the models was interrupted: a method needs all of them whole."""
    if any(model.interrupted for model in models):
        raise KeyboardInterrupt


def recalibrate(
    predictor: Predictor, facts: Graph, method: str, *, negatives: Graph | None = None, **options: Any
) -> Predictor:
    """Another method, or other calibration facts, for a trained model. Nothing is trained.

    Facts on which the model was trained must not be among them (`unkgcp.run.calibration`).
    """
    if "quantiles" in predictor_class(method).needs and not predictor.quantiles:
        raise InputError(
            f"the run has no quantile models, which {method} needs; fit it with --method {method}"
        )
    method, valued = method_for(method, facts)
    options |= valued
    needs = predictor_class(method).needs
    if "length" in needs:
        if "length" not in predictor.models():
            raise InputError(
                "the run has no model of lengths: fit it on facts with columns lower and upper, not with --from"
            )
        options["length"] = predictor.models()["length"]
    if "evidence" in needs and predictor.method.evidence is not None:
        options.setdefault("evidence", predictor.method.evidence)
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
    provenance = {**predictor.provenance, "times": times}
    provenance.pop("held_out_rate", None)  # it was the rate of the former calibration facts
    again = replace(again, provenance=provenance, aside=predictor.aside)
    return again.remembering(predictor.method.held_out())


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
    if config.model == NONE:
        return None, "on some of the training facts, held out"
    if len(dataset.splits.validation.head):
        return dataset.splits.validation, "on the validation facts"
    return None, f"on {config.validation_fraction:.0%} of the training facts, held out"


def method_for(method: str, facts: Graph, config: TrainConfig | None = None) -> tuple[str, dict[str, Any]]:
    """The method, with its options, that answers what was asked for on such facts.

    Where confidences are intervals, `unkgcp` and `cp` stand for one joint threshold of both ends, with and without
    the entropy as a unit; methods for plain numbers are refused there, and those for intervals elsewhere. `config` is
    that of the models to be trained, if any.
    """
    needs_length = "length" in predictor_class(method).needs
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
        return "joint", {"normalised": NORMALISED[method]}
    if not needs_length:
        raise InputError(
            f"method {method!r} predicts one number, but these confidences are intervals: "
            "use unkgcp, cp, joint or mean-length"
        )
    return method, {"normalised": True}
