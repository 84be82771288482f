"""Sections of a run's report: where intervals cover and where not, and whether width tells what is hard."""

from __future__ import annotations

import math

from unkgcp.evaluation.figures.conditional import draw_conditionality, error_bins
from unkgcp.evaluation.figures.slices import draw_slices
from unkgcp.evaluation.figures.style import look
from unkgcp.evaluation.report.diagnosis import SLAB_SHARE, SLICE_MASS, Diagnosis, Slices
from unkgcp.evaluation.report.html import Html, label, table, tag
from unkgcp.evaluation.report.page import WIDTH, Section, beside, figure, paragraph
from unkgcp.evaluation.report.words import number, percent, span

RELATIONS = 20  # rows of the figure by relation; the table has all


def conditional_section(d: Diagnosis) -> Section:
    """Coverage by prediction, width and relation, and in the worst region."""
    grey = f" Grey: what chance would allow ({percent(SLICE_MASS)}) if all facts were covered alike."
    grey = grey if d.by_relation.bands is not None else ""
    body = [
        paragraph(
            f"Coverage at {percent(d.confidence)} is promised on average over all queries. These slices show where it "
            "is above and where it is below."
            f"{grey} The numbers on the right count the facts of a slice."
        ),
        beside(
            _dots(d, d.by_prediction, "slices-prediction", "by predicted confidence", "Tenths of the facts"),
            _dots(d, d.by_width, "slices-width", "by width of the interval", "Tenths of the facts"),
            _dots(d, d.by_relation, "slices-relation", "by relation", _relations(d)),
            tag(
                "div",
                tag("h3", "The worst region"),
                paragraph(
                    tag("strong", f"{number(d.worst_slab)} "),
                    f"is the coverage of the worst slab with at least {percent(SLAB_SHARE)} of the facts, over "
                    "predicted confidence, width, training facts of head and tail, and frequency of the relation. "
                    "It is searched on one half of the facts and judged on the other, so that the search itself "
                    "does not make it look worse.",
                ),
                "" if d.valued else _per_relation(),
            ),
        ),
        tag(
            "details",
            tag("summary", f"All {len(d.by_relation.names):,} relations as a table"),
            _slice_table(d.by_relation, "relation"),
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
    count = len(d.by_relation.names)
    return f"The {RELATIONS} largest of {count:,} relations" if count > RELATIONS else "All relations"


def _dots(d: Diagnosis, slices: Slices, key: str, title: str, what: str) -> Html:
    found, shown = slices.found, slice(RELATIONS)
    drawn = draw_slices(
        slices.names[shown],
        found.n[shown],
        found.coverage[shown],
        d.confidence,
        None if slices.bands is None else slices.bands[shown],
        title=title,
        width=WIDTH,
    )
    caption = f"{what}. "
    if slices.bands is not None:
        below, count = slices.outside(), f"{len(slices.names):,}"
        caption += (
            f"{below:,} of {count} are covered less than chance would allow (✗)."
            if below
            else f"None of {count} is covered less than chance would allow."
        )
    return figure(drawn, key, caption, f"Coverage {title}")


def _slice_table(slices: Slices, what: str) -> Html:
    rows = [
        [
            label(name),
            f"{n:,}",
            f"{share:.3f}",
            "\u2013" if slices.bands is None else span(slices.bands[i]),
            f"{width:.3f}",
        ]
        for i, (name, n, share, width) in enumerate(
            zip(
                slices.names,
                slices.found.n.tolist(),
                slices.found.coverage.tolist(),
                slices.found.sharpness.tolist(),
                strict=True,
            )
        )
    ]
    return table([what, "facts", "coverage", "chance allows", "mean width"], rows)


def error_section(d: Diagnosis) -> Section:
    """Width against error."""
    rho, low, high = d.correlation
    answers = d.rival_answers
    panel = error_bins(
        d.answered.error,
        {name: answer.width for name, answer in answers.items()},
        {name: answer.inside for name, answer in answers.items()},
    )
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
