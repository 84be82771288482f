"""`unkgcp demo`: the whole way on the embedded graph."""

from __future__ import annotations

import click

from unkgcp.cli.options import examples
from unkgcp.cli.output import Reporter, json_option, print_json, print_text


@click.command(name="demo", epilog=examples("unkgcp demo", "unkgcp demo -o demo-run"))
@click.option("-o", "--output", metavar="DIR", help="Write the run here, to go on with it.")
@json_option
def command(output: str | None) -> None:
    """Fit an invented graph and compare the intervals with the best possible, and with the paper's methods.

    Takes under two minutes on two cores and needs no data. With -o the run is written, and beside it a report:
    one HTML page with tables and figures.
    """
    from unkgcp.evaluation.demonstration import Demonstration
    from unkgcp.run.store import check_target

    if output is not None:
        check_target(output)
    demonstration = Demonstration()
    for text in demonstration.run(report=Reporter):
        print_text(text + "\n")
    if output is not None:
        demonstration.predictor.save(output)
        print_text(f"The run is in {output}.\n{report_on(output)}\nGo on with: unkgcp evaluate {output}")
    print_json(demonstration.figures | {"run": output})


def report_on(output: str) -> str:
    """Write the report and say where it is; without the drawing library say how to get one."""
    from unkgcp.errors import InputError
    from unkgcp.evaluation.report import write_report

    try:
        return f"Its report is {write_report(output)}: open it in a browser."
    except InputError as error:
        return f"There is no report: {error}, then run unkgcp report {output}."
