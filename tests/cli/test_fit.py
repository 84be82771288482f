"""`unkgcp fit`: what it writes, from where it goes on, and what it refuses."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.runs import FILES, rewritten, same_run
from unkgcp.run import Predictor

Run = Callable[..., Any]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_run(fitted: Path, small: Path) -> None:
    assert names(fitted) == FILES
    config = yaml.safe_load((fitted / "config.yaml").read_text())
    assert config["method"] == "unkgcp"
    assert config["training"]["dimension"] == 8
    provenance = Predictor.load(fitted).provenance
    assert provenance["protocol"] == "strict"
    assert "held out" in provenance["early_stopping"]
    assert provenance["data"]["argument"] == str(small / "facts.tsv")
    assert provenance["data"]["facts"] == {"train": 1800, "validation": 0, "calibration": 600, "test": 600}
    assert set(provenance["times"]) == {"training", "calibration", "evaluation"}
    assert provenance["history"][-1]["epoch"] == 6
    metrics = json.loads((fitted / "metrics.json").read_text())
    assert metrics["levels"][2]["positive"]["n"] == 600


def test_a_seed_gives_the_same_bytes(fitted: Path, small: Path, tmp_path: Path, run_command: Run) -> None:
    again = run_command("fit", small / "facts.tsv", "-o", tmp_path / "run", "--config", small / "quick.yaml",
                        "--split", "0.2,0.2", "--device", "cpu")  # fmt: skip
    assert again.status == 0
    same_run(tmp_path / "run", fitted)


def test_what_it_says(small: Path, tmp_path: Path, run_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unkgcp.evaluation.assessment.PIECE", 100)  # of 480 queries it tells how far it is
    outcome = run_command("fit", small / "facts.tsv", "-o", tmp_path / "run", "--config", small / "quick.yaml",
                          "--protocol", "paper", "--method", "cp", "--seed", 1)  # fmt: skip
    assert outcome.status == 0
    assert "guarantee of cp: not strict, because the calibration facts also chose the model" in outcome.out
    assert "early stopping on the calibration facts, as in the paper" in outcome.out
    assert f"written to {tmp_path / 'run'}" in outcome.out
    assert "training ukge" in outcome.err
    assert "evaluating" in outcome.err
    predictor = Predictor.load(tmp_path / "run")
    assert predictor.negative is not None
    assert predictor.model.seed == 1
    assert predictor.metrics["negative_threshold"] == "negatives"


def test_quantile_regression(small: Path, tmp_path: Path, run_command: Run) -> None:
    (tmp_path / "quicker.yaml").write_text("dimension: 4\nepochs: 2\nvalidate_every: 2\n")
    outcome = run_command("fit", small / "facts.tsv", "-o", tmp_path / "run", "--config", tmp_path / "quicker.yaml",
                          "--method", "qr", "--device", "cpu")  # fmt: skip
    assert outcome.status == 0
    assert "guarantee of qr: none" in outcome.out
    predictor = Predictor.load(tmp_path / "run")
    assert list(predictor.quantiles) == [0.025, 0.05, 0.075, 0.1, 0.9, 0.925, 0.95, 0.975]
    # from there to another method and back, without training
    for method in ("cp", "qr"):
        assert run_command("fit", "--from", tmp_path / "run", "--method", method).status == 0
    again = Predictor.load(tmp_path / "run")
    queries = np.array([[0, 0, 1], [1, 0, 2]])
    np.testing.assert_array_equal(again.interval(queries).lower, predictor.interval(queries).lower)


def test_a_run_of_other_data_is_replaced_only_if_that_is_meant(
    fitted: Path, small: Path, tmp_path: Path, run_command: Run
) -> None:
    shutil.copytree(fitted, tmp_path / "run")
    (tmp_path / "other.tsv").write_text("".join((small / "facts.tsv").read_text().splitlines(True)[:900]))
    asked = ("fit", tmp_path / "other.tsv", "-o", tmp_path / "run", "--config", small / "quick.yaml")
    refused = run_command(*asked)
    assert refused.status == 2
    assert f"{tmp_path / 'run'} holds a run of other data" in refused.err
    assert refused.err.rstrip().endswith("give another folder with -o, or replace it with --force")
    same_run(tmp_path / "run", fitted)
    assert run_command(*asked, "--force").status == 0
    assert Predictor.load(tmp_path / "run").provenance["data"]["argument"].endswith("other.tsv")


class TestFrom:
    def test_another_method_in_another_folder(self, fitted: Path, tmp_path: Path, run_command: Run) -> None:
        outcome = run_command("fit", "--from", fitted, "--method", "cp", "-o", tmp_path / "cp")
        assert outcome.status == 0
        before, after = Predictor.load(fitted), Predictor.load(tmp_path / "cp")
        assert (before.method.name, after.method.name) == ("unkgcp", "cp")
        same_run(tmp_path / "cp", fitted, "tables/")
        assert after.metrics["method"] == "cp"
        assert after.method.size == before.method.size
        assert after.provenance["recalibrated"]["from"] == str(fitted)
        assert after.provenance["times"]["training"] == before.provenance["times"]["training"]

    def test_in_place(self, fitted: Path, tmp_path: Path, run_command: Run) -> None:
        shutil.copytree(fitted, tmp_path / "run")
        assert run_command("fit", "--from", tmp_path / "run", "--method", "fpi").status == 0
        assert Predictor.load(tmp_path / "run").method.name == "fpi"
        assert names(tmp_path / "run") == FILES
        assert run_command("fit", "--from", tmp_path / "run", "--method", "unkgcp").status == 0
        same_run(tmp_path / "run", fitted)

    def test_other_calibration_facts(
        self, fitted: Path, small: Path, tmp_path: Path, run_command: Run
    ) -> None:
        header, *lines = (small / "facts.tsv").read_text().splitlines()
        rows = [line.rsplit("\t", 1) for line in lines[:100]]
        new = [header, *(f"{labels}\t{1 - float(confidence):.3f}" for labels, confidence in rows)]
        (tmp_path / "new.tsv").write_text("\n".join(new) + "\n")
        outcome = run_command("fit", tmp_path / "new.tsv", "--from", fitted, "-o", tmp_path / "run")
        assert outcome.status == 0
        assert "confidence" not in outcome.out  # one file has no test facts, so nothing is evaluated
        assert 80 <= Predictor.load(tmp_path / "run").method.size <= 100

    @pytest.mark.parametrize(
        "options",
        ["--seed 1", "--resume", "--protocol paper", "--model beurre", "--device cpu", "--split 0.1,0.3"],
    )
    def test_options_of_training_and_splitting_are_refused(
        self, fitted: Path, small: Path, tmp_path: Path, run_command: Run, options: str
    ) -> None:
        name, splits = options.split()[0], options.startswith("--split")
        data = [small / "facts.tsv"] if splits else []
        outcome = run_command("fit", *data, "--from", fitted, "-o", tmp_path / "run", *options.split())
        assert outcome.status == 2
        why = "splits a file, and --from calibrates on all of it" if splits else "is for training, and --from"
        assert f"{name} {why}" in outcome.err

    def test_needs_quantile_models_for_quantile_regression(self, fitted: Path, run_command: Run) -> None:
        outcome = run_command("fit", "--from", fitted, "--method", "qr", "-o", fitted.parent / "no")
        assert outcome.status == 2
        assert "has no quantile models" in outcome.err
        assert not (fitted.parent / "no").exists()

    def test_changed_data_are_noticed(
        self, fitted: Path, small: Path, tmp_path: Path, run_command: Run
    ) -> None:
        shutil.copytree(fitted, tmp_path / "run")
        changed = tmp_path / "facts.tsv"
        changed.write_text((small / "facts.tsv").read_text() + "a\tb\tc\t0.5\n")
        rewritten(
            tmp_path / "run", lambda arrays, about: about["provenance"]["data"].update(argument=str(changed))
        )
        for arguments in (("fit", "--from", tmp_path / "run"), ("evaluate", tmp_path / "run")):
            outcome = run_command(*arguments)
            assert outcome.status == 2
            assert "facts.tsv has changed since the run was fitted" in outcome.err
        changed.unlink()
        outcome = run_command("evaluate", tmp_path / "run")
        assert outcome.status == 2
        assert "there is no such file" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "fit needs DATA and -o RUN"),
        (["facts.tsv"], "fit needs DATA and -o RUN"),
        (["facts.tsv", "-o", "new", "--method", "magic"], "there is no interval method 'magic'"),
        (["facts.tsv", "-o", "new", "--model", "magic"], "magic"),
        (["facts.tsv", "-o", "new", "--protocol", "magic"], "protocol is 'magic'"),
        (["facts.tsv", "-o", "new", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["facts.tsv", "-o", "new", "--config", "typo.yaml"], "'learning_rat'; did you mean 'learning_rate'"),
        (
            ["facts.tsv", "-o", "new", "--config", "ukge.yaml", "--model", "beurre"],
            "for model ukge, but --model",
        ),
        (["facts.tsv", "-o", "precious"], "precious exists and is not a run"),
        (["facts.tsv", "-o", "facts.tsv"], "facts.tsv is not a folder"),
        (["nowhere.tsv", "-o", "new"], "nowhere.tsv"),
        (["facts.tsv", "-o", "new", "--split", "0.01,0.99"], "0.99"),
        (
            ["facts.tsv", "-o", "new", "--method", "fpi", "--per", "relation"],
            "'fpi' has no promise per relation",
        ),
        (["facts.tsv", "-o", "new", "--config", "folds.yaml"], "the setting folds goes with --method cv+"),
        (
            ["facts.tsv", "-o", "new", "--config", "wrong.yaml"],
            "header is 'perhaps' but must be true or false",
        ),
        (["facts.tsv", "-o", "new", "--split", "a,b"], "--split a,b: expected the shares"),
        (["facts.tsv", "-o", "new", "--confidence-scale", "a"], "--confidence-scale a: expected LOW,HIGH"),
        (
            ["facts.tsv", "-o", "new", "--per", "head"],
            "a promise per 'head' is not on offer; choose doubt, rel",
        ),
        (["facts.tsv", "-o", "new", "--per", "doubt,none"], "a promise per 'none' is not on offer"),
        (
            ["facts.tsv", "-o", "new", "--per", "doubt, doubt"],
            "per doubt is asked for twice in 'doubt, doubt'",
        ),
        (["--from", "nowhere"], "nowhere is no run"),
        (["--from", "precious"], "precious is no run of unkgcp"),
    ],
)
def test_bad_input(
    arguments: list[str],
    sentence: str,
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_command: Run,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(small / "facts.tsv", tmp_path)
    (tmp_path / "typo.yaml").write_text("learning_rat: 0.1\n")
    (tmp_path / "ukge.yaml").write_text("model: ukge\n")
    (tmp_path / "folds.yaml").write_text("folds: 5\n")
    (tmp_path / "wrong.yaml").write_text("header: perhaps\n")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    outcome = run_command("fit", *arguments)
    assert outcome.status == 2
    assert sentence in outcome.err
    assert outcome.err.startswith("unkgcp: ")
    assert outcome.err.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def start_and_stop(arguments: list[str], run: Path, how: signal.Signals) -> tuple[int, str]:
    """Start `unkgcp`, send the signal once there is a checkpoint, and wait for the end: (status, stderr)."""
    process = subprocess.Popen(
        [sys.executable, "-m", "unkgcp", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not list((run / ".checkpoint").glob("model*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(how)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def arguments_of(config: str, small: Path, tmp_path: Path, run: str) -> list[str]:
    path = tmp_path / "config.yaml"
    path.write_text(config)
    return [
        "fit",
        str(small / "facts.tsv"),
        "-o",
        str(tmp_path / run),
        "--config",
        str(path),
        "--device",
        "cpu",
    ]


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_model_so_far(small: Path, tmp_path: Path, run_command: Run) -> None:
    config = "dimension: 8\nepochs: 100000\npatience: 100000\nvalidate_every: 1\n"
    arguments = arguments_of(config, small, tmp_path, "run")
    status, err = start_and_stop(arguments, tmp_path / "run", signal.SIGINT)
    assert status == 130
    assert "stopped by the user; the best model so far is in" in err
    assert "Traceback" not in err
    predictor = Predictor.load(tmp_path / "run")
    assert predictor.provenance["stopped"] == "stopped by the user"
    assert predictor.provenance["history"]
    assert (tmp_path / "run" / ".checkpoint").is_dir()
    other = run_command(*arguments_of("dimension: 16\n", small, tmp_path, "run"), "--resume")
    assert other.status == 2
    assert "belongs to a run with other config" in other.err


@pytest.mark.slow
def test_killed_and_resumed_ends_in_the_same_run(small: Path, tmp_path: Path, run_command: Run) -> None:
    config = "dimension: 8\nepochs: 120\npatience: 1000\nvalidate_every: 5\n"
    arguments = arguments_of(config, small, tmp_path, "killed")
    status, _ = start_and_stop(arguments, tmp_path / "killed", signal.SIGKILL)
    assert status == -signal.SIGKILL
    unfinished = run_command("evaluate", tmp_path / "killed")
    assert unfinished.status == 2
    assert "is not finished; continue with" in unfinished.err
    assert run_command(*arguments, "--resume").status == 0
    assert run_command(*arguments_of(config, small, tmp_path, "whole")).status == 0
    assert names(tmp_path / "killed") == FILES
    same_run(tmp_path / "killed", tmp_path / "whole")
