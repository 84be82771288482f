"""The report of a run: right numbers, hostile labels harmless, the same bytes, sentences where it cannot be."""

from __future__ import annotations

import csv
import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from scipy import stats

from tests.evaluation.reports import HOSTILE, write_hostile_run
from unkgcp.conformal.selection import Range
from unkgcp.errors import InputError
from unkgcp.evaluation import evaluate
from unkgcp.evaluation.metrics import coverage_band, proportion_band
from unkgcp.evaluation.report import write_report
from unkgcp.evaluation.report.diagnosis import Diagnosis, diagnose
from unkgcp.evaluation.report.page_parts import label
from unkgcp.evaluation.report.report_sections import choice_section, choose_test_facts, remarkable
from unkgcp.evaluation.tables import Html, Table, tag
from unkgcp.run import Predictor, provenance

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
        assert attributes.get("id") != "sneaky"
    shown = "".join(page.text)
    assert HOSTILE[0] in shown, "the label itself is shown, as text"
    assert HOSTILE[3] in shown
    assert "\u202e" not in shown, "a label must not turn the writing of the page around"
    assert "l" * 200 not in shown, "very long labels are cut"


def test_nothing_is_loaded_from_anywhere(written: str) -> None:
    for name, attributes in Page(written).elements:
        for key in ("src", "href", "xlink:href", "action", "data", "srcset"):
            value = attributes.get(key)
            inside = ("#", "data:text/csv;charset=utf-8,")
            assert value is None or value.startswith(inside) or value == "data:,", f"{name} {key}={value}"
    style = "".join(re.findall(r"<style>(.*?)</style>", written, flags=re.DOTALL))
    assert "@import" not in style
    assert not re.search(r"url\((?!#)", style)
    assert "default-src 'none'" in written.replace("&#x27;", "'")


def test_every_figure_has_its_numbers(written: str, diagnosis: Diagnosis) -> None:
    page = Page(written)
    links = {
        str(given["download"]): unquote(str(given["href"]).partition(",")[2])
        for name, given in page.elements
        if name == "a" and "download" in given
    }
    figures = [given["id"] for name, given in page.elements if name == "figure"]
    assert list(links) == [f"{key}.csv" for key in figures]
    tables = {key: list(csv.DictReader(io.StringIO(text, newline=""))) for key, text in links.items()}
    found = diagnosis.slices["relation"]
    shown = tables["slices-relation.csv"]
    assert [row["slice"] for row in shown] == [row["name"] for row in found[:20]]
    assert [float(row["coverage"]) for row in shown] == [row["coverage"] for row in found[:20]]
    assert [int(row["facts"]) for row in shown] == [row["n"] for row in found[:20]]
    own = [row for row in tables["figure-levels.csv"] if row["method"] == diagnosis.rivals[0].name]
    assert [float(row["mean_width"]) for row in own] == diagnosis.rivals[0].sharpness.tolist()
    errors = tables["figure-errors.csv"]
    assert sum(int(row["facts"]) for row in errors if row["method"] == errors[0]["method"]) == len(
        diagnosis.answered.error
    )


def test_ids_are_unique(written: str) -> None:
    ids = [attributes["id"] for _, attributes in Page(written).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [a["href"][1:] for _, a in Page(written).elements if str(a.get("href", "")).startswith("#")]
    assert targets
    assert set(targets) <= set(ids)


def test_the_same_run_gives_the_same_bytes(run: Path, written: str, tmp_path: Path) -> None:
    again = write_report(run, output=tmp_path / "elsewhere.html")
    assert again.read_text(encoding="utf-8") == written
    assert not list(run.glob(".partial-*"))


def test_numbers_are_those_of_evaluate(run: Path, diagnosis: Diagnosis, written: str) -> None:
    predictor = Predictor.load(run)
    result = evaluate(predictor, provenance.reload(predictor.provenance["data"], str(run)), [0.9])
    positive, unknown = result["levels"][0]["positive"], result["unknown"]["positive"]
    main = next(level for level in diagnosis.levels if level.confidence == 0.9)
    known = positive["n"] - unknown
    hits = round(main.coverage * known)
    assert hits + unknown == round(positive["coverage"] * positive["n"])
    assert main.band == coverage_band(predictor.method.size, known, 0.9)
    shown = "".join(Page(written).text)
    assert f"{main.coverage:.3f}" in shown
    assert f"{main.band[0]:.3f}\u2013{main.band[1]:.3f}" in shown


def test_the_promise_holds_and_slices_add_up(diagnosis: Diagnosis) -> None:
    for level in diagnosis.levels:
        assert level.band is not None
        assert level.band[0] <= level.coverage
    hits = diagnosis.answered.inside.sum()
    for rows in diagnosis.slices.values():
        assert sum(row["n"] for row in rows) == len(diagnosis.answered.score)
        assert round(sum(row["n"] * row["coverage"] for row in rows)) == hits
    assert [rival.name for rival in diagnosis.rivals] == ["fpi", "cp", "unkgcp", "shortest"]
    own = diagnosis.rivals[2]
    at = [level.coverage for level in diagnosis.levels if level.confidence in (0.8, 0.85, 0.9, 0.95)]
    np.testing.assert_allclose(own.coverage, at)


def test_remarkable_facts_are_the_extremes(diagnosis: Diagnosis) -> None:
    answered = diagnosis.answered
    rows = remarkable(answered, 5)
    assert answered.width[rows["narrowest"]].max() <= np.sort(answered.width)[4]
    assert answered.width[rows["widest"]].min() >= np.sort(answered.width)[-5]
    assert not answered.inside[rows["missed"]].any()
    truth = answered.facts.confidence
    missed = np.maximum(answered.lower - truth, truth - answered.upper)
    assert missed[rows["missed"][0]] == missed.max()


def test_a_broken_promise_is_said(diagnosis: Diagnosis) -> None:
    from dataclasses import replace

    from unkgcp.evaluation.report import verdict

    for coverage, said in (
        (0.2, "strong evidence that an assumption is broken"),
        (0.9, "within what chance allows: no evidence against the promise"),
        (1.0, "more than promised"),
    ):
        levels = [replace(level, coverage=coverage) for level in diagnosis.levels]
        assert said in verdict(replace(diagnosis, levels=levels))
    levels = [replace(level, band=None) for level in diagnosis.levels]
    assert "Several thresholds" in verdict(replace(diagnosis, levels=levels))


def test_a_method_without_a_promise_gets_no_band(tmp_path: Path) -> None:
    page = write_report(write_hostile_run(tmp_path, method="fpi", protocol="paper")).read_text(
        encoding="utf-8"
    )
    shown = "".join(Page(page).text)
    assert "promises nothing" in shown
    assert "nothing is promised" in shown
    assert "the promise is not strict" in shown


def test_data_that_moved_are_named(run: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(run, tmp_path / "run")
    facts = run.parent / "facts.tsv"
    before = facts.read_bytes()
    try:
        facts.write_bytes(before + b"a\tb\tc\t0.5\n")
        with pytest.raises(InputError, match="has changed"):
            write_report(tmp_path / "run", output=tmp_path / "r.html")
    finally:
        facts.write_bytes(before)
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("missing", ["nowhere", "."])
def test_what_is_no_run_is_refused(tmp_path: Path, missing: str) -> None:
    with pytest.raises(InputError, match="no run"):
        write_report(tmp_path / missing)


def test_without_the_drawing_library_one_sentence_says_so(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'unkgcp\[plot\]'"):
        write_report(run)


def test_markup_is_escaped_unless_it_is_markup() -> None:
    assert tag("p", "<i>", tag("b", "&"), title='"') == '<p title="&quot;">&lt;i&gt;<b>&amp;</b></p>'
    assert isinstance(tag("p"), Html)
    assert label("a\u202eb\x00") == '<bdi class="label">a\ufffdb\ufffd</bdi>'
    assert len(label("x" * 10_000)) < 200
    assert "<script>" not in Table(["<script>"], [["<script>"]]).html(caption="<script>")


def test_what_is_chosen_among_the_test_facts(diagnosis: Diagnosis, written: str) -> None:
    """Counted again with `Predictor.select`; the page shows the same numbers, or says why there are none."""
    shown = "".join(Page(written).text)
    assert "Choosing with few wrong ones" in shown
    test = diagnosis.dataset.splits.test
    known = test[diagnosis.predictor.interval(test).code == 0]
    bound = float(np.median(diagnosis.predictor.method.calibration_facts().confidence))
    condition = Range(low=bound)
    found = choose_test_facts(diagnosis, condition)
    assert [row.asked for row in found] == [0.01, 0.02, 0.05, 0.1, 0.2]
    good = condition.holds(known.confidence)
    for row in found:
        answer = diagnosis.predictor.select(known, str(condition), row.asked)
        assert answer.selected is not None
        chosen = answer.selected["selected"]
        assert row[1:] == (chosen.sum(), (chosen & ~good).sum(), good.sum())


@pytest.mark.parametrize(("hits", "of"), [(0, 7), (3, 7), (7, 7), (120, 4000)])
def test_the_band_of_a_share_is_that_of_clopper_and_pearson(hits: int, of: int) -> None:
    expected = stats.binomtest(hits, of).proportion_ci(0.95, "exact")
    np.testing.assert_allclose(proportion_band(hits, of, 0.95), expected, rtol=1e-9, atol=1e-12)


def test_a_run_that_cannot_choose_says_so(diagnosis: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis.predictor.method, "ranked", None)
    (said,) = choice_section(diagnosis).body
    assert "calibrate it again with unkgcp fit --from RUN" in str(said)
