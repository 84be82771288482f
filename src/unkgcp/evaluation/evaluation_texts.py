"""The texts that `unkgcp evaluate` prints for people: figures as aligned tables, and sentences about notable ones.

The texts are made of the objects that `--json` prints for scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unkgcp.evaluation.metrics import MASS
from unkgcp.evaluation.slices import SLACK, below_band
from unkgcp.evaluation.tables import Table, number

MOST_RELATIONS = 30


def evaluation_text(result: dict[str, Any]) -> str:
    """The object of `assessment.judge` as a table with a heading."""
    levels, facts = result["levels"], result["levels"][0]["positive"]
    lines = [
        f"{result['data']}: {result['model']} + {result['method']}, seed {result['seed']}; "
        f"{facts['n']:,} test facts, {levels[0]['negative']['n']:,} negatives "
        f"({result['negatives']}) judged with the threshold of {result['negative_threshold']}"
    ]
    if unknown := result["unknown"]["positive"]:
        lines.append(f"{unknown:,} test facts have an unknown entity or relation: whole range, no error")
    widths = [cell for level in levels for cell in (f"cover {level['confidence']:g}", "width", "score")]
    table = Table(["", "n", "MSE", "MAE", *widths])
    table.add("facts", *_cells([level["positive"] for level in levels]))
    sentences = []
    if ties := result.get("ties"):
        smoothed = [cell for tie in ties for cell in (number(tie["coverage_smoothed"], 4), "", "")]
        table.add("facts, ties at random", f"{facts['n']:,}", "", "", *smoothed)
        pairs = zip(levels, ties, strict=True)
        sentences = [_tie_sentence(level["positive"]["coverage"], tie) for level, tie in pairs]
    table.add("overlap-free", *_cells([level["positive"]["overlap_free"] for level in levels]))
    table.add("negatives", *_cells([level["negative"] for level in levels]))
    table.add("mixed", *_cells([level["mixed"] for level in levels]))
    sentences += [_empty_sentence(empty) for empty in result.get("empty") or ()]
    sentences.append(_slice_sentence(levels, result.get("per")))
    sentences = [sentence for sentence in sentences if sentence]
    parts = [*lines, "", table.terminal(), "", SCORE]
    if "worst" in facts:
        parts += ["", _worst_table(levels).terminal()]
    return "\n".join([*parts, *([""] if sentences else []), *sentences])


SCORE = "score: interval score, width + 2 / (1 - level) times the distance by which a confidence is missed"
WORST = {
    "most_doubtful": "most doubtful tenth",
    "doubt": "worst tenth of doubt",
    "degree": "worst fifth of degree",
    "relation": "worst relation",
    "slab": "worst slab",
}
"""The keys of `worst`, and their titles."""


def _cells(levels: list[dict[str, Any]]) -> list[str]:
    """One row of the table: count and errors, then coverage, width and interval score at each level."""
    row = [f"{levels[0]['n']:,}", number(levels[0]["mse"], 4), number(levels[0]["mae"], 4)]
    for figures in levels:
        row += [number(figures["coverage"], 4), number(figures["sharpness"], 3)]
        row.append(number(figures["interval_score"], 3))
    return row


def _worst_table(levels: list[dict[str, Any]]) -> Table:
    """The lowest coverage of facts by each quantity, and ERT, at each level."""
    table = Table(["coverage of facts", *WORST.values(), "ERT", "of it below"])
    for level in levels:
        facts = level["positive"]
        shares = (number(facts["worst"][kind]) for kind in WORST)
        risks = (number(facts["ert"][kind]) for kind in ("both", "below"))
        table.add(f"at {level['confidence']:g}", *shares, *risks)
    return table


def _slice_sentence(levels: list[dict[str, Any]], per: str | None) -> str:
    """The slice whose coverage lies farthest below its band, and how many slices lie below; empty if none does.

    `per` are the partitions in whose groups the method makes its promise, None if it offers no groups.
    """
    found = [
        (one["coverage"] - one["band"][0], level, by, one)
        for level in levels
        for by, one in below_band(level["positive"])
    ]
    if not found:
        return ""
    _, level, by, worst = min(found, key=lambda case: case[0])
    slices, (low, high) = level["positive"]["slices"], worst["band"]
    total = sum(len(rows) for level in levels for rows in level["positive"]["slices"].values())
    return (
        f"{level['confidence']:g}: coverage {worst['coverage']:.2f} of {slice_name(by, worst, slices[by])} lies below "
        f"its band {low:.2f}-{high:.2f}, as {len(found):,} of {total:,} slices do over all levels: "
        "there the level is not kept, whatever coverage is on average" + _remedy(by, per)
    )


def _remedy(by: str, per: str | None) -> str:
    """What a user can do about slices for which the method promises nothing."""
    if per is None or by in per.split(","):
        return ""
    wanted = [*(part for part in per.split(",") if part != "none"), by]
    return f"; fit --per {','.join(wanted)} promises it there"


def slice_name(by: str, one: dict[str, Any], among: Sequence[dict[str, Any]]) -> str:
    """A slice in words."""
    if by == "relation":
        shown = (mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in one["relation"])
        return f"relation {''.join(shown)}"
    if one == among[-1] and by == "doubt":
        return "the most doubtful tenth"
    digits = 3 if by == "doubt" else 0
    return f"facts with {by} {one['from']:.{digits}f} to {one['to']:.{digits}f}"


def _tie_sentence(coverage: float, tie: dict[str, Any]) -> str:
    """The sentence for coverage outside its band, as it is or with ties broken at random; empty if inside."""
    if tie["band"] is None:
        return ""
    (low, high), smoothed = tie["band"], tie["coverage_smoothed"]
    said = f"{tie['confidence']:g}: coverage of facts lies"
    if not low - SLACK <= smoothed <= high + SLACK:
        return (
            f"{said} outside the band from {low:.4f} to {high:.4f} with ties broken at random ({smoothed:.4f}): "
            f"that seldom happens ({100 - 100 * MASS:.2g} %) if these facts are like the calibration facts"
        )
    if coverage > high + SLACK:
        return (
            f"{said} above the band, which ties explain: {low:.4f} to {high:.4f} holds {100 * MASS:g} % of coverages "
            f"without ties, and with ties broken at random it is {smoothed:.4f}"
        )
    return ""


def _empty_sentence(empty: dict[str, Any]) -> str:
    """The sentence for a level at which the intervals of some facts are empty; empty if none is."""
    if not empty["share"]:
        return ""
    return (
        f"{empty['confidence']:g}: {empty['share']:.1%} of the facts have an empty interval; "
        f"coverage of the others {number(empty['coverage_of_others'], 4)}"
    )


def relations_text(result: dict[str, Any]) -> str:
    """One level of `by_relation`: the largest relations, then the totals."""
    ways = ("before", "after")
    rows = [row for row in result["relations"] if row["n"] >= result["at_least"]] or result["relations"]
    table = Table(
        ["relation", "test", "calibration", "promise", *(c for way in ways for c in (way, "band", "width"))]
    )
    for row in rows[:MOST_RELATIONS]:
        cells = []
        for figures in (row["before"], row["after"]):
            low, high = figures["band"]
            mark = " " if figures["in_band"] else "!"
            cells += [
                f"{figures['coverage']:.3f}{mark}",
                f"{low:.2f}-{high:.2f}",
                f"{figures['sharpness']:.3f}",
            ]
        table.add(row["relation"], f"{row['n']:,}", f"{row['calibration']:,}", row["promise"], *cells)
    lines = [
        f"coverage by relation at {result['confidence']:g}, with one threshold for all facts (before) and one a "
        "relation (after)",
        f"! lies outside the band that holds {result['band']:.0%} of coverages if the promise is kept",
        "",
        table.terminal(),
    ]
    if len(rows) > MOST_RELATIONS:
        lines.append(f"... and {len(rows) - MOST_RELATIONS:,} more; --json lists all")
    for way in ways:
        total = result[way]
        share = "-" if total["share_in_band"] is None else f"{total['share_in_band']:.1%}"
        lines.append(
            f"{way}: coverage {total['coverage']:.4f}, width {total['sharpness']:.3f}; {share} of "
            f"{total['relations']:,} relations with at least {result['at_least']} test facts lie in their band"
        )
    return "\n".join(lines)


def ranking_text(result: dict[str, Any]) -> str:
    """The object of `completion_quality.ranking`."""
    hits = list(result["tails"]["hits"])
    weighted = Table(["", "queries", "nDCG linear", "nDCG exp.", "WMRR", *(f"WHits@{n}" for n in hits)])
    plain = Table(
        ["", "facts", "MRR", *(f"Hits@{n}" for n in hits), "raw MRR", *(f"raw Hits@{n}" for n in hits)]
    )
    for side in ("tails", "heads", "both"):
        part = result[side]
        figures = [part["ndcg_linear"], part["ndcg_exponential"], part["wmrr"], *part["whits"].values()]
        weighted.add(side, f"{part['queries']:,}", *(number(figure, 4) for figure in figures))
        figures = [part["mrr"], *part["hits"].values(), part["raw_mrr"], *part["raw_hits"].values()]
        plain.add(side, f"{part['facts']:,}", *(number(figure, 4) for figure in figures))
    heading = f"ranking among {result['candidates']:,} candidates, known facts left out but in raw figures"
    if result["least"]:
        heading += f"; test facts with a confidence of at least {result['least']:g}"
    if result["unknown"]:
        heading += f"; {result['unknown']:,} of {result['facts']:,} test facts are unknown and not ranked"
    return f"{heading}\n\n{weighted.terminal()}\n\n{plain.terminal()}"


def decisions_text(result: dict[str, Any]) -> str:
    """The object of `assessment.decisions`."""
    names = ("kept", "dropped", "abstained", "accuracy", "precision", "wrong", "score_accuracy")
    table = Table(["level", *(name.replace("_", " ") for name in names)])
    for level in result["levels"]:
        for part in ("positive", "mixed"):
            figures = level[part]
            table.add(f"{level['confidence']:g} {part}", *(number(figures[name], 4) for name in names))
    heading = f"keep or drop at {result['threshold']:g} (facts, then facts and negatives)"
    return f"{heading}\n\n{table.terminal()}"


def answers_text(result: dict[str, Any]) -> str:
    """The object of `completion_quality.judge_answers`."""
    shares, sizes = ["coverage", "ties at random", "band"], ["mean size", "median", "top k"]
    table = Table(["level", "", "threshold", *shares, *sizes, "gap", "gap, large"])
    for level in result["levels"]:
        for side in ("tails", "heads", "both"):
            for way, said in (("before", "one for all"), ("after", "per relation")):
                part = level[side][way]
                band = "-" if part["band"] is None else "-".join(f"{end:.3f}" for end in part["band"])
                cells = [
                    number(part["coverage"], 4),
                    number(part["coverage_smoothed"], 4),
                    band,
                    f"{part['mean_size']:,.1f}",
                    f"{part['median_size']:,.0f}",
                    f"{part['top_k']:,}",
                    number(part["gap"], 3),
                    number(part["gap_large"], 3),
                ]
                table.add(f"{level['confidence']:g}", side, said, *cells)
    heading = (
        f"answer sets for {result['asked']:,} new test facts among {result['candidates']:,} entities, calibrated with "
        f"{result['calibration']:,} facts"
    )
    if result["least"]:
        heading += f"; facts with a confidence of at least {result['least']:g}"
    if left_out := result["facts"] - result["new"]:
        heading += f"; {left_out:,} of {result['facts']:,} test facts are unknown, training facts"
        heading += " or below it" if result["least"] else ""
    relations = result["levels"][0]["tails"]["after"]
    explained = [
        "no set is empty, so that ties lift coverage where the best candidate alone is right more often than asked;",
        "the band is for ties broken at random. top k: the best k contain as many of the answers, for the k that these",
        "test facts need. gap: mean distance of a relation's coverage from the level, of "
        f"{relations['relations']:,} relations and of the {relations['large_relations']:,} with at least "
        f"{result['at_least']} facts",
    ]
    return "\n".join([heading, "", table.terminal(), "", *explained])
