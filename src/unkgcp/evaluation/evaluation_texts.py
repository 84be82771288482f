"""The texts that `unkgcp evaluate` and `unkgcp fit` print for people, made of the objects that `--json` prints.

`summary` answers in a dozen lines of at most 80 columns: is the promise kept, how wide are the intervals, where are
they weakest, and what has each kind of question. `full_text` has every figure, each explained in a line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from unkgcp.conformal.ranks import percent as plain_percent
from unkgcp.evaluation.slices import AT_LEAST, below_band, weakest
from unkgcp.evaluation.tables import FigureTable, counted, number, of_100, percent, printable
from unkgcp.training.config import NONE

COLUMNS = 80
MAIN = 0.9
"""The level of the summary, if it was asked for; else the one closest to it."""
VERDICTS = {
    "kept": ("Promise kept", "chance allows {}"),
    "above": ("More than promised", "chance allows {}, equal confidences and small groups lift it"),
    "below": ("Less than chance allows", "{} allowed; an assumption fails"),
    None: ("", "promised on average, no law says how far off by chance"),
}
COLOURS_OF_VERDICTS = {
    "Promise kept": "green",
    "More than promised": "yellow",
    "Less than chance allows": "red",
}
WORTH_SAYING = 0.005
"""Coverage above the level that is said to be unavoidable."""
SHOWN = 10
"""Slices below their band that are listed."""


def main_level(result: dict[str, Any]) -> dict[str, Any]:
    """The level of an evaluation that a summary shows."""
    return dict(min(result["levels"], key=lambda level: abs(level["confidence"] - MAIN)))


def summary(result: dict[str, Any]) -> str:
    """The object of `assessment.judge` in at most ten lines of 80 columns."""
    level, facts = main_level(result), result["facts"]
    figures = level["positive"]
    about = (
        f"{called(result)} learned from {facts['training']:,} facts of {short_name(result['data'])}; "
        f"{facts['calibration']:,} calibrate, {facts['test']:,} test."
    )
    if result["taken_in"]:
        about += f" Updates have learned from {counted(result['taken_in'], 'test fact')}, left out here."
    sentences = (about, verdict_sentences(result), weakest_sentence(figures))
    lines = [
        line for sentence in sentences for line in textwrap.wrap(sentence, COLUMNS, break_on_hyphens=False)
    ]
    return "\n".join([*lines, kind_table(figures)])


def kind_table(figures: dict[str, Any]) -> str:
    """The figures of each kind of question in a line, beside those of knowing nothing."""
    table = FigureTable(["", "share", "coverage", "width", "interval score", "knowing nothing", "worst"])
    for kind, of_kind in figures["kinds"].items():
        table.add(plural(kind), *_summary_row(of_kind, of_kind["share"]))
    if len(figures["kinds"]) > 1:
        table.add("all test facts", *_summary_row(figures, 1.0))
    return table.terminal()


def _summary_row(figures: dict[str, Any], share: float) -> list[str]:
    nothing = figures["knowing_nothing"]["interval_score"]
    shown = (figures["sharpness"], figures["interval_score"], nothing, worst_coverage(figures))
    coverage = number(figures["coverage"]) + (" low" if below_band(figures) else "")
    return [f"{100 * share:.0f} %" if share >= 0.01 else "<1 %", coverage, *map(number, shown)]


def called(result: dict[str, Any]) -> str:
    """Model and method, `evidence` alone where it has no model."""
    return " + ".join(name for name in (result["model"], result["method"]) if name != NONE)


def short_name(data: str) -> str:
    """The name of a data set, of a file the last part of its path."""
    return data.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or data


def plural(kind: str) -> str:
    """`known pairs`, `new entities`."""
    return kind[:-1] + "ies" if kind.endswith("y") else kind + "s"


def verdict_sentences(result: dict[str, Any]) -> str:
    """What coverage says about the promise, beginning with the verdict; it can speak against it but not prove it."""
    level = main_level(result)
    figures = level["positive"]
    verdict, remark = VERDICTS[figures["verdict"]]
    remark = remark.format(" to ".join(map(of_100, figures["band"] or ())))
    least = figures["least_possible"]
    if least is not None and least >= level["confidence"] + WORTH_SAYING and figures["verdict"] == "above":
        remark = f"{remark.split(',')[0]}, equal confidences lift it to {of_100(least)} at least"
    sentence = (
        f"at {percent(level['confidence'])} the intervals contain the truth for {of_100(figures['coverage'])} of 100 "
        f"test facts ({remark if result['promised'] else 'nothing is promised'}); half are "
        + (f"narrower than {figures['median_width']:.2g}." if figures["median_width"] else "a single value.")
    )
    return f"{verdict}: {sentence}" if verdict else sentence[0].upper() + sentence[1:]


def weakest_sentence(figures: dict[str, Any]) -> str:
    """The slice that is covered least, in words; empty if there are no slices."""
    weakest_slice = weakest(figures["slices"])
    if weakest_slice is None:
        return ""
    by, one = weakest_slice
    sentence = f"Worst: {slice_words(by, one, figures['slices'][by])}, {of_100(one['coverage'])} of 100"
    return sentence + (", too few for chance." if below_band(one) else ".")


def slice_words(by: str, one: dict[str, Any], among: Sequence[dict[str, Any]]) -> str:
    """A slice in words; `among` are all slices by the same quantity, in ascending order."""
    if by == "relation":
        return f"facts of the relation {printable(one['relation'])}"
    low, high = one["from"], one["to"]
    if by == "doubt":
        if one is among[-1]:
            return "the facts that the method doubts most"
        return f"part {among.index(one) + 1} of {len(among)} of the facts, the least doubted first"
    if one is among[0]:
        return f"facts about entities with fewer than {counted(int(high) + 1, 'fact')}"
    if one is among[-1]:
        return f"facts about entities with at least {counted(int(low), 'fact')}"
    return f"facts about entities with {low:.0f} to {high:.0f} facts"


EXPLAINED = (
    "chance allows: where coverage lies 999 times in 1,000 if the promise is kept",
    "score: interval score, width + 2 / (1 - level) times the distance by which a confidence is missed",
    "nothing: the score of answering all with the same two quantiles of the training confidences",
    f"worst: lowest coverage of a tenth of doubt, a fifth of degree or a relation with {AT_LEAST} facts and more",
    "MSE, MAE: errors of the prediction, which lies inside the interval",
)
WORST = {
    "most_doubtful": "most doubted",
    "doubt": "doubt",
    "degree": "degree",
    "relation": "relation",
}
"""The keys of `worst`, and their titles."""


def full_text(result: dict[str, Any]) -> str:
    """The object of `assessment.judge`, all of it."""
    tables = "\n\n".join(_level_table(level).terminal() for level in result["levels"])
    others = (
        "overlap-free: facts whose triple is in neither the training nor the calibration facts",
        f"negatives: triples taken for no facts ({result['negatives']}), judged with the threshold of "
        f"{result['negative_threshold']}; mixed: facts and negatives",
    )
    worst = FigureTable(["lowest coverage by", *WORST.values(), "ERT", "of it below", "least possible"])
    for level in result["levels"]:
        figures = level["positive"]
        shares = [number(figures["worst"][by]) for by in WORST]
        risk = figures["ert"] or {"both": None, "below": None}
        last = (risk["both"], risk["below"], figures["least_possible"])
        worst.add(f"at {percent(level['confidence'])}", *shares, *map(number, last))
    meaning = (
        "ERT: how far a classifier can tell which facts are covered; 0 where coverage is the same everywhere",
        "least possible: coverage of the smallest answers that reach the level, where many confidences are equal",
    )
    lines = [*EXPLAINED, *others, "", worst.terminal(), "", *meaning, *_slices_below(result)]
    return "\n".join([tables, "", *lines])


def _level_table(level: dict[str, Any]) -> FigureTable:
    """Every part of the test facts at one level."""
    titles = ["n", "coverage", "chance allows", "width", "median", "score", "nothing", "worst", "MSE", "MAE"]
    table, facts = FigureTable([f"at {percent(level['confidence'])}", *titles]), level["positive"]
    kinds = {plural(kind): figures for kind, figures in facts["kinds"].items()}
    others = {"overlap-free": facts["overlap_free"], "negatives": level["negative"], "mixed": level["mixed"]}
    for name, of in ({"all facts": facts} | kinds | others).items():
        table.add(name, f"{of['n']:,}", *part_cells(of), number(of["mse"], 4), number(of["mae"], 4))
    return table


def part_cells(figures: dict[str, Any]) -> list[str]:
    """Coverage, what chance allows, width, median width, interval score, that of knowing nothing, and worst slice."""
    band = figures.get("band")
    return [
        number(figures["coverage"]),
        "-" if band is None else f"{band[0]:.3f}-{band[1]:.3f}",
        number(figures["sharpness"]),
        number(figures["median_width"]),
        number(figures["interval_score"]),
        number(figures.get("knowing_nothing", {}).get("interval_score")),
        number(worst_coverage(figures)),
    ]


def worst_coverage(figures: dict[str, Any]) -> float | None:
    """The coverage of the weakest slice of a part, None where it has none."""
    weakest_slice = weakest(figures.get("slices", {}))
    return None if weakest_slice is None else float(weakest_slice[1]["coverage"])


def _slices_below(result: dict[str, Any]) -> list[str]:
    """The slices of the main level that are covered less than chance allows, the lowest first, and a remedy."""
    level = main_level(result)
    slices = level["positive"]["slices"]
    below = [(by, one) for by, rows in slices.items() for one in rows if below_band(one)]
    if not below:
        return []
    lines = [
        f"{len(below):,} of {sum(map(len, slices.values())):,} slices are covered less than chance allows at "
        f"{percent(level['confidence'])}:"
    ]
    for by, one in sorted(below, key=lambda case: case[1]["coverage"])[:SHOWN]:
        low, high = one["band"]
        lines.append(
            f"  {one['coverage']:.2f} ({low:.2f}-{high:.2f}) of {one['n']:,} {slice_words(by, one, slices[by])}"
        )
    promised = [] if result["per"] is None else result["per"].split(",")
    wanted = sorted({by for by, _ in below} - set(promised))
    if promised and wanted:
        per = ",".join([*(name for name in promised if name != "none"), *wanted])
        lines.append(f"  fit --per {per} promises the level there, too")
    return lines


def latex_table(result: dict[str, Any]) -> str:
    """The four figures of every kind at the main level, as a table for a paper."""
    level = main_level(result)
    figures, name = level["positive"], short_name(result["data"])
    table = FigureTable(
        ["", "facts", "coverage", "mean width", "interval score", "worst slice"],
        title=f"{name}, {called(result)}: intervals at {percent(level['confidence'])} on test facts. Worst slice: "
        "lowest coverage of a tenth of doubt, a fifth of degree or a relation",
    )
    rows = {plural(kind): of for kind, of in figures["kinds"].items()} | {"all": figures}
    for title, of in rows.items():
        shown = (of["coverage"], of["sharpness"], of["interval_score"], worst_coverage(of))
        table.add(title, f"{of['n']:,}", *map(number, shown))
    return table.latex(f"tab:unkgcp-{plain_percent(level['confidence'])}")


def ranking_text(result: dict[str, Any]) -> str:
    """The object of `completion_quality.ranking`."""
    hits = list(result["tails"]["hits"])
    weighted = FigureTable(["", "queries", "nDCG linear", "nDCG exp.", "WMRR", *(f"WHits@{n}" for n in hits)])
    plain = FigureTable(["", "facts", "MRR", *(f"Hits@{n}" for n in hits)])
    for side in ("tails", "heads", "both"):
        part = result[side]
        figures = [part["ndcg_linear"], part["ndcg_exponential"], part["wmrr"], *part["whits"].values()]
        weighted.add(side, f"{part['queries']:,}", *(number(figure, 4) for figure in figures))
        plain.add(side, f"{part['facts']:,}", *(number(x, 4) for x in (part["mrr"], *part["hits"].values())))
    heading = f"ranking among {result['candidates']:,} candidates, known facts left out"
    if result["least"]:
        heading += f"; test facts with a confidence of at least {result['least']:g}"
    if result["unknown"]:
        heading += f"; {result['unknown']:,} of {result['facts']:,} test facts are unknown and not ranked"
    return f"{heading}\n\n{weighted.terminal()}\n\n{plain.terminal()}"


def answers_text(result: dict[str, Any]) -> str:
    """The object of `completion_quality.judge_answers`."""
    table = FigureTable(
        ["level", "", "coverage", "ties at random", "chance allows", "mean size", "median", "gap"]
    )
    for level in result["levels"]:
        for side in ("tails", "heads", "both"):
            part = level[side]
            shares = [number(part["coverage"]), number(part["coverage_smoothed"])]
            band = "-" if part["band"] is None else "-".join(f"{end:.3f}" for end in part["band"])
            sizes = [f"{part['mean_size']:,.1f}", f"{part['median_size']:,.0f}", number(part["gap"])]
            table.add(percent(level["confidence"]), side, *shares, band, *sizes)
    least = f" with a confidence of at least {result['least']:g}" if result["least"] else ""
    heading = (
        f"answer sets for {result['asked']:,} of {result['new']:,} new test facts{least} among "
        f"{result['candidates']:,} entities, calibrated with {result['calibration']:,} facts; "
        f"{result['facts'] - result['new']:,} test facts are not new or not known and left out"
    )
    explained = (
        "ties at random: no set is empty, which lifts coverage; without that it should be what chance allows",
        "gap: mean distance of a relation's coverage from the level",
    )
    return "\n".join([heading, "", table.terminal(), "", *explained])
