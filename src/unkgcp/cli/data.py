"""`unkgcp data`: list, describe and fetch data sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from unkgcp.cli.options import data_dir_option, examples, json_option, reading_options, splitting_options

if TYPE_CHECKING:
    from unkgcp.graph.describing import Description


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
def list_(data_dir: str | None, as_json: bool) -> None:
    """Show the named data sets: whether they are there, where, and how many facts they hold."""
    from unkgcp.errors import InputError
    from unkgcp.graph.data_folders import BENCHMARKS, NAMES, find
    from unkgcp.graph.datasets import load_dataset

    rows: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        folder = find(name, data_dir) if name in BENCHMARKS else None
        rows[name] = {"found": name == "demo" or folder is not None, "folder": folder and str(folder)}
        if rows[name]["found"]:
            try:
                splits = load_dataset(name, data_dir=data_dir).splits
                rows[name] |= {part: len(facts) for part, facts in splits.parts().items() if len(facts)}
            except InputError as error:
                rows[name]["problem"] = str(error)
    if as_json:
        _print_json(rows)
        return
    for name, row in rows.items():
        click.echo(f"{name:<6}  {_state(name, row)}")


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
        "unkgcp data describe weights.tsv --confidence-scale log --cap 3 --json",
    )
)
@click.argument("data")
@json_option
@reading_options
@splitting_options
def describe(data: str, as_json: bool, reading: dict[str, Any], splitting: dict[str, Any]) -> None:
    """Count what DATA holds: facts, confidences, repeats, overlap between parts, unseen relations.

    One file is split at random first, as `fit` would do it.
    """
    import shutil
    import sys

    pass
    from unkgcp.graph.datasets import load_dataset
    from unkgcp.graph.describing import describe as count

    description = count(load_dataset(data, **reading, **splitting))
    if as_json:
        _print_json(description.to_dict())
        return
    plain = "utf" not in (sys.stdout.encoding or "").lower()
    click.echo(text(description, min(shutil.get_terminal_size().columns, 100), plain))


@command.command(
    epilog=examples(
        "unkgcp data fetch ppi5k",
        "unkgcp data fetch nl27k --data-dir data",
        "unkgcp data fetch cn15k --url https://mirror.example.org/ukge",
    )
)
@click.argument("name")
@click.option("--data-dir", metavar="DIR", help="Put the files under DIR/NAME instead of the cache folder.")
@click.option("--url", metavar="BASE", help="A mirror that has the files under BASE/NAME/.")
def fetch(name: str, data_dir: str | None, url: str | None) -> None:
    """Download the official files of NAME (cn15k, nl27k, ppi5k) and verify each of them.

    They go into the user's cache folder, or under --data-dir. An interrupted download is continued by calling
    again. The underlying graphs (ConceptNet, NELL, STRING) have terms of their own.
    """
    from unkgcp.graph.fetching import OFFICIAL
    from unkgcp.graph.fetching import fetch as download
    from unkgcp.progress import Reporter

    with Reporter(f"fetching {name}", total=len(OFFICIAL.get(name, ()))) as progress:
        folder = download(name, data_dir=data_dir, url=url, progress=progress)
    click.echo(str(folder))


def _print_json(found: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(found, indent=2, ensure_ascii=False))


# A data set described as text for a terminal: counts, a bar chart of the confidences, what to beware of.

SHOWN = 6  # atoms; --json has all
EIGHTHS = " ▏▎▍▌▋▊▉"


def text(description: Description, width: int = 80, plain: bool = False) -> str:
    """All of it; `plain` draws the bars with ASCII characters."""
    return "\n".join(
        [
            description.data,
            *_counts(description),
            "",
            *chart(description.confidence.histogram, width, plain),
            *_atoms(description),
            *_cautions(description),
        ]
    )


def chart(counts: Sequence[int], width: int = 80, plain: bool = False) -> list[str]:
    """One bar a bin of [0, 1], the longest as wide as there is room."""
    numbers = [f"{count:,}" for count in counts]
    room = max(width - 17 - max(map(len, numbers)), 10)
    step = 1 / len(counts)
    lines = []
    for index, count in enumerate(counts):
        closing = "]" if index == len(counts) - 1 else ")"
        label = f"[{index * step:.1f}, {(index + 1) * step:.1f}{closing}"
        bar = _bar(count / max(*counts, 1) * room, plain)
        lines.append(f"  {label}  {numbers[index]:>{max(map(len, numbers))}}  {bar}".rstrip())
    return lines


def _bar(length: float, plain: bool) -> str:
    if plain:
        return "#" * max(round(length), 1 if length else 0)
    # a bin that is not empty is never invisible
    eighths = max(round(length * 8), 1 if length else 0)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _counts(d: Description) -> Iterator[str]:
    held = f", validation {d.validation:,}" if d.validation else ""
    yield _line("facts", d.facts, f"train {d.train:,}{held}, calibration {d.calibration:,}, test {d.test:,}")
    yield _line("entities", d.entities, _unseen(d.entities_unseen_in_training))
    yield _line("relations", d.relations, _unseen(d.relations_unseen_in_training))
    if d.negatives:
        yield _line("negatives", d.negatives, "to test with, confidence 0")
    if d.softlogic:
        yield _line("soft logic", d.softlogic, "inferred facts to train with")
    c = d.confidence
    yield (
        f"  confidence  {c.minimum:.4g} to {c.maximum:.4g}, mean {c.mean:.4f}, "
        f"standard deviation {c.standard_deviation:.4f}"
    )


def _line(name: str, count: int, note: str) -> str:
    return f"  {name:<10}  {count:>11,}  {note}".rstrip()


def _unseen(count: int) -> str:
    return f"{count:,} without a training fact" if count else ""


def _atoms(d: Description) -> Iterator[str]:
    atoms = d.confidence.atoms
    if atoms:
        yield ""
        yield "  values that many facts share"
        yield from (f"  {atom.value:>11.6g}  {100 * atom.share:4.1f} %" for atom in atoms[:SHOWN])
    if len(atoms) > SHOWN:
        yield f"  and {len(atoms) - SHOWN} more with 1 % or more each"


def _cautions(d: Description) -> Iterator[str]:
    """Only what is there: a clean data set has none."""
    sentences = (
        (d.repeated_triples, "triples are listed more than once"),
        (d.repeated_triples_with_other_confidence, "of them with more than one confidence"),
        (d.self_loops, "facts are self-loops (head = tail)"),
        (d.calibration_rows_in_train, "calibration rows repeat a triple of the training part"),
        (d.test_rows_in_train, "test rows repeat a triple of the training part"),
        (d.test_rows_in_calibration, "test rows repeat a triple of the calibration part"),
        (d.test_rows_in_unseen_relations, "test rows have a relation without a training fact"),
        (d.negatives_that_are_facts, "negatives are facts of some part"),
        (
            d.softlogic_rows_held,
            "soft-logic rows name a calibration or test triple; --protocol paper leaves them out",
        ),
    )
    present = [f"  {count:>11,}  {sentence}" for count, sentence in sentences if count]
    if present:
        yield ""
        yield "  worth knowing"
        yield from present
