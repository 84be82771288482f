"""Strangers: the graphs of $UNKGCP_DATA/zoo and the three benchmarks, each split anew by rows and by pairs of entities.

    make bench-zoo
    python benchmarks/zoo.py [--graphs health_kg,onet] [--by rows,pairs] [--level 0.9] [--seed 0] [--ukge] [-o FILE]

Of every graph 85 / 7 / 8 % of the rows (or of the pairs, with all their rows) are train.tsv, val.tsv and test.tsv of a
folder, the same one for every method: `evidence` without options, UKGE with `cp` and `unkgcp` (only with --ukge: it
trains a model for each), the two quantiles of the training confidences (`marginal`), and what is made by hand with
LightGBM, conformalised by hand or by MAPIE (peers/by_hand.py). All test facts count, also those about entities that
have no training fact.

Worst slice: the lowest coverage among slices of the test facts by width of the interval, by degree and by relation,
each with at least 100 facts. Seconds and megabytes are those of the whole commands (ours: fit with its evaluation, and
predict). Prints a Markdown table and writes results/zoo.json with command, seed and machine.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import common

BENCHMARKS = ("cn15k", "nl27k", "ppi5k")
PARTS = {"train": 0.85, "val": 0.07, "test": 0.08}
SMALLEST = 100  # facts of a slice
FIGURES = ("coverage", "width", "interval score", "worst slice", "squared error")
Array = np.ndarray[Any, Any]
Answers = dict[str, Array]


def graphs() -> dict[str, list[Path]]:
    """The files of every graph that is here, by name."""
    data = Path(os.environ.get("UNKGCP_DATA", "/nowhere"))
    found = {path.name.removesuffix(".tsv.gz"): [path] for path in sorted(data.glob("zoo/*.tsv.gz"))}
    joined = {name: [data / name / f"{part}.tsv" for part in PARTS] for name in BENCHMARKS}
    return found | {name: files for name, files in joined.items() if all(file.exists() for file in files)}


def lines_of(files: list[Path]) -> list[str]:
    """Their lines, one file after the other: head, relation, tail and confidence."""
    content = [gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw for raw in map(Path.read_bytes, files)]
    return [line for text in content for line in text.decode().splitlines()]


def split(lines: list[str], by: str, seed: int, folder: Path) -> None:
    """train.tsv, val.tsv and test.tsv with their shares of the rows or of the pairs."""
    unit = np.arange(len(lines))
    if by == "pairs":
        ends = np.array([[line.split("\t")[0], line.split("\t")[2]] for line in lines])
        unit = np.unique(np.sort(ends, axis=1), axis=0, return_inverse=True)[1].ravel()
    units = unit.max() + 1
    places = np.round(np.cumsum(list(PARTS.values()))[:-1] * units).astype(int)
    part = np.empty(units, int)
    part[np.random.default_rng(seed).permutation(units)] = np.searchsorted(
        places, np.arange(units), side="right"
    )
    folder.mkdir(parents=True)
    for number, name in enumerate(PARTS):
        chosen = [lines[row] for row in np.flatnonzero(part[unit] == number)]
        (folder / f"{name}.tsv").write_text("\n".join(chosen) + "\n", encoding="utf-8")


def facts(folder: Path, part: str) -> tuple[Array, Array]:
    """Labels (n, 3) and confidences (n,) of a part."""
    rows = [line.split("\t") for line in (folder / f"{part}.tsv").read_text(encoding="utf-8").splitlines()]
    return np.array([row[:3] for row in rows]), np.array([row[3] for row in rows], float)


def methods(
    folder: Path, level: float, seed: int, by: str, ukge: bool
) -> dict[str, Callable[[], tuple[Answers, common.Took | None]]]:
    """How to ask every method about the test facts, by its name in the table."""
    found: dict[str, Callable[[], tuple[Answers, common.Took | None]]] = {
        "evidence": partial(ours, folder, level, seed, "--method", "evidence"),
        "by hand": partial(by_hand, folder, level, by, "cqr"),
        "MAPIE CQR": partial(by_hand, folder, level, by, "mapie"),
        "marginal": partial(marginal, folder, level),
    }
    for method in ("cp", "unkgcp") if ukge else ():
        found[f"UKGE, {method}"] = partial(ours, folder, level, seed, "--model", "ukge", "--method", method)
    return found


def marginal(folder: Path, level: float) -> tuple[Answers, None]:
    """The same two quantiles of the training confidences for every query."""
    truth, n = facts(folder, "train")[1], len(facts(folder, "test")[1])
    ends = np.quantile(truth, [(1 - level) / 2, (1 + level) / 2])
    columns = zip(("lower", "upper", "score"), (*ends, truth.mean()), strict=True)
    return {name: np.full(n, value) for name, value in columns}, None


def by_hand(folder: Path, level: float, by: str, method: str) -> tuple[Answers, common.Took]:
    output = folder / f"{method}.npz"
    script = Path(__file__).parent / "peers" / "by_hand.py"
    options = ["--by", by, "--method", method, "--level", str(level)]
    took = common.timed([sys.executable, str(script), str(folder), str(output), *options])
    return dict(np.load(output)), took


def ours(folder: Path, level: float, seed: int, *options: str) -> tuple[Answers, common.Took]:
    """`unkgcp fit`, then `unkgcp predict` of the test facts."""
    import pyarrow.parquet as pq

    queries, answers = folder / "queries.tsv", folder / "answers.parquet"
    triples = facts(folder, "test")[0]
    queries.write_text("\n".join("\t".join(row) for row in [("head", "relation", "tail"), *triples]) + "\n")
    with tempfile.TemporaryDirectory() as run:
        fit = common.timed(common.unkgcp("fit", folder, "-o", f"{run}/run", "--seed", seed, *options))
        asked = ("predict", f"{run}/run", queries, "-o", answers, "--confidence", level)
        predict = common.timed(common.unkgcp(*asked))
    table = pq.read_table(answers, columns=["lower", "upper", "score"])
    took = common.Took(
        fit.clock + predict.clock,
        fit.processor + predict.processor,
        max(fit.megabytes, predict.megabytes),
        fit.said,
    )
    return {name: table[name].to_numpy() for name in table.column_names}, took


def judged(found: Answers, folder: Path, level: float) -> dict[str, float]:
    """The figures of all test facts; a score that is not there counts as the mean of the training confidences."""
    (known, mean), (asked, truth) = facts(folder, "train"), facts(folder, "test")
    lower, upper = found["lower"], found["upper"]
    missed = np.maximum(np.maximum(lower - truth, truth - upper), 0)
    inside, width = missed <= 1e-9, upper - lower
    entities, degree = np.unique(known[:, [0, 2]], return_counts=True)
    place = np.searchsorted(entities, asked[:, [0, 2]]).clip(max=len(entities) - 1)
    degrees = np.where(entities[place] == asked[:, [0, 2]], degree[place], 0).min(axis=1)
    slices = [tenths(width), tenths(degrees), np.unique(asked[:, 1], return_inverse=True)[1]]
    error = np.where(np.isnan(found["score"]), mean.mean(), found["score"]) - truth
    figures = (
        inside.mean(),
        width.mean(),
        (width + 2 / (1 - level) * missed).mean(),
        min(lowest(member, inside) for member in slices),
        (error**2).mean(),
    )
    return dict(zip(FIGURES, map(float, figures), strict=True))


def tenths(values: Array) -> Array:
    """The tenth (or larger part, of at least SMALLEST rows) of each value, equal values together: (n,)."""
    bins = max(1, min(10, len(values) // SMALLEST))
    first = np.searchsorted(np.sort(values), values)
    return np.asarray(first * bins // len(values))


def lowest(member: Array, inside: Array) -> float:
    """The lowest coverage of slices with enough facts; 1 if there are none."""
    count, hits = np.bincount(member), np.bincount(member, inside)
    large = count >= SMALLEST
    return float(np.min(hits[large] / count[large], initial=1.0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", help="only these, separated by commas")
    parser.add_argument("--by", default="rows,pairs")
    parser.add_argument("--level", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ukge", action="store_true", help="also UKGE with cp and unkgcp: slow")
    parser.add_argument("-o", "--output", type=Path, help="instead of results/zoo.json")
    options = parser.parse_args()
    common.use_two_cores()
    known, level, seed = graphs(), options.level, options.seed
    names = options.graphs.split(",") if options.graphs else list(known)
    if not known or not all(name in known for name in names):
        print(
            f"skipped: there are no such graphs ({', '.join(known) or 'none'}); set UNKGCP_DATA to their folder"
        )
        return
    rows: list[dict[str, Any]] = []
    for name in names:
        for by in options.by.split(","):
            with tempfile.TemporaryDirectory(prefix="unkgcp-zoo-") as temporary:
                folder = Path(temporary) / name
                split(lines_of(known[name]), by, seed, folder)
                for method, ask in methods(folder, level, seed, by, options.ukge).items():
                    found, took = ask()
                    rows.append(
                        {"graph": name, "split": by, "method": method, **judged(found, folder, level)}
                    )
                    if took is not None:
                        rows[-1] |= {"seconds": round(took.clock, 1), "megabytes": round(took.megabytes)}
                    print(rows[-1], file=sys.stderr, flush=True)
    print("\n".join(common.markdown(rows)))
    record = {
        "command": common.command(),
        "level": level,
        "seed": seed,
        "machine": common.machine(),
        "rows": rows,
    }
    path = options.output or common.RESULTS / "zoo.json"
    common.write(path.stem, record, folder=path.parent)


if __name__ == "__main__":
    main()
