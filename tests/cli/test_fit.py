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

from unkgcp.graph import write
from unkgcp.run import Predictor

Run = Callable[..., Any]

FILES = {
    "calibration.npz",
    "config.yaml",
    "metrics.json",
    "model.safetensors",
    "provenance.json",
    "vocabulary.parquet",
    "facts.npz",
}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_run(fitted: Path, small: Path) -> None:
    assert names(fitted) == FILES
    config = yaml.safe_load((fitted / "config.yaml").read_text())
    assert config["method"] == "unkgcp"
    assert config["training"]["dimension"] == 8
    provenance = json.loads((fitted / "provenance.json").read_text())
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
                        "--calibration", 0.2, "--test", 0.2, "--device", "cpu")  # fmt: skip
    assert again.status == 0
    for name in ("model.safetensors", "calibration.npz", "config.yaml", "vocabulary.parquet", "metrics.json"):
        assert (tmp_path / "run" / name).read_bytes() == (fitted / name).read_bytes()


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


@pytest.mark.parametrize("model", ["ukge-rect", "beurre"])
def test_other_models(model: str, small: Path, tmp_path: Path, run_command: Run) -> None:
    outcome = run_command("fit", small / "facts.tsv", "-o", tmp_path / "run", "--config", small / "quick.yaml",
                          "--model", model, "--device", "cpu")  # fmt: skip
    assert outcome.status == 0
    assert Predictor.load(tmp_path / "run").model.config.model == model


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


class TestFrom:
    def test_another_method_in_another_folder(self, fitted: Path, tmp_path: Path, run_command: Run) -> None:
        outcome = run_command("fit", "--from", fitted, "--method", "cp", "-o", tmp_path / "cp")
        assert outcome.status == 0
        before, after = Predictor.load(fitted), Predictor.load(tmp_path / "cp")
        assert (before.method.name, after.method.name) == ("unkgcp", "cp")
        assert (tmp_path / "cp" / "model.safetensors").read_bytes() == (
            fitted / "model.safetensors"
        ).read_bytes()
        assert after.metrics["method"] == "cp"
        assert after.method.size == before.method.size
        assert after.provenance["recalibrated"]["from"] == str(fitted)
        assert after.provenance["times"]["training"] == before.provenance["times"]["training"]

    def test_in_place(self, fitted: Path, tmp_path: Path, run_command: Run) -> None:
        shutil.copytree(fitted, tmp_path / "run")
        assert run_command("fit", "--from", tmp_path / "run", "--method", "fpi").status == 0
        assert Predictor.load(tmp_path / "run").method.name == "fpi"
        assert names(tmp_path / "run") == FILES
        assert run_command("fit", "--from", tmp_path / "run").status == 0
        for name in ("model.safetensors", "calibration.npz", "config.yaml", "metrics.json"):
            assert (tmp_path / "run" / name).read_bytes() == (fitted / name).read_bytes()

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
        assert 90 <= Predictor.load(tmp_path / "run").method.size <= 100

    def test_a_few_facts_of_training_are_told(
        self, fitted: Path, small: Path, tmp_path: Path, run_command: Run
    ) -> None:
        facts = Predictor.load(fitted).facts
        assert facts is not None
        graph = facts.graph(Predictor.load(fitted).model.vocabulary)[:100]
        changed = graph.with_confidence(
            np.where(np.arange(100) < 9, graph.confidence, 1 - graph.confidence / 3)
        )
        write(changed, tmp_path / "new.tsv")
        outcome = run_command("fit", tmp_path / "new.tsv", "--from", fitted, "-o", tmp_path / "run")
        assert outcome.status == 0
        (sentence,) = (line for line in outcome.err.splitlines() if "trained on" in line)
        assert " unkgcp: the model was trained on 9 of these 100 facts" in sentence
        assert sentence.endswith("leave these facts out")

    def test_facts_of_training_are_refused(
        self, fitted: Path, small: Path, tmp_path: Path, run_command: Run
    ) -> None:
        outcome = run_command("fit", small / "facts.tsv", "--from", fitted, "-o", tmp_path / "run")
        assert outcome.status == 2
        assert "calibrate on facts it has not seen" in outcome.err
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        "options",
        ["--calibrate cv+", "--calibrate split", "--seed 1", "--quick", "--resume", "--protocol paper",
         "--model beurre", "--config nowhere.yaml", "--device cpu"],
    )  # fmt: skip
    def test_options_of_training_are_refused(
        self, fitted: Path, tmp_path: Path, run_command: Run, options: str
    ) -> None:
        outcome = run_command("fit", "--from", fitted, "-o", tmp_path / "run", *options.split())
        assert outcome.status == 2
        assert f"{options.split()[0]} is for training, and --from trains nothing" in outcome.err

    def test_a_file_is_not_split(self, fitted: Path, small: Path, tmp_path: Path, run_command: Run) -> None:
        facts = small / "facts.tsv"
        outcome = run_command("fit", facts, "--from", fitted, "-o", tmp_path / "run", "--test", "0.3")
        assert outcome.status == 2
        assert "--test splits a file, and --from calibrates on all of it" in outcome.err

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
        provenance = json.loads((tmp_path / "run" / "provenance.json").read_text())
        provenance["data"]["argument"] = str(changed)
        (tmp_path / "run" / "provenance.json").write_text(json.dumps(provenance))
        for arguments in (("fit", "--from", tmp_path / "run"), ("evaluate", tmp_path / "run")):
            outcome = run_command(*arguments)
            assert outcome.status == 2
            assert "facts.tsv has changed since the run was fitted" in outcome.err
        changed.unlink()
        outcome = run_command("evaluate", tmp_path / "run")
        assert outcome.status == 2
        assert "there is no such file" in outcome.err


OPEN = ("--population", "open", "--share-of-facts")
EVIDENCE = ["--method", "evidence", "--quick"]


def test_groups_in_which_the_promise_holds(fitted: Path, tmp_path: Path, run_command: Run) -> None:
    """What was asked for is said, kept in the run, and answered; `none` is one threshold."""
    again = run_command("fit", "--from", fitted, "--per", "degree, doubt", "-o", tmp_path / "groups")
    assert again.status == 0
    assert (
        "calibration facts, within each group of facts that the method doubts alike and within each group of facts "
        "about entities with about as many training facts (" in again.out
    )
    assert (
        yaml.safe_load((tmp_path / "groups" / "config.yaml").read_text())["options"]["per"] == "doubt,degree"
    )
    none = run_command("fit", "--from", fitted, "--per", "none", "-o", tmp_path / "none")
    assert none.status == 0
    assert "within" not in none.out
    for method in ("fpi", "unkgcp"):
        assert (
            run_command(
                "fit", "--from", fitted, "--method", method, "--per", "none", "-o", tmp_path / "x"
            ).status
            == 0
        )


def test_the_nearest_non_facts_are_calibrated_with_if_asked_for(
    fitted: Path, tmp_path: Path, run_command: Run
) -> None:
    kinds = ("--population", "open", "--negatives", "near,joined")
    again = run_command("fit", "--from", fitted, "-o", tmp_path / "open", *kinds)
    assert again.status == 0
    assert "triples that are no facts (near, joined)" in again.out
    predictor = Predictor.load(tmp_path / "open")
    near, joined = (predictor.method.scores[kind] for kind in ("near", "joined"))  # type: ignore[attr-defined]
    assert len(near) > 0
    assert len(joined) > 0
    wrong = run_command("fit", "--from", fitted, "-o", tmp_path / "no", *kinds[:2], "--negatives", "far")
    assert wrong.status == 2
    assert "choose among uniform, same-type, frequent, relation, near, reversed, joined" in wrong.err


def test_evidence_promises_within_groups_unless_it_is_told_not_to(
    fitted: Path, tmp_path: Path, run_command: Run
) -> None:
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
    usual = run_command("fit", "--from", fitted, "--method", "evidence", "-o", tmp_path / "usual")
    assert "within each group of facts that the method doubts alike and within each relation" in usual.out
    again = ("fit", "--from", tmp_path / "usual", "--method", "evidence")  # nothing is learned anew
    none = run_command(*again, "--per", "none", "-o", tmp_path / "none")
    assert "on average over all facts only: those that the model doubts are covered less" in none.out
    share = run_command(*again, "-o", tmp_path / "share", "--population", "open", "--share-of-facts", "0.5")
    assert share.status == 0
    assert "one threshold for all of them" in share.out
    options = {
        name: yaml.safe_load((tmp_path / name / "config.yaml").read_text())["options"]
        for name in ("usual", "share")
    }
    assert options == {
        "usual": {"per": "doubt,relation", "floor": True},
        "share": {"per": "none", "floor": False},
    }


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
        (["facts.tsv", "-o", "new", "--test", "0.99"], "0.99"),
        (
            ["facts.tsv", "-o", "new", "--method", "fpi", "--per", "relation"],
            "'fpi' has no promise per relation",
        ),
        (["facts.tsv", "-o", "new", *OPEN, "1.5"], "the share of facts among the queries is 1.5 but must"),
        (["facts.tsv", "-o", "new", *OPEN, "0.9999999"], "is 0.9999999 but must lie between 0 and 1"),
        (["facts.tsv", "-o", "new", *OPEN, "nan"], "is nan but must lie between 0 and 1"),
        (["facts.tsv", "-o", "new", *OPEN, "0.5", "--per", "relation"], "not for each group of them"),
        (
            ["facts.tsv", "-o", "new", "--per", "head"],
            "a promise per 'head' is not on offer; choose doubt, rel",
        ),
        (["facts.tsv", "-o", "new", "--per", "doubt,none"], "a promise per 'none' is not on offer"),
        (
            ["facts.tsv", "-o", "new", "--per", "doubt, doubt"],
            "per doubt is asked for twice in 'doubt, doubt'",
        ),
        (["facts.tsv", "-o", "new", *EVIDENCE, "--allow-empty", "--per", "doubt"], "leave out --allow-empty"),
        (["facts.tsv", "-o", "new", *OPEN, "0.5", "--method", "fpi"], "which fpi does not"),
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
    for name in ("model.safetensors", "calibration.npz", "metrics.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
