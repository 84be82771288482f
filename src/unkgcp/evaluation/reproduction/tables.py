"""The paper's tables with ours beside them, and those that the paper does not print.

Everything is taken from `summary.json`. Where a folder holds both protocols the tables of the strict one end in
`-strict`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unkgcp.evaluation.reproduction.display import METHODS, at_level, is_valid, name
from unkgcp.evaluation.reproduction.further import (
    checks_table,
    combined,
    entropy,
    levels,
    overlap_free,
    protocols,
    runtime,
)
from unkgcp.evaluation.reproduction.published import printed_row
from unkgcp.evaluation.reproduction.render import Cell, Table, as_printed, difference, number, with_spread

Summary = dict[str, Any]
Block = dict[str, Any]


def write_tables(folder: Path, summary: Summary) -> list[Path]:
    """Every table for which there are cells, as .md, .csv and .tex under tables/."""
    target = folder / "tables"
    made = make_tables(summary)
    for table in made:
        table.write(target)
    return [target / f"{table.name}.{form}" for table in made for form in ("md", "csv", "tex")]


def make_tables(summary: Summary) -> list[Table]:
    tables = [statistics(summary)]
    found = sorted({block["protocol"] for block in summary["cells"]})  # paper before strict
    for protocol in found:
        blocks = [block for block in summary["cells"] if block["protocol"] == protocol]
        suffix = "" if protocol == found[0] else f"-{protocol}"
        about = _about(blocks)
        paper = summary["paper"]
        tables += [
            intervals(f"table1{suffix}", "Table 1: test facts", "positive", blocks, paper["table1"], about),
            errors(f"table2{suffix}", blocks, paper["table2"], about),
            intervals(f"table3{suffix}", "Table 3: negatives", "negative", blocks, paper["table3"], about),
            combined(f"combined{suffix}", blocks, about),
            overlap_free(f"overlap-free{suffix}", blocks, about),
            levels(f"levels{suffix}", blocks, about),
            runtime(f"runtime{suffix}", blocks, about),
        ]
    tables += entropy(summary["cells"])
    if len(found) > 1:
        tables.append(protocols(summary["cells"]))
    return [*tables, checks_table(summary["checks"])]


def _about(blocks: Sequence[Block]) -> str:
    seeds = sorted({len(block["seeds"]) for block in blocks})
    count = "-".join(str(number) for number in sorted({seeds[0], seeds[-1]}))
    word = "seed" if count == "1" else "seeds"
    return f"Protocol {blocks[0]['protocol']}, mean (standard deviation) over {count} {word}."


def statistics(summary: Summary) -> Table:
    """Sizes of the data sets, ours and printed."""
    keys = ("entities", "relations", "train", "calibration", "test")
    table = Table(
        "statistics", "Data sets", "As read, and as the paper prints them where it does.", ["data", *keys]
    )
    for data, ours in summary["statistics"].items():
        printed = summary["paper"]["statistics"].get(data, {})
        table.add(name(data), *(_with_printed(ours[key], printed.get(key)) for key in keys))
        table.records.append(
            {
                "data": data,
                **{key: ours[key] for key in keys},
                **{f"paper_{key}": printed.get(key) for key in keys},
            }
        )
    return table


def _with_printed(ours: int, printed: int | None) -> str:
    if printed is None:
        return f"{ours:,}"
    return f"{ours:,} (same)" if ours == printed else f"{ours:,} (paper {printed:,})"


def intervals(
    title: str, heading: str, part: str, blocks: Sequence[Block], printed: dict[str, Any], about: str
) -> Table:
    """Coverage and sharpness of every predictor at 90 %, ours, the paper's and the difference."""
    table = Table(
        title,
        f"{heading}, coverage and sharpness at the 90 % level",
        f"{about} ✓: coverage reaches 0.90 (two decimals, as in the paper); bold: the sharpest of those.",
        ["data", "model", "predictor", "coverage", "paper", "diff.", "sharpness", "paper", "diff."],
    )
    for block in blocks:
        table.rule()
        theirs = printed_row(printed, block)
        rows = {
            method: [at_level(block, method, part, kind) for kind in ("coverage", "sharpness")]
            for method in METHODS
        }
        valid = {m: f[1]["mean"] for m, f in rows.items() if f[0] and f[1] and is_valid(f[0]["mean"])}
        sharpest = min((round(value, 2) for value in valid.values()), default=None)
        for method, (coverage, sharpness) in rows.items():
            said = theirs.get(method, {})
            pair = [said.get(kind, [None, None]) for kind in ("coverage", "sharpness")]
            if coverage is None and pair[0][0] is None and method != "qr":
                continue
            best = method in valid and round(valid[method], 2) == sharpest
            ours = [None if found is None else found["mean"] for found in (coverage, sharpness)]
            table.add(
                name(block["data"]),
                name(block["model"]),
                name(method),
                Cell(with_spread(coverage), valid=method in valid),
                as_printed(pair[0]),
                difference(ours[0], pair[0][0]),
                Cell(with_spread(sharpness), best=best),
                as_printed(pair[1]),
                difference(ours[1], pair[1][0]),
            )
            table.records.append(
                {
                    "data": block["data"],
                    "model": block["model"],
                    "predictor": method,
                    "seeds": len(block["seeds"]),
                    **{
                        f"{kind}_{what}": None if found is None else found[what]
                        for kind, found in (("coverage", coverage), ("sharpness", sharpness))
                        for what in ("mean", "sd")
                    },
                    "valid": method in valid,
                    "sharpest_valid": best,
                    "paper_coverage": pair[0][0],
                    "paper_coverage_sd": pair[0][1],
                    "paper_sharpness": pair[1][0],
                    "paper_sharpness_sd": pair[1][1],
                }
            )
    return table


def errors(title: str, blocks: Sequence[Block], printed: dict[str, Any], about: str) -> Table:
    """MSE and MAE on test facts, beside the paper's; on negatives and both for comparison with other work."""
    table = Table(
        title,
        "Table 2: error of the models on test facts",
        f"{about} The paper prints two decimals. Negatives and both together are not in the paper.",
        [
            "data",
            "model",
            "MSE",
            "paper",
            "diff.",
            "MAE",
            "paper",
            "diff.",
            "negatives MSE / MAE",
            "both MSE / MAE",
        ],
    )
    for block in blocks:
        said = printed_row(printed, block)
        found = block["errors"]
        ours = found["positive"]
        others = [
            f"{number(found[part]['mse']['mean'], 4)} / {number(found[part]['mae']['mean'], 4)}"
            for part in ("negative", "mixed")
        ]
        table.add(
            name(block["data"]),
            name(block["model"]),
            with_spread(ours["mse"], 4),
            number(said.get("mse"), 2),
            difference(ours["mse"]["mean"], said.get("mse"), 3),
            with_spread(ours["mae"], 4),
            number(said.get("mae"), 2),
            difference(ours["mae"]["mean"], said.get("mae"), 3),
            *others,
        )
        table.records.append(
            {
                "data": block["data"],
                "model": block["model"],
                "seeds": len(block["seeds"]),
                **{
                    f"{part}_{kind}_{what}": found[part][kind][what]
                    for part in ("positive", "negative", "mixed", "overlap_free")
                    for kind in ("mse", "mae")
                    for what in ("mean", "sd")
                },
                "paper_mse": said.get("mse"),
                "paper_mae": said.get("mae"),
            }
        )
    return table
