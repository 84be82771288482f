"""The report of a run: right numbers, hostile labels harmless, the same bytes, sentences where it cannot be."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from tests.evaluation.reports import HOSTILE, write_hostile_run
from unkgcp.evaluation import evaluate
from unkgcp.evaluation.assessment import verdict_on
from unkgcp.evaluation.report import latex_report, report_page, verdict_card, write_report
from unkgcp.evaluation.report.diagnosis import Diagnosis, diagnose
from unkgcp.evaluation.report.page_parts import label
from unkgcp.evaluation.report.report_sections import choice_section, remarkable
from unkgcp.evaluation.tables import tag
from unkgcp.run import Predictor, calibrate, provenance

VOID = {"meta", "link"}


class Page(HTMLParser):
    """Elements, their attributes and text of a page; fails on elements that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hostile_run(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def written(run: Path) -> str:
    return write_report(run).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def diagnosis(run: Path) -> Diagnosis:
    predictor = Predictor.load(run)
    return diagnose(predictor, provenance.reload(predictor.provenance["data"], str(run)))


def test_labels_are_text_and_nothing_else(written: str) -> None:
    page = Page(written)
    names = {name for name, _ in page.elements}
    assert not names & {"script", "img", "iframe", "object", "embed", "base", "form"}
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("id") != "sly"
    shown = "".join(page.text)
    assert HOSTILE[0] in shown, "the label itself is shown, as text"
    assert HOSTILE[3] in shown
    assert "\u202e" not in shown, "a label must not turn the writing of the page around"
    assert "l" * 200 not in shown, "very long labels are cut"
    assert label("a\u202eb\x00") == '<bdi class="label">a\ufffdb\ufffd</bdi>'
    assert tag("p", "<i>", tag("b", "&"), title='"') == '<p title="&quot;">&lt;i&gt;<b>&amp;</b></p>'


def test_nothing_is_loaded_from_anywhere(written: str) -> None:
    for name, attributes in Page(written).elements:
        for key in ("src", "href", "xlink:href", "action", "data", "srcset"):
            value = attributes.get(key)
            inside = ("#", "data:image/")
            assert value is None or value.startswith(inside) or value == "data:,", f"{name} {key}={value}"
    style = "".join(re.findall(r"<style>(.*?)</style>", written, flags=re.DOTALL))
    assert "@import" not in style
    assert not re.search(r"url\((?!#)", style)
    ids = [attributes["id"] for _, attributes in Page(written).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert "default-src 'none'" in written.replace("&#x27;", "'")


def test_every_figure_can_be_saved(written: str) -> None:
    page = Page(written)
    links = {
        str(given["download"]): str(given["href"]).partition(",")
        for name, given in page.elements
        if name == "a" and "download" in given
    }
    figures = [given["id"] for name, given in page.elements if name == "figure"]
    assert list(links) == [f"{key}.{kind}" for key in figures for kind in ("svg", "png")]
    for key in figures:
        assert unquote(links[f"{key}.svg"][2]).startswith("<?xml")
        assert b64decode(links[f"{key}.png"][2]).startswith(b"\x89PNG")


def test_the_same_run_gives_the_same_bytes(run: Path, written: str, tmp_path: Path) -> None:
    again = write_report(run, output=tmp_path / "elsewhere.html")
    assert again.read_text(encoding="utf-8") == written
    assert not list(run.glob(".partial-*"))


def test_numbers_are_those_of_evaluate(run: Path, diagnosis: Diagnosis, written: str) -> None:
    predictor = Predictor.load(run)
    result = evaluate(predictor, provenance.reload(predictor.provenance["data"], str(run)), [0.9])
    assert result["levels"][0] == diagnosis.level
    figures, shown = result["levels"][0]["positive"], "".join(Page(written).text)
    assert f"Of {figures['n']:,} test facts" in shown
    for of in [figures, *figures["kinds"].values()]:
        for name in ("coverage", "sharpness", "interval_score"):
            assert f"<td>{of[name]:.3f}</td>" in written
    assert figures["verdict"] == "kept"
    assert f"{figures['band'][0]:.3f}\u2013{figures['band'][1]:.3f}" in shown
    for rows in diagnosis.slices.values():
        placed = sum(row["n"] for row in rows)
        assert placed in (figures["n"], figures["n"] - result["unknown"]["positive"])


def test_a_table_for_a_paper(run: Path) -> None:
    table = latex_report(run, confidence=0.8)
    assert "intervals at 80 \\%" in table
    assert table.count("\\\\") == 2 + len(("known pairs", "new pairs")), "a row for each kind, and all"


def test_remarkable_facts_are_the_extremes(diagnosis: Diagnosis) -> None:
    found, rows = remarkable(diagnosis, 5), diagnosis.rows
    known = np.sort(rows.width[~np.isnan(rows.score)])
    assert rows.width[found["narrowest"]].max() <= known[4]
    assert rows.width[found["widest"]].min() >= known[-5]
    assert not rows.inside[found["missed"]].any()
    outside = np.maximum(rows.lower - rows.truth, rows.truth - rows.upper)
    assert outside[found["missed"][0]] == outside.max()


@pytest.mark.parametrize(
    ("coverage", "band", "said"),
    [
        (0.2, [0.8, 0.95], "strong evidence that an assumption is broken"),
        (0.9, [0.8, 0.95], "no evidence against the promise"),
        (1.0, [0.8, 0.95], "equal values and groups"),
        (0.9, None, "Several thresholds"),
    ],
)
def test_the_verdict_is_said(
    diagnosis: Diagnosis, coverage: float, band: list[float] | None, said: str
) -> None:
    figures = diagnosis.figures | {"coverage": coverage, "band": band}
    figures["verdict"] = verdict_on(figures)
    card = verdict_card(replace(diagnosis, level={"positive": figures}))
    assert said in card
    assert f'class="lead verdict {figures["verdict"] or "open"}"' in card


def test_a_method_without_a_promise_gets_no_band(tmp_path: Path) -> None:
    page = write_report(write_hostile_run(tmp_path, method="fpi", protocol="paper")).read_text(
        encoding="utf-8"
    )
    shown = "".join(Page(page).text)
    assert "promises nothing" in shown
    assert "no promise" in shown
    assert "the promise is not strict" in shown


def test_what_cannot_be_chosen_is_said(diagnosis: Diagnosis, written: str) -> None:
    assert "good ones found" in written
    facts = diagnosis.answers.dataset.splits.calibration
    sure = calibrate(diagnosis.answers.predictor.model, facts.with_confidence(np.ones(len(facts))), "cp")
    (said,) = choice_section(replace(diagnosis, answers=replace(diagnosis.answers, predictor=sure))).body
    assert "Nothing is chosen here: every one of" in said


def test_one_relation_is_singular(diagnosis: Diagnosis) -> None:
    slices = diagnosis.slices | {"relation": diagnosis.slices["relation"][:1]}
    page = report_page(replace(diagnosis, slices=slices))
    assert "1 relation as a table" in page
    assert "The only relation" in page
