"""Evaluations in sentences: a dozen lines of 80 columns, every figure with --full, a table for a paper."""

from __future__ import annotations

from typing import Any

import pytest

from unkgcp.evaluation.evaluation_texts import COLUMNS, full_text, latex_table, slice_words, summary

PLAIN = {
    "n": 100,
    "coverage": 0.914,
    "sharpness": 0.5,
    "median_width": 0.184,
    "interval_score": 0.7,
} | dict.fromkeys(("mse", "mae"), 0.01)
NONE = {"n": 0, **dict.fromkeys(name for name in PLAIN if name != "n")}


def part(coverage: float, verdict: str | None = "kept") -> dict[str, Any]:
    """Figures of facts whose last tenth of doubt is covered so often, at a level of 0.9."""
    sure = {"from": 0.0, "to": 0.25, "n": 90, "coverage": 0.95, "sharpness": 0.4, "interval_score": 0.5}
    slices = [
        sure | {"band": [0.8, 0.97]},
        sure | {"from": 0.3, "n": 10, "coverage": coverage, "band": [0.8, 0.95]},
    ]
    return PLAIN | {
        "band": None if verdict is None else [0.875, 0.93],
        "verdict": verdict,
        "knowing_nothing": {"interval_score": 0.8},
        "slices": {"doubt": slices, "degree": [], "relation": []},
        "worst": dict.fromkeys(("most_doubtful", "doubt"), coverage) | {"degree": None, "relation": None},
        "ert": None,
        "least_possible": 0.9,
        "overlap_free": NONE,
    }


def result(coverage: float = 0.24, verdict: str | None = "kept", **about: Any) -> dict[str, Any]:
    kinds = {
        kind: {"share": 0.25, **part(0.9)}
        for kind in ("known pair", "new pair", "new entity", "new relation")
    }
    level = {
        "confidence": 0.9,
        "positive": part(coverage, verdict) | {"kinds": kinds},
        "negative": PLAIN,
        "mixed": PLAIN,
    }
    facts = {"training": 12_345, "calibration": 1_234, "test": 1_567}
    named = {
        "data": "/some/where/facts.tsv",
        "model": "ukge",
        "method": "cp",
        "seed": 3,
        "per": "none",
        "facts": facts,
    }
    more = {"negatives": "sampled", "negative_threshold": "facts", "taken_in": 0, "promised": True}
    return named | more | {"levels": [level | {"confidence": 0.5}, level]} | about


def test_an_evaluation_fits_on_a_small_terminal() -> None:
    lines = summary(result()).split("\n")
    assert len(lines) <= 10
    assert max(map(len, lines)) <= COLUMNS
    assert lines[0] == "ukge + cp learned from 12,345 facts of facts.tsv; 1,234 calibrate, 1,567 test."
    said = " ".join(lines)
    assert "Promise kept: at 90 % the intervals contain the truth for 91 of 100 test facts" in said
    assert "(chance allows 88 to 93); half are narrower than 0.18." in said
    assert "Worst: the facts that the method doubts most, 24 of 100, too few for chance." in said
    rows = {line.split("  ")[0]: line.split() for line in lines}
    assert rows["new entities"][2:] == ["25", "%", "0.914", "0.500", "0.700", "0.800", "0.900"]
    assert rows["all test facts"][3:] == ["100", "%", "0.914", "0.500", "0.700", "0.800", "0.240"]


@pytest.mark.parametrize(
    ("about", "begins", "says"),
    [
        ({"verdict": "above"}, "More than promised: at 90 %", "equal confidences and small groups lift it"),
        (
            {"verdict": "above", "least": 0.913},
            "More than promised",
            ", equal confidences lift it to 91 at least)",
        ),
        ({"width": 0.0}, "Promise kept", "half are a single value."),
        ({"verdict": "below"}, "Less than chance allows: at 90 %", "88 to 93 allowed; an assumption fails"),
        ({"verdict": None}, "At 90 % the intervals", "promised on average"),
        ({"verdict": None, "promised": False}, "At 90 % the intervals", "nothing is promised"),
        (
            {"model": "none", "taken_in": 5},
            "Promise kept",
            "Updates have learned from 5 test facts, left out here.",
        ),
    ],
)
def test_verdicts(about: dict[str, Any], begins: str, says: str) -> None:
    least, width = about.get("least", 0.9), about.get("width", 0.184)
    made = result(**{name: value for name, value in about.items() if name not in ("least", "width")})
    made["levels"][1]["positive"] |= {"least_possible": least, "median_width": width}
    text = summary(made)
    assert any(line.startswith(begins) for line in text.split("\n"))
    assert says in text.replace("\n", " ")


def test_every_figure_is_explained() -> None:
    text = full_text(result())
    for word in (
        "chance allows:",
        "score:",
        "nothing:",
        "worst:",
        "overlap-free:",
        "negatives:",
        "least possible:",
        "ERT:",
    ):
        assert word in text
    assert text.count("known pairs") == 2, "every level has every kind"
    assert "1 of 2 slices are covered less than chance allows at 90 %:" in text
    assert "0.24 (0.80-0.95) of 10 the facts that the method doubts most" in text
    assert "fit --per doubt promises the level there, too" in text
    assert "promises the level" not in full_text(result(per=None)), (
        "a method without groups cannot promise more"
    )
    assert "promises the level" not in full_text(result(per="doubt,relation"))
    assert "slices are covered less" not in full_text(result(0.9))


def test_a_table_for_a_paper() -> None:
    text = latex_table(result(data="a_b & c.tsv"))
    assert "a\\_b \\& c.tsv, ukge + cp: intervals at 90 \\%" in text
    assert "new entities & 100 & 0.914 & 0.500 & 0.700 & 0.900 \\\\" in text
    assert "all & 100 & 0.914 & 0.500 & 0.700 & 0.240 \\\\" in text


def test_slices_in_words() -> None:
    low, middle, high = ({"from": float(n), "to": float(n + 4)} for n in (0, 5, 10))
    among = [low, middle, high]
    said = [slice_words("degree", one, among) for one in among]
    assert said[0] == "facts about entities with fewer than 5 facts"
    assert said[1:] == [
        "facts about entities with 5 to 9 facts",
        "facts about entities with at least 10 facts",
    ]
    assert slice_words("doubt", middle, among) == "part 2 of 3 of the facts, the least doubted first"
    assert slice_words("relation", {"relation": "knows\x1b[2J"}, []) == "facts of the relation knows\ufffd[2J"
