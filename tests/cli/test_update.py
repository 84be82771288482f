"""`unkgcp update`: what it tells and writes, and what it refuses without a trace."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unkgcp
from tests.cli.conftest import config_file
from tests.worlds import mirrored_graph
from unkgcp.evidence import learn
from unkgcp.graph import read, write
from unkgcp.graph.datasets import load_dataset
from unkgcp.graph.kinds import count_kinds
from unkgcp.run import calibrate, updates
from unkgcp.run.provenance import describe
from unkgcp.training.model import NoModel

pytest.importorskip("lightgbm", reason="lightgbm is not installed: see the extra evidence")

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with facts.tsv, week.tsv (facts that are not among them) and an evidence run without a model."""
    folder = tmp_path_factory.mktemp("kept")
    graph = mirrored_graph(900, 5)
    write(graph[:600], folder / "facts.tsv")
    write(graph[600:], folder / "week.tsv")
    dataset = load_dataset(folder / "facts.tsv", calibration=0.2, test=0.2)
    splits = dataset.splits
    evidence = learn(splits.train, rounds=20, kinds=count_kinds(splits.train, splits.calibration))
    run = calibrate(NoModel.of(splits.train), splits.calibration, "evidence", evidence=evidence)
    options = {"calibration": 0.2, "test": 0.2}
    run.provenance["data"] = describe(str(folder / "facts.tsv"), dataset, 0, options)
    run.save(folder / "run")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_dry_run_writes_nothing(run_command: Run, kept: Path) -> None:
    before = content(kept / "run")
    done = run_command("update", kept / "run", kept / "week.tsv", "--dry-run")
    assert done.status == 0, done.err
    assert "new facts" in done.out
    assert "new entities" in done.out
    assert content(kept / "run") == before


def test_it_tells_what_it_did_and_keeps_the_history(run_command: Run, kept: Path, tmp_path: Path) -> None:
    before = content(kept / "run")
    done = run_command("update", kept / "run", kept / "week.tsv", "-o", tmp_path / "new", "--json")
    assert done.status == 0, done.err
    told = json.loads(done.out)["update"]
    facts = read(kept / "week.tsv")
    assert told["facts"] == len(facts)
    assert told["new"] + told["changed"] + told["known"] + told["repeated"] == len(facts)
    assert content(kept / "run") == before, "another folder was asked for"
    record = unkgcp.Predictor.load(tmp_path / "new").provenance["updates"]
    assert record == [told]
    assert len(told["source"]["sha256"]) == 64
    # the same again brings nothing, and is no reason to touch the run
    written = content(tmp_path / "new")
    done = run_command("update", tmp_path / "new", kept / "week.tsv")
    assert (done.status, done.out) == (2, "")
    assert "facts already" in done.err
    assert content(tmp_path / "new") == written
    done = run_command("evaluate", tmp_path / "new", "--json")
    assert json.loads(done.out)["taken_in"] > 0
    done = run_command("fit", "--from", tmp_path / "new", "--method", "evidence", "-o", tmp_path / "again")
    assert done.status == 0, done.err
    again = unkgcp.Predictor.load(tmp_path / "again")
    assert again.method.size == told["calibration_facts"], "facts that came later calibrate too"


def test_calibrating_anew_when_no_test_fact_is_left(run_command: Run, kept: Path, tmp_path: Path) -> None:
    splits = load_dataset(kept / "facts.tsv", calibration=0.2, test=0.2).splits
    others = np.concatenate([splits.train.keys, splits.calibration.keys])
    data, new = tmp_path / "data", tmp_path / "new"
    data.mkdir()
    write(splits.train, data / "train.tsv")
    write(splits.calibration, data / "val.tsv")
    write(splits.test[~np.isin(splits.test.keys, others)], data / "test.tsv")
    run = unkgcp.Predictor.load(kept / "run")
    run.provenance["data"] = describe(str(data), load_dataset(data), 0, {})
    run.save(new)
    assert run_command("update", new, data / "test.tsv").status == 0
    done = run_command("fit", "--from", new, "--method", "evidence", "-o", tmp_path / "again")
    assert done.status == 0, done.err
    assert "not evaluated: updates of the run have taken in all test facts" in done.out
    assert unkgcp.Predictor.load(tmp_path / "again").metrics == {}
    done = run_command("evaluate", tmp_path / "again")
    assert done.status == 2
    assert "name other facts with --data" in done.err


def test_in_place_in_words(run_command: Run, kept: Path, tmp_path: Path) -> None:
    unkgcp.Predictor.load(kept / "run").save(tmp_path / "run")
    done = run_command("update", tmp_path / "run", kept / "week.tsv", "--seed", 4)
    assert done.status == 0, done.err
    assert "to learn from and" in done.out
    assert "triples were known" in done.out
    assert "nothing was learned from the beginning" in done.out
    assert done.out.splitlines()[-1] == f"written to {tmp_path / 'run'}"
    assert unkgcp.Predictor.load(tmp_path / "run").provenance["updates"][0]["seed"] == 4


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "is empty"),
        ("a\tlikes\n", "bad.tsv"),
        ("a\tlikes\tb\t7\n", "7"),
    ],
)
def test_bad_facts_leave_the_run_alone(
    run_command: Run, kept: Path, tmp_path: Path, lines: str, words: str
) -> None:
    before = content(kept / "run")
    (tmp_path / "bad.tsv").write_text(lines)
    done = run_command(
        "update", kept / "run", tmp_path / "bad.tsv", "--config", config_file(tmp_path, "header: false")
    )
    assert done.status == 2
    assert words in done.err
    assert done.err.count("\n") == 1
    assert content(kept / "run") == before


def test_what_is_no_run_and_what_was_scaled(run_command: Run, kept: Path, tmp_path: Path) -> None:
    done = run_command("update", tmp_path / "nothing", kept / "week.tsv")
    assert done.status == 2
    assert not (tmp_path / "nothing").exists()
    scaled = unkgcp.Predictor.load(kept / "run")
    scaled.provenance["data"]["options"]["scale"] = {"kind": "minmax", "cap": 9.0, "floor": 1.0}
    scaled.save(tmp_path / "run")
    done = run_command("update", tmp_path / "run", kept / "week.tsv")
    assert done.status == 2
    assert "say how those of" in done.err
    done = run_command("update", tmp_path / "run", kept / "week.tsv", "--confidence-scale", "none")
    assert done.status == 0, done.err


def test_of_two_at_once_the_second_is_refused(
    run_command: Run, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(kept / "run", tmp_path / "run"))
    usual, before = updates.update, unkgcp.Predictor.load(run)

    def meanwhile(*given: Any, **options: Any) -> unkgcp.Predictor:
        replace(before, provenance={**before.provenance, "note": "another"}).save(run)
        return usual(*given, **options)

    monkeypatch.setattr(updates, "update", meanwhile)
    outcome = run_command("update", run, kept / "week.tsv")
    assert outcome.status == 2
    assert "was written by another program meanwhile; do it again" in outcome.err
    assert unkgcp.Predictor.load(run).provenance["note"] == "another"
