"""`unkgcp evaluate`: coverage, sharpness and error of a run on test facts."""

from __future__ import annotations

from typing import Any

import click

from unkgcp.cli.levels import confidence_option
from unkgcp.cli.options import examples, json_option, reading_options

EXAMPLES = examples(
    "unkgcp evaluate run",
    "unkgcp evaluate run --json | jq '.levels[].positive.coverage'",
    "unkgcp evaluate run --data ppi5k --confidence 0.5,0.9,0.99",
)


@click.command(name="evaluate", epilog=EXAMPLES)
@click.argument("run")
@click.option("--data", metavar="DATA", help="Take the test facts of this data set instead of the run's own.")
@confidence_option("0.8,0.85,0.9,0.95", "The levels to evaluate.")
@json_option
@reading_options
def command(
    run: str, data: str | None, confidence: list[float], as_json: bool, reading: dict[str, Any]
) -> None:
    """Coverage, sharpness and error of RUN on test facts: positives, negatives and both together.

    The test facts are those of the data the run was fitted on, which are looked for where they were.
    """
    import json

    from unkgcp.bundle import Predictor, source
    from unkgcp.evaluation import evaluate
    from unkgcp.evaluation.text import evaluation_text

    predictor = Predictor.load(run)
    record = predictor.provenance.get("data", {})
    if data is not None:
        dataset = source.load_named(data, record, predictor.model.seed, reading)
    else:
        dataset = source.reload(record, run, reading.get("data_dir"))
    result = evaluate(predictor, dataset, confidence)
    click.echo(json.dumps(result, indent=2, ensure_ascii=False) if as_json else evaluation_text(result))
