"""`unkgcp demo`: the whole way, here with a training of seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unkgcp.evaluation import demonstration
from unkgcp.run import Predictor
from unkgcp.training import TrainConfig, config_for

NAMES = ("fpi", "qr", "cp", "unkgcp", "shortest")


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(model: str, data: str) -> TrainConfig:
        return replace(config_for(model, data), dimension=8, epochs=4, negatives=1, validate_every=2)

    monkeypatch.setattr(demonstration, "config_for", config)
    monkeypatch.setattr(demonstration, "QUANTILE_EPOCHS", 1)


@pytest.mark.usefixtures("_quick")
def test_demo(tmp_path: Path, run_command: Callable[..., Any]) -> None:
    outcome = run_command("demo", "-o", tmp_path / "run")
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.startswith(NAMES)}
    assert list(rows) == list(NAMES)
    (band,) = (line.split()[2:] for line in lines if line.startswith("chance allows"))
    for name in ("cp", "unkgcp"):
        for coverage, allowed in zip(rows[name][1::2], band, strict=True):
            low, high = map(float, allowed.split("-"))
            assert low <= float(coverage) <= high
    (best,) = (line.split()[2:] for line in lines if line.startswith("best possible"))
    assert all(float(width) < float(ours) for width, ours in zip(best, rows["cp"][2::2], strict=True))
    drawn = [line for line in lines if line.endswith("|")]
    assert len(drawn) == demonstration.EXAMPLES
    assert all("[" in line or "●" in line or "x" in line for line in drawn)
    assert f"unkgcp evaluate {tmp_path / 'run'}" in outcome.out
    assert Predictor.load(tmp_path / "run").method.name == "unkgcp"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert str(tmp_path / "run" / "report.html") in outcome.out
    assert all(f"<strong>{name}</strong>" in page for name in ("FPI", "QR", "CP", "UnKGCP", "shortest"))
    assert "best possible" in page
    for name in ("cp", "unkgcp", "qr"):  # the page and the terminal say the same
        assert all(f"<td>{figure}</td>" in page for figure in rows[name][1:])
    assert run_command("evaluate", tmp_path / "run").status == 0


def test_without_the_drawing_library_the_demo_only_notes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from unkgcp.cli.demo import report_on

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = report_on("some-run")
    assert said.startswith("There is no report")
    assert "pip install 'unkgcp[plot]'" in said
    assert "unkgcp report some-run" in said


def test_the_folder_is_checked_before_the_work(tmp_path: Path, run_command: Callable[..., Any]) -> None:
    (tmp_path / "precious").write_text("")
    outcome = run_command("demo", "-o", tmp_path)
    assert outcome.status == 2
    assert "is not a run of unkgcp" in outcome.err
    assert outcome.out == ""
