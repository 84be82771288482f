"""`unkgcp data`: list, describe and fetch data sets."""

from __future__ import annotations

from typing import Any

import click

from unkgcp.cli.options import data_dir_option, examples, reading_options, splitting_options
from unkgcp.cli.output import Reporter, json_option, print_json, print_text


@click.group(
    name="data",
    epilog=examples("unkgcp data list", "unkgcp data describe demo", "unkgcp data fetch ppi5k"),
)
def command() -> None:
    """List, describe and fetch data sets.

    DATA is a name (cn15k, nl27k, ppi5k, demo), a folder with train, val and test files, or one file. Named
    data sets are looked for under --data-dir, then $UNKGCP_DATA, then the user's cache folder.
    """


@command.command(name="list", epilog=examples("unkgcp data list", "unkgcp data list --data-dir data --json"))
@data_dir_option
@json_option
def list_(data_dir: str | None) -> None:
    """Show the named data sets: whether they are there, where, and how many facts they hold."""
    from unkgcp.errors import InputError
    from unkgcp.graph.datasets import BENCHMARKS, NAMES, find, load_dataset

    rows: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        folder = find(name, data_dir) if name in BENCHMARKS else None
        rows[name] = {"found": name == "demo" or folder is not None, "folder": folder and str(folder)}
        if rows[name]["found"]:
            try:
                splits = load_dataset(name, data_dir=data_dir).splits
                rows[name] |= {part: size for part, size in splits.sizes().items() if size}
            except InputError as error:
                rows[name]["problem"] = str(error)
    print_json(rows)
    print_text("\n".join(f"{name:<6}  {_state(name, row)}" for name, row in rows.items()))


def _state(name: str, row: dict[str, Any]) -> str:
    if not row["found"]:
        return f"not here; get it with `unkgcp data fetch {name}`"
    if "problem" in row:
        return str(row["problem"])
    counts = " / ".join(f"{row[part]:,}" for part in ("train", "calibration", "test"))
    return f"{counts} facts (train / calibration / test)  {row['folder'] or 'generated'}"


@command.command(
    epilog=examples(
        "unkgcp data describe nl27k",
        "unkgcp data describe facts.csv --columns subject,predicate,object,score",
        "unkgcp data describe weights.tsv --confidence-scale 0,1000 --json",
    )
)
@click.argument("data")
@json_option
@reading_options
@splitting_options
def describe(data: str, reading: dict[str, Any], splitting: dict[str, Any]) -> None:
    """Count what DATA holds: facts, confidences, repeats, overlap between parts, unseen relations.

    One file is split at random first, as `fit` would do it.
    """
    import shutil
    import sys

    from unkgcp.graph import description
    from unkgcp.graph.datasets import load_dataset

    counts = description.describe(load_dataset(data, **reading, **splitting))
    print_json(counts)
    plain, width = "utf" not in (sys.stdout.encoding or "").lower(), shutil.get_terminal_size().columns
    print_text(description.description_text(counts, min(width, 100), plain))


@command.command(
    epilog=examples(
        "unkgcp data fetch ppi5k",
        "unkgcp data fetch nl27k --data-dir data",
        "unkgcp data fetch cn15k https://mirror.example.org/ukge",
    )
)
@click.argument("name")
@click.argument("mirror", required=False)
@click.option("--data-dir", metavar="DIR", help="Put the files under DIR/NAME instead of the cache folder.")
def fetch(name: str, mirror: str | None, data_dir: str | None) -> None:
    """Download the official files of NAME (cn15k, nl27k, ppi5k) and verify each of them.

    They go into the user's cache folder, or under --data-dir. An interrupted download is continued by calling
    again. MIRROR is an address that has them under MIRROR/NAME/. The underlying graphs (ConceptNet, NELL, STRING)
    have terms of their own.
    """
    from unkgcp.graph import fetching

    with Reporter(f"fetching {name}", total=len(fetching.OFFICIAL.get(name, ()))) as progress:
        folder = fetching.fetch(name, data_dir=data_dir, url=mirror, progress=progress)
    click.echo(str(folder))
