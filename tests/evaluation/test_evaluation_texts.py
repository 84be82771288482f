"""The figures of an evaluation as a table for people."""

from __future__ import annotations

from typing import Any

from unkgcp.evaluation.evaluation_texts import evaluation_text, slice_name


def test_evaluation_as_text() -> None:
    figures = {"n": 10, "coverage": 0.9, "sharpness": 0.5, "interval_score": 0.7, "mse": 0.01, "mae": 0.1}
    none = {"n": 0, "coverage": None, "sharpness": None, "interval_score": None, "mse": None, "mae": None}
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
    assert lines[3].split() == ["n", "MSE", "MAE", "cover", "0.9", "width", "score"]
    assert lines[4].split() == ["facts", "10", "0.0100", "0.1000", "0.9000", "0.500", "0.700"]
    assert lines[5].split() == ["overlap-free", "0", "-", "-", "-", "-", "-"]


def doubtful(coverage: float) -> dict[str, Any]:
    """Figures of facts whose last tenth of doubt is covered so often, at a level of 0.9."""
    sure = {"from": 0.0, "to": 0.25, "n": 90, "coverage": 0.95, "sharpness": 0.4, "interval_score": 0.5}
    unsure = sure | {"from": 0.25, "to": 0.8, "n": 10, "coverage": coverage}
    slices = [row | {"band": [0.88, 0.92] if row is unsure else [0.8, 0.97]} for row in (sure, unsure)]
    return {
        "n": 100, "coverage": 0.9, "sharpness": 0.5, "interval_score": 0.7, "mse": 0.01, "mae": 0.1,
        "slices": {"doubt": slices, "degree": [], "relation": []},
        "worst": {"most_doubtful": coverage, "doubt": coverage, "degree": None, "relation": None, "slab": 0.4},
        "ert": {"both": 0.03, "below": 0.02},
    }  # fmt: skip


def text_of(coverage: float, per: str | None = None) -> str:
    figures = {"n": 10, "coverage": 0.9, "sharpness": 0.5, "interval_score": 0.7, "mse": 0.01, "mae": 0.1}
    positive = doubtful(coverage) | {"overlap_free": figures}
    level = {"confidence": 0.9, "positive": positive, "negative": figures, "mixed": figures}
    about = {"data": "x", "model": "ukge", "method": "cp", "seed": 0, "negatives": "sampled", "per": per}
    return evaluation_text(
        about | {"negative_threshold": "facts", "unknown": {"positive": 0, "negative": 0}, "levels": [level]}
    )


def test_a_slice_below_its_band_is_one_line() -> None:
    said = [line for line in text_of(0.24).split("\n") if "below its band" in line]
    assert len(said) == 1
    assert said[0].startswith("0.9: coverage 0.24 of the most doubtful tenth lies below its band 0.88-0.92")
    assert "as 1 of 2 slices do" in said[0]
    assert said[0].endswith("on average"), "a method without groups cannot promise more"
    assert "on average; fit --per doubt promises it there" in text_of(0.24, "none")
    assert "on average; fit --per relation,doubt promises it there" in text_of(0.24, "relation")
    assert "promises it there" not in text_of(0.24, "doubt,relation")
    assert "below its band" not in text_of(0.9), "inside the band nothing is said"
    assert "below its band" not in text_of(0.99), "nor above it, which breaks no promise"


def test_where_coverage_is_lowest_is_a_table() -> None:
    lines = text_of(0.24).split("\n")
    (row,) = (line.split() for line in lines if line.startswith("at 0.9"))
    assert row == ["at", "0.9", "0.240", "0.240", "-", "-", "0.400", "0.030", "0.020"]


def test_slices_in_words() -> None:
    one = {"from": 0.1, "to": 0.25}
    assert slice_name("doubt", one, [one, {"from": 0.25, "to": 1.0}]) == "facts with doubt 0.100 to 0.250"
    assert slice_name("degree", {"from": 1.0, "to": 3.0}, [one]) == "facts with degree 1 to 3"
    assert slice_name("relation", {"relation": "knows\x1b[2J"}, []) == "relation knows\ufffd[2J"
