"""Reports: one HTML page without outside files about a run.

The page is put together here, from the figures of `diagnosis` and the sections of `report_sections`.

>>> write_report("run")                 # doctest: +SKIP
PosixPath('run/report.html')
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unkgcp.evaluation.assessment import evaluate
from unkgcp.evaluation.evaluation_texts import VERDICTS, WORTH_SAYING, latex_table, slice_words
from unkgcp.evaluation.figure_design import design
from unkgcp.evaluation.report.diagnosis import Diagnosis, diagnose
from unkgcp.evaluation.report.page_parts import Section, named, page, paragraph, percent, span, tiles
from unkgcp.evaluation.report.report_sections import (
    choice_section,
    fact_section,
    kind_section,
    level_section,
    promise_section,
    provenance_section,
    slice_section,
)
from unkgcp.evaluation.slices import below_band, weakest
from unkgcp.evaluation.tables import Html, counted, number, tag
from unkgcp.files import write_text
from unkgcp.graph.datasets import Dataset
from unkgcp.lazy import library
from unkgcp.run.predictor import Predictor
from unkgcp.run.provenance import load_named
from unkgcp.training.config import NONE
from unkgcp.training.given_model import OwnModel


def write_report(
    directory: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    data: str | None = None,
    confidence: float = 0.9,
    reading: Mapping[str, Any] | None = None,
    model: OwnModel | None = None,
) -> Path:
    """Write the report of a run; gives its path (`report.html` in the folder).

    The test facts of a run are found as `unkgcp evaluate` finds them: where the run's data were, or those of
    `data`, read with the options `reading`. The same folder gives the same bytes. `model` is that of a run of a model
    of your own, which such a run does not keep.
    """
    library("matplotlib", "a report")  # an error without it comes before the work
    diagnosis = diagnose(*_run_and_data(directory, data, reading, model), confidence)
    target = Path(directory) / "report.html" if output is None else Path(output)
    write_text(target, report_page(diagnosis))
    return target


def latex_report(
    directory: str | os.PathLike[str],
    *,
    data: str | None = None,
    confidence: float = 0.9,
    reading: Mapping[str, Any] | None = None,
    model: OwnModel | None = None,
) -> str:
    """The four figures of a run by kind as a table for a paper, of the same test facts as those of `write_report`."""
    return latex_table(evaluate(*_run_and_data(directory, data, reading, model), [confidence]))


def _run_and_data(
    directory: str | os.PathLike[str],
    data: str | None,
    reading: Mapping[str, Any] | None,
    model: OwnModel | None,
) -> tuple[Predictor, Dataset]:
    predictor = Predictor.load(directory, model=model)
    record = predictor.provenance.get("data", {})
    return predictor, load_named(data, record, str(directory), predictor.model.seed, dict(reading or {}))


def report_page(d: Diagnosis) -> str:
    """The page of a run, judged at a level on test facts."""
    predictor = d.answers.predictor
    made_of = [name for name in (predictor.model.called, predictor.method.name) if name != NONE]
    with design():
        sections: list[Section] = [
            kind_section(d),
            promise_section(d),
            level_section(d),
            slice_section(d),
            choice_section(d),
            fact_section(d),
            provenance_section(predictor),
        ]
    about = paragraph(
        "Figures are of test facts that took part neither in training nor in calibration. "
        "Choosing between methods or models by looking at them makes them a little too good."
    )
    title = f"{named(d.result['data'])}: {' + '.join(map(named, made_of))}"
    return page(title, "Report of a run", [verdict_card(d), _tiles(d)], sections, about)


REASONS = {
    "kept": "no evidence against the promise.",
    "above": "{}, which breaks no promise.",
    "below": "strong evidence that an assumption is broken.",
}


def verdict_card(d: Diagnosis) -> Html:
    """The verdict with its reason; test facts can speak against a promise but not prove it."""
    figures = d.figures
    verdict, _ = VERDICTS[figures["verdict"]]
    whole = "all of their true confidence" if d.intervals else "their true confidence"
    reason = (
        f"Of {counted(figures['n'], 'test fact')}, {percent(figures['coverage'], 1)} have {whole} inside "
        f"the interval that was to hold it with probability {percent(d.confidence)}. "
    )
    if figures["band"] is None:
        shared = "Several thresholds or models share the promise; the figure is what was measured."
        remark = shared if d.result["promised"] else "This method promises nothing."
    else:
        least = figures["least_possible"]
        why = "equal values and groups with a threshold each add to it"
        if least is not None and least >= d.confidence + WORTH_SAYING:
            why = f"single values that many facts have make {number(least)} the least possible here"
        remark = f"Chance alone allows {span(figures['band'])}: {REASONS[figures['verdict']].format(why)}"
    head = tag("strong", f"{verdict or 'Measured'}. ", class_="verdict-word")
    return tag("p", head, reason, remark, class_=f"lead verdict {figures['verdict'] or 'open'}")


def _tiles(d: Diagnosis) -> Html:
    figures, unknown = d.figures, d.result["unknown"]["positive"]
    band, score, nothing = (
        figures["band"],
        figures["interval_score"],
        figures["knowing_nothing"]["interval_score"],
    )
    chance = (
        f"chance allows {span(band)}"
        if band
        else "promised on average"
        if d.result["promised"]
        else "no promise"
    )
    weakest_slice = weakest(figures["slices"])
    by, worst = weakest_slice or ("", {"coverage": None, "band": None})
    where = slice_words(by, worst, figures["slices"][by]) if weakest_slice else "no slice is large enough"
    below = below_band(worst)
    return tiles(
        [
            (f"Coverage at {percent(d.confidence)}", number(figures["coverage"]), chance, below_band(figures)),
            ("Mean width", number(figures["sharpness"]), f"of 1; half below {number(figures['median_width'])}", False),
            ("Interval score", number(score), f"smaller is better; knowing nothing has {number(nothing)}",
             score is not None and nothing is not None and score > nothing),
            ("Worst slice", number(worst["coverage"]), where + (": less than chance allows" if below else ""), below),
            ("Mean absolute error", number(figures["mae"]), f"squared {number(figures['mse'], 4)}", False),
            ("Test facts", f"{figures['n']:,}",
             f"{unknown:,} of them about what the model does not know" if unknown else "all known to the model", False),
        ]
    )  # fmt: skip
