"""`unkgcp update`: new facts join a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unkgcp.cli.options import choice_option, device_option, examples, reading_options, seed_option
from unkgcp.cli.output import Reporter, json_option, print_guarantee, print_json, print_text
from unkgcp.errors import InputError, public

if TYPE_CHECKING:
    from unkgcp.run.predictor import Predictor


@click.command(
    name="update",
    epilog=examples(
        "unkgcp update run week-07.tsv",
        "unkgcp update run week-07.tsv --dry-run",
        "unkgcp update run week-07.tsv -o run-07 --seed 1",
        "unkgcp update run week-07.tsv --refit",
        "unkgcp update run many.tsv --calibrate-on new",
        "unkgcp update run week-07.tsv --json | jq .update.new",
    ),
)
@click.argument("run")
@click.argument("facts")
@click.option("-o", "--output", metavar="RUN2", help="The folder to write.  [default: RUN itself]")
@click.option(
    "--refit",
    is_flag=True,
    help="Learn everything again. Otherwise trees of evidence are only learned again if the new facts are unlike "
    "those before, and a backbone is trained further from where it stands.",
)
@choice_option(
    "--calibrate-on",
    ["all", "new"],
    "all: old and new held-out facts, for a promise about a random fact of the updated graph; new: the new ones "
    "alone, for a promise about facts like these.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only tell what would join, what contradicts RUN, and which entities are new; nothing is written.",
)
@seed_option("Of the coin that decides which new facts are held out for calibration.")
@device_option
@json_option
@reading_options
def command(
    run: str,
    facts: str,
    output: str | None,
    refit: bool,
    calibrate_on: str,
    dry_run: bool,
    seed: int,
    device: str,
    reading: dict[str, Any],
) -> None:
    """Take the facts of a file into RUN: they join its graph, and it is calibrated anew.

    FACTS has facts with their confidences. Each new one is held out for calibration with the probability with which
    RUN's own facts were; the others teach. A triple that RUN has already stays where it is and takes its new
    confidence. Interrupted or refused, RUN stays as it was.
    """
    from unkgcp.graph.datasets import read
    from unkgcp.run.predictor import Predictor
    from unkgcp.run.store import check_run, check_target
    from unkgcp.run.updates import preview, update

    target = run if output is None else output
    reading.pop("data_dir", None)
    check_run(run)
    check_target(target)
    predictor = Predictor.load(run)
    _check_scale(predictor, run, facts, reading)
    new_facts = read(facts, symmetric="none", **reading)
    if dry_run:
        outcome = preview(predictor, new_facts, seed)
        print_text(_text(outcome, public(facts)))
        for name in ("new_entities", "new_relations"):
            labels = outcome[name]
            shown = ", ".join(labels[:10]) + (", ..." if len(labels) > 10 else "")
            print_text(f"{len(labels):,} {name.replace('_', ' ')}" + (f": {shown}" if labels else ""))
        print_text("nothing was written (--dry-run)")
        print_json({"run": run, "update": outcome})
        return
    again = update(
        predictor,
        new_facts,
        refit=refit,
        calibrate_on=calibrate_on,
        seed=seed,
        device=device,
        source={"file": public(facts), "sha256": _digest(facts)},
        report=Reporter,
    )
    # of two updates of one run at the same time, one would be lost
    again.save(target, replaces=predictor.digest if output is None else None)
    record = again.provenance["updates"][-1]
    print_text(_text(record, public(facts)))
    promise = print_guarantee(again)
    print_text(f"written to {target}")
    print_json({"run": target, "method": again.method.name, **promise, "update": record})


def _text(record: dict[str, Any], facts: str) -> str:
    lines = [
        f"{facts}: {record['new']:,} new facts, {record['to_training']:,} to learn from and "
        f"{record['to_calibration']:,} to calibrate on"
    ]
    if record["changed"] or record["known"]:
        lines.append(
            f"{record['changed'] + record['known']:,} triples were known, {record['changed']:,} of them with another "
            "confidence, which is the new one then"
        )
    if record["repeated"]:
        lines.append(f"{record['repeated']:,} rows were replaced by later ones with the same triple")
    if "learned_again" in record:
        why = record["learned_again"]
        lines.append("nothing was learned from the beginning" if why is None else f"learned again: {why}")
    return "\n".join(lines)


def _check_scale(predictor: Predictor, run: str, facts: str, reading: dict[str, Any]) -> None:
    """InputError if the run's confidences were scaled and it is not said how those of the new facts are."""
    scale = predictor.provenance.get("data", {}).get("options", {}).get("scale")
    if scale and "scale" not in reading:
        raise InputError(
            f"the confidences of {run} were scaled when they were read; say how those of {public(facts)} are to be, "
            "with --confidence-scale as then, or none if they lie in [0, 1] as the run's do now"
        )


def _digest(path: str) -> str | None:
    """The SHA-256 of a file; None for a pipe, which cannot be read again."""
    from unkgcp.files import digest

    return digest(path) if Path(path).is_file() else None
