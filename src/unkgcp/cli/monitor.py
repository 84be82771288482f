"""`unkgcp monitor`: do new labelled facts speak against the promise of a run?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from unkgcp.cli.options import examples, reading_and_settings, seed_option
from unkgcp.cli.output import json_option, note, print_json, print_text
from unkgcp.errors import InputError, public

if TYPE_CHECKING:
    from unkgcp.graph.facts import Graph


@click.command(
    name="monitor",
    epilog=examples(
        "unkgcp monitor run labelled.tsv",
        "unkgcp monitor run labelled.tsv --false-alarm 0.001",
        "unkgcp monitor run week-07.tsv --state watch.json",
        "unkgcp monitor run labelled.tsv --json | jq .verdict",
    ),
)
@click.argument("run")
@click.argument("labelled")
@click.option("--confidence", type=float, default=0.9, show_default=True, help="The level that is watched.")
@click.option(
    "--false-alarm",
    type=float,
    default=0.01,
    show_default=True,
    metavar="RATE",
    help="The probability that facts like those of calibration ever raise an alarm in one test.",
)
@seed_option("Of the random numbers that break ties.")
@click.option("--shuffle", is_flag=True, help="Take the facts in random order, not in that of the file.")
@click.option(
    "--calibration",
    "given",
    metavar="FILE",
    help="Facts to compare with instead of the run's calibration facts.",
)
@click.option(
    "--state",
    metavar="FILE",
    help="Go on with the test kept in FILE, and keep it there; a new file begins one.",
)
@json_option
@reading_and_settings({"by_relation": bool})
def command(
    run: str,
    labelled: str,
    confidence: float,
    false_alarm: float,
    seed: int,
    shuffle: bool,
    given: str | None,
    state: str | None,
    config: dict[str, Any],
    reading: dict[str, Any],
) -> None:
    """Test whether the facts of LABELLED are still like the calibration facts of RUN.

    LABELLED holds facts with their confidences, in the order in which they came. Each is compared with calibration
    facts of its own kind (known pair, new pair, ...). Coverage is given with a p-value, for one look; the evidence
    may be looked at after every fact, and decides: exit status 0 means that there is no evidence against the promise,
    3 that the alarm went off.

    Each call is a test of its own, with the whole false-alarm rate. With --state FILE all calls are one test, also
    over updates: update first, then monitor the same facts. Each relation is watched too, unless the setting
    by_relation is false.
    """
    from unkgcp.evaluation.monitor import Monitor, describe, monitor_text, watch
    from unkgcp.files import check_file
    from unkgcp.graph.datasets import read
    from unkgcp.graph.symmetry import symmetric_as_in
    from unkgcp.run.predictor import Predictor
    from unkgcp.run.provenance import prefixes

    if state is not None:
        check_file(state)
    predictor = Predictor.load(run)
    reading.pop("data_dir", None)
    reading = {"prefixes": prefixes(predictor.provenance.get("data", {})), "symmetric": "none", **reading}
    facts = symmetric_as_in(read(labelled, **reading), predictor.model.vocabulary)
    labelled = public(labelled)
    facts = _in_order(facts, labelled, seed if shuffle else None)
    settings: dict[str, Any] = {
        "confidence": confidence,
        "false_alarm": false_alarm,
        "seed": seed,
        "by_relation": config.get("by_relation", True),
    }
    calibration = None if given is None else read(given, **reading)
    if state is None:
        monitor, kept = (
            Monitor(predictor, calibration=calibration, **settings).update(facts, facts.truth),
            None,
        )
    else:
        monitor, kept = watch(predictor, facts, state, calibration=calibration, **settings)
    findings = {"run": run, "labelled": labelled, "state": kept, **describe(monitor, kept)}
    print_json(findings)
    print_text(monitor_text(findings, monitor.all.path))
    if kept is not None and not kept["new"]:
        note(f"{labelled}: all of these facts were counted before; nothing is added")
    elif not monitor.facts_of.any() and not monitor.repeats:
        raise InputError(f"{labelled} has no fact of a kind that the run was calibrated for; give others")
    if monitor.broken:
        raise click.exceptions.Exit(3)


def _in_order(facts: Graph, name: str, seed: int | None) -> Graph:
    """The facts in random order where there is a seed; else in that of the file, which may need a note."""
    import numpy as np

    from unkgcp.evaluation.monitor import order_caution

    if seed is not None:
        return facts[np.random.default_rng([seed, 1]).permutation(len(facts))]
    if (caution := order_caution(facts)) is not None:
        note(f"{name}: {caution}")
    return facts
