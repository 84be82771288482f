"""One table in five forms: what is described once lines up, is escaped and is marked in each of them."""

from __future__ import annotations

from pathlib import Path

from unkgcp.evaluation.tables import Cell, Html, Table, draw_interval, number


def test_terminal_aligns_columns() -> None:
    text = Table(["method", "n"], [["cp", "1,000"], ["unkgcp", Cell("5", best=True)]]).terminal()
    assert text.split("\n") == ["method      n", "cp      1,000", "unkgcp      5"]


def test_special_marks_are_escaped_in_each_form() -> None:
    table = Table(["x|y"], title="50 % & more", note="a_b")
    table.add(Cell("1 | <2>", valid=True, best=True))
    assert "**1 \\| <2>** ✓" in table.markdown()
    assert "50 \\% \\& more" in table.latex()
    assert "\\textcolor[HTML]{006B3C}{\\textbf{1 | <2>}}" in table.latex()
    assert '<span class="best">1 | &lt;2&gt;</span> ✓' in table.html()
    assert table.csv() == "x|y\n1 | <2>\n"


def test_records_are_what_the_csv_form_writes() -> None:
    table = Table(["level"], [["0.9"]], records=[{"level": 0.9, "sd": None}])
    assert table.csv() == "level,sd\n0.9,\n"


def test_latex_draws_a_line_above_a_group_but_not_above_the_first() -> None:
    table = Table(["a"])
    for value in "xy":
        table.rule()
        table.add(value)
    assert table.latex().count("\\midrule") == 2


def test_html_sets_numbers_and_leaves_out_names_that_repeat() -> None:
    rows = [["cn15k", "ukge", "-0.5"], ["cn15k", "beurre", "-"], ["nl27k", "beurre", Html("<b>-</b>")]]
    html = Table(["data", "model", "diff."], rows, text_columns=(0, 1)).html(once=2)
    assert html.count("cn15k") == 1
    assert html.count("beurre") == 2  # the data set above it is another one
    assert "<td>\N{MINUS SIGN}0.5</td>" in html
    assert "<td>\N{EN DASH}</td>" in html
    assert "<td><b>-</b></td>" in html


def test_files_are_named_after_the_table(tmp_path: Path) -> None:
    written = Table(["a"], [["1"]], name="one").write(tmp_path)
    assert [path.name for path in written] == ["one.md", "one.csv", "one.tex"]
    assert all(path.read_text() for path in written)


def test_interval_is_drawn_to_scale() -> None:
    assert draw_interval(0.25, 0.75, columns=9) == "|··[───]··|"
    assert draw_interval(0.25, 0.75, score=0.5, truth=1.0, columns=9) == "|··[─●─]·x|"
    assert draw_interval(0.0, 1.0, columns=5) == "|[───]|"


def test_a_figure_without_rows_is_a_dash() -> None:
    assert number(None, 3) == number(float("nan"), 3) == "-"
    assert number(0.12345, 3) == "0.123"
