"""Sections of a run's report, from the promise to where the run comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evaluation.charts import axis_start, draw_levels, draw_slices
from unkgcp.evaluation.evaluation_texts import part_cells, plural
from unkgcp.evaluation.report.diagnosis import Diagnosis
from unkgcp.evaluation.report.page_parts import (
    Section,
    bar,
    beside,
    figure,
    label,
    paragraph,
    percent,
    readable,
    span,
)
from unkgcp.evaluation.slices import AT_LEAST, MASS, below_band
from unkgcp.evaluation.tables import FigureTable, Html, counted, number, tag
from unkgcp.graph.facts import both_ends
from unkgcp.methods.intervals import in_words
from unkgcp.run.predictor import Predictor
from unkgcp.training.config import NONE

RELATIONS = 20  # rows of the figure by relation; the table has all
PARTS = [
    "coverage",
    "chance allows",
    "mean width",
    "median",
    "interval score",
    "knowing nothing",
    "worst slice",
]


def cells_of_part(figures: dict[str, Any]) -> list[str]:
    """The cells of `PARTS`; coverage below its band is marked."""
    coverage, *others = part_cells(figures)
    return [_marked(coverage, figures), *others]


def _marked(coverage: str, figures: Mapping[str, Any]) -> str:
    return tag("span", coverage, class_="away") if below_band(dict(figures)) else coverage


def kind_section(d: Diagnosis) -> Section:
    """The figures of every kind of question."""
    table = FigureTable(["", "share", "facts", *PARTS])
    for kind, of in d.figures["kinds"].items():
        table.add(plural(kind), percent(of["share"], 1), f"{of['n']:,}", *cells_of_part(of))
    table.add("all", percent(1), f"{d.figures['n']:,}", *cells_of_part(d.figures))
    intro = paragraph(
        "A question about two entities that a training fact joins (a known pair) is easier than one about two that no "
        "fact joins yet, and both are easier than one about an entity that is new. Compare figures kind by kind."
    )
    note = paragraph(
        "Knowing nothing: the interval score of answering every question with the same two quantiles of the training "
        "confidences. Worst slice: the lowest coverage of a tenth by doubt, a fifth by degree, or a relation with at "
        f"least {AT_LEAST} facts.",
        class_="note",
    )
    return Section("kinds", "By kind of question", [intro, table.html(), note], "Kinds")


def promise_section(d: Diagnosis) -> Section:
    """What is promised, what it means and what it assumes."""
    predictor = d.answers.predictor
    method, record = predictor.method, predictor.provenance
    looked_at = str(record.get("early_stopping", "unknown facts")).removeprefix("on ")
    stopping = "" if predictor.model.called == NONE else f" Early stopping looked at {looked_at}."
    paragraphs = [
        paragraph(
            tag("strong", "Promise. "),
            f"{predictor.guarantee[0].upper()}{predictor.guarantee[1:]}; calibrated on {counted(method.size, 'fact')}.",
        )
    ]
    if d.intervals:
        paragraphs.append(
            paragraph(
                tag("strong", "Confidences are intervals. "),
                "A fact counts as covered where both ends of its true confidence lie in the interval predicted; errors "
                "are those of the middle.",
            )
        )
    if d.result["promised"]:
        average = f"over the queries {method.within}" if method.within else "over all queries"
        paragraphs += [
            paragraph(
                tag("strong", "What it means. "),
                "The true confidence lies in the interval with at least the probability asked for, whatever the model "
                f"is worth: a bad model costs width, not coverage. It is an average {average}, and over calibration "
                "facts; the slices below show how evenly it is kept.",
            ),
            paragraph(
                tag("strong", "Assumed. "),
                f"Queries come from where the calibration facts came from: facts that somebody asserted.{stopping}",
            ),
        ]
    if d.figures["band"] is not None:
        paragraphs.append(
            paragraph(
                "What chance allows is exact: hits among the test facts are beta-binomial given the size of the "
                "calibration set, and fall outside of it once in a thousand times. Equal values, and several groups "
                "with a threshold each, can only raise coverage.",
                class_="note",
            )
        )
    if record.get("protocol") == "paper":
        paragraphs.append(
            paragraph(
                "This run follows the paper's protocol: the calibration facts also chose the model, "
                "so the promise is not strict.",
                class_="caution",
            )
        )
    if record.get("stopped"):
        paragraphs.append(paragraph(f"Training ended early: {record['stopped']}.", class_="caution"))
    body = [beside(tag("div", *paragraphs), _level_figure(d))]
    return Section("promise", "What is promised, and what came of it", body, "Promise")


def _level_figure(d: Diagnosis) -> Html:
    """Curves of coverage and width over the level."""
    levels = d.result["levels"]
    facts = [level["positive"] for level in levels]
    bands = [(of["band"][0], of["band"][1]) for of in facts if of["band"] is not None]
    drawing = draw_levels(
        [level["confidence"] for level in levels],
        [of["coverage"] for of in facts],
        [of["sharpness"] for of in facts],
        [of["knowing_nothing"]["sharpness"] for of in facts],
        bands if len(bands) == len(facts) else None,
    )
    return figure(
        drawing,
        "figure-levels",
        "Mean width (above; lower is sharper) and coverage (below) against the level. A promise that is kept lies on "
        "or above the dashed line" + ("; the shaded band is what chance allows." if bands else "."),
        "Width and coverage against the level asked for",
    )


def level_section(d: Diagnosis) -> Section:
    """Coverage and width over the level, of facts and of negatives."""
    levels = d.result["levels"]
    table = FigureTable(["level", *PARTS, "coverage", "width", "coverage", "width"])
    table.groups = [("", 1), ("test facts", len(PARTS)), ("overlap-free", 2), ("negatives", 2)]
    for level in levels:
        others = (level["positive"]["overlap_free"], level["negative"])
        cells = [number(part[name]) for part in others for name in ("coverage", "sharpness")]
        table.add(percent(level["confidence"]), *cells_of_part(level["positive"]), *cells)
    sampled = "corrupted test facts" if d.result["negatives"] == "sampled" else "those of the data set"
    notes = paragraph(
        "The level is chosen when a question is asked; nothing is calibrated again. More certainty costs width. "
        f"Overlap-free: the {counted(d.figures['overlap_free']['n'], 'test fact')} whose triple stands in no training "
        f"or calibration fact. Negatives: triples taken for no facts, confidence 0 ({sampled}), judged with the "
        f"threshold of {d.result['negative_threshold']}; for them nothing is promised unless they were calibrated on. "
        "Interval score: width plus 2/(1 \u2212 level) times the distance by which a confidence is missed, smaller is "
        "better.",
        class_="note",
    )
    return Section("levels", "Coverage and width at every level", [table.html(), notes], "Levels")


def slice_section(d: Diagnosis) -> Section:
    """Coverage by doubt, degree, prediction and relation, and whether it can be told beforehand."""
    shown = [*(row for rows in d.slices.values() for row in rows[:RELATIONS])]
    bands = [(row["band"][0], row["band"][1]) for row in shown if row["band"] is not None]
    axis = {
        "least": axis_start([*(row["coverage"] for row in shown), d.confidence], bands),
        "longest": max(len(row["name"]) for row in shown),
    }
    grey = "" if len(bands) < len(shown) else (
        " Grey: what chance would allow if the facts of each slice were covered with that probability; with "
        f"{percent(MASS)} all slices of a picture lie in it."
    )  # fmt: skip
    risk = d.figures["ert"]
    ert = [
        tag("h3", "Can one tell which facts are covered?"),
        paragraph(
            tag("strong", f"{number(max(risk['both'], 0.0))} "),
            "is the excess risk of the target coverage (ERT): how far coverage is from "
            f"{percent(d.confidence)} on average, as far as a classifier can tell from predicted confidence, doubt, "
            f"degree, and frequency of the relation; {number(max(risk['below'], 0.0))} of it is from facts that are "
            "covered too seldom. 0 means that coverage is the same everywhere.",
        ),
    ] if risk else []  # fmt: skip
    relations = d.slices["relation"]
    shown_relations = "The only relation" if len(relations) == 1 else f"All {len(relations):,} relations"
    if len(relations) > RELATIONS:
        shown_relations = f"The {RELATIONS} largest of {len(relations):,} relations"
    body = [
        paragraph(
            f"These slices show where coverage is above {percent(d.confidence)} and where it is below; all have the "
            f"same axis. A method that is narrow because it gives up the facts it doubts shows it in the first picture."
            f"{grey} The numbers on the right count the facts of a slice."
        ),
        beside(
            _dots(d, "doubt", "against the method\u2019s own doubt", "Tenths of the facts", axis),
            _dots(d, "degree", "by degree", "Fifths of the facts, by the number of training "
                  "facts of the head or of the tail, whichever has fewer", axis),
            _dots(d, "prediction", "by predicted confidence", "Tenths of the facts", axis),
            _dots(d, "relation", "by relation", shown_relations, axis),
        ),
        *ert,
        tag("details", tag("summary", f"{counted(len(relations), 'relation')} as a table"), _relation_table(relations)),
    ]  # fmt: skip
    return Section("slices", "Where it covers and where not", body, "Slices")


def _dots(d: Diagnosis, by: str, title: str, what: str, axis: Mapping[str, Any]) -> Html:
    """The slices by one quantity as a dot plot, with a sentence about those that lie below their band."""
    rows = d.slices[by]
    shown, banded = rows[:RELATIONS], all(row["band"] is not None for row in rows)
    names, counts, coverages = ([row[name] for row in shown] for name in ("name", "n", "coverage"))
    bands = [row["band"] for row in shown] if banded else None
    drawing = draw_slices(names, counts, coverages, d.confidence, bands, title=title, **axis)
    below = [row for row in rows if below_band(dict(row))]
    none = "It is not" if len(rows) == 1 else f"None of {len(rows):,} is"
    sentence = (
        f"{len(below):,} of {len(rows):,} are covered less than chance would allow (✗)."
        if below
        else f"{none} covered less than chance would allow."
    )
    return figure(drawing, f"slices-{by}", f"{what}. {sentence if banded else ''}", f"Coverage {title}")


def _relation_table(relations: Sequence[Mapping[str, Any]]) -> Html:
    table = FigureTable(["relation", "facts", "coverage", "chance allows", "mean width", "interval score"])
    for row in relations:
        band = "-" if row["band"] is None else span(row["band"])
        figures = [number(row["sharpness"]), number(row["interval_score"])]
        table.add(label(row["name"]), f"{row['n']:,}", _marked(number(row["coverage"]), row), band, *figures)
    return table.html()


# Choosing with few wrong ones: the run chooses among the test facts those with `confidence >= 0.7`. Their true
# confidences then say how many of the chosen ones are wrong and how many good ones were found.

CONDITION, BOUND = "confidence >= 0.7", 0.7
ASKED = (0.01, 0.02, 0.05, 0.1, 0.2)


def choice_section(d: Diagnosis) -> Section:
    """Asked and found share of wrong ones, and how many good ones were chosen."""
    title, name = "Choosing with few wrong ones", "Choosing"
    test = d.answers.dataset.splits.test
    try:
        selected = d.answers.predictor.select(test, CONDITION, ASKED, d.confidence).selected or {}
    except InputError as error:
        return Section("choosing", title, [paragraph(f"Nothing is chosen here: {error}.")], name)
    good = test.confidence >= BOUND
    table = FigureTable(["asked at most", "chosen", "wrong among them", "good ones found"])
    for share, chosen in zip(ASKED, selected.values(), strict=True):
        right, total = int((chosen & good).sum()), int(chosen.sum())
        wrong = number(1 - right / total if total else None)
        table.add(percent(share), f"{total:,}", wrong, number(right / max(int(good.sum()), 1)))
    explanation = paragraph(
        tag("code", f"unkgcp predict --select '{CONDITION}' --fdr SHARE"),
        " chooses triples so that the expected share of wrong ones among the chosen is at most what was asked for, "
        "over calibration facts and candidates together. Here it chooses among the test facts.",
    )
    note = paragraph(
        "A found share above the asked one is no fault by itself, since the bound is one on average. Nothing is "
        "promised for a part of the chosen ones.",
        class_="note",
    )
    return Section("choosing", title, [explanation, table.html(), note], name)


# Single facts, by their labels, with their intervals drawn.

EXTREMES = 12


def fact_section(d: Diagnosis) -> Section:
    """The narrowest and the widest intervals, and the labels farthest outside of theirs."""
    rows = remarkable(d)
    key = tag(
        "p",
        bar((0.3, 0.8), 0.55, (0.4, 0.7) if d.intervals else (0.65, 0.65)),
        f" interval, ring: prediction, {'bracket' if d.intervals else 'tick'}: true confidence, red where it is "
        "missed.",
        class_="note",
    )
    believed = paragraph(
        "Believed: the value from which the intervals of a fact grow, and the probability that the model gives to it; "
        "where a second value has more than 15 %, that one too.",
        class_="note",
    )
    body = [
        key,
        *([believed] if d.answers.facts.value is not None else []),
        tag("h3", f"Narrowest {percent(d.confidence)} intervals"),
        _fact_table(d, rows["narrowest"]),
        tag("h3", f"Widest {percent(d.confidence)} intervals"),
        _fact_table(d, rows["widest"]),
        tag("h3", "Farthest outside of their interval"),
        paragraph("Facts whose stated confidence surprises most: worth a second look in the data."),
        _fact_table(d, rows["missed"]) if len(rows["missed"]) else paragraph("None: every fact is covered."),
    ]
    return Section("facts", "Remarkable facts", body, "Facts")


def _fact_table(d: Diagnosis, rows: NDArray[Any]) -> Html:
    dataset, answer, some = d.answers.dataset, d.answers.facts, d.rows.some(rows)
    test = dataset.splits.test
    columns = (("entities", test.head), ("relations", test.relation), ("entities", test.tail))
    labels = zip(*(readable(dataset, what, ids[rows].tolist()) for what, ids in columns), strict=True)
    ends, believed = both_ends(some.truth).tolist(), answer.value is not None
    header = [
        "head",
        "relation",
        "tail",
        "0 to 1",
        "interval",
        "prediction",
        *(["believed"] if believed else []),
    ]
    table = FigureTable([*header, "true"], text_columns=(0, 1, 2, 3))
    answered = zip(some.lower.tolist(), some.upper.tolist(), some.prediction.tolist(), strict=True)
    for row, names, (lower, upper, prediction), (first, last) in zip(
        rows.tolist(), labels, answered, ends, strict=True
    ):
        true = span((first, last)) if d.intervals else f"{first:.3f}"
        missed = not (lower <= first and last <= upper)
        cells = [bar((lower, upper), prediction, (first, last)), span((lower, upper)), f"{prediction:.3f}"]
        modes = (answer.value, answer.belief, answer.other, answer.other_belief)
        words = (
            [in_words(*(column[row].item() for column in modes if column is not None))] if believed else []
        )
        table.add(*map(label, names), *cells, *words, tag("span", true, class_="away") if missed else true)
    return table.html(class_="facts", titled=True)


def remarkable(d: Diagnosis, count: int = EXTREMES) -> dict[str, NDArray[np.intp]]:
    """Rows of the narrowest and the widest intervals and of the labels farthest outside of theirs.

    None is empty, and for all there is a prediction.
    """
    rows = np.flatnonzero(~np.isnan(d.rows.lower + d.rows.score))
    order = rows[np.argsort(d.rows.width[rows], kind="stable")]
    first, last = both_ends(d.rows.truth).T
    outside = np.maximum(d.rows.lower - first, last - d.rows.upper)
    missed = rows[np.argsort(-outside[rows], kind="stable")[:count]]
    return {"narrowest": order[:count], "widest": order[::-1][:count], "missed": missed[outside[missed] > 0]}


# Provenance: what the run recorded when it was made, as tables.


def provenance_section(predictor: Predictor) -> Section:
    """What was recorded when the run was made, and in folded tables the settings and files."""
    record = predictor.provenance
    data, again = record.get("data", {}), record.get("recalibrated")
    facts, times = data.get("facts", {}).items(), record.get("times", {}).items()
    source = again["data"] or "its own data" if again else None
    rows = {
        "data": data.get("name"),
        "facts": ", ".join(f"{count:,} {part}" for part, count in facts),
        "model": predictor.model.called,
        "method": predictor.method.name,
        "seed": predictor.model.seed,
        "protocol": record.get("protocol"),
        "early stopping": record.get("early_stopping"),
        "recalibrated": f"from {again['from']} on {again['facts']:,} facts of {source}" if again else None,
        "made": record.get("created"),
        "version": record.get("unkgcp"),
        "seconds": ", ".join(f"{step} {seconds:.1f}" for step, seconds in times),
    }
    options = {f"{predictor.method.name}: {k}": v for k, v in predictor.method.options().items()}
    settings = predictor.model.config.to_dict() | options
    body = [_record({name: value for name, value in rows.items() if value not in (None, "")}, "record")]
    folded = {"Training settings": settings, "SHA-256 of the data": data.get("hashes", {})}
    body += [
        tag("details", tag("summary", title), _record(entries))
        for title, entries in folded.items()
        if entries
    ]
    return Section("provenance", "Where it comes from", body)


def _record(entries: Mapping[str, Any], class_: str | None = None) -> Html:
    rows = [(label(name), label(str(value))) for name, value in entries.items()]
    return FigureTable(["", ""], rows, text_columns=(0, 1)).html(class_=class_)
