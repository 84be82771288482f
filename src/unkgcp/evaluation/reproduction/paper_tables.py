"""All tables of a reproduction: the paper's tables with our figures in them, and tables that it does not print.

The figures come from `summary.json`. `reproduce` writes the tables as files, and the report page shows the same ones.
Where a folder holds both protocols, the names of the strict protocol's tables end in `-strict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unkgcp.evaluation.figure_design import DATA, look
from unkgcp.evaluation.reproduction import PREDICTORS as METHODS
from unkgcp.evaluation.reproduction.paper_claims import LEVEL, at_level, printed_row
from unkgcp.evaluation.tables import Cell, Table, difference, number, with_spread

Summary = dict[str, Any]
Block = dict[str, Any]

KINDS = ("coverage", "sharpness")
BEYOND = {"interval_score": "interval score", "worst_tenth": "worst tenth"}
"""Figures that the paper does not print; a method that gives up the hard facts does not look good in them."""
MEANING = (
    "Interval score: width plus 20 times the distance by which a confidence is missed. Worst tenth: the lowest "
    "coverage among tenths of the triples by the method's own doubt, the entropy of its score."
)
PARTS = {"positive": "facts", "negative": "negatives"}
STAGES = ("training", "quantiles", "scoring", "measuring")
NOT_PRINTED = (None, None)


def write_tables(folder: Path, summary: Summary) -> list[Path]:
    """Every table for which there are cells, as .md, .csv and .tex under tables/."""
    return [path for table in make_tables(summary) for path in table.write(folder / "tables")]


def make_tables(summary: Summary) -> list[Table]:
    """All tables of the summary, in the order of the paper."""
    paper = summary["paper"]
    tables = [statistics(summary)]
    found = sorted({block["protocol"] for block in summary["cells"]})  # paper before strict
    for protocol in found:
        blocks = [block for block in summary["cells"] if block["protocol"] == protocol]
        made = [
            intervals("table1", "Table 1: test facts", "positive", blocks, paper.get("table1", {})),
            errors(blocks, paper.get("table2", {})),
            intervals("table3", "Table 3: negatives", "negative", blocks, paper.get("table3", {})),
            combined(blocks),
            overlap_free(blocks),
            levels(blocks),
            runtime(blocks),
        ]
        for table in made:
            table.name += "" if protocol == found[0] else f"-{protocol}"
        tables += made
    tables += entropy(summary["cells"])
    if len(found) > 1:
        tables.append(protocols(summary["cells"]))
    return [*tables, checks_table(summary["checks"])]


def statistics(summary: Summary) -> Table:
    """Sizes of the data sets, ours and printed."""
    keys = ("entities", "relations", "train", "calibration", "test")
    note = "As read, and as the paper prints them where it does."
    table = Table(["data", *keys], name="statistics", title="Data sets", note=note)
    for data, ours in summary["statistics"].items():
        printed = summary["paper"]["statistics"].get(data, {})
        table.add(data_name(data), *(_with_printed(ours[key], printed.get(key)) for key in keys))
        paper = {f"paper_{key}": printed.get(key) for key in keys}
        table.records.append({"data": data, **{key: ours[key] for key in keys}, **paper})
    return table


def _with_printed(ours: int, printed: int | None) -> str:
    if printed is None:
        return f"{ours:,}"
    return f"{ours:,} (same)" if ours == printed else f"{ours:,} (paper {printed:,})"


def intervals(name: str, heading: str, part: str, blocks: Sequence[Block], printed: dict[str, Any]) -> Table:
    """Coverage and sharpness of every predictor at 90 %, ours, the paper's and the difference.

    Interval score and worst tenth, which the paper does not print, follow where they were measured.
    """
    more = [kind for kind in BEYOND if any(_has(block, part, kind) for block in blocks)]
    note = f"{_about(blocks)} ✓: coverage reaches 0.90 (two decimals, as in the paper); bold: the sharpest of those."
    table = Table(
        ["data", "model", "predictor", "coverage", "paper", "diff.", "sharpness", "paper", "diff."]
        + [BEYOND[kind] for kind in more],
        name=name,
        title=f"{heading}, coverage and sharpness at the 90 % level",
        note=f"{note} {MEANING}" if more else note,
        text_columns=(0, 1, 2),
    )
    for block in blocks:
        table.rule()
        theirs = printed_row(printed, block)
        ours = {method: [at_level(block, method, part, kind) for kind in KINDS] for method in METHODS}
        valid = {m: round(width["mean"], 2) for m, (share, width) in ours.items() if is_valid(share["mean"])}
        for method, found in ours.items():
            said = [theirs.get(method, {}).get(kind, NOT_PRINTED) for kind in KINDS]
            if found[0]["mean"] is None and said[0][0] is None and method != "qr":
                continue
            best = method in valid and valid[method] == min(valid.values())
            marked = [
                Cell(with_spread(found[0]), valid=method in valid),
                Cell(with_spread(found[1]), best=best),
            ]
            cells = [
                cell
                for own, figure, pair in zip(marked, found, said, strict=True)
                for cell in (own, _as_printed(pair), difference(figure["mean"], pair[0]))
            ]
            others = {kind: at_level(block, method, part, kind) for kind in more}
            table.add(*_names(block), look(method).name, *cells, *map(with_spread, others.values()))
            record = {**_keys(block), "predictor": method, "seeds": len(block["seeds"])}
            record |= {
                f"{kind}_{what}": figure[what]
                for kind, figure in zip(KINDS, found, strict=True)
                for what in ("mean", "sd")
            }
            record |= {"valid": method in valid, "sharpest_valid": best}
            for kind, pair in zip(KINDS, said, strict=True):
                record |= {f"paper_{kind}": pair[0], f"paper_{kind}_sd": pair[1]}
            for kind, figure in others.items():
                record |= {f"{kind}_{what}": figure[what] for what in ("mean", "sd")}
            table.records.append(record)
    return table


def _has(block: Block, part: str, kind: str) -> bool:
    return any(kind in found[part] for found in block["predictors"].values())


def errors(blocks: Sequence[Block], printed: dict[str, Any]) -> Table:
    """MSE and MAE on test facts, beside the paper's; on negatives and both for comparison with other work."""
    ours = [title for kind in ("MSE", "MAE") for title in (kind, "paper", "diff.")]
    table = Table(
        ["data", "model", *ours, "negatives MSE / MAE", "both MSE / MAE"],
        name="table2",
        title="Table 2: error of the models on test facts",
        note=f"{_about(blocks)} The paper prints two decimals. Negatives and both together are not in the paper.",
        text_columns=(0, 1),
    )
    for block in blocks:
        said, found = printed_row(printed, block), block["errors"]
        cells: list[str | Cell] = []
        for kind in ("mse", "mae"):
            own = found["positive"][kind]
            theirs = Cell(number(said.get(kind), 2), style="small")
            cells += [with_spread(own, 4), theirs, difference(own["mean"], said.get(kind), 3)]
        for part in ("negative", "mixed"):
            cells.append(" / ".join(number(found[part][kind]["mean"], 4) for kind in ("mse", "mae")))
        table.add(*_names(block), *cells)
        figures = {
            f"{part}_{kind}_{what}": found[part][kind][what]
            for part in ("positive", "negative", "mixed", "overlap_free")
            for kind in ("mse", "mae")
            for what in ("mean", "sd")
        }
        paper = {f"paper_{kind}": said.get(kind) for kind in ("mse", "mae")}
        table.records.append({**_keys(block), "seeds": len(block["seeds"]), **figures, **paper})
    return table


# Tables that the paper does not print: one threshold for all queries, facts that are not repeated, levels, times.


def combined(blocks: Sequence[Block]) -> Table:
    """One threshold for every query, from calibration facts and calibration negatives pooled."""
    table = Table(
        ["data", "model", "predictor", "facts: coverage", "sharpness", "negatives: coverage", "sharpness"],
        name="combined",
        title="One threshold for all queries (combined), 90 % level",
        note=f"{_about(blocks)} The paper's tables know which queries are negatives and calibrate the two kinds "
        "apart; a user does not know. Here the threshold comes from both pooled. Its promise is an average over facts "
        "and negatives. ✓: coverage of at least 0.90.",
        text_columns=(0, 1, 2),
    )
    for block in blocks:
        table.rule()
        for method in _measured(block):
            cells: list[str | Cell] = []
            for part in ("combined_positive", "combined_negative"):
                coverage, sharpness = (at_level(block, method, part, kind) for kind in KINDS)
                cells.append(Cell(with_spread(coverage), valid=is_valid(coverage["mean"])))
                cells.append(with_spread(sharpness))
            table.add(*_names(block), look(method).name, *cells)
    return table


def overlap_free(blocks: Sequence[Block]) -> Table:
    """Test facts whose triple is in neither the training nor the calibration facts, beside all test facts."""
    table = Table(
        ["data", "model", "predictor", "n", "of", "coverage", "all", "sharpness", "all"],
        name="overlap-free",
        title="Test facts that are not repeated elsewhere, 90 % level",
        note=f"{_about(blocks)} CN15k and PPI5k repeat triples across their splits; here are the test facts whose "
        "triple is in neither the training nor the calibration facts.",
        text_columns=(0, 1, 2),
    )
    for block in blocks:
        table.rule()
        for method in _measured(block, "overlap_free"):
            n = [f"{block['n'][key]:,}" for key in ("overlap_free", "test")]
            cells = [
                with_spread(at_level(block, method, part, kind))
                for kind in KINDS
                for part in ("overlap_free", "positive")
            ]
            table.add(*_names(block), look(method).name, *n, *cells)
    return table


def levels(blocks: Sequence[Block]) -> Table:
    """Coverage and sharpness at every level: the figures behind the curves."""
    table = Table(
        ["data", "model", "predictor", "part", *(f"{level:g}" for level in blocks[0]["levels"])],
        name="levels",
        title="Every level",
        note=f"{_about(blocks)} Coverage / sharpness.",
        text_columns=(0, 1, 2, 3),
    )
    for block in (block for block in blocks if block["levels"] == blocks[0]["levels"]):
        for method in (method for method in METHODS if method in block["predictors"]):
            for part, called in PARTS.items():
                found = block["predictors"][method][part]
                pairs = zip(*(found[kind]["mean"] for kind in KINDS), strict=True)
                shown = (f"{number(coverage)} / {number(sharpness)}" for coverage, sharpness in pairs)
                table.add(*_names(block), look(method).name, called, *shown)
                for place, level in enumerate(block["levels"]):
                    record = {**_keys(block), "predictor": method, "part": part, "level": level}
                    for kind in KINDS:
                        record |= {f"{kind}_{what}": found[kind][what][place] for what in ("mean", "sd")}
                    table.records.append(record)
    return table


def runtime(blocks: Sequence[Block]) -> Table:
    """Seconds a stage took for all seeds together."""
    machines = "; ".join(sorted({block["machine"] for block in blocks}))
    table = Table(
        ["data", "model", "seeds", *STAGES, "best epoch"],
        name="runtime",
        title="Time by stage, in seconds, all seeds together",
        note=f"{_about(blocks)} Training and scoring on: {machines}. Measuring (thresholds, intervals, the two "
        "analyses) needs no GPU and was timed where it ran.",
        text_columns=(0, 1),
    )
    for block in blocks:
        best = block["training"]["best_epoch"]
        shown = "-".join(str(epoch) for epoch in sorted({min(best), max(best)}))
        seconds = [f"{block['seconds'][stage]:.1f}" for stage in STAGES]
        table.add(*_names(block), str(len(block["seeds"])), *seconds, shown)
    table.rule()
    total = [sum(block["seconds"][stage] for block in blocks) for stage in STAGES]
    table.add("all", "", "", *(Cell(f"{value:.0f}", best=True) for value in total), "")
    return table


def entropy(blocks: Sequence[Block]) -> list[Table]:
    """What mapping the entropy changes, as the paper's experiments do on CN15k; no table without such cells."""
    chosen = [block for block in blocks if "unkgcp-plain" in block["predictors"]]
    if not chosen:
        return []
    places = [f"at {place}: coverage" for place in ("0.5 M + 0.5", "M")]
    table = Table(
        ["data", "model", "part", places[0], "sharpness", places[1], "sharpness", "wider by"],
        name="entropy",
        title="UnKGCP on CN15k with the entropy at 0.5 M + 0.5 and at M, 90 % level",
        note="The paper's figures on CN15k need the entropy at 0.5 M + 0.5, which its text does not mention. Left out, "
        "the intervals are as valid and wider.",
        text_columns=(0, 1, 2),
    )
    for block in chosen:
        for part, called in PARTS.items():
            found = [at_level(block, m, part, kind) for m in ("unkgcp", "unkgcp-plain") for kind in KINDS]
            wider = difference(found[3]["mean"], found[1]["mean"], 3)
            table.add(*_names(block), called, *map(with_spread, found), wider)
    return [table]


def protocols(blocks: Sequence[Block]) -> Table:
    """The paper's protocol compared with the strict one, which never shows calibration facts to training."""
    columns = [title for kind in (*KINDS, "MSE") for title in (f"{kind}: paper", "strict")]
    table = Table(
        ["data", "model", "predictor", *columns],
        name="protocols",
        title="Paper protocol and strict protocol, test facts, 90 % level",
        note="paper: hyperparameters of the paper, early stopping on the calibration facts. strict: early stopping on "
        "held-out training facts, our hyperparameters; the promise of CP and UnKGCP is then exact.",
        text_columns=(0, 1, 2),
    )
    strict = {_names(block): block for block in blocks if block["protocol"] == "strict"}
    for block in (block for block in blocks if block["protocol"] == "paper" and _names(block) in strict):
        table.rule()
        pair = block, strict[_names(block)]
        for method in ("cp", "unkgcp"):
            cells = [with_spread(at_level(one, method, "positive", kind)) for kind in KINDS for one in pair]
            mse = [with_spread(one["errors"]["positive"]["mse"], 4) for one in pair]
            table.add(*_names(block), look(method).name, *cells, *mse)
    return table


def checks_table(checks: Sequence[dict[str, Any]]) -> Table:
    """The paper's claims, with what was found here."""
    table = Table(
        ["claim", "protocol", "holds", "figures"],
        name="checks",
        title="The paper's claims, checked",
        note="yes: holds here; no: does not; -: nothing to judge it by.",
        text_columns=(0, 1, 2, 3),
    )
    verdicts = {True: ("yes", "mark yes"), False: ("no", "mark no"), None: ("-", "mark open")}
    for check in checks:
        verdict, style = verdicts[check["holds"]]
        table.add(check["title"], check.get("protocol", "-"), Cell(verdict, style=style), check["result"])
    return table


# Names of things in tables, and the rows that a table has.


def _about(blocks: Sequence[Block]) -> str:
    seeds = sorted({len(block["seeds"]) for block in blocks})
    count = "-".join(str(number) for number in sorted({seeds[0], seeds[-1]}))
    word = "seed" if count == "1" else "seeds"
    return f"Protocol {blocks[0]['protocol']}, mean (standard deviation) over {count} {word}."


def data_name(data: str) -> str:
    """How a data set is called in print."""
    return DATA.get(data, data)


def _names(block: Block) -> tuple[str, str]:
    return data_name(block["data"]), look(block["model"]).name


def _keys(block: Block) -> dict[str, Any]:
    return {"data": block["data"], "model": block["model"]}


def _measured(block: Block, part: str = "combined_positive") -> Iterator[str]:
    """The methods that have a coverage at the 90 % level."""
    return (m for m in METHODS if at_level(block, m, part, "coverage")["mean"] is not None)


def _as_printed(pair: Sequence[float | None]) -> Cell:
    """[mean, standard deviation] as the paper prints it."""
    return Cell("-" if pair[0] is None else f"{pair[0]:.2f} ({pair[1]:.3f})", style="small")


def is_valid(coverage: float | None) -> bool:
    """The paper's rule: coverage, printed with two decimals, reaches the level."""
    return coverage is not None and round(coverage, 2) >= LEVEL
