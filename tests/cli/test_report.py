"""`unkgcp report`: the page is written, and what cannot be reported on is said in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_a_page_is_written_where_it_was_asked_for(
    fitted: Path, small: Path, tmp_path: Path, run_command: Callable[..., Any]
) -> None:
    target = tmp_path / "pages" / "of-the-run.html"
    outcome = run_command("report", fitted, "-o", target, "--confidence", "0.8")
    assert outcome == (0, f"written to {target}\n", "")
    page = target.read_text(encoding="utf-8")
    assert "Coverage at 80" in page
    assert page.count("<figure") == 5
    other = run_command("report", fitted, "-o", tmp_path / "other.html", "--data", small / "facts.tsv")
    assert other.status == 0
    table = run_command("report", fitted, "--latex")
    assert table.out.count("rule") == 3
    assert run_command("report", fitted, "--latex", "-o", tmp_path / "table.tex").out == ""
    assert (tmp_path / "table.tex").read_text() == table.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "there is no such folder"),
        (["RUN", "--confidence", "0.8,0.9"], "one level"),
        (["RUN", "--data", "nowhere.tsv"], "nowhere.tsv"),
    ],
)
def test_one_sentence_says_what_is_wrong(
    fitted: Path, tmp_path: Path, run_command: Callable[..., Any], arguments: list[str], said: str
) -> None:
    target = tmp_path / "report.html"
    given = [str(fitted) if argument == "RUN" else argument for argument in arguments]
    outcome = run_command("report", *given, "-o", target)
    assert (outcome.status, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    assert not target.exists()


def test_without_the_drawing_library(
    fitted: Path, run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = run_command("report", fitted)
    assert outcome.status == 2
    assert "pip install matplotlib" in outcome.err
    assert not (fitted / "report.html").exists()
