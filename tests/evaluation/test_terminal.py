"""Tables line up and intervals are drawn where they are."""

from __future__ import annotations

from unkgcp.evaluation.text import draw_interval, evaluation_text, number, table


def test_table_aligns_columns() -> None:
    text = table(["method", "n"], [["cp", "1,000"], ["unkgcp", "5"]])
    assert text.split("\n") == ["method      n", "cp      1,000", "unkgcp      5"]


def test_interval_is_drawn_to_scale() -> None:
    assert draw_interval(0.25, 0.75, columns=9) == "|··[───]··|"
    assert draw_interval(0.25, 0.75, score=0.5, truth=1.0, columns=9) == "|··[─●─]·x|"
    assert draw_interval(0.0, 1.0, columns=5) == "|[───]|"


def test_a_figure_without_rows_is_a_dash() -> None:
    assert number(None, 3) == "-"
    assert number(0.12345, 3) == "0.123"


def test_evaluation_as_text() -> None:
    figures = {"n": 10, "coverage": 0.9, "sharpness": 0.5, "mse": 0.01, "mae": 0.1}
    none = {"n": 0, "coverage": None, "sharpness": None, "mse": None, "mae": None}
    result = {
        "data": "facts.tsv",
        "model": "ukge",
        "method": "cp",
        "seed": 3,
        "negatives": "sampled",
        "negative_threshold": "facts",
        "unknown": {"positive": 2, "negative": 0},
        "levels": [
            {
                "confidence": 0.9,
                "positive": figures | {"overlap_free": none},
                "negative": figures,
                "mixed": figures,
            }
        ],
    }
    text = evaluation_text(result)
    assert "facts.tsv: ukge + cp, seed 3; 10 test facts, 10 negatives (sampled)" in text
    assert "2 test facts have an unknown entity or relation" in text
    lines = text.split("\n")
    assert lines[3].split() == ["n", "MSE", "MAE", "cover", "0.9", "width"]
    assert lines[4].split() == ["facts", "10", "0.0100", "0.1000", "0.9000", "0.500"]
    assert lines[5].split() == ["overlap-free", "0", "-", "-", "-", "-"]
