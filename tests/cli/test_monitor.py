"""`unkgcp monitor`: verdict, exit status, JSON, plot, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


def test_holds(run_command: Run, fitted: Path, labelled: Path) -> None:
    done = run_command("monitor", fitted, labelled / "good.tsv", "--false-alarm", 1e-6)
    assert done.status == 0
    assert done.out.splitlines()[-1].startswith("holds: ")
    assert done.err == ""


def test_broken(run_command: Run, fitted: Path, labelled: Path, tmp_path: Path) -> None:
    plot = tmp_path / "evidence.svg"
    done = run_command("monitor", fitted, labelled / "bad.tsv", "--json", "--plot", plot, "--shuffle")
    assert done.status == 3
    found = json.loads(done.out)
    assert found["verdict"] == "broken"
    assert found["martingale"]["alarm_at"] <= 100
    unknown = found["unknown"]
    assert unknown["unknown-entity"] >= 1
    assert found["facts"] + sum(unknown.values()) == 601
    assert found["coverage"]["law"] == "beta-binomial"
    assert plot.read_text().startswith("<?xml")


@pytest.mark.parametrize("options", [("--per", "relation"), ("--method", "fpi")])
def test_without_one_rank_of_kept_scores_the_calibration_facts_are_read_again(
    run_command: Run, fitted: Path, labelled: Path, tmp_path: Path, options: tuple[str, str]
) -> None:
    """Several thresholds have no law of one rank, and FPI keeps no scores."""
    assert run_command("fit", "--from", fitted, *options, "-o", tmp_path / "run").status == 0
    done = run_command("monitor", tmp_path / "run", labelled / "good.tsv", "--json", "--false-alarm", 1e-6)
    assert done.status == 0
    assert json.loads(done.out)["coverage"]["law"] == "hypergeometric"


def test_a_sorted_file_is_pointed_out(run_command: Run, fitted: Path, labelled: Path, tmp_path: Path) -> None:
    facts = read(labelled / "good.tsv")
    write(facts[np.argsort(facts.relation, kind="stable")], tmp_path / "sorted.tsv")
    done = run_command("monitor", fitted, tmp_path / "sorted.tsv")
    assert "sorted by relation" in done.err
    assert "--shuffle" in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--plot", "picture.bmp"], "picture.bmp does not end in"),
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
    outcome = run_command("monitor", fitted, tmp_path / "strange.tsv", "--json", "--no-header")
    assert outcome.status == 2
    assert "has no fact about entities and relations that the run knows" in outcome.err
    assert json.loads(outcome.out)["verdict"] == "nothing compared"
