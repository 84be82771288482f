"""`unkgcp fit --method cv+`: a few hundred facts, a run that says what it guarantees, the same after loading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import QUICK, config_file
from unkgcp.conformal.cross import guaranteed
from unkgcp.graph import read, write
from unkgcp.run import Predictor

Run = Callable[..., Any]


@pytest.fixture
def few(small: Path, tmp_path: Path) -> Path:
    graph = read(small / "facts.tsv")
    busy = np.argsort(-np.bincount(np.concatenate([graph.head, graph.tail])))[:150]
    rows = np.flatnonzero(np.isin(graph.head, busy) & np.isin(graph.tail, busy))[:300]
    assert len(rows) >= 150
    write(graph[rows], tmp_path / "few.tsv")
    return tmp_path / "few.tsv"


def test_from_the_command_line(few: Path, small: Path, tmp_path: Path, run_command: Run) -> None:
    outcome = run_command(
        "fit", few, "-o", tmp_path / "run", "--method", "cv+", "--split", "0.07,0.2", "--device", "cpu",
        "--config", config_file(tmp_path, QUICK + "folds: 4\nbase: cp\n"),
    )  # fmt: skip
    assert outcome.status == 0
    predictor = Predictor.load(tmp_path / "run")
    assert predictor.method.name == "cv+"
    assert predictor.method.options() == {"base": "cp"}
    least = guaranteed(0.9, predictor.method.size, 4)
    assert f"coverage is guaranteed to be at least {least:.3f}" in outcome.out
    assert "1 - 2 (1 - level) in the worst case" in outcome.out
    answers = run_command("predict", tmp_path / "run", few)
    assert answers.status == 0, "it is restored with its members"
    assert "cv+ with 4 folds" in answers.err
    assert len(answers.out.splitlines()) == len(read(few)) + 1
    again = run_command("fit", "--from", tmp_path / "run", "--method", "cv+", "-o", tmp_path / "again")
    assert again.status == 2
    assert "needs models of its own" in again.err


def test_a_model_of_all_facts_is_calibrated_on_none_of_them(
    few: Path, small: Path, tmp_path: Path, run_command: Run
) -> None:
    run, config = tmp_path / "run", config_file(tmp_path, QUICK + "folds: 2\n")
    outcome = run_command("fit", few, "-o", run, "--method", "cv+", "--config", config)
    assert outcome.status == 0
    for data in ([], [few]):
        again = run_command("fit", *data, "--from", run, "--method", "cp", "-o", tmp_path / "leak")
        assert again.status == 2
        assert "the model was trained on" in again.err
        assert not (tmp_path / "leak").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config", "folds: 1"], "choose from 2 to half the number of facts"),
        (["--per", "relation"], "--per does not go with --method cv+"),
        (["--config", "base: fpi"], "cv+ goes with cp or unkgcp, not with 'fpi'"),
    ],
)
def test_refusals(few: Path, tmp_path: Path, run_command: Run, arguments: list[str], sentence: str) -> None:
    if arguments[0] == "--config":
        arguments[1] = str(config_file(tmp_path, arguments[1]))
    outcome = run_command("fit", few, "-o", tmp_path / "run", "--method", "cv+", *arguments)
    assert outcome.status == 2
    assert sentence in outcome.err
    assert not (tmp_path / "run").exists()
