"""The whole way with confidences that are intervals: fit, evaluate, predict, report, monitor, calibrate anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as csv
import pytest

from tests.cli.conftest import QUICK
from tests.oracles import generate
from unkgcp.cli import main
from unkgcp.graph import write
from unkgcp.graph.datasets import load_dataset
from unkgcp.run import Predictor

Run = Callable[..., Any]

SHARES = ["--split", "0.2,0.2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """facts.tsv with columns lower and upper, and a run on it."""
    place = tmp_path_factory.mktemp("valued")
    graph, oracle = generate(seed=0)
    part = graph[graph.relation >= graph.n_relations - 4][:3000]
    write(oracle.draw_intervals(part, np.random.default_rng(0)), place / "facts.tsv")
    (place / "quick.yaml").write_text(QUICK)
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(place / "facts.tsv"), "-o", str(place / "run"), "--config", str(place / "quick.yaml"),
              "--device", "cpu", *SHARES])  # fmt: skip
    assert ended.value.code == 0
    return place


def test_evaluated_jointly(folder: Path, run_command: Run) -> None:
    result = json.loads(run_command("evaluate", folder / "run", "--json").out)
    assert result["method"] == "joint"
    found = {level["confidence"]: level["positive"] for level in result["levels"]}
    assert 0.8 < found[0.9]["coverage"] < 0.98
    assert found[0.8]["sharpness"] < found[0.9]["sharpness"] < 1


def test_predictions_contain_the_true_intervals(folder: Path, run_command: Run, tmp_path: Path) -> None:
    dataset = load_dataset(folder / "facts.tsv", seed=0, calibration=0.2, test=0.2)
    test = dataset.splits.test
    write(test, tmp_path / "queries.tsv")
    answers = tmp_path / "answers.csv"
    assert run_command("predict", folder / "run", tmp_path / "queries.tsv", "-o", answers).status == 0
    table = csv.read_csv(answers)
    assert table.schema.names[:7] == ["head", "relation", "tail", "score", "lower", "upper", "status"]
    assert test.ends is not None
    inside = (np.asarray(table["lower"]) <= test.ends[:, 0]) & (test.ends[:, 1] <= np.asarray(table["upper"]))
    evaluated = json.loads((folder / "run" / "metrics.json").read_text())["levels"][2]["positive"]
    assert inside.mean() == evaluated["coverage_of_rows"]


def test_calibrated_anew_as_the_paper_sketches(folder: Path, run_command: Run, tmp_path: Path) -> None:
    outcome = run_command("fit", "--from", folder / "run", "--method", "mean-length", "-o", tmp_path / "run")
    assert outcome.status == 0
    assert "union bound" in outcome.out
    wide, narrow = (
        json.loads((run / "metrics.json").read_text())["levels"][2]["positive"]["sharpness"]
        for run in (tmp_path / "run", folder / "run")
    )
    assert wide > narrow
    assert run_command("report", tmp_path / "run").status == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Several thresholds or models share the promise" in page, (
        "no band: two thresholds have no beta-binomial law"
    )
    assert "beta-binomial" not in page


def test_refusals(folder: Path, run_command: Run, tmp_path: Path, small: Path, fitted: Path) -> None:
    facts = folder / "facts.tsv"
    for arguments, words in [
        (["fit", facts, "-o", tmp_path / "x", "--method", "fpi"], "predicts one number"),
        (["fit", small / "facts.tsv", "-o", tmp_path / "x", "--method", "joint"], "columns lower and upper"),
        (["fit", "--from", fitted, facts, "-o", tmp_path / "x"], "no model of lengths"),
        (["fit", facts, "-o", tmp_path / "x", "--model", "passleaf"], "passleaf's pseudo-labels"),
    ]:
        outcome = run_command(*arguments)
        assert outcome.status == 2
        assert words in outcome.err
        assert not (tmp_path / "x" / "run.safetensors").exists()


def test_reported_jointly(folder: Path, run_command: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: see the extra evidence")
    assert run_command("report", folder / "run", "-o", tmp_path / "report.html").status == 0
    page = (tmp_path / "report.html").read_text()
    for words in ("Confidences are intervals", "have all of their true confidence inside"):
        assert words in page
    assert "--per relation" not in page, "no method for such confidences has it"
    test = load_dataset(folder / "facts.tsv", seed=0, calibration=0.2, test=0.2).splits.test
    answer = Predictor.load(folder / "run").interval(test, 0.9)
    assert test.ends is not None
    inside = (answer.lower <= test.ends[:, 0]) & (test.ends[:, 1] <= answer.upper)
    evaluated = json.loads((folder / "run" / "metrics.json").read_text())["levels"][2]["positive"]
    assert inside.mean() == evaluated["coverage_of_rows"]
    assert f'<dd class="number">{evaluated["coverage"]:.3f}</dd>' in page
    # the widest bracket that is missed stands among the remarkable facts, as drawn and in numbers
    away = np.maximum(answer.lower - test.ends[:, 0], test.ends[:, 1] - answer.upper)
    first, last = test.ends[np.argmax(np.where(answer.code == 0, away, -1))]
    assert f"true {first:.2f} to {last:.2f}" in page
    assert f'<span class="away">{first:.3f}\N{EN DASH}{last:.3f}</span>' in page
