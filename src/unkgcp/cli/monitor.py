"""`unkgcp monitor`: do new labelled facts speak against the promise of a run?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from unkgcp.cli.options import examples, reading_options, seed_option
from unkgcp.cli.output import json_option, note, print_json, print_text
from unkgcp.errors import InputError

if TYPE_CHECKING:
    from unkgcp.graph.facts import Graph
    from unkgcp.run.predictor import Predictor

EXAMPLES = examples(
    "unkgcp monitor run labelled.tsv",
    "unkgcp monitor run labelled.tsv --false-alarm 0.001 --plot evidence.svg",
    "unkgcp monitor run week-07.tsv --state watch.json",
    "unkgcp monitor run labelled.tsv --json | jq .verdict",
)
ALARM = 3


@click.command(name="monitor", epilog=EXAMPLES)
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
    "--by-relation/--together", default=True, help="Whether each relation is watched too (default)."
)
@click.option(
    "--calibration", "given", metavar="FILE", help="The run's calibration facts, if it kept no scores."
)
@click.option(
    "--state",
    metavar="FILE",
    help="Go on with the test kept in FILE, and keep it there; a new file begins one.",
)
@click.option("--plot", metavar="FILE", help="Draw the evidence over the facts: .svg, .png or .pdf.")
@json_option
@reading_options
def command(
    run: str,
    labelled: str,
    confidence: float,
    false_alarm: float,
    seed: int,
    shuffle: bool,
    by_relation: bool,
    given: str | None,
    state: str | None,
    plot: str | None,
    reading: dict[str, Any],
) -> None:
    """Test whether the facts of LABELLED are still like the calibration facts of RUN.

    LABELLED holds facts with their confidences, in the order in which they came. Coverage is given with its exact
    p-value, for one look; the evidence of the martingale may be looked at after every fact, and decides: exit status
    0 means that there is no evidence against the promise, 3 that the alarm went off. Facts about unknown entities or
    relations are counted and left out.

    Each call is a test of its own, with the whole false-alarm rate. With --state FILE all calls are one test: give
    each of them only the facts that came since the last.
    """
    import numpy as np

    from unkgcp.evaluation.monitor import Monitor
    from unkgcp.evaluation.monitor import monitor_state as states
    from unkgcp.evaluation.monitor.monitor_findings import (
        check_target,
        describe,
        draw,
        monitor_text,
        order_caution,
    )
    from unkgcp.files import check_file
    from unkgcp.graph.fact_files import read
    from unkgcp.run.predictor import Predictor
    from unkgcp.run.provenance import prefixes

    if plot is not None:
        check_target(plot)
    for target in (plot, state):
        if target is not None:
            check_file(target)
    predictor = Predictor.load(run)
    data_dir = reading.pop("data_dir", None)
    calibration = _calibration(predictor, run, given, data_dir, reading)
    monitor = Monitor(
        predictor,
        confidence=confidence,
        false_alarm=false_alarm,
        seed=seed,
        calibration=calibration,
        by_relation=by_relation,
    )
    calls = [] if state is None else states.resume(monitor, state)
    facts = read(labelled, **{"prefixes": prefixes(predictor.provenance.get("data", {})), **reading})
    again = states.counted(calls, facts, labelled)
    before = monitor.facts
    if again is not None:
        note(f"{labelled}: these facts were counted in call {again} already; nothing is added")
    else:
        if shuffle:
            facts = facts[np.random.default_rng([seed, 1]).permutation(len(facts))]
        elif (caution := order_caution(facts)) is not None:
            note(f"{labelled}: {caution}")
        monitor.update(facts, facts.truth)
        if state is not None and monitor.facts > before:
            calls.append(states.Call.of(facts))
            states.save(monitor, state, calls)
    kept = None if state is None else {"file": state, "calls": len(calls), "facts_before": before}
    found = {"run": run, "labelled": labelled, "state": kept, **describe(monitor)}
    if plot is not None:
        draw(monitor, plot)
    print_json(found)
    print_text(monitor_text(found, monitor.all.path))
    if monitor.facts == before and again is None:
        raise InputError(
            f"{labelled} has no fact about entities and relations that the run knows; give others"
        )
    if monitor.broken:
        raise click.exceptions.Exit(ALARM)


def _calibration(
    predictor: Predictor, run: str, given: str | None, data_dir: str | None, reading: dict[str, Any]
) -> Graph | None:
    """The calibration facts, for a method that does not keep their scores; None where they are not needed."""
    from unkgcp.graph.fact_files import read
    from unkgcp.run import provenance

    if given is not None:
        return read(given, **reading)
    if predictor.method.one_threshold or "members" in predictor.method.needs:
        return None  # the monitor says what is missing
    if predictor.provenance.get("updates"):
        return predictor.method.calibration_facts()
    if predictor.provenance.get("recalibrated", {}).get("data") is not None:
        raise InputError(
            f"{run} was calibrated anew and method {predictor.method.name} keeps no scores; "
            "name its calibration facts with --calibration"
        )
    return provenance.reload(predictor.provenance.get("data", {}), run, data_dir).splits.calibration
