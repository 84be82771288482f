"""The figures of an evaluation as a table for people."""

from __future__ import annotations

from unkgcp.evaluation.terminal import evaluation_text


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
