"""`unkgcp fit`: train, calibrate, evaluate, write the run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from unkgcp.cli.options import (
    choice_option,
    device_option,
    examples,
    reading_options,
    seed_option,
    splitting_options,
)
from unkgcp.cli.output import Reporter, detail, json_option, note, print_guarantee, print_json, print_text
from unkgcp.errors import InputError

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset
    from unkgcp.run.predictor import Predictor
    from unkgcp.training.config import TrainConfig

EXAMPLES = examples(
    "unkgcp fit demo -o run",
    "unkgcp fit facts.tsv -o run --model beurre --method cp --seed 1",
    "unkgcp fit ppi5k -o run --protocol paper --device cuda",
    "unkgcp fit facts.tsv -o run --resume",
    "unkgcp fit facts.tsv -o run --method evidence --quick",
    "unkgcp fit facts.tsv -o run --method evidence --population open",
    "unkgcp fit --from run --method cp -o run-cp",
    "unkgcp fit few-facts.tsv -o run --calibrate cv+ --folds 10",
)

# options that do not go with --from, and those that do not if DATA is one file
TRAINING = [
    "--model",
    "--config",
    "--seed",
    "--device",
    "--resume",
    "--protocol",
    "--calibrate",
    "--folds",
    "--quick",
]
SPLITTING = ["--calibration", "--test", "--keep-repeats-together"]
AGAINST_FOLDS = ("resume", "per", "quick", "allow_empty")
"""Settings that do not go with CV+."""


@click.command(name="fit", epilog=EXAMPLES)
@click.argument("data", required=False)
@click.option("-o", "--output", metavar="RUN", help="The folder to write; needed unless --from is given.")
@click.option(
    "--model",
    metavar="M",
    help="ukge, ukge-rect, passleaf, beurre, or none with --method evidence.  [default: ukge, with --quick none]",
)
@click.option(
    "--method",
    metavar="P",
    default="unkgcp",
    show_default=True,
    help="How intervals are made: unkgcp, cp, fpi, qr, shortest, evidence; for confidences that are intervals "
    "unkgcp, cp, joint or mean-length.",
)
@click.option(
    "--per",
    metavar="GROUPS",
    help="Promise coverage in every group of facts instead of on average over all: groups by relation, by doubt (how "
    "unsure the method is of a fact), by degree (how many training facts there are about its entities); several, "
    "separated by commas, or none.  [default: doubt,relation for evidence, none for others]",
)
@click.option(
    "--quick",
    is_flag=True,
    help="With --method evidence: no cross-fitted backbones, and no model at all unless --model names one; a "
    "minute on a laptop.",
)
@click.option(
    "--allow-empty",
    is_flag=True,
    help="With --method evidence: no value where the model doubts it, if single values cover more than the level.",
)
@choice_option(
    "--population",
    ["asserted", "open"],
    "asserted: queries are facts; open: they may be none, and the promise is for facts and for non-facts of the "
    "kinds in --negatives.",
)
@click.option(
    "--negatives",
    "kinds",
    metavar="KINDS",
    help="With --population open: kinds of non-facts that the promise is for; joined is one more, and costs most. "
    "[default: uniform,same-type,frequent,relation,near,reversed]",
)
@click.option(
    "--share-of-facts",
    "share",
    type=float,
    metavar="P",
    help="With --population open: the share of facts among the queries, if it is known. The promise is then one "
    "over facts and non-facts together, not for each.",
)
@click.option(
    "--config", "config_file", metavar="FILE", help="YAML of training settings other than the preset's."
)
@seed_option("Decides the split of one file and the model.")
@device_option
@click.option("--resume", is_flag=True, help="Go on where an interrupted fit of the same RUN stopped.")
@click.option(
    "--protocol",
    metavar="WHICH",
    default="strict",
    show_default=True,
    help="strict: early stopping on a slice of the training facts; paper: on the calibration facts.",
)
@choice_option(
    "--calibrate",
    ["split", "cv+"],
    "split: on calibration facts; cv+: for a few hundred facts, all of which train and calibrate.",
)
@click.option(
    "--folds", type=int, metavar="K", help="cv+: how many models, each without one fold. [default: 10]"
)
@click.option("--from", "source", metavar="RUN", help="Calibrate the model of this run anew; train nothing.")
@json_option
@reading_options
@splitting_options
def command(
    data: str | None,
    output: str | None,
    source: str | None,
    model: str | None,
    config_file: str | None,
    calibrate: str,
    folds: int | None,
    population: str,
    kinds: str | None,
    share: float | None,
    reading: dict[str, Any],
    splitting: dict[str, Any],
    **settings: Any,
) -> None:
    """Train a model on DATA, calibrate it and write the run.

    DATA is a name (cn15k, nl27k, ppi5k, demo), a folder with train, val (= calibration) and test files, or one
    file, which is split at random.

    With --from no model is trained. The calibration facts are then those of that run, those of the data set
    DATA, or all facts of the file DATA; the model must not have been trained on them. Without -o the run is
    changed in place.
    """
    if source is not None:
        from unkgcp.graph.datasets import names_one_file

        _refuse(TRAINING, "is for training, and --from trains nothing")
        if data is not None and names_one_file(data):
            _refuse(SPLITTING, "splits a file, and --from calibrates on all of it")
    if folds is not None and calibrate == "split":
        raise InputError("--folds goes with --calibrate cv+; leave it out or add that")
    asked = _population(population, kinds, share)
    if asked and calibrate == "cv+":
        raise InputError("--population open does not go with --calibrate cv+; leave one of them out")
    from unkgcp.methods import predictor_class

    predictor_class(settings["method"])  # refuses a name that no method has
    options = {**reading, **splitting}
    if source is not None:
        from unkgcp.run.run_reader import check_run

        check_run(source)
        with _alone(output or source):
            _recalibrate(source, data, output or source, settings, options, asked)
    elif data is None or output is None:
        raise InputError("fit needs DATA and -o RUN; for example unkgcp fit demo -o run")
    else:
        if model is None and config_file is None and settings["quick"] and settings["method"] == "evidence":
            model = "none"
        from unkgcp.training.config import config_in

        config = config_in(config_file, model, data, settings["protocol"])
        if calibrate == "cv+":
            settings = _settings_of_folds(folds, **settings)
        with _alone(output):
            _train(data, output, config, options, {**settings, **asked})


def _refuse(options: Sequence[str], why: str) -> None:
    """InputError if one of these options was given."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        found = set(options).intersection(parameter.opts)
        if given and found:
            raise InputError(f"{min(found)} {why}; leave one of them out")


def _population(population: str, kinds: str | None, share: float | None) -> dict[str, Any]:
    """What `calibrate` is told about the queries; nothing if they are facts."""
    if population != "open":
        for option, given in (("--negatives", kinds), ("--share-of-facts", share)):
            if given is not None:
                raise InputError(f"{option} goes with --population open; add that or leave it out")
        return {}
    named = {} if kinds is None else {"kinds": tuple(kind.strip() for kind in kinds.split(","))}
    return {"population": population, "share": share, **named}


def _settings_of_folds(
    folds: int | None, method: str, seed: int, device: str, protocol: str, **others: Any
) -> dict[str, Any]:
    """The settings of `fit_folds`; InputError if another setting was given."""
    against = [f"--{name.replace('_', '-')}" for name in AGAINST_FOLDS if others[name]]
    if protocol == "paper":
        against.append("--protocol paper")
    if against:
        raise InputError(f"{against[0]} does not go with --calibrate cv+; leave one of them out")
    return {"method": method, "seed": seed, "device": device, "folds": folds}


def _is_first() -> bool:
    """Whether this process writes the run; of several that torchrun starts only the first does."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def _alone(output: str) -> Iterator[None]:
    """Refuse at once, not after hours of training, an output that cannot be written or that another fit writes to."""
    first = _is_first()
    from unkgcp.run.run_writer import check_target, writing

    if first:
        with writing(output):
            yield
    else:
        check_target(output)
        yield


def _train(
    data: str, output: str, config: TrainConfig, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Fit and write the run. `settings` are those of `fit`, or of `fit_folds` if `folds` is among them."""
    import shutil
    from pathlib import Path

    seed, first = settings["seed"], _is_first()
    from unkgcp.graph.datasets import load_dataset

    dataset = load_dataset(data, seed=seed, **options)
    from unkgcp.run.fitting import fit, fit_folds, silent
    from unkgcp.run.provenance import describe
    from unkgcp.run.run_reader import CHECKPOINT

    checkpoint = Path(output) / CHECKPOINT
    report = Reporter if first else silent
    if "folds" in settings:
        given = {name: value for name, value in settings.items() if value is not None}
        predictor = fit_folds(dataset, config, report=report, **given)
    else:
        predictor = fit(dataset, config, report=report, checkpoint=checkpoint, **settings)
    if not first:
        return
    predictor.provenance["data"] = describe(data, dataset, seed, options)
    found = _finish(predictor, dataset, output)
    found["gain"] = _gain(predictor, dataset, output)
    found["stopped"] = stopped = predictor.provenance["stopped"]
    print_json(found)
    if stopped is None:
        shutil.rmtree(checkpoint, ignore_errors=True)
    else:
        note(f"{stopped}; the best model so far is in {output}")
        raise click.exceptions.Exit(130 if predictor.model.interrupted else 1)


def _gain(predictor: Predictor, dataset: Dataset, output: str) -> dict[str, Any] | None:
    """The gain of evidence intervals over those of the run, where it can be told in seconds."""
    from unkgcp.evaluation.fit_advice import advice

    found, said = advice(predictor, dataset, output)
    if said is not None:
        print_text(said)
    return None if found is None else found._asdict()


def _recalibrate(
    run: str,
    data: str | None,
    output: str,
    settings: dict[str, Any],
    options: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    """Calibrate the model of a run anew and write the run; `asked` is what `_population` gives."""
    from unkgcp.run.calibration import calibration_facts, method_options, only_repeats
    from unkgcp.run.fitting import calibration_negatives, recalibrate
    from unkgcp.run.predictor import Predictor

    predictor = Predictor.load(run)
    facts, dataset = calibration_facts(predictor, run, data, options)
    protocol, method = predictor.provenance.get("protocol", "strict"), settings["method"]
    negatives = None
    if dataset is not None and protocol == "paper":
        negatives = calibration_negatives(dataset, predictor.model.seed)
    name = str(data) if dataset is None else dataset.name
    own = method_options(method, name, protocol, settings["per"], settings["allow_empty"])
    with only_repeats(data is None):
        again = recalibrate(predictor, facts, method, negatives=negatives, **own, **asked)
    again.provenance["recalibrated"] = {"from": run, "data": data, "facts": len(facts)}
    print_json(_finish(again, dataset, output))


def _finish(predictor: Predictor, dataset: Dataset | None, output: str) -> dict[str, Any]:
    """Evaluate on the test facts, if there are any, and write the run; gives the figures."""
    import time
    from dataclasses import replace

    start, metrics = time.monotonic(), None
    if dataset is not None and len(dataset.splits.test.head):
        from unkgcp.evaluation.assessment import LEVELS, WORK, evaluate, not_taken_in
        from unkgcp.evaluation.evaluation_texts import evaluation_text

        if len(not_taken_in(predictor, dataset)[0].splits.test.head):
            with Reporter("evaluating", WORK) as progress:
                metrics = evaluate(predictor, dataset, LEVELS, progress)
            predictor = replace(predictor, metrics=metrics)
            predictor.provenance["times"]["evaluation"] = round(time.monotonic() - start, 3)
            print_text(evaluation_text(metrics) + "\n")
        else:
            print_text(
                f"not evaluated: updates of the run have taken in all test facts of {dataset.name}; judge it by facts "
                f"that it has not seen with unkgcp evaluate {output} --data DATA\n"
            )
    predictor.save(output)
    stopping = predictor.provenance.get("early_stopping", "unknown")
    promise = print_guarantee(predictor)
    print_text(f"early stopping {stopping}")
    print_text(f"written to {output}")
    times = predictor.provenance["times"]
    detail(", ".join(f"{step} {seconds:.2f} s" for step, seconds in times.items()))
    return {
        "run": output,
        "model": predictor.model.called,
        "method": predictor.method.name,
        "guarantee": promise["guarantee"],
        "calibration_facts": predictor.method.size,
        "caution": promise["caution"],
        "early_stopping": stopping,
        "times": times,
        "evaluation": metrics,
    }
