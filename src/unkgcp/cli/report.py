"""`unkgcp report`: one HTML page about a run, or about a reproduction of the paper."""

from __future__ import annotations

from typing import Any

import click

from unkgcp.cli.options import confidence_option, examples, reading_options
from unkgcp.errors import InputError

EXAMPLES = examples(
    "unkgcp report run",
    "unkgcp report run --data new-facts.tsv -o new.html",
    "unkgcp report out",
)


@click.command(name="report", epilog=EXAMPLES)
@click.argument("folder", metavar="DIR")
@click.option("-o", "--output", metavar="FILE", help="Write the page here instead of DIR/report.html.")
@click.option("--data", metavar="DATA", help="Take the test facts of this data set instead of the run's own.")
@confidence_option("0.9", "The level that slices and single facts are shown at.")
@reading_options
def command(
    folder: str, output: str | None, data: str | None, confidence: list[float], reading: dict[str, Any]
) -> None:
    """Write one self-contained HTML page about DIR: a run of fit, or a folder of reproduce.

    For a run: coverage with what chance allows, width, other interval methods on the same model, where it
    covers and where not, single facts, and where it all comes from. The page needs no network.
    """
    from unkgcp.evaluation.report import write_report
    from unkgcp.files import check_file

    if len(confidence) != 1:
        raise InputError("report shows slices at one level; give one number with --confidence")
    if output is not None:
        check_file(output)
    path = write_report(folder, output=output, data=data, confidence=confidence[0], reading=reading)
    click.echo(f"written to {path}")
