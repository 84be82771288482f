"""Runs without a model: the evidence method answers from the training facts alone, and torch is never loaded."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import unkgcp
from tests.run.hostile import refused
from tests.worlds import mirrored_graph
from unkgcp.errors import InputError
from unkgcp.evaluation.monitor import Monitor
from unkgcp.evaluation.monitor.monitor_state import Call, resume, save
from unkgcp.evidence import learn, tree_kernels
from unkgcp.evidence.candidate_ranking import learn_completer
from unkgcp.evidence.nonfacts import learn_likeness
from unkgcp.evidence.trees import Boosting
from unkgcp.graph import write
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.loops import alone_cache
from unkgcp.predict.ray_worker import on_device
from unkgcp.run import Predictor, fit, fit_folds, recalibrate
from unkgcp.training import TrainConfig, config_for
from unkgcp.training.model import NoModel

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
EVERY_DAY = """
import sys
from unkgcp.cli import main
from unkgcp.evidence import candidate_ranking, evidence_model, trees
few = trees.Boosting(rounds=5)  # what is loaded does not depend on how much is learned
evidence_model.learn.__kwdefaults__ |= {"suggested": few, "elsewhere": few}
candidate_ranking.learn_completer.__kwdefaults__ |= {"trees": few}
facts, run, queries, answers = sys.argv[1:]
for arguments in (
    ["fit", facts, "-o", run, "--method", "evidence", "--quick"],
    ["predict", run, queries, "-o", answers],
    ["evaluate", run],
    ["report", run],
):
    try:
        main(arguments)
    except SystemExit as ended:
        assert not ended.code, arguments
from fastapi.testclient import TestClient
from unkgcp.run import Predictor
from unkgcp.service import create_app
with TestClient(create_app(Predictor.load(run))) as client:
    assert client.get("/v1/about").json()["model"] == "none"
    asked = {"triples": [["e1", "r0", "e2"]]}
    assert client.post("/v1/intervals", json=asked).json()["status"] == ["ok"]
    assert client.get("/v1/complete", params={"head": "e1", "relation": "r0"}).status_code == 200
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("without") / "facts.tsv"
    write(mirrored_graph(600, 3), path)
    return load_dataset(path, calibration=0.2, test=0.2)


@pytest.fixture(scope="module")
def predictor(dataset: Dataset) -> Predictor:
    few = Boosting(rounds=5)
    model = unkgcp.train(dataset.splits.train, model="none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(learn_completer.__kwdefaults__, "trees", few)
        learned = learn(dataset.splits.train, suggested=few, elsewhere=few)
    return unkgcp.calibrate(model, dataset.splits.calibration, method="evidence", evidence=learned)


@pytest.fixture(scope="module")
def files(predictor: Predictor, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("saved") / "run"
    predictor.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_its_promise_can_be_watched_from_call_to_call(
    predictor: Predictor, dataset: Dataset, tmp_path: Path
) -> None:
    recalibrate(predictor, dataset.splits.calibration, "evidence", per="none").save(tmp_path / "run")
    facts = dataset.splits.test
    for call in (0, 1):
        monitor = Monitor(Predictor.load(tmp_path / "run"))
        calls = resume(monitor, tmp_path / "watch.json")
        assert len(calls) == call
        new = facts[call::2]
        monitor.update(new, new.confidence)
        save(monitor, tmp_path / "watch.json", [*calls, Call.of(new)])
    assert monitor.look().facts + monitor.look().unknown == len(facts)


def test_nothing_of_torch_is_loaded_by_whoever_fits_asks_and_serves(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    pytest.importorskip("httpx", reason="httpx is not installed")
    write(mirrored_graph(600, 3), tmp_path / "facts.tsv")
    (tmp_path / "queries.tsv").write_text("e1\tr0\te2\nnobody\tr0\te2\n")
    places = [str(tmp_path / name) for name in ("facts.tsv", "run", "queries.tsv", "answers.tsv")]
    done = subprocess.run(
        [sys.executable, "-c", EVERY_DAY, *places], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.splitlines()[-1].split())
    assert {"unkgcp", "numpy", "lightgbm"} <= loaded  # the look would notice
    assert not loaded & {"torch", "safetensors"}
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["training"] == {"model": "none"}
    rows = (tmp_path / "answers.tsv").read_text().splitlines()
    assert [row.split("\t")[6] for row in rows[1:]] == ["ok", "unknown-entity"]


def test_answers_are_those_of_a_run_with_a_model(
    dataset: Dataset, predictor: Predictor, original: dict[str, bytes], tmp_path: Path
) -> None:
    """They do not use its score. And they are the same after the run was written and read."""
    splits = dataset.splits
    model = unkgcp.train(
        splits.train, config=TrainConfig(dimension=4, epochs=1, validate_every=1), device="cpu"
    )
    learned = predictor.method.evidence
    trained = unkgcp.calibrate(model, splits.calibration, method="evidence", evidence=learned)
    for name, content in original.items():
        (tmp_path / name).write_bytes(content)
    predictor.save(tmp_path)  # in the place of a run with a model, whose parameters are not left behind
    assert not (tmp_path / "model.safetensors").exists()
    loaded = Predictor.load(tmp_path)
    assert isinstance(loaded.model, NoModel)
    expected = trained.interval(splits.test, [0.5, 0.9])
    for one in (predictor, loaded, on_device(loaded, "cpu")):
        found = one.interval(splits.test, [0.5, 0.9])
        for column in ("score", "lower", "upper", "code"):
            np.testing.assert_array_equal(getattr(found, column), getattr(expected, column))
    asked: dict[str, Any] = {"head": "e1", "relation": "r0", "k": 5, "exclude_known": True}
    assert loaded.complete(**asked).to_arrow() == trained.complete(**asked).to_arrow()


def test_a_small_question_loads_neither_pandas_nor_what_only_compiling_needs(
    predictor: Predictor, dataset: Dataset, tmp_path: Path
) -> None:
    predictor.save(tmp_path / "run")
    expected = predictor.interval(dataset.splits.test[:50])  # whatever has to be compiled is compiled here
    if not isinstance(tree_kernels.bounds._cache, alone_cache()):
        pytest.skip("there is no place for compiled code, or this version of numba was not tried")
    write(dataset.splits.test[:50], tmp_path / "queries.tsv")
    ask = (
        "import sys; from unkgcp.cli import main\n"
        "try:\n    main(['predict', *sys.argv[1:]])\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    places = [str(tmp_path / name) for name in ("run", "queries.tsv")]
    command = [sys.executable, "-c", ask, *places, "-o", str(tmp_path / "answers.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stderr.splitlines()[-1].split())
    assert {"numba", "pyarrow.parquet"} <= loaded
    assert not loaded & {"pandas", "scipy.linalg", "lightgbm", "torch"}
    answers = pq.read_table(tmp_path / "answers.parquet")
    for name in ("score", "lower", "upper"):
        np.testing.assert_array_equal(answers[name].to_numpy(), getattr(expected, name))


def test_it_is_calibrated_again_with_what_needs_no_model(
    dataset: Dataset, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = dataset.splits.calibration
    monkeypatch.setitem(learn_likeness.__kwdefaults__, "trees", Boosting(rounds=5))
    again = recalibrate(predictor, facts, "evidence", per="none", population="open", kinds=["uniform"])
    assert isinstance(again.model, NoModel)
    assert again.interval(dataset.splits.test).no_fact is not None
    with pytest.raises(InputError, match="no model was trained"):
        recalibrate(predictor, facts, "cp")


@pytest.mark.parametrize(
    ("fitting", "options", "sentence"),
    [
        (fit, {"method": "cp"}, "--model none goes with --method evidence, .*, not with cp"),
        (fit, {"method": "evidence", "protocol": "paper"}, "--protocol paper says how a model is trained"),
        (fit_folds, {"method": "cp"}, "--model none goes with --method evidence"),
    ],
)
def test_what_needs_a_model_says_so_at_once(
    dataset: Dataset, fitting: Callable[..., Predictor], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        fitting(dataset, config_for("none"), **options)


def _written(folder: Path, files: dict[str, bytes], model: str, listed: bool) -> Path:
    """The run with settings that name this model, and a list of files that names its parameters or does not."""
    settings = yaml.safe_load(files["config.yaml"])
    settings["training"]["model"] = model
    changed = {**files, "config.yaml": yaml.safe_dump(settings).encode()}
    record = json.loads(changed.pop("provenance.json"))
    if not listed:
        changed.pop("model.safetensors", None)
    record["files"] = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in changed.items()
    }
    for name, content in changed.items():
        (folder / name).write_bytes(content)
    (folder / "provenance.json").write_text(json.dumps(record))
    return folder


def test_a_model_is_there_exactly_if_the_settings_name_one(
    files: dict[str, bytes], original: dict[str, bytes], tmp_path: Path
) -> None:
    """`files` are those of a run without a model, `original` those of one with a model, for the method unkgcp."""
    cases = {
        "intact": (original, "ukge", True),
        "a model that is not there": (files, "ukge", False),
        "the file of it was lost": (original, "ukge", False),
        "a model that nobody trained": (original, "none", True),
        "a method that needs one": (original, "none", False),
    }
    runs = {}
    for name, (given, model, listed) in cases.items():
        (tmp_path / name).mkdir()
        runs[name] = _written(tmp_path / name, given, model, listed)
    Predictor.load(runs.pop("intact"))
    said = {name: refused(run) for name, run in runs.items()}
    assert "although it was fitted without a model" in said["a model that nobody trained"]
    assert "there is no model, which the method unkgcp needs" in said["a method that needs one"]
    assert "do not fit together" in said["a model that is not there"]
    assert "do not fit together" in said["the file of it was lost"]
