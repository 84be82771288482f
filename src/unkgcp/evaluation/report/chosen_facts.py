"""Section of a run's report: choosing among the test facts with a bound on the share of wrong ones.

The known test facts are candidates for `confidence >= 0.7`, and their confidences say afterwards how many of the chosen
ones are wrong and how many good ones were found.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unkgcp.conformal.ranks import exact
from unkgcp.errors import InputError
from unkgcp.evaluation.metrics import proportion_band
from unkgcp.evaluation.report.diagnosis import Diagnosis
from unkgcp.evaluation.report.html import Section, paragraph, percent, span
from unkgcp.evaluation.tables import Cell, Table, number, tag
from unkgcp.graph.queries import to_triples
from unkgcp.methods.method import status_codes
from unkgcp.methods.ranges import Range
from unkgcp.methods.selecting import Selector

BOUND = 0.7
ASKED = (0.01, 0.02, 0.05, 0.1, 0.2)
MASS = 0.95


class Found(NamedTuple):
    """What was chosen at one asked share: how many, how many of them are wrong, and how many good ones there are."""

    asked: float
    chosen: int
    wrong: int
    good: int


def choose_test_facts(d: Diagnosis, condition: Range) -> list[Found]:
    """The choice among the known test facts at each asked share; InputError where the run cannot choose."""
    selector = Selector(d.predictor.method, condition)
    test = d.dataset.splits.test
    triples = to_triples(test, d.predictor.model.vocabulary)
    known = np.flatnonzero(status_codes(d.predictor.model, triples) == 0)
    places, good = selector.places(triples, known)[known], condition.holds(test.confidence[known])
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
        share = (row.wrong / row.chosen, proportion_band(row.wrong, row.chosen, MASS)) if row.chosen else None
        power = (right / row.good, proportion_band(right, row.good, MASS)) if row.good else None
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
        f"The bands hold the true share with {percent(MASS)} (Clopper and Pearson), as if every fact counted on its "
        "own: they leave out what another calibration set would change. A found share above the asked one is no fault "
        "by itself, since the bound is one on average. Nothing is promised for a part of the chosen ones.",
        class_="note",
    )
    return Section("choosing", title, [said, Table(header, rows).html(), note], name)
