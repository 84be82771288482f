"""Sections of a run's report: coverage by slice, width against error, choosing, single facts, and provenance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import unkgcp.evaluation.metrics as metrics
from unkgcp.conformal.ranks import exact
from unkgcp.conformal.selection import Range
from unkgcp.errors import InputError
from unkgcp.evaluation.charts import ErrorPanel, draw_conditionality, draw_slices
from unkgcp.evaluation.figure_design import look
from unkgcp.evaluation.metrics import proportion_band
from unkgcp.evaluation.report.diagnosis import Answered, Diagnosis
from unkgcp.evaluation.report.page_parts import (
    WIDTH,
    Section,
    bar,
    beside,
    figure,
    label,
    paragraph,
    percent,
    readable_entities,
    readable_relations,
    span,
)
from unkgcp.evaluation.slices import AT_LEAST, MASS, SLAB_SHARE
from unkgcp.evaluation.tables import Cell, Html, Table, number, tag
from unkgcp.methods.intervals import in_words
from unkgcp.run.chooser import Selector
from unkgcp.run.predictor import Predictor

RELATIONS = 20  # rows of the figure by relation; the table has all


def conditional_section(d: Diagnosis) -> Section:
    """Coverage by doubt, degree, relation, prediction and width, and in the worst region."""
    grey = (
        " Grey: what chance would allow if the facts of each slice were covered with that probability; with "
        f"{percent(MASS)} all slices of a picture lie in it."
    )
    grey = grey if d.slices["relation"][0]["band"] is not None else ""
    body = [
        paragraph(
            f"These slices show where coverage is above {percent(d.confidence)} and where it is below. A method that "
            "is narrow because it gives up the facts it doubts shows it in the first picture."
            f"{grey} The numbers on the right count the facts of a slice."
        ),
        beside(
            _dots(d, "doubt", "against the method\u2019s own doubt", "Tenths of the facts"),
            _dots(d, "degree", "by degree", "Fifths of the facts, by the number of training "
                  "facts of the head or of the tail, whichever has fewer"),
            _dots(d, "prediction", "by predicted confidence", "Tenths of the facts"),
            _dots(d, "width", "by width of the interval", "Tenths of the facts"),
            _dots(d, "relation", "by relation", _relations(d)),
            tag(
                "div",
                tag("h3", "The worst region"),
                paragraph(
                    tag("strong", f"{number(d.worst['slab'])} "),
                    f"is the coverage of the worst slab with at least {percent(SLAB_SHARE)} of the facts, over "
                    "predicted confidence, doubt, degree, and frequency of the relation. "
                    "It is searched on one half of the facts and judged on the other, so that the search itself "
                    "does not make it look worse.",
                ),
                paragraph(
                    tag("strong", f"{number(d.ert['both'])} "),
                    "is the excess risk of the target coverage (ERT): how far coverage is from "
                    f"{percent(d.confidence)}, on average over the same features, as far as a classifier can tell; "
                    f"{number(d.ert['below'])} of it is from facts that are covered too seldom.",
                ),
                paragraph(
                    tag("strong", f"{number(d.worst['relation'])} "),
                    f"is the coverage of the worst relation with at least {AT_LEAST} facts, ",
                    tag("strong", number(d.worst["doubt"])),
                    " that of the worst tenth of doubt, ",
                    tag("strong", number(d.worst["degree"])),
                    " that of the worst fifth of degree.",
                ),
                "" if d.intervals else _per_relation(),
            ),
        ),
        tag(
            "details",
            tag("summary", f"All {len(d.slices['relation']):,} relations as a table"),
            _relation_table(d.slices["relation"]),
        ),
    ]  # fmt: skip
    return Section("conditional", "Where it covers and where not", body, "Slices")


def _per_relation() -> Html:
    return paragraph(
        "If relations matter to you: ",
        tag("code", "unkgcp fit --per relation"),
        " makes the promise for each of them that has calibration facts enough.",
        class_="note",
    )


def _relations(d: Diagnosis) -> str:
    count = len(d.slices["relation"])
    return f"The {RELATIONS} largest of {count:,} relations" if count > RELATIONS else "All relations"


def _dots(d: Diagnosis, by: str, title: str, what: str) -> Html:
    """The slices by one quantity as a dot plot, with a sentence about those that lie below their band."""
    rows = d.slices[by]
    banded = bool(rows) and rows[0]["band"] is not None
    shown = rows[:RELATIONS]
    drawn = draw_slices(
        [row["name"] for row in shown],
        [row["n"] for row in shown],
        [row["coverage"] for row in shown],
        d.confidence,
        [row["band"] for row in shown] if banded else None,
        title=title,
        width=WIDTH,
    )
    caption = f"{what}. "
    if banded:
        below, count = sum(row["coverage"] < row["band"][0] for row in rows), f"{len(rows):,}"
        caption += (
            f"{below:,} of {count} are covered less than chance would allow (✗)."
            if below
            else f"None of {count} is covered less than chance would allow."
        )
    return figure(drawn, f"slices-{by}", caption, f"Coverage {title}")


def _relation_table(relations: Sequence[Mapping[str, Any]]) -> Html:
    rows = [
        [
            label(row["name"]),
            f"{row['n']:,}",
            f"{row['coverage']:.3f}",
            "-" if row["band"] is None else span(row["band"]),
            f"{row['sharpness']:.3f}",
        ]
        for row in relations
    ]
    return Table(["relation", "facts", "coverage", "chance allows", "mean width"], rows).html()


def error_section(d: Diagnosis) -> Section:
    """Width against error."""
    rho, low, high = d.correlation
    answers = {rival.name: rival.answered for rival in d.rivals if rival.answered is not None}
    edges, member = metrics.error_bins(d.answered.error)
    widths = {
        name: metrics.width_by_bin(member, answer.width, answer.inside)[0] for name, answer in answers.items()
    }
    panel = ErrorPanel("", edges, np.bincount(member, minlength=len(edges) - 1), widths)
    own = look(d.predictor.method.name).name
    if math.isnan(rho):
        said = f"{own} gives every query the same width here, so its width says nothing about difficulty."
    else:
        between = "" if math.isnan(low) else f" (95 % interval {low:.2f} to {high:.2f})"
        said = (
            f"Spearman\u2019s rank correlation of width and error is {rho:.2f}{between} for {own}: "
            + _worth(low)
        )  # fmt: skip
    picture = figure(
        draw_conditionality([panel], width=WIDTH),
        "figure-errors",
        "Mean width of the intervals that cover, over bins of the prediction\u2019s absolute error, and below it how "
        "many test facts have such an error (logarithmic). A method that knows what is hard rises to the right.",
        "Mean interval width over bins of absolute error, with the histogram of errors",
    )
    return Section("errors", "Does width tell what is hard?", [paragraph(said), picture], "Width and error")


def _worth(low: float) -> str:
    """What a rank correlation that is at least so large says."""
    if math.isnan(low):
        return "too few facts to say whether wide intervals mark hard queries."
    if low > 0.3:
        return "wide intervals mark hard queries."
    return "wide intervals mark hard queries, but weakly." if low > 0 else "width does not tell what is hard."


# Single facts, by their labels, with their intervals drawn.

EXTREMES = 12


def fact_section(d: Diagnosis) -> Section:
    """The narrowest and the widest intervals, and the labels farthest outside of theirs."""
    rows = remarkable(d.answered)
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
        *([believed] if d.answered.modes else []),
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
    answered, facts = d.answered, d.answered.facts
    heads = readable_entities(d.dataset, facts.head[rows].tolist())
    relations = readable_relations(d.dataset, facts.relation[rows].tolist())
    tails = readable_entities(d.dataset, facts.tail[rows].tolist())
    shown: list[list[str | Cell]] = []
    for i, *names in zip(rows.tolist(), heads, relations, tails, strict=True):
        found, score = (float(answered.lower[i]), float(answered.upper[i])), float(answered.score[i])
        first, last = answered.ends[i].tolist()
        truth = span((first, last)) if d.intervals else f"{first:.3f}"
        away = not (found[0] <= first and last <= found[1])
        drawn = bar(found, score, (first, last))
        true = Cell(truth, style="away" if away else None)
        believed = [in_words(*(column[i].item() for column in answered.modes))] if answered.modes else []
        shown.append([*map(label, names), drawn, span(found), f"{score:.3f}", *believed, true])
    header = ["head", "relation", "tail", "0 to 1", "interval", "predicted"]
    header += [*(["believed"] if answered.modes else []), "true"]
    return Table(header, shown, text_columns=(0, 1, 2, 3)).html(class_="facts", titled=True)


def remarkable(answered: Answered, count: int = EXTREMES) -> dict[str, NDArray[np.intp]]:
    """Rows of the narrowest and the widest intervals and of the labels farthest outside of theirs; none is empty."""
    rows = np.flatnonzero(~np.isnan(answered.lower))
    order = rows[np.argsort(answered.width[rows], kind="stable")]
    outside = answered.outside
    missed = np.argsort(-outside, kind="stable")[:count]
    return {"narrowest": order[:count], "widest": order[::-1][:count], "missed": missed[outside[missed] > 0]}


# Provenance: what the run recorded when it was made, as tables.


def provenance_section(predictor: Predictor) -> Section:
    """What was recorded when the run was made, and in folded tables the settings and files."""
    record = predictor.provenance
    data = _mapping(record.get("data"))
    parts = _mapping(data.get("facts"))
    times = _mapping(record.get("times"))
    rows: list[tuple[str, object]] = [
        ("data", data.get("name")),
        ("facts", ", ".join(f"{_count(count)} {part}" for part, count in parts.items())),
        ("model", predictor.model.called),
        ("method", predictor.method.name),
        ("seed", predictor.model.seed),
        ("protocol", record.get("protocol")),
        ("early stopping", record.get("early_stopping")),
        ("recalibrated", _recalibrated(record)),
        ("made", record.get("created")),
        ("version", record.get("unkgcp")),
        ("seconds", ", ".join(f"{step} {_seconds(value)}" for step, value in times.items())),
    ]
    shown = [(name, label(str(value))) for name, value in rows if value not in (None, "")]
    hashes = [(name, label(str(digest))) for name, digest in _mapping(data.get("hashes")).items()]
    settings = [(name, label(str(value))) for name, value in predictor.model.config.to_dict().items()]
    options = [
        (f"{predictor.method.name}: {k}", label(str(v))) for k, v in predictor.method.options().items()
    ]
    body = [Table(["", ""], shown, text_columns=(0, 1)).html(class_="record")]
    for title, found in (("Training settings", settings + options), ("SHA-256 of the data", hashes)):
        if found:
            pairs = [(label(name), value) for name, value in found]
            folded = Table(["", ""], pairs, text_columns=(0, 1)).html()
            body.append(tag("details", tag("summary", title), folded))
    return Section("provenance", "Where it comes from", body)


def _recalibrated(record: Mapping[str, Any]) -> str | None:
    again = _mapping(record.get("recalibrated"))
    if not again:
        return None
    return f"from {again.get('from')} on {_count(again.get('facts'))} facts of {again.get('data') or 'its own data'}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _seconds(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else str(value)


# Choosing with few wrong ones: the run chooses among the known test facts those with `confidence >= 0.7`. Their true
# confidences then say how many of the chosen ones are wrong and how many good ones were found.

BOUND = 0.7
ASKED = (0.01, 0.02, 0.05, 0.1, 0.2)
CERTAIN = 0.95


class Found(NamedTuple):
    """What was chosen at one asked share: how many, how many of them are wrong, and how many good ones there are."""

    asked: float
    chosen: int
    wrong: int
    good: int


def choose_test_facts(d: Diagnosis, condition: Range) -> list[Found]:
    """The choice among the known test facts at each asked share; InputError where the run cannot choose."""
    selector = Selector(d.predictor.method, condition)
    every = np.arange(len(d.asked.head))
    places, good = selector.places(d.asked, every), condition.holds(d.answered.facts.confidence)
    counts = selector.reference.count(places)
    rows = []
    for asked in ASKED:
        chosen = places >= selector.reference.cut(counts, exact(asked))
        rows.append(Found(asked, int(chosen.sum()), int((chosen & ~good).sum()), int(good.sum())))
    return rows


def choice_section(d: Diagnosis) -> Section:
    """Asked and found share of wrong ones, and how many good ones were chosen, each with a band."""
    condition = Range(low=BOUND)
    title, name = "Choosing with few wrong ones", "Choosing"
    try:
        found = choose_test_facts(d, condition)
    except InputError as error:
        return Section("choosing", title, [paragraph(f"Nothing is chosen here: {error}.")], name)
    rows: list[list[str | Cell]] = []
    for row in found:
        right = row.chosen - row.wrong
        share = (
            (row.wrong / row.chosen, proportion_band(row.wrong, row.chosen, CERTAIN)) if row.chosen else None
        )
        power = (right / row.good, proportion_band(right, row.good, CERTAIN)) if row.good else None
        cells: list[str | Cell] = [percent(row.asked), f"{row.chosen:,}"]
        for part in (share, power):
            cells += ["-", "-"] if part is None else [number(part[0]), Cell(span(part[1]), style="small")]
        rows.append(cells)
    header = ["asked at most", "chosen", "wrong among them", "band", "good ones found", "band"]
    said = paragraph(
        tag("code", f"unkgcp predict --select '{condition}' --fdr SHARE"),
        " chooses triples so that the expected share of wrong ones among the chosen is at most what was asked for, "
        "over calibration facts and candidates together. Here it chooses among the known test facts.",
    )
    note = paragraph(
        f"The bands hold the true share with {percent(CERTAIN)} (Clopper and Pearson), as if every fact counted on its "
        "own: they leave out what another calibration set would change. A found share above the asked one is no fault "
        "by itself, since the bound is one on average. Nothing is promised for a part of the chosen ones.",
        class_="note",
    )
    return Section("choosing", title, [said, Table(header, rows).html(), note], name)
