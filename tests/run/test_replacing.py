"""A run takes the place of another in one step: for readers, for writers that are killed, for two writers at once.

`tests/faults/test_runs_on_disk.py` does the same for longer and with more processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import killed_at
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.run import Predictor, calibrate, run_reader, run_writer
from unkgcp.run.run_reader import CHECKPOINT, INCOMING, places
from unkgcp.run.run_writer import writing
from unkgcp.training import Model

NAMES = {
    "calibration.npz",
    "config.yaml",
    "metrics.json",
    "model.safetensors",
    "provenance.json",
    "vocabulary.parquet",
}


@pytest.fixture
def pair(make_model: Callable[..., Model], make_facts: Callable[..., Graph]) -> list[Predictor]:
    """Two runs; which of them one has is told by the model and by the calibration, each by itself."""
    return [calibrate(make_model(seed), make_facts(50 + 50 * seed), "cp") for seed in (0, 1)]


def which(run: Path, pair: list[Predictor]) -> int:
    """Which of the two it is; all of its parts must say the same."""
    found = Predictor.load(run)
    by_model = [(found.model.tables["entity"] == one.model.tables["entity"]).all() for one in pair]
    by_calibration = [found.method.size == one.method.size for one in pair]
    assert by_model == by_calibration
    return by_model.index(True)


def test_a_writer_killed_at_any_moment_leaves_the_old_run_or_the_new_one(
    pair: list[Predictor], tmp_path: Path
) -> None:
    run, found = tmp_path / "run", []
    for step in range(200):
        pair[0].save(run)
        if not killed_at(step, run, lambda: pair[1].save(run)):
            break
        found.append(which(run, pair))
        # nothing that was left behind is in the way of the next writer, and he tidies up
        if step % 7 == 0:
            pair[1].save(run)
            assert which(run, pair) == 1
            assert {path.name for path in run.iterdir()} == NAMES
    assert step > 20  # of them six are moves to their places
    assert found == sorted(found)  # there is one step: the old run before it, the new one from it on
    assert set(found) == {0, 1}
    assert which(run, pair) == 1


def test_a_first_writer_killed_at_any_moment_leaves_no_run_or_a_whole_one(
    pair: list[Predictor], tmp_path: Path
) -> None:
    whole = []
    for step in range(200):
        run = tmp_path / f"run-{step}"
        if not killed_at(step, run, lambda run=run: pair[1].save(run)):
            break
        whole.append(any(place.exists() for place in places(run, "provenance.json")))
        if whole[-1]:
            assert which(run, pair) == 1
        else:
            with pytest.raises(InputError, match="is no run"):
                Predictor.load(run)
        pair[0].save(run)  # what is there is no obstacle
        assert which(run, pair) == 0
    assert whole == sorted(whole)
    assert set(whole) == {False, True}


def test_readers_of_a_run_that_is_replaced_meanwhile_never_get_a_mixture(
    pair: list[Predictor], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    pair[0].save(run)
    child = os.fork()
    if not child:
        for turn in range(30):
            pair[1 - turn % 2].save(run)
        os._exit(0)
    seen = set()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        seen.add(which(run, pair))
    assert seen == {0, 1}


def test_damage_is_told_at_once_and_not_taken_for_a_replacement(
    pair: list[Predictor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair[0].save(tmp_path / "run")
    path = tmp_path / "run" / "calibration.npz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    monkeypatch.setattr(run_reader, "ATTEMPTS", 1)
    with pytest.raises(InputError, match=r"calibration\.npz is damaged: it is not what was written"):
        Predictor.load(tmp_path / "run")


def test_a_run_that_comes_back_while_it_is_read_is_no_damage(
    pair: list[Predictor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks at an equal list another run was there, and some of its files were read."""
    run = tmp_path / "run"
    pair[0].save(run)
    written = {path.name: path.read_bytes() for path in run.iterdir()}
    usual = run_reader._verified_weights

    def meanwhile(*arguments: object) -> object:
        monkeypatch.setattr(run_reader, "_verified_weights", usual)
        pair[1].save(run)
        try:
            return usual(*arguments)  # type: ignore[arg-type]
        finally:
            pair[0].save(run)
            (run / "provenance.json").write_bytes(written["provenance.json"])  # written within one second

    monkeypatch.setattr(run_reader, "_verified_weights", meanwhile)
    assert which(run, pair) == 0


def test_a_run_that_never_rests_is_given_up(
    pair: list[Predictor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    pair[0].save(run)
    usual, turn = run_reader._read_parts, iter(range(1000))

    def replaced(*arguments: object) -> object:
        pair[1 - next(turn) % 2].save(run)
        return usual(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(run_reader, "_read_parts", replaced)
    monkeypatch.setattr(run_reader, "ATTEMPTS", 4)
    with pytest.raises(InputError, match="is replaced faster than it can be read; try again"):
        Predictor.load(run)


def test_facts_are_of_the_run_they_were_loaded_with(
    make_model: Callable[..., Model], make_facts: Callable[..., Graph], tmp_path: Path
) -> None:
    from dataclasses import replace

    from unkgcp.graph.known_facts import KnownFacts

    with_facts = [replace(make_model(), facts=KnownFacts.of(make_facts(size))) for size in (300, 200)]
    run = tmp_path / "run"
    calibrate(with_facts[0], make_facts(60), "cp").save(run)
    loaded = Predictor.load(run)
    calibrate(with_facts[1], make_facts(60), "cp").save(run)
    assert loaded.facts is not None
    assert len(loaded.facts) == 300
    calibrate(make_model(), make_facts(60), "cp").save(run)
    assert {path.name for path in run.iterdir()} == NAMES  # facts of an older run do not stay


def test_the_second_of_two_writers_is_refused(pair: list[Predictor], tmp_path: Path) -> None:
    run, said = tmp_path / "run", []
    pair[0].save(run)

    def second() -> None:
        try:
            pair[1].save(run)
        except InputError as error:
            said.append(str(error))

    with writing(run):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        pair[0].save(run)  # whoever is inside may write
    assert said == [
        f"{run} is being written by another program; wait until it is done, or give another folder with -o"
    ]
    assert which(run, pair) == 0
    second()
    assert which(run, pair) == 1


def test_a_second_fit_is_refused_before_it_trains(tmp_path: Path) -> None:
    (tmp_path / "run" / CHECKPOINT).mkdir(parents=True)
    with writing(tmp_path / "run"):
        done = subprocess.run(
            [sys.executable, "-m", "unkgcp", "fit", "no-such-data.tsv", "-o", str(tmp_path / "run")],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"unkgcp: {tmp_path / 'run'} is being written by another program; wait")
    assert len(done.stderr.splitlines()) == 1


def test_without_locks_the_step_itself_is_for_one_writer(
    pair: list[Predictor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems know no locks: of two finished writers one is refused, and the run is whole."""
    monkeypatch.setattr(run_writer, "fcntl", None)
    run = tmp_path / "run"
    pair[0].save(run)
    usual = run_writer.replace_files

    def other_comes_first(place: Path, stage: Path) -> None:
        monkeypatch.setattr(run_writer, "replace_files", usual)
        (run / INCOMING).mkdir()
        for name in NAMES:
            (run / INCOMING / name).write_bytes((run / name).read_bytes())
        usual(place, stage)

    monkeypatch.setattr(run_writer, "replace_files", other_comes_first)
    with pytest.raises(InputError, match="is being written by another program"):
        pair[1].save(run)
    assert which(run, pair) == 0
    pair[1].save(run)
    assert which(run, pair) == 1
    assert {path.name for path in run.iterdir()} == NAMES


def test_a_folder_that_cannot_be_renamed_can_be_a_run(pair: list[Predictor], tmp_path: Path) -> None:
    """A mounted volume, say: nothing is written beside it, and it stays the folder that it was."""
    run = tmp_path / "run"
    pair[0].save(run)
    before = run.stat().st_ino
    pair[1].save(run)
    assert run.stat().st_ino == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
