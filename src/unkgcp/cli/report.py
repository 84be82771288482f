"""`unkgcp report`: one HTML page about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from unkgcp.cli.options import confidence_option, examples, reading_options
from unkgcp.errors import InputError


@click.command(
    name="report",
    epilog=examples(
        "unkgcp report run",
        "unkgcp report run --data new-facts.tsv -o new.html",
        "unkgcp report run --latex",
    ),
)
@click.argument("folder", metavar="DIR")
@click.option("-o", "--output", metavar="FILE", help="Write the page here instead of DIR/report.html.")
@click.option("--data", metavar="DATA", help="Take the test facts of this data set instead of the run's own.")
@confidence_option("0.9", "The level that slices and single facts are shown at.")
@click.option(
    "--latex", is_flag=True, help="Print a table for a paper instead: the four figures by kind of question."
)
@reading_options
def command(
    folder: str,
    output: str | None,
    data: str | None,
    confidence: list[float],
    latex: bool,
    reading: dict[str, Any],
) -> None:
    """Write one self-contained HTML page about DIR, a run of fit.

    It shows how good the intervals are for each kind of question, coverage with what chance allows, where it covers
    and where not, single facts, and where it all comes from. The page needs no network.
    """
    from unkgcp.evaluation.report import latex_report, write_report
    from unkgcp.files import check_file, write_text

    if len(confidence) != 1:
        raise InputError("report shows slices at one level; give one number with --confidence")
    if output is not None:
        check_file(output)
    level = confidence[0]
    if latex:
        table = latex_report(folder, data=data, confidence=level, reading=reading)
        if output is None:
            click.echo(table)
        else:
            write_text(Path(output), table + "\n")
        return
    path = write_report(folder, output=output, data=data, confidence=level, reading=reading)
    click.echo(f"written to {path}")
