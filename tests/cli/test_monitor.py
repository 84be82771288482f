"""`unkgcp monitor`: verdict, exit status, JSON, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import config_file
from unkgcp.graph import read, write
from unkgcp.graph.datasets import load_dataset

Run = Callable[..., Any]

SPLIT = {"calibration": 0.2, "test": 0.2}


@pytest.fixture(scope="module")
def labelled(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """good.tsv: the run's test facts; bad.tsv: the same with confidence 0, and one unknown entity."""
    folder = tmp_path_factory.mktemp("labelled")
    test = load_dataset(small / "facts.tsv", seed=0, **SPLIT).splits.test
    write(test, folder / "good.tsv")
    write(test.with_confidence(np.zeros(len(test))), folder / "bad.tsv")
    with (folder / "bad.tsv").open("a") as file:
        file.write("nobody\tbuys\tnothing\t0.5\n")
    return folder


def test_no_evidence(run_command: Run, fitted: Path, labelled: Path) -> None:
    done = run_command("monitor", fitted, labelled / "good.tsv", "--false-alarm", 1e-6)
    assert done.status == 0
    verdict, scope = done.out.splitlines()[-2:]
    assert verdict.startswith("no evidence against the promise: ")
    assert scope.startswith("This call is a test of its own: ")
    assert "holds" not in done.out
    assert done.err == ""


def test_alarm(run_command: Run, fitted: Path, labelled: Path) -> None:
    done = run_command("monitor", fitted, labelled / "bad.tsv", "--json", "--shuffle")
    assert done.status == 3
    found = json.loads(done.out)
    assert found["verdict"] == "alarm"
    assert found["martingale"]["alarm_at"] <= 100
    assert found["left_out"]["new entity"] >= 1
    assert found["facts"] + found["repeats"] + sum(found["left_out"].values()) == 601
    assert found["repeats"], "pairs that are new have several facts"
    assert 0 <= found["coverage"]["p_value"] <= 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--false-alarm", "2"], "false-alarm rate"),
        (["--confidence", "1"], "must lie between 0 and 1"),
    ],
)
def test_refusals(run_command: Run, fitted: Path, labelled: Path, options: list[str], words: str) -> None:
    done = run_command("monitor", fitted, labelled / "good.tsv", *options)
    assert done.status == 2
    assert words in done.err
    assert done.err.count("\n") == 1


def test_nothing_to_compare_is_no_good_news(fitted: Path, tmp_path: Path, run_command: Run) -> None:
    (tmp_path / "strange.tsv").write_text("zz\tyy\txx\t0.5\n")
    config = config_file(tmp_path, "header: false")
    for state in ([], ["--state", tmp_path / "watch.json"]):
        asked = ("monitor", fitted, tmp_path / "strange.tsv", "--json", "--config", config)
        outcome = run_command(*asked, *state)
        assert outcome.status == 2
    assert not (tmp_path / "watch.json").exists()
    assert "has no fact of a kind that the run was calibrated for" in outcome.err
    assert json.loads(outcome.out)["verdict"] == "nothing compared"


def test_calls_with_a_state_are_one_test(
    run_command: Run, fitted: Path, labelled: Path, tmp_path: Path
) -> None:
    facts, first, second = read(labelled / "good.tsv"), tmp_path / "one.tsv", tmp_path / "two.tsv"
    write(facts[:250], first)
    write(facts[250:], second)
    state = tmp_path / "kept" / "watch.json"
    assert run_command("monitor", fitted, first, "--state", state).status in (0, 3)
    found = json.loads(run_command("monitor", fitted, second, "--state", state, "--json").out)
    assert (found["state"]["calls"], found["state"]["begun"]) == (2, 1)
    assert found["facts"] > found["state"]["facts_before"] > 100
    kept = state.read_bytes()
    again = run_command("monitor", fitted, first, "--state", state)
    assert "all of these facts were counted before; nothing is added" in again.err
    assert f"{found['facts']:,} labelled facts" in again.out
    assert "are one test, with one false-alarm rate" in again.out
    assert state.read_bytes() == kept
    for arguments, sentence in (
        (["--state", state, "--confidence", 0.8], "was begun with confidence 0.9, not 0.8"),
        (["--state", tmp_path], "is a folder"),
    ):
        done = run_command("monitor", fitted, second, *arguments)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert sentence in done.err
    assert state.read_bytes() == kept
