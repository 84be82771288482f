"""The paper's tables with ours beside them, and those that the paper does not print.

Everything is taken from `summary.json`. Where a folder holds both protocols the tables of the strict one end in
`-strict`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unkgcp.evaluation.reproduction.checks import printed_row
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


# Tables that the paper does not print: what a user gets, what repeated facts do, what it costs.

STAGES = ("training", "quantiles", "scoring", "measuring")


def combined(title: str, blocks: Sequence[Block], about: str) -> Table:
    """One threshold for every query, from calibration facts and calibration negatives pooled."""
    table = Table(
        title,
        "One threshold for all queries (combined), 90 % level",
        f"{about} The paper's tables know which queries are negatives and calibrate the two kinds apart; a user does "
        "not know. Here the threshold comes from both pooled. Its promise is an average over facts and negatives. "
        "✓: coverage of at least 0.90.",
        ["data", "model", "predictor", "facts: coverage", "sharpness", "negatives: coverage", "sharpness"],
    )
    for block in blocks:
        table.rule()
        for method in METHODS:
            found = {
                part: [at_level(block, method, part, kind) for kind in ("coverage", "sharpness")]
                for part in ("combined_positive", "combined_negative")
            }
            if found["combined_positive"][0] is None:
                continue
            cells: list[Cell | str] = []
            for coverage, sharpness in found.values():
                assert coverage is not None
                cells += [
                    Cell(with_spread(coverage), valid=is_valid(coverage["mean"])),
                    with_spread(sharpness),
                ]
            table.add(name(block["data"]), name(block["model"]), name(method), *cells)
    return table


def overlap_free(title: str, blocks: Sequence[Block], about: str) -> Table:
    """Test facts whose triple is in neither the training nor the calibration facts, beside all test facts."""
    table = Table(
        title,
        "Test facts that are not repeated elsewhere, 90 % level",
        f"{about} CN15k and PPI5k repeat triples across their splits; here are the test facts whose triple is in "
        "neither the training nor the calibration facts.",
        ["data", "model", "predictor", "n", "of", "coverage", "all", "sharpness", "all"],
    )
    for block in blocks:
        table.rule()
        for method in METHODS:
            cells = [
                with_spread(at_level(block, method, part, kind))
                for kind in ("coverage", "sharpness")
                for part in ("overlap_free", "positive")
            ]
            if cells[0] != "-":
                n = [f"{block['n'][key]:,}" for key in ("overlap_free", "test")]
                table.add(name(block["data"]), name(block["model"]), name(method), *n, *cells)
    return table


def levels(title: str, blocks: Sequence[Block], about: str) -> Table:
    """Coverage and sharpness at every level: the figures behind the curves."""
    parts = {"positive": "facts", "negative": "negatives"}
    table = Table(
        title,
        "Every level",
        f"{about} Coverage / sharpness.",
        ["data", "model", "predictor", "part", *(f"{level:g}" for level in blocks[0]["levels"])],
    )
    for block in blocks:
        if block["levels"] != blocks[0]["levels"]:
            continue
        for method in (method for method in METHODS if method in block["predictors"]):
            for part, called in parts.items():
                found = block["predictors"][method][part]
                pairs = zip(found["coverage"]["mean"], found["sharpness"]["mean"], strict=True)
                table.add(
                    name(block["data"]),
                    name(block["model"]),
                    name(method),
                    called,
                    *(f"{number(coverage)} / {number(sharpness)}" for coverage, sharpness in pairs),
                )
                table.records += [
                    {
                        "data": block["data"],
                        "model": block["model"],
                        "predictor": method,
                        "part": part,
                        "level": level,
                        **{
                            f"{kind}_{what}": found[kind][what][place]
                            for kind in ("coverage", "sharpness")
                            for what in ("mean", "sd")
                        },
                    }
                    for place, level in enumerate(block["levels"])
                ]
    return table


def runtime(title: str, blocks: Sequence[Block], about: str) -> Table:
    """Seconds a stage took for all seeds together."""
    machines = "; ".join(sorted({block["machine"] for block in blocks}))
    table = Table(
        title,
        "Time by stage, in seconds, all seeds together",
        f"{about} Training and scoring on: {machines}. Measuring (thresholds, intervals, the two analyses) needs no "
        "GPU and was timed where it ran.",
        ["data", "model", "seeds", *STAGES, "best epoch"],
    )
    for block in blocks:
        best = block["training"]["best_epoch"]
        shown = "-".join(str(epoch) for epoch in sorted({min(best), max(best)}))
        seconds = [f"{block['seconds'][stage]:.1f}" for stage in STAGES]
        table.add(name(block["data"]), name(block["model"]), str(len(block["seeds"])), *seconds, shown)
    table.rule()
    total = [sum(block["seconds"][stage] for block in blocks) for stage in STAGES]
    table.add("all", "", "", *(Cell(f"{value:.0f}", best=True) for value in total), "")
    return table


def entropy(blocks: Sequence[Block]) -> list[Table]:
    """What mapping the entropy does, where the paper's experiments map it; no table where none does."""
    chosen = [block for block in blocks if "unkgcp-plain" in block["predictors"]]
    if not chosen:
        return []
    table = Table(
        "entropy",
        "UnKGCP on CN15k with the entropy at 0.5 M + 0.5 and at M, 90 % level",
        "The paper's figures on CN15k need the entropy at 0.5 M + 0.5, which its text does not mention. Left out, the "
        "intervals are as valid and wider.",
        [
            "data",
            "model",
            "part",
            "at 0.5 M + 0.5: coverage",
            "sharpness",
            "at M: coverage",
            "sharpness",
            "wider by",
        ],
    )
    for block in chosen:
        for part, called in (("positive", "facts"), ("negative", "negatives")):
            cells = [
                at_level(block, method, part, kind)
                for method in ("unkgcp", "unkgcp-plain")
                for kind in ("coverage", "sharpness")
            ]
            means = [None if cell is None else cell["mean"] for cell in cells]
            table.add(
                name(block["data"]),
                name(block["model"]),
                called,
                *(with_spread(cell) for cell in cells),
                difference(means[3], means[1], 3),
            )
    return [table]


def protocols(blocks: Sequence[Block]) -> Table:
    """The paper's protocol beside the strict one, which never shows calibration facts to training."""
    table = Table(
        "protocols",
        "Paper protocol and strict protocol, test facts, 90 % level",
        "paper: hyperparameters of the paper, early stopping on the calibration facts. strict: early stopping on "
        "held-out training facts, our hyperparameters; the promise of CP and UnKGCP is then exact.",
        [
            "data",
            "model",
            "predictor",
            "coverage: paper",
            "strict",
            "sharpness: paper",
            "strict",
            "MSE: paper",
            "strict",
        ],
    )
    by_key = {(block["protocol"], block["data"], block["model"]): block for block in blocks}
    for protocol, data, model in by_key:
        pair = [by_key.get((which, data, model)) for which in ("paper", "strict")]
        if protocol != "paper" or pair[0] is None or pair[1] is None:
            continue
        table.rule()
        for method in ("cp", "unkgcp"):
            cells = [
                with_spread(at_level(block, method, "positive", kind))
                for kind in ("coverage", "sharpness")
                for block in pair
                if block is not None
            ]
            mse = [with_spread(block["errors"]["positive"]["mse"], 4) for block in pair if block is not None]
            table.add(name(data), name(model), name(method), *cells, *mse)
    return table


def checks_table(checks: Sequence[dict[str, Any]]) -> Table:
    """The analyses as checks."""
    table = Table(
        "checks",
        "The paper's claims, checked",
        "yes: holds here; no: does not; -: nothing to judge it by.",
        ["claim", "protocol", "holds", "figures"],
    )
    words = {True: "yes", False: "no", None: "-"}
    for check in checks:
        table.add(check["title"], check.get("protocol", "-"), words[check["holds"]], check["result"])
    return table


# How things are called in tables, and how a figure is found in a summary.

LEVEL = 0.9
NAMES = {
    "cn15k": "CN15k",
    "ppi5k": "PPI5k",
    "nl27k": "NL27k",
    "ukge": "UKGE",
    "ukge-rect": "UKGE rect",
    "passleaf": "PASSLEAF",
    "beurre": "BEUrRE",
    "fpi": "FPI",
    "qr": "QR",
    "cp": "CP",
    "unkgcp": "UnKGCP",
    "unkgcp-plain": "UnKGCP, plain entropy",
}
METHODS = ("fpi", "qr", "cp", "unkgcp")


def name(key: str) -> str:
    """How a data set, model or predictor is called in print."""
    return NAMES.get(key, key)


def at_level(block: Block, method: str, part: str, kind: str) -> dict[str, Any] | None:
    """Mean and standard deviation at the 90 % level; None where there is no such predictor or level."""
    if method not in block["predictors"] or LEVEL not in block["levels"]:
        return None
    found, place = block["predictors"][method][part][kind], block["levels"].index(LEVEL)
    return {"mean": found["mean"][place], "sd": found["sd"][place]}


def is_valid(coverage: float | None) -> bool:
    """The paper's rule: coverage, printed with two decimals, reaches the level."""
    return coverage is not None and round(coverage, 2) >= LEVEL
