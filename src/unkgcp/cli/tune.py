"""`unkgcp tune`: search hyperparameters for a data set."""

from __future__ import annotations

from typing import Any

import click

from unkgcp.cli.options import count_option, examples, reading_options, seed_option, splitting_options
from unkgcp.cli.output import Reporter, json_option, print_json, print_text, say

EXAMPLES = examples(
    "unkgcp tune nl27k --model ukge",
    "unkgcp tune facts.tsv --model beurre -o tuned.yaml --trials 40 --device cuda",
    "unkgcp fit facts.tsv -o run --config tuned.yaml",
)


@click.command(epilog=EXAMPLES)
@click.argument("data")
@click.option("--model", default="ukge", show_default=True, metavar="M", help="Which model to tune.")
@click.option(
    "-o",
    "--output",
    default="tuned.yaml",
    show_default=True,
    metavar="FILE",
    help="Where the best configuration goes; `fit --config` takes it.",
)
@count_option("--trials", 20, "Trials in all.")
@click.option(
    "--storage",
    metavar="FILE",
    help="The file of trials, where a search goes on.  [default: beside the output, as .trials.db]",
)
@click.option("--config", metavar="FILE", help="A configuration for all that is not searched.")
@count_option(
    "--epochs",
    None,
    "Train a trial for at most N epochs; the configuration written keeps its own number.",
    "N",
)
@seed_option("Of training, search and split.", most=2**31 - 1)
@click.option("--device", default="auto", show_default=True, metavar="auto|cpu|cuda", help="Where to train.")
@json_option
@reading_options
@splitting_options
def command(
    data: str,
    model: str,
    output: str,
    trials: int,
    storage: str | None,
    config: str | None,
    epochs: int | None,
    seed: int,
    device: str,
    reading: dict[str, Any],
    splitting: dict[str, Any],
) -> None:
    """Search learning rate, dimension and batch size for DATA on the validation error.

    The error is taken on facts held out of the training part; calibration and test facts stay untouched.
    Trials without hope are stopped early. Killed or interrupted, the same command goes on where it stopped.
    """
    from dataclasses import replace
    from pathlib import Path

    from unkgcp.files import check_file
    from unkgcp.graph.datasets import load_dataset
    from unkgcp.training.config import TrainConfig, config_for
    from unkgcp.training.tuning import tune, write_config

    trials_file = storage or Path(output).with_suffix(".trials.db")
    for target in (output, trials_file):
        check_file(target)
    base = config_for(model, data)
    if config is not None:
        base = TrainConfig.read(config, base)
    dataset = load_dataset(data, seed=seed, **reading, **splitting)
    with Reporter("trials", total=trials) as progress:
        best = tune(
            dataset.splits.train,
            base=base if epochs is None else replace(base, epochs=epochs),
            trials=trials,
            seed=seed,
            softlogic=dataset.softlogic,
            device=device,
            storage=trials_file,
            progress=progress,
        )
    found = replace(best.config, epochs=base.epochs)
    write_config(replace(best, config=found), output, data)
    chosen = {name: getattr(found, name) for name in ("learning_rate", "dimension", "batch_size")}
    about = {"trials": len(best.trials), "complete": best.complete, "output": output}
    print_json({"model": found.model, **chosen, "validation_error": best.error, **about})
    print_text(
        f"learning_rate {found.learning_rate:g}  dimension {found.dimension}  batch_size {found.batch_size}"
        f"  validation error {best.error:.5f}  ({len(best.trials)} trials) -> {output}"
    )
    if not best.complete:
        say("stopped early; call again to go on")
