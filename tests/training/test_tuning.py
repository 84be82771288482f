import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="optuna is not installed: pip install 'unkgcp[tune]'")

from tests.worlds import random_graph, vocabulary
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.training import TrainConfig, TrainingError, tuning
from unkgcp.training.tuning import GRID, tune, write_config

BASE = TrainConfig("ukge", epochs=20, validate_every=1, patience=50)
SHORT = replace(BASE, epochs=2)  # for searches in a file


@pytest.fixture(scope="module")
def facts() -> Graph:
    return random_graph(400, vocabulary(30, 3))


@dataclass
class Trained:
    history: list[dict[str, float]]
    interrupted: bool = False


class Landscape:
    """Stands in for training: the error falls from 1 to a floor that is lowest at 1e-3, 256, 512."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, float, float]] = []
        self.epochs = 0
        self.interrupt_at: int | None = None
        self.diverges = lambda config: False

    def floor(self, config: TrainConfig) -> float:
        steps = (
            math.log10(config.learning_rate / 1e-3),
            math.log2(config.dimension / 256),
            math.log2(config.batch_size / 512),
        )
        return 0.1 + sum(abs(step) for step in steps) / 10

    def __call__(self, facts, *, config, callback, **others):
        self.calls.append((config.learning_rate, config.dimension, config.batch_size))
        if self.diverges(config):
            raise TrainingError("the loss is no longer a number")
        if len(self.calls) == self.interrupt_at:
            return Trained([], interrupted=True)
        history = []
        for epoch in range(1, config.epochs + 1):
            error = self.floor(config) + (1 - self.floor(config)) * math.exp(-epoch)
            history.append({"validation": error})
            self.epochs += 1
            if callback(epoch, [error]):
                break
        return Trained(history)


@pytest.fixture
def landscape(monkeypatch) -> Landscape:
    made = Landscape()
    monkeypatch.setattr(tuning, "train", made)
    return made


def test_the_whole_grid_has_72_points_and_its_best_is_found(facts, landscape):
    best = tune(facts, base=BASE, trials=1000)
    assert len(set(landscape.calls)) == len(landscape.calls) == 3 * 4 * 6
    assert (best.config.learning_rate, best.config.dimension, best.config.batch_size) == (1e-3, 256, 512)
    assert best.error == pytest.approx(0.1, abs=1e-6)


def test_a_third_of_the_grid_comes_close(facts, landscape):
    best = tune(facts, base=replace(BASE, learning_rate=0.01, dimension=64, batch_size=4096), trials=24)
    assert len(set(landscape.calls)) == len(landscape.calls) == 24
    assert landscape.calls[0] == (0.01, 64, 4096)  # the base configuration first
    assert best.error <= 0.2


def test_hopeless_trials_are_stopped_early(facts, landscape):
    best = tune(facts, base=BASE, trials=40)
    states = [trial.state for trial in best.trials]
    assert set(states[: tuning.STARTUP]) == {"finished"}
    assert states.count("stopped") >= 10
    assert landscape.epochs < 0.8 * 40 * BASE.epochs
    assert all(trial.error is not None for trial in best.trials)


def test_only_the_grid_changes(facts, landscape):
    base = replace(BASE, negatives=7, regularization=0.5)
    best = tune(facts, base=base, trials=3)
    assert len(best.trials) == 3
    for trial in best.trials:
        assert replace(trial.config, **{key: getattr(base, key) for key in GRID}) == base


def test_a_search_goes_on_where_it_stopped(facts, landscape, tmp_path):
    first = tune(facts, base=SHORT, trials=4, storage=tmp_path / "t.db")
    assert len(landscape.calls) == 4
    again = tune(facts, base=SHORT, trials=4, storage=tmp_path / "t.db")
    assert len(landscape.calls) == 4, "nothing to do"
    assert again.config == first.config
    more = tune(facts, base=SHORT, trials=9, storage=tmp_path / "t.db")
    assert len(set(landscape.calls)) == len(landscape.calls) == 9
    assert [trial.config for trial in more.trials[:4]] == [trial.config for trial in first.trials]


def test_a_trial_cut_off_by_kill_is_run_again(facts, landscape, tmp_path):
    def die(facts, *, config, **others):
        landscape.calls.append((config.learning_rate, config.dimension, config.batch_size))
        raise SystemExit  # the trial stays open in the file, as after kill -9

    tune(facts, base=SHORT, trials=2, storage=tmp_path / "t.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "train", die)
        with pytest.raises(SystemExit):
            tune(facts, base=SHORT, trials=5, storage=tmp_path / "t.db")
    best = tune(facts, base=SHORT, trials=5, storage=tmp_path / "t.db")
    assert landscape.calls[2] == landscape.calls[3]
    assert len(best.trials) == len(set(landscape.calls)) == 5


def test_ctrl_c_gives_the_best_so_far(facts, landscape, tmp_path):
    landscape.interrupt_at = 4
    stopped = tune(facts, base=SHORT, trials=10, storage=tmp_path / "t.db")
    assert not stopped.complete
    assert len(stopped.trials) == 3
    landscape.interrupt_at = None
    assert tune(facts, base=SHORT, trials=10, storage=tmp_path / "t.db").complete


def test_trials_that_diverge_are_passed_over(facts, landscape):
    landscape.diverges = lambda config: config.learning_rate > 1e-3
    best = tune(facts, base=BASE, trials=1000)
    assert best.error == pytest.approx(0.1, abs=1e-6)
    assert sum(trial.state == "failed" for trial in best.trials) == 4 * 6
    landscape.diverges = lambda config: True
    with pytest.raises(TrainingError, match="no trial ended with a number"):
        tune(facts, base=BASE, trials=3)


def test_a_file_of_another_search_is_refused(facts, landscape, tmp_path):
    tune(facts, base=SHORT, trials=1, storage=tmp_path / "t.db")
    with pytest.raises(InputError, match=r"t.db holds trials of another search \(its base differs\)"):
        tune(facts, base=replace(SHORT, negatives=3), trials=1, storage=tmp_path / "t.db")
    with pytest.raises(InputError, match="its facts differs"):
        tune(facts[:-1], base=SHORT, trials=1, storage=tmp_path / "t.db")
    (tmp_path / "bad.db").write_text("learning_rate: 0.1\n" * 50)
    with pytest.raises(InputError, match=r"bad.db is not a file of trials; give another"):
        tune(facts, base=SHORT, trials=1, storage=tmp_path / "bad.db")
    with pytest.raises(InputError, match="choose 1 or more"):
        tune(facts, base=SHORT, trials=0)


def test_the_file_written_is_the_configuration(facts, landscape, tmp_path):
    best = tune(facts, base=BASE, trials=3)
    path = tmp_path / "tuned.yaml"
    write_config(best, path, "facts.tsv")
    assert TrainConfig.read(path) == best.config
    assert path.read_text().startswith("# Tuned on facts.tsv: validation error ")


def test_real_training(facts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tuning, "GRID", {"learning_rate": (1e-3, 1e-2), "dimension": (4,), "batch_size": (128,)}
        )
        best = tune(facts, base=SHORT, trials=2, device="cpu")
        same = tune(facts, base=SHORT, trials=2, device="cpu")
    assert [trial.state for trial in best.trials] == ["finished"] * 2
    assert 0 < best.error < 1
    assert same == best, "the seed determines the result"


SEARCH = """
import sys, time
import numpy as np
from unkgcp.graph import Graph, Vocabulary
from unkgcp.training import TrainConfig, tuning

class Trained:
    interrupted = False
    history = [{"validation": 0.5}]

def slow(facts, *, config, callback, **others):
    print("training", flush=True)
    time.sleep(float(sys.argv[2]))
    return Trained()

tuning.train = slow
zero = np.zeros(4, np.int32)
facts = Graph(zero, zero, zero, np.ones(4), Vocabulary.of(["a"], ["r"]))
print(len(tuning.tune(facts, base=TrainConfig("ukge"), trials=3, storage=sys.argv[1]).trials))
"""


def test_kill_9_loses_nothing(tmp_path):
    source = str(Path(tuning.__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": source}
    command = [sys.executable, "-c", SEARCH, str(tmp_path / "t.db")]
    search = subprocess.Popen([*command, "60"], stdout=subprocess.PIPE, text=True, env=environment)
    assert search.stdout is not None
    assert search.stdout.readline() == "training\n"
    time.sleep(0.2)
    search.send_signal(signal.SIGKILL)
    search.wait()
    done = subprocess.run([*command, "0"], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["training"] * 3 + ["3"]
