"""`unkgcp reproduce`: the paper's experiments, resumable; tables, figures and a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from unkgcp.cli.options import data_dir_option, device_option, examples
from unkgcp.cli.output import Reporter, json_option, print_json, print_text, say, wants_json
from unkgcp.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = examples(
    "unkgcp reproduce -o out --device cuda",
    "unkgcp reproduce -o out --protocol strict --seeds 3 --dry-run",
    "unkgcp reproduce -o out --only 'cn15k/*'",
    "unkgcp reproduce -o demo-out --data demo --models ukge --seeds 1 --protocol strict",
    "unkgcp reproduce -o out --tables-only",
)


@click.command(name="reproduce", epilog=EXAMPLES)
@click.option("-o", "--output", metavar="DIR", required=True, help="The folder to fill or to go on with.")
@click.option(
    "--data", default="cn15k,ppi5k,nl27k", show_default=True, help="Data sets, separated by commas."
)
@click.option(
    "--models", default="ukge,ukge-rect,passleaf,beurre", show_default=True, help="Models, likewise."
)
@click.option("--seeds", type=int, default=10, show_default=True, help="So many seeds, counted from 0.")
@click.option("--levels", default="0.8,0.85,0.9,0.95", show_default=True, help="Confidence levels.")
@click.option(
    "--predictors",
    default="fpi,qr,cp,unkgcp",
    show_default=True,
    help="Interval methods to measure; qr trains two more models a level.",
)
@click.option(
    "--protocol",
    metavar="WHICH",
    default="paper",
    show_default=True,
    help="paper: hyperparameters and early stopping of the paper; strict: ours.",
)
@device_option
@click.option("--config", "config_file", metavar="FILE", help="YAML of training settings for every model.")
@click.option(
    "--only", default="", metavar="NAMES", help="Only these blocks: cn15k/ukge, 'paper/*/beurre', ppi5k."
)
@click.option("--dry-run", is_flag=True, help="List the work with its estimated time; do nothing.")
@click.option("--scores-only", is_flag=True, help="Train and score; leave measuring for a later call.")
@click.option("--tables-only", is_flag=True, help="Make tables, figures and report of the cells in DIR.")
@click.option("--no-figures", is_flag=True, help="End with the tables; draw no figures, write no report.")
@json_option
@data_dir_option
def command(
    output: str,
    data: str,
    models: str,
    seeds: int,
    levels: str,
    predictors: str,
    protocol: str,
    device: str,
    config_file: str | None,
    only: str,
    dry_run: bool,
    scores_only: bool,
    tables_only: bool,
    no_figures: bool,
    data_dir: str | None,
) -> None:
    """Train, calibrate and test every predictor on every data set with every model and seed.

    A finished cell is stored at once; the same call again goes on where the last one stopped. The folder gets
    cells/, summary.json, tables/ (Markdown, CSV, LaTeX), figures/ (SVG, PNG) and report.html.
    """
    from unkgcp.evaluation.reproduction import Plan
    from unkgcp.evaluation.reproduction.runner import finish, reproduce
    from unkgcp.files import check_place

    if tables_only:
        _show(output, finish(output, say, not no_figures))
        return
    cases = (_names(data), _names(models), seeds, _levels(levels), _names(predictors), _names(only))
    plan = Plan(protocol, *cases)
    override = None if config_file is None else _override(config_file)
    if dry_run:
        from unkgcp.evaluation.reproduction.runner import schedule

        table = schedule(plan, output, device, data_dir, override)
        print_json({"blocks": table.records, "note": table.note})
        print_text(f"{table.terminal()}\n\n{table.note}")
        return
    check_place(f"{output}/cells")
    page = reproduce(
        plan,
        output,
        device=device,
        data_dir=data_dir,
        override=override,
        scores_only=scores_only,
        figures=not no_figures,
        report=Reporter,
        say=say,
    )
    _show(output, page, measured=not scores_only)


def _show(output: str, page: Path | None, measured: bool = True) -> None:
    """Where things are, or for programs all that was measured."""
    if wants_json():
        import json
        from pathlib import Path

        summary = json.loads((Path(output) / "summary.json").read_text("utf-8")) if measured else None
        print_json({"output": output, "report": page and str(page), "summary": summary})
    print_text(f"written to {page or output}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(sorted({float(part) for part in _names(text)}))
    except ValueError:
        raise InputError(f"--levels {text}: these are no numbers; try 0.8,0.9") from None


def _override(path: str) -> dict[str, object]:
    """The fields that a YAML file sets, checked like those of `fit --config`."""
    from pathlib import Path

    from unkgcp.files import parse_yaml
    from unkgcp.training.config import TrainConfig

    read = TrainConfig.read(path)
    named = parse_yaml(Path(path).read_text(encoding="utf-8"))
    return {name: getattr(read, name) for name in named if name != "model"}
