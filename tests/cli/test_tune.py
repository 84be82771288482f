"""`unkgcp tune` through the entry point that the console script calls."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("optuna", reason="optuna is not installed: pip install 'unkgcp[tune]'")

from unkgcp.training import TrainConfig, config_for, tuning


@pytest.fixture
def data(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = [
        f"e{rng.integers(20)}\tr{rng.integers(2)}\te{rng.integers(20)}\t{rng.random():.3f}"
        for _ in range(300)
    ]
    path = tmp_path / "facts.tsv"
    path.write_text("\n".join(rows) + "\n")
    small = {"learning_rate": (1e-3, 1e-2), "dimension": (4,), "batch_size": (128, 256)}
    monkeypatch.setattr(tuning, "GRID", small)
    return path


def test_writes_what_fit_takes_and_goes_on(run_command, data, tmp_path):
    output = tmp_path / "tuned.yaml"
    common = ("tune", data, "--model", "ukge", "-o", output, "--epochs", 2, "--device", "cpu")
    status, out, _ = run_command(*common, "--trials", 2)
    assert status == 0
    assert "(2 trials)" in out
    config = TrainConfig.read(output)
    assert (config.model, config.dimension) == ("ukge", 4)
    assert config.epochs == config_for("ukge").epochs, "the short trials are no advice"
    assert (tmp_path / "tuned.trials.db").is_file()
    status, out, _ = run_command(*common, "--trials", 4, "--json")
    found, config = json.loads(out), TrainConfig.read(output)
    assert (status, found["trials"], found["complete"]) == (0, 4, True)
    assert (found["model"], found["dimension"], found["learning_rate"]) == ("ukge", 4, config.learning_rate)


def test_a_file_of_trials_belongs_to_one_search(run_command, data, tmp_path):
    common = ("tune", data, "-o", tmp_path / "tuned.yaml", "--epochs", 1, "--device", "cpu", "--trials", 1)
    assert run_command(*common)[0] == 0
    status, _, err = run_command(*common, "--model", "ukge-rect")
    assert status == 2
    assert "holds trials of another search" in err
    assert err.count("\n") == 1


def test_a_configuration_for_the_rest(run_command, data, tmp_path):
    (tmp_path / "rest.yaml").write_text("negatives: 3\nepochs: 1\n")
    arguments = ("-o", tmp_path / "tuned.yaml", "--config", tmp_path / "rest.yaml", "--trials", 1)
    assert run_command("tune", data, *arguments, "--device", "cpu")[0] == 0
    assert TrainConfig.read(tmp_path / "tuned.yaml").negatives == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("--model", "ukgo"), "ukge"), (("--trials", "0"), "trials"), (("--config", "no.yaml"), "no.yaml")],
)
def test_bad_input(run_command, data, arguments, says):
    status, _, err = run_command("tune", data, *arguments)
    assert status == 2
    assert says in err
    assert "Traceback" not in err
