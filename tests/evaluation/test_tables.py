"""One table in three forms: what is described once lines up and is escaped in each of them."""

from __future__ import annotations

import pytest

from unkgcp.evaluation.tables import FigureTable, Html, number, of_100


def test_a_table_in_three_forms() -> None:
    table = FigureTable(["x|y", "n"], [["<a>_&", "-0.5"], ["b", "-"]], title="50 % & more", groups=[("", 2)])
    assert table.terminal().split("\n") == ["x|y       n", "<a>_&  -0.5", "b         -"]
    html = table.html()
    assert "&lt;a&gt;_&amp;" in html
    assert "<td>\N{MINUS SIGN}0.5</td>" in html
    assert "<td>\N{EN DASH}</td>" in html
    assert "<td><b>-</b></td>" in FigureTable(["a", "b"], [["x", Html("<b>-</b>")]]).html()
    latex = table.latex("tab:x")
    assert "\\caption{50 \\% \\& more}\n\\label{tab:x}\n\\begin{tabular}{lr}" in latex
    assert "\\toprule\nx|y & n \\\\\n\\midrule\n<a>\\_\\& & -0.5 \\\\\nb & -- \\\\\n\\bottomrule" in latex


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (0.12345, "0.123"),
        (0.00047, "0.00047"),
        (1e-9, "0.000"),
        (-0.0004, "0.000"),
        (-0.5, "-0.500"),
    ],
)
def test_numbers(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.914, "91"), (0.9991, "99.9"), (0.99999, "99.9"), (1.0, "100"), (0.001, "0.1"), (0.0, "0")],
)
def test_shares_as_counts(share: float, shown: str) -> None:
    assert of_100(share) == shown
