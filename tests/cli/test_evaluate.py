"""`unkgcp evaluate`: the object that scripts rely on, and the text for people."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]

KEYS = {"n", "coverage", "sharpness", "interval_score", "mse", "mae"}


def test_the_object(fitted: Path, run_command: Run) -> None:
    result = json.loads(run_command("evaluate", fitted, "--json").out)
    assert {"data", "model", "method", "seed", "levels"} <= set(result)
    assert (result["model"], result["method"], result["seed"]) == ("ukge", "unkgcp", 0)
    assert [level["confidence"] for level in result["levels"]] == [0.8, 0.85, 0.9, 0.95]
    for level in result["levels"]:
        assert set(level) == {"confidence", "positive", "negative", "mixed"}
        positive = level["positive"]
        parts = (
            positive,
            *positive["kinds"].values(),
            positive["overlap_free"],
            level["negative"],
            level["mixed"],
        )
        assert all(set(part) >= KEYS for part in parts)
        assert sum(of["n"] for of in positive["kinds"].values()) == positive["n"]
        for part in (positive, *positive["kinds"].values()):
            assert set(part["worst"]) == {"most_doubtful", "doubt", "degree", "relation"}
        assert sum(one["n"] for one in positive["slices"]["degree"]) == positive["n"]
        assert all(one["band"][0] < one["band"][1] for one in positive["slices"]["doubt"])
        assert set(positive["ert"]) == {"both", "below"}
        assert level["mixed"]["n"] == positive["n"] + level["negative"]["n"]
    assert result == json.loads((fitted / "metrics.json").read_text())


def test_levels_and_text(fitted: Path, run_command: Run) -> None:
    result = json.loads(run_command("evaluate", fitted, "--json", "--confidence", "0.5").out)
    assert [level["confidence"] for level in result["levels"]] == [0.5]
    outcome = run_command("evaluate", fitted, "--confidence", "0.5,0.99")
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines[:-1])) <= 80
    assert "at 99 % the intervals contain the truth" in " ".join(lines)
    assert f"unkgcp report {fitted}" in lines[-1]
    full = run_command("evaluate", fitted, "--confidence", "0.5,0.99", "--full").out
    assert "at 50 %" in full
    assert "ERT" in full


def test_other_data(fitted: Path, small: Path, tmp_path: Path, run_command: Run) -> None:
    lines = (small / "facts.tsv").read_text().splitlines(keepends=True)[1:]
    for part, rows in (("train", lines[:50]), ("val", lines[50:90]), ("test", lines[100:120])):
        (tmp_path / f"{part}.tsv").write_text("".join(rows))
    with (tmp_path / "test.tsv").open("a") as file:
        file.write("stranger\tnear\tstranger\t0.5\n" + lines[0])
    result = json.loads(run_command("evaluate", fitted, "--json", "--data", tmp_path).out)
    assert result["data"] == str(tmp_path)
    assert result["levels"][0]["positive"]["n"] == 22
    assert result["levels"][0]["positive"]["overlap_free"]["n"] == 21
    assert result["unknown"]["positive"] >= 1


def test_bad_input(tmp_path: Path, fitted: Path, run_command: Run) -> None:
    for arguments, sentence in (
        ([tmp_path], "has no run.safetensors"),
        ([fitted, "--data", tmp_path / "nowhere"], "nowhere"),
        ([fitted, "--confidence", "2"], "no number from 0 to 1"),
    ):
        outcome = run_command("evaluate", *arguments)
        assert outcome.status == 2
        assert sentence in outcome.err
