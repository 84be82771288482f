"""The report of a reproduction: ours beside the paper's, checks, every figure, nothing foreign trusted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.evaluation.reports import summary, write_summary
from unkgcp.evaluation.figure_design import look
from unkgcp.evaluation.report import write_report
from unkgcp.evaluation.report.page_parts import data_name, duration
from unkgcp.evaluation.reproduction.paper_tables import make_tables
from unkgcp.evaluation.tables import difference, with_spread


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_summary(tmp_path_factory.mktemp("reproduction"), models=("ukge", "passleaf"))
    return write_report(folder).read_text(encoding="utf-8")


def test_tables_stand_beside_the_papers(written: str) -> None:
    text = re.sub(r"<[^>]+>", " ", written[written.index("<body>") :])
    for expected in (
        "0.900 (0.003) ✓",
        "0.84",
        "\N{MINUS SIGN}0.39",
        "0.2450 (0.0010)",
        "+0.005",
        "36",
        "a machine",
        "100.0",
        "3.5\u202fmin",
    ):
        assert expected in text, expected
    assert "4 of 4" in text
    assert "1 of 2" in text
    marks = re.findall(r'<span class="mark (\w+)">([^<]+)</span>', written)
    assert marks == [("yes", "yes"), ("no", "no"), ("open", "-")]
    assert "One threshold for all queries" in text
    assert "at M: coverage" in text


def shown(summary: dict[str, Any], name: str) -> str:
    """One table of the summary as the page shows it."""
    return next(table for table in make_tables(summary) if table.name == name).html()


def test_every_figure_is_there(written: str) -> None:
    assert written.count("<figure") == 6
    assert written.count('<svg role="img"') == 6


def test_what_a_summary_says_is_text(written: str) -> None:
    assert "<b>small</b>" not in written
    assert "A &lt;b&gt;small&lt;/b&gt; reproduction" in written
    assert "Width &lt;grows&gt;" in written


def test_the_sharpest_valid_method_is_bold() -> None:
    html = shown(summary(models=("ukge",)), "table1")
    bold = re.findall(r'<span class="best">([^<]+)</span>', html)
    assert bold == ["0.378"], "UnKGCP; QR is narrower but does not cover"


def test_both_variants_of_ukge_stand_beside_the_one_that_the_paper_prints() -> None:
    both = summary(models=("ukge", "ukge-rect"))
    for html in (shown(both, "table1"), shown(both, "table2")):
        plain, rectified = (re.findall(r'<span class="small">([^<]+)</span>', half) for half in _halves(html))
        assert plain == rectified
        assert any(value != "\u2013" for value in rectified)


def _halves(html: str) -> tuple[str, str]:
    """The rows of UKGE and those of its rectified variant."""
    before, after = html.split(look("ukge-rect").name, 1)
    return before, after


def test_one_seed_has_no_spread() -> None:
    alone = summary(models=("ukge",))
    for part in alone["cells"][0]["predictors"]["cp"].values():
        part["coverage"]["sd"] = [None] * 4
    html = shown(alone, "table1")
    assert "0.900 ✓" in html
    assert "0.902 (0.003) ✓" in html


def test_both_protocols_stand_side_by_side() -> None:
    both = summary(models=("ukge",), strict=True)
    both["cells"][1]["predictors"]["cp"]["positive"]["sharpness"]["mean"][2] = 0.777
    assert "<td>0.900 (0.003)</td><td>0.900 (0.003)</td><td>0.450</td><td>0.777</td>" in shown(
        both, "protocols"
    )
    assert "protocols" not in {table.name for table in make_tables(summary(models=("ukge",)))}


def test_numbers_and_names_as_people_read_them() -> None:
    assert with_spread({"mean": 0.9, "sd": None}) == "0.900"
    assert with_spread({"mean": None, "sd": None}) == "-"
    assert difference(0.9, 0.8).style == "away"
    assert difference(0.9, 0.86).style == "small"
    assert difference(0.8, 0.9).text == "-0.10"
    assert [duration(s) for s in (1.234, 59.6, 240, 9000)] == [
        "1.2\u202fs",
        "60\u202fs",
        "4.0\u202fmin",
        "2.5\u202fh",
    ]
    assert data_name("cn15k") == "CN15k"
    assert data_name("/some/where/facts.tsv") == "facts.tsv"
