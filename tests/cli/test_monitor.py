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


def test_no_evidence(run_command: Run, fitted: Path, labelled: Path) -> None:
    done = run_command("monitor", fitted, labelled / "good.tsv", "--false-alarm", 1e-6)
    assert done.status == 0
    verdict, scope = done.out.splitlines()[-2:]
    assert verdict.startswith("no evidence against the promise: ")
    assert scope.startswith("This call is a test of its own: ")
    assert "holds" not in done.out
    assert done.err == ""


def test_alarm(run_command: Run, fitted: Path, labelled: Path, tmp_path: Path) -> None:
    plot = tmp_path / "evidence.svg"
    done = run_command("monitor", fitted, labelled / "bad.tsv", "--json", "--plot", plot, "--shuffle")
    assert done.status == 3
    found = json.loads(done.out)
    assert found["verdict"] == "alarm"
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


def halves(labelled: Path, folder: Path) -> list[Path]:
    """The good facts as two files, one after the other."""
    facts = read(labelled / "good.tsv")
    paths = [folder / "one.tsv", folder / "two.tsv"]
    for path, rows in zip(paths, (slice(0, 250), slice(250, None)), strict=True):
        write(facts[rows], path)
    return paths


def test_calls_with_a_state_are_one_test(
    run_command: Run, fitted: Path, labelled: Path, tmp_path: Path
) -> None:
    first, second = halves(labelled, tmp_path)
    at_once = json.loads(run_command("monitor", fitted, labelled / "good.tsv", "--json").out)
    state = tmp_path / "kept" / "watch.json"
    assert run_command("monitor", fitted, first, "--state", state).status in (0, 3)
    done = run_command("monitor", fitted, second, "--state", state, "--json")
    found = json.loads(done.out)
    assert found["state"] == {"file": str(state), "calls": 2, "facts_before": found["state"]["facts_before"]}
    assert found["facts"] == at_once["facts"]
    assert found["coverage"] == at_once["coverage"]
    ours, theirs = found["martingale"]["log10_largest"], at_once["martingale"]["log10_largest"]
    assert ours == pytest.approx(theirs, rel=1e-9)
    kept = state.read_bytes()
    again = run_command("monitor", fitted, first, "--state", state, "--plot", tmp_path / "plot.svg")
    assert "these facts were counted in call 1 already; nothing is added" in again.err
    assert f"{at_once['facts']:,} labelled facts in 2 calls" in again.out
    assert "are one test, with one false-alarm rate" in again.out
    assert state.read_bytes() == kept
    grown = run_command("monitor", fitted, labelled / "good.tsv", "--state", state)
    assert grown.status == 2
    assert "good.tsv are those of call 1 and would count twice" in grown.err
    assert state.read_bytes() == kept


def test_an_alarm_is_kept(run_command: Run, fitted: Path, labelled: Path, tmp_path: Path) -> None:
    state = tmp_path / "watch.json"
    assert run_command("monitor", fitted, labelled / "bad.tsv", "--state", state, "--shuffle").status == 3
    first, _ = halves(labelled, tmp_path)
    done = run_command("monitor", fitted, first, "--state", state)
    assert done.status == 3
    assert done.out.splitlines()[-2].startswith("alarm: strong evidence ")


def test_states_that_do_not_fit_are_refused_and_left_alone(
    run_command: Run, fitted: Path, labelled: Path, tmp_path: Path
) -> None:
    first, second = halves(labelled, tmp_path)
    state = tmp_path / "watch.json"
    state.write_text("my notes")
    done = run_command("monitor", fitted, first, "--state", state)
    assert (done.status, done.err.count("\n"), state.read_text()) == (2, 1, "my notes")
    assert "watch.json is damaged or no state of a monitor" in done.err
    state.unlink()
    run_command("monitor", fitted, first, "--state", state)
    kept = state.read_bytes()
    done = run_command("monitor", fitted, second, "--state", state, "--confidence", 0.8)
    assert done.status == 2
    assert "was begun with --confidence 0.9, not 0.8" in done.err
    assert run_command("fit", "--from", fitted, "--method", "cp", "-o", tmp_path / "other").status == 0
    done = run_command("monitor", tmp_path / "other", second, "--state", state)
    assert done.status == 2
    assert "belongs to another run" in done.err
    done = run_command("monitor", fitted, second, "--state", tmp_path)
    assert done.status == 2
    assert "is a folder" in done.err
    assert state.read_bytes() == kept


def test_a_call_without_a_known_fact_leaves_the_state_alone(
    run_command: Run, fitted: Path, labelled: Path, tmp_path: Path
) -> None:
    state = tmp_path / "watch.json"
    (tmp_path / "strange.tsv").write_text("zz\tyy\txx\t0.5\n")
    done = run_command("monitor", fitted, tmp_path / "strange.tsv", "--no-header", "--state", state)
    assert done.status == 2
    assert not state.exists()
