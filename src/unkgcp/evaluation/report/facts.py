"""Section of a run's report: single facts, by their labels, with their intervals drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evaluation.report.diagnosis import Answered, Diagnosis
from unkgcp.evaluation.report.html import Html, label, table, tag
from unkgcp.evaluation.report.labels import readable_entities, readable_relations
from unkgcp.evaluation.report.page import Section, bar, paragraph
from unkgcp.evaluation.report.words import percent, span

EXTREMES = 12


def fact_section(d: Diagnosis) -> Section:
    """The narrowest and the widest intervals, and the labels farthest outside of theirs."""
    rows = remarkable(d.answered)
    key = tag(
        "p",
        bar((0.3, 0.8), 0.55, (0.4, 0.7) if d.valued else (0.65, 0.65)),
        f" interval, ring: prediction, {'bracket' if d.valued else 'tick'}: true confidence, red where it is missed.",
        class_="note",
    )
    body = [
        key,
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
    facts, answered = d.answered.facts[rows], d.answered
    heads = readable_entities(d.dataset, facts.head.tolist())
    relations = readable_relations(d.dataset, facts.relation.tolist())
    tails = readable_entities(d.dataset, facts.tail.tolist())
    body = []
    for i, head, relation, tail in zip(rows.tolist(), heads, relations, tails, strict=True):
        found, score = (float(answered.lower[i]), float(answered.upper[i])), float(answered.score[i])
        first, last = answered.ends[i].tolist()
        truth = f"{first:.3f}" if facts.ends is None else span((first, last))
        body.append(
            [
                label(head),
                label(relation),
                label(tail),
                bar(found, score, (first, last)),
                span(found),
                f"{score:.3f}",
                tag("span", truth, class_=None if found[0] <= first and last <= found[1] else "away"),
            ]
        )
    header = ["head", "relation", "tail", "0 to 1", "interval", "predicted", "true"]
    return table(header, body, words=(0, 1, 2, 3), class_="facts", titled=True)


def remarkable(answered: Answered, count: int = EXTREMES) -> dict[str, NDArray[np.intp]]:
    """Rows of the narrowest and the widest intervals and of the labels farthest outside of theirs; none is empty."""
    rows = np.flatnonzero(~np.isnan(answered.lower))
    order = rows[np.argsort(answered.width[rows], kind="stable")]
    outside = answered.outside
    missed = np.argsort(-outside, kind="stable")[:count]
    return {"narrowest": order[:count], "widest": order[::-1][:count], "missed": missed[outside[missed] > 0]}
