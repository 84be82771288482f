"""`unkgcp conformalize`: intervals around the predictions of any model, from tables."""

from __future__ import annotations

import click

from unkgcp.cli.options import choice_option, confidence_option, examples
from unkgcp.cli.output import note
from unkgcp.errors import InputError


def _bounds(context: click.Context, parameter: click.Parameter, value: str) -> tuple[float, float] | None:
    if value.strip().lower() == "none":
        return None
    try:
        low, high = (float(part) for part in value.split(","))
        if low < high:
            return low, high
    except ValueError:
        pass
    raise InputError(f"--bounds {value}: expected a smaller and a larger number such as 0,1, or none")


def _groups(context: click.Context, parameter: click.Parameter, groups: str | None) -> list[str] | None:
    if groups is None:
        return None
    names = [name.strip() for name in groups.split(",")]
    if len(set(names)) < len(names) or {"", "prediction", "truth", "scale", "kind"}.intersection(names):
        raise InputError(f"--per {groups}: expected columns of groups, each once, such as relation,source")
    return names


@click.command(
    name="conformalize",
    epilog=examples(
        "unkgcp conformalize --calibration labelled.csv --input predictions.csv -o intervals.csv",
        "unkgcp conformalize --calibration labelled.csv --input new.csv --confidence 0.8,0.9,0.95 > out.csv",
        "unkgcp conformalize --calibration labelled.csv --input predictions.csv --method shortest -o intervals.csv",
        "unkgcp conformalize --calibration labelled.csv --input new.csv --per relation,source -o out.csv",
    ),
)
@click.option(
    "--calibration",
    required=True,
    metavar="CAL",
    help="Table with columns prediction, truth[, scale][, group].",
)
@click.option(
    "--input",
    "source",
    required=True,
    metavar="PRED",
    help="Table with columns prediction[, scale][, group]; - is standard input.",
)
@click.option(
    "--per",
    "groups",
    metavar="COLUMNS",
    callback=_groups,
    help="Columns of groups in each of which the promise is to hold; several, separated by commas: in every group of "
    "each.  [default: group, if there is such a column]",
)
@click.option("-o", "--output", metavar="OUT", help="Where to write; standard output if not given.")
@confidence_option("0.9", "Probability of containing the truth; several, separated by commas.")
@choice_option(
    "--method",
    ["residual", "entropy", "shortest"],
    "How strange a truth is: |prediction - truth|, divided by the scale if there is one, or by the entropy; "
    "shortest learns from one half of CAL how truths lie beside predictions (and beside the column kind, if there is "
    "one), for the narrowest intervals.",
)
@click.option(
    "--bounds",
    default="0,1",
    show_default=True,
    metavar="LOW,HIGH",
    callback=_bounds,
    help="The range of the truth, to which intervals are cut; none for no cut.",
)
def command(
    calibration: str,
    source: str,
    output: str | None,
    confidence: list[float],
    method: str,
    bounds: tuple[float, float] | None,
    groups: list[str] | None,
) -> None:
    """Intervals around the predictions of any model that contain the truth with the chosen probability.

    Tables are CSV, TSV or Parquet, plain or gzip; the first line names the columns. The rows of CAL must not
    have been used to train the model. Each row of PRED comes out with all its columns and with lower and upper
    (lower_80, upper_80, ... for several levels). With groups the promise holds in every group, and a column
    group_size says with how many rows of CAL the row's group was calibrated (the smallest of its groups, if there are
    several columns of them); where they are too few for the level, the interval is the whole range.
    """
    from unkgcp.predict.prediction_tables import conformalize

    for caution in conformalize(
        calibration, source, output, levels=confidence, score=method, bounds=bounds, groups=groups
    ):
        note(caution)
