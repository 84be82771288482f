"""Reports: one HTML page without outside files, about a run or about a reproduction of the paper.

The page of a run is put together here, from the figures of `diagnosis` and the sections of `report_sections`; that of a
reproduction in `unkgcp.evaluation.reproduction.reproduction_page`.

>>> write_report("run")                 # doctest: +SKIP
PosixPath('run/report.html')
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unkgcp.errors import InputError
from unkgcp.evaluation.assessment import LEVELS
from unkgcp.evaluation.charts import Curve, Panel, draw_levels
from unkgcp.evaluation.figure_design import design, look, matplotlib
from unkgcp.evaluation.report.diagnosis import Diagnosis, diagnose
from unkgcp.evaluation.report.page_parts import (
    WIDTH,
    Section,
    beside,
    data_name,
    figure,
    page,
    paragraph,
    percent,
    span,
    tiles,
)
from unkgcp.evaluation.report.report_sections import (
    choice_section,
    conditional_section,
    error_section,
    fact_section,
    provenance_section,
)
from unkgcp.evaluation.tables import Cell, Html, Table, join, number, tag
from unkgcp.files import write_text
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
    """Write the report of a run or of a reproduction; gives its path (`report.html` in the folder).

    The test facts of a run are found as `unkgcp evaluate` finds them: where the run's data were, or those of
    `data`, read with the options `reading`. The same folder gives the same bytes. `model` is that of a run of a model
    of your own, which such a run does not keep.
    """
    matplotlib()  # an error without it comes before the work
    directory = Path(directory)
    target = directory / "report.html" if output is None else Path(output)
    if (directory / "summary.json").is_file():
        from unkgcp.evaluation.reproduction.reproduction_page import reproduction_page

        if model is not None:
            raise InputError(f"{directory} is a reproduction, which has models of its own: leave out yours")
        written = reproduction_page(directory)
    else:
        written = run_page(directory, data, confidence, dict(reading or {}), model)
    write_text(target, written)
    return target


def run_page(
    directory: Path,
    data: str | None,
    confidence: float,
    reading: dict[str, Any],
    model: OwnModel | None = None,
) -> str:
    """The page of a run, judged at a level on its test facts or those of `data`; see `write_report`."""
    predictor = Predictor.load(directory, model=model)
    record = predictor.provenance.get("data", {})
    dataset = load_named(data, record, str(directory), predictor.model.seed, reading)
    diagnosis = diagnose(predictor, dataset, confidence)
    with design():
        sections = [
            _promise(diagnosis),
            _levels(diagnosis),
            *_methods(diagnosis),
            conditional_section(diagnosis),
            error_section(diagnosis),
            choice_section(diagnosis),
            fact_section(diagnosis),
            provenance_section(predictor),
        ]
    made_of = [name for name in (predictor.model.called, predictor.method.name) if name != NONE]
    title = f"{data_name(diagnosis.dataset.name)}: {' + '.join(look(name).name for name in made_of)}"
    about = paragraph(
        "Figures are of test facts that took part neither in training nor in calibration. "
        "Choosing between methods or models by looking at them makes them a little too good."
    )
    return page(title, "Report of a run", _lead(diagnosis), sections, about)


def _lead(d: Diagnosis) -> list[Html]:
    main = next(level for level in d.levels if level.confidence == d.confidence)
    own = d.evaluation["levels"][0]["positive"]
    known, unknown = len(d.answered.score), d.evaluation["unknown"]["positive"]
    if main.band is not None:
        chance = f"chance allows {span(main.band)}"
    else:
        chance = "promised on average" if d.promised else "nothing is promised"
    of = "of the middle; " if d.intervals else ""
    return [
        paragraph(verdict(d), class_="lead"),
        tiles(
            [
                (f"Coverage at {percent(d.confidence)}", f"{main.coverage:.3f}", chance),
                ("Mean width", f"{main.sharpness:.3f}", f"of 1; half of them below {main.median:.3f}"),
                ("Interval score", number(main.interval_score), "width and misses together; smaller is better"),
                ("Worst tenth", number(main.worst_tenth), "coverage, by the method\u2019s own doubt"),
                ("Mean absolute error", number(own["mae"]), f"{of}squared: {number(own['mse'], 4)}"),
                ("Test facts", f"{known:,}", f"{unknown:,} more are unknown to the model" if unknown else "all known"),
            ]
        ),
    ]  # fmt: skip


def verdict(d: Diagnosis) -> Html:
    """What the test facts say about the promise, in two sentences; they can speak against it but not prove it."""
    main = next(level for level in d.levels if level.confidence == d.confidence)
    whole = "all of their true confidence" if d.intervals else "their true confidence"
    said = (
        f"Of {len(d.answered.score):,} test facts, {percent(main.coverage, 1)} have {whole} inside "
        f"the interval that was to hold it with probability {percent(d.confidence)}. "
    )
    if main.band is None and d.promised:
        return join(
            [said, "Several thresholds or models share the promise; the figure is what was measured."]
        )
    if main.band is None:
        return join([said, "This method promises nothing, so the figure is only what was measured."])
    if main.coverage < main.band[0]:
        less = "That is less than chance allows: strong evidence that an assumption is broken."
        return join([said, tag("strong", less)])
    if main.coverage > main.band[1]:
        return join(
            [said, "That is more than promised, as ties can make it: no evidence against the promise."]
        )
    return join([said, "That is within what chance allows: no evidence against the promise."])


def _promise(d: Diagnosis) -> Section:
    method, record = d.predictor.method, d.predictor.provenance
    body = [
        paragraph(
            tag("strong", "Promise. "),
            f"{look(method.name).name}: {d.predictor.guarantee}. It was calibrated on {method.size:,} facts.",
        )
    ]
    if d.intervals:
        body.append(
            paragraph(
                tag("strong", "Confidences are intervals. "),
                "A fact counts as covered where both ends of its true confidence lie in the interval predicted; errors "
                "are those of the middle.",
            )
        )
    if d.promised:
        body += [
            paragraph(
                tag("strong", "What it means. "),
                "Over calibration facts and query together, the true confidence lies in the interval with at least "
                "the probability asked for, whatever the model is worth: a bad model costs width, not coverage. "
                "It is an average over queries, not a promise for each kind of query; "
                "the slices below show how evenly it is kept.",
            ),
            paragraph(
                tag("strong", "Assumed. "),
                "Queries come from where the calibration facts came from: facts that somebody asserted, "
                "about entities and relations with a training fact. Early stopping looked at "
                f"{_stopping(record)}. Queries about unknown entities or relations get the whole range.",
            ),
        ]
    if any(level.band is not None for level in d.levels):
        body.append(
            paragraph(
                "The band that chance allows is exact: hits among the test facts are beta-binomial given the size of "
                "the calibration set, and fall outside it once in a thousand times. Ties can only raise coverage.",
                class_="note",
            )
        )
    if record.get("protocol") == "paper":
        body.append(
            paragraph(
                "This run follows the paper's protocol: the calibration facts also chose the model, "
                "so the promise is not strict.",
                class_="caution",
            )
        )
    if record.get("stopped"):
        body.append(paragraph(f"Training ended early: {record['stopped']}.", class_="caution"))
    return Section("promise", "What is promised", body, "Promise")


def _stopping(record: dict[str, Any]) -> str:
    said = str(record.get("early_stopping", "unknown facts"))
    return said.removeprefix("on ")


def _levels(d: Diagnosis) -> Section:
    rows: list[list[str | Cell]] = []
    for level, found in zip(d.levels, d.evaluation["levels"], strict=True):
        band = "-" if level.band is None else span(level.band)
        low = level.band is not None and level.coverage < level.band[0]
        share = Cell(f"{level.coverage:.3f}", style="away" if low else None)
        own = (level.sharpness, level.median, level.interval_score, level.worst_tenth)
        others = (found["positive"]["overlap_free"], found["negative"])
        figures = [*own, *(part[kind] for part in others for kind in ("coverage", "sharpness"))]
        rows.append([percent(level.confidence), share, Cell(band, style="small"), *map(number, figures)])
    header = ["level", "coverage", "chance allows", "mean width", "median", "interval score", "worst tenth",
              "coverage", "width", "coverage", "width"]  # fmt: skip
    groups = [("", 1), ("known test facts", 6), ("overlap-free", 2), ("negatives", 2)]
    free = d.evaluation["levels"][0]["positive"]["overlap_free"]["n"]
    sampled = "corrupted test facts" if d.evaluation["negatives"] == "sampled" else "those of the data set"
    threshold = d.evaluation["negative_threshold"]
    notes = paragraph(
        f"Overlap-free: the {free:,} test facts whose triple stands in no training or calibration fact. "
        f"Negatives: triples taken for no facts, confidence 0 ({sampled}), judged with the threshold of {threshold}; "
        "for them nothing is promised unless they were calibrated on. Interval score: width plus 2/(1 \u2212 level) "
        "times the distance by which a confidence is missed, smaller is better. Worst tenth: the lowest coverage among "
        "tenths of the facts by the method\u2019s own doubt.",
        class_="note",
    )
    intro = paragraph(
        "The level is chosen when a question is asked; nothing is calibrated again. More certainty costs width."
    )
    return Section(
        "levels",
        "Coverage and width at every level",
        [intro, Table(header, rows, groups=groups).html(), notes],
        "Levels",
    )


def _methods(d: Diagnosis) -> list[Section]:
    """The same model with other interval methods; left out if there is none to compare with."""
    curves = {rival.name: Curve(LEVELS, rival.coverage, rival.sharpness) for rival in d.rivals}
    if d.best is not None:
        curves["best"] = Curve(LEVELS, None, d.best.sharpness)
    bands = [level.band for level in d.levels if level.confidence in LEVELS]
    band = None if any(pair is None for pair in bands) else [list(ends) for ends in zip(*bands, strict=True)]
    picture = figure(
        draw_levels([Panel("", curves, band)], width=WIDTH),
        "figure-levels",
        "Mean width (above; lower is sharper) and coverage (below) against the level. A valid method lies on or above "
        "the dashed line"
        + (f"; the shaded band is what chance allows {look(d.predictor.method.name).name}." if band else "."),
        "Width and coverage of each interval method against the level asked for",
    )
    if len(d.rivals) < 2:
        return [Section("methods", "Width and coverage against the level", [picture], "Curves")]
    rows: list[list[str | Cell]] = []
    for rival in d.rivals:
        pairs = zip(rival.coverage.tolist(), rival.sharpness.tolist(), strict=True)
        figures = [figure for pair in pairs for figure in pair]
        figures += [rival.interval_score, rival.worst_tenth]
        rows.append([look(rival.name).name, *map(number, figures)])
    if d.best is not None:
        widths = (cell for width in d.best.sharpness.tolist() for cell in ("", f"{width:.3f}"))
        rows.append([Cell("best possible", style="small"), *widths, number(d.best.interval_score), ""])
    header = ["method", *(title for _ in LEVELS for title in ("coverage", "width"))]
    header += ["interval score", "worst tenth"]
    groups = [("", 1), *((percent(level), 2) for level in LEVELS), (f"more at {percent(d.confidence)}", 2)]
    promises = tag(
        "ul", *(tag("li", tag("strong", look(r.name).name), f" \u2013 {r.guarantee}") for r in d.rivals)
    )
    notes = [tag("h3", "What each promises"), promises]
    if d.best is not None:
        notes.append(
            paragraph(
                "Best possible: mean width of the shortest intervals of someone who knows the true distribution of "
                "every confidence, and the interval score of that distribution\u2019s quantiles. Only an invented "
                "graph can tell; on real data nobody knows it.",
                class_="note",
            )
        )
    body = [
        paragraph(
            "One trained model, one set of calibration facts, several ways to make an interval. "
            "Narrow intervals count for nothing where coverage is below the level, on average or in a tenth of doubt."
        ),
        Table(header, rows, groups=groups).html(),
        beside(picture, tag("div", *notes)),
    ]
    return [Section("methods", "Interval methods on the same model", body, "Methods")]
