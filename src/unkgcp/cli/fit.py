"""`unkgcp fit`: learn, calibrate, evaluate, write the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from unkgcp.cli.options import (
    choice_option,
    device_option,
    examples,
    reading_and_settings,
    seed_option,
    splitting_options,
)
from unkgcp.cli.output import (
    Reporter,
    detail,
    is_terminal,
    json_option,
    note,
    print_evaluation,
    print_guarantee,
    print_json,
    print_text,
)
from unkgcp.errors import InputError, public

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset
    from unkgcp.run.predictor import Predictor
    from unkgcp.training.config import TrainConfig

FOLDED = "cv+"
SETTINGS = {"non_facts": list, "folds": int, "base": str}
"""Settings of `--config` that are neither of reading nor of training."""
# options that do not go with --from, those that do not if DATA is one file, and those that do not with CV+
TRAINING = ["--model", "--seed", "--device", "--resume", "--protocol"]
SPLITTING = ["--split", "--hold-out", "--symmetric"]
AGAINST_FOLDS = ["--resume", "--per", "--population", "--protocol"]


@click.command(
    name="fit",
    epilog=examples(
        "unkgcp fit facts.tsv -o run",
        "unkgcp fit facts.tsv -o run --population open",
        "unkgcp fit facts.tsv -o run --model beurre --method cp --seed 1",
        "unkgcp fit facts.tsv -o run --model ukge --method evidence",
        "unkgcp fit ppi5k -o run --protocol paper --device cuda",
        "unkgcp fit facts.tsv -o run --model ukge --resume",
        "unkgcp fit --from run --method cp -o run-cp",
        "unkgcp fit few-facts.tsv -o run --method cv+",
    ),
)
@click.argument("data", required=False)
@click.option("-o", "--output", metavar="RUN", help="The folder to write; needed unless --from is given.")
@click.option(
    "--model",
    metavar="M",
    help="ukge, ukge-rect, passleaf, beurre, pykeen:NAME or module:Class.  [default: none; ukge for a method that "
    "needs one]",
)
@click.option(
    "--method",
    metavar="P",
    help="How intervals are made: evidence, unkgcp, cp, fpi, qr, shortest; cv+ for a few hundred facts, all of which "
    "train and calibrate; for confidences that are intervals unkgcp, cp, joint or mean-length.  [default: evidence; "
    "with --model unkgcp, the paper's]",
)
@click.option(
    "--per",
    metavar="GROUPS",
    help="Promise coverage in every group of facts instead of on average over all: groups by relation, by doubt (how "
    "unsure the method is of a fact), by degree (how many training facts there are about its entities); several, "
    "separated by commas, or none.  [default: doubt,relation for evidence, none for others]",
)
@choice_option(
    "--population",
    ["asserted", "open"],
    "asserted: queries are facts; open: they may be none, and the promise is for facts and for non-facts of the "
    "kinds in the setting non_facts.",
)
@seed_option("Decides the split of one file and the model.")
@device_option
@click.option("--resume", is_flag=True, help="Go on where an interrupted training of the same RUN stopped.")
@click.option(
    "--protocol",
    metavar="WHICH",
    default="strict",
    show_default=True,
    help="strict: early stopping on a slice of the training facts; paper: on the calibration facts.",
)
@click.option("--from", "source", metavar="RUN", help="Calibrate the model of this run anew; train nothing.")
@click.option("--force", is_flag=True, help="Replace a run of other data without asking.")
@json_option
@reading_and_settings(SETTINGS, "and all of training")
@splitting_options
def command(
    data: str | None,
    output: str | None,
    source: str | None,
    config: dict[str, Any],
    force: bool,
    reading: dict[str, Any],
    splitting: dict[str, Any],
    **settings: Any,
) -> None:
    """Learn from DATA, calibrate intervals, evaluate them and write the run.

    DATA is a name (cn15k, nl27k, ppi5k, demo), a folder with train, val (= calibration) and test files, or one
    file, which is split at random.

    Without --model and --method intervals come from evidence in the training facts; that is what to begin with. A model
    without a method, or such a method without a model, is the way of the paper. Both together, --model ukge --method
    evidence, let evidence use the model's scores too.

    With --from no model is trained. The calibration facts are then those of that run, those of the data set
    DATA, or all facts of the file DATA; the model must not have been trained on them. Without -o the run is
    changed in place.
    """
    from unkgcp.graph.datasets import names_one_file
    from unkgcp.methods import predictor_class
    from unkgcp.run.store import check_run, check_target

    fit_settings = {name: config.pop(name) for name in SETTINGS if name in config}
    options = {**reading, **splitting}
    method = settings["method"]
    if method is not None:
        predictor_class(method)  # refuses a name that no method has
    _check_settings(fit_settings, method, settings["population"])
    if source is not None:
        _refuse(TRAINING, "is for training, and --from trains nothing")
        if config:
            raise InputError(
                f"{min(config)} is a setting of training, and --from trains nothing; leave it out"
            )
        if data is not None and names_one_file(data):
            _refuse(SPLITTING, "splits a file, and --from calibrates on all of it")
        check_run(source)
        check_target(output or source)
        _recalibrate(source, data, output or source, settings, options, fit_settings, force)
        return
    if data is None or output is None:
        raise InputError("fit needs DATA and -o RUN; for example unkgcp fit demo -o run")
    training = _training(config, data, settings)
    if method == FOLDED:
        _refuse(AGAINST_FOLDS, f"does not go with --method {FOLDED}")
    check_target(output)  # before hours of training
    _train(data, output, training, options, settings, fit_settings, force)


def _refuse(options: Sequence[str], why: str) -> None:
    """InputError if one of these options was given."""
    context = click.get_current_context()
    for parameter in context.command.params:
        typed = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        refused = set(options).intersection(parameter.opts)
        if typed and refused:
            raise InputError(f"{min(refused)} {why}; leave one of them out")


def _check_settings(fit_settings: Mapping[str, Any], method: str | None, population: str) -> None:
    """InputError for a setting that needs an option which was not given."""
    needs = {
        "folds": (method == FOLDED, f"--method {FOLDED}"),
        "base": (method == FOLDED, f"--method {FOLDED}"),
        "non_facts": (population == "open", "--population open"),
    }
    for name in fit_settings:
        fits, option = needs[name]
        if not fits:
            raise InputError(f"the setting {name} goes with {option}; add that or leave it out")


def _training(rest: Mapping[str, Any], data: str, settings: dict[str, Any]) -> TrainConfig | None:
    """What `--config` and `--model` say of training, None if nothing; says what a model alone means."""
    from unkgcp.training.config import config_with

    if not rest and settings["model"] is None:
        return None
    where = click.get_current_context().meta.get("config", "--config")
    config = config_with(rest, settings["model"], data, settings["protocol"], where)
    if settings["method"] is None and config.model != "none":
        note(
            f"--model {config.model} alone asks for the paper's way, --method unkgcp; with --method evidence, "
            "intervals come from evidence that uses the model's scores"
        )
    return config


def _of_population(settings: Mapping[str, Any], fit_settings: Mapping[str, Any]) -> dict[str, Any]:
    """What calibration is told about the queries; nothing if they are facts."""
    kinds = {"kinds": tuple(map(str, fit_settings["non_facts"]))} if "non_facts" in fit_settings else {}
    return {"population": "open", **kinds} if settings["population"] == "open" else {}


def _may_replace(output: str, hashes: Mapping[str, str], force: bool) -> None:
    """Ask before a run of other data is replaced; where nobody can be asked that is refused."""
    from unkgcp.run.predictor import Predictor
    from unkgcp.run.store import RUN

    if force or not os.path.lexists(os.path.join(output, RUN)):
        return
    try:
        before = Predictor.load(output).provenance.get("data", {})
    except InputError:
        before = {}  # damaged: whose it was cannot be told
    if before.get("hashes") == dict(hashes):
        return
    held = f"{output} holds a run of other data" + (f" ({before['name']})" if "name" in before else "")
    if not is_terminal(sys.stdin):
        raise InputError(f"{held}; give another folder with -o, or replace it with --force")
    click.confirm(f"{held}. Replace it?", abort=True, err=True)


def _train(
    data: str,
    output: str,
    training: TrainConfig | None,
    options: dict[str, Any],
    settings: dict[str, Any],
    fit_settings: dict[str, Any],
    force: bool,
) -> None:
    """Fit and write the run."""
    import shutil
    from pathlib import Path

    from unkgcp.graph.datasets import load_dataset
    from unkgcp.graph.kinds import describe_kinds
    from unkgcp.run.calibration import silent
    from unkgcp.run.fitting import fit, fit_folds
    from unkgcp.run.provenance import describe
    from unkgcp.run.store import CHECKPOINT
    from unkgcp.training.config import config_for

    # of several processes that torchrun starts only the first writes the run
    first, seed = int(os.environ.get("RANK", "0")) == 0, settings["seed"]
    report = Reporter if first else silent
    dataset = load_dataset(data, seed=seed, **options)
    if first and not settings["resume"]:
        _may_replace(output, dataset.hashes, force)
    checkpoint = Path(output) / CHECKPOINT
    if settings["method"] == FOLDED:
        predictor = fit_folds(
            dataset,
            training or config_for("ukge", dataset.name),
            method=fit_settings.get("base", "unkgcp"),
            seed=seed,
            device=settings["device"],
            report=report,
            **{name: value for name, value in fit_settings.items() if name == "folds"},
        )
    else:
        chosen = {name: value for name, value in settings.items() if name != "population"}
        more = {**chosen, **_of_population(settings, fit_settings)}
        predictor = fit(dataset, training, report=report, checkpoint=checkpoint, **more)
    if not first:
        return
    predictor.provenance["data"] = describe(data, dataset, seed, options)
    outcome = _finish(predictor, dataset, output)
    kinds = describe_kinds(dataset.splits, dataset.split_here)
    if settings["method"] != FOLDED:  # of folds every fact calibrates
        # on a terminal the table above has the kinds
        note(kinds.partition(": ")[2] or None if is_terminal(sys.stdout) else kinds)
    note(dataset.symmetry)
    outcome["stopped"] = stopped = predictor.provenance["stopped"]
    print_json(outcome)
    if stopped is None:
        shutil.rmtree(checkpoint, ignore_errors=True)
    else:
        note(f"{stopped}; the best model so far is in {output}")
        raise click.exceptions.Exit(130 if predictor.model.interrupted else 1)


def _recalibrate(
    run: str,
    data: str | None,
    output: str,
    settings: dict[str, Any],
    options: dict[str, Any],
    fit_settings: dict[str, Any],
    force: bool,
) -> None:
    """Calibrate the model of a run anew and write the run."""
    from unkgcp.run.calibration import calibration_facts, method_options, only_repeats
    from unkgcp.run.fitting import calibration_negatives, recalibrate
    from unkgcp.run.predictor import Predictor

    predictor = Predictor.load(run)
    if output != run:
        _may_replace(output, predictor.provenance.get("data", {}).get("hashes", {}), force)
    facts, dataset = calibration_facts(predictor, run, data, options)
    protocol = predictor.provenance.get("protocol", "strict")
    method = settings["method"] or predictor.method.name
    negatives = (
        calibration_negatives(dataset, predictor.model.seed)
        if dataset is not None and protocol == "paper"
        else None
    )
    name = public(str(data)) if dataset is None else dataset.name
    method_settings = {
        **method_options(method, name, protocol, settings["per"]),
        **_of_population(settings, fit_settings),
    }
    with only_repeats(data is None):
        again = recalibrate(predictor, facts, method, negatives=negatives, **method_settings)
    again.provenance["recalibrated"] = {"from": run, "data": data and public(data), "facts": len(facts)}
    print_json(_finish(again, dataset, output))


def _finish(predictor: Predictor, dataset: Dataset | None, output: str) -> dict[str, Any]:
    """Evaluate on the test facts, if there are any, and write the run; gives the figures."""
    import time
    from dataclasses import replace

    start, metrics = time.monotonic(), None
    if dataset is not None and len(dataset.splits.test.head):
        from unkgcp.evaluation.assessment import LEVELS, WORK, evaluate, not_taken_in

        if len(not_taken_in(predictor, dataset)[0].splits.test.head):
            with Reporter("evaluating", WORK) as progress:
                metrics = evaluate(predictor, dataset, LEVELS, progress)
            predictor = replace(predictor, metrics=metrics)
            predictor.provenance["times"]["evaluation"] = round(time.monotonic() - start, 3)
            print_evaluation(metrics)
        else:
            print_text(
                f"not evaluated: updates of the run have taken in all test facts of {dataset.name}; judge it by facts "
                f"that it has not seen with unkgcp evaluate {output} --data DATA\n"
            )
    predictor.save(output)
    stopping = predictor.provenance.get("early_stopping", "unknown")
    promise = print_guarantee(predictor)
    if predictor.model.called != "none":
        print_text(f"early stopping {stopping}")
    print_text(f"written to {output}; ask it with unkgcp predict {output} FILE")
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
