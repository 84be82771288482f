"""Tables that the paper does not print: what a user gets, what repeated facts do, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unkgcp.evaluation.reproduction.display import METHODS, at_level, is_valid, name
from unkgcp.evaluation.reproduction.render import Cell, Table, difference, number, with_spread

Block = dict[str, Any]
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
