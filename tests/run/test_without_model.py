"""Runs without a model: the evidence method answers from the training facts alone, and torch is never loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import unkgcp
from tests.worlds import mirrored_graph
from unkgcp.errors import InputError
from unkgcp.evidence import learn, tree_kernels
from unkgcp.evidence.candidate_ranking import learn_completer
from unkgcp.evidence.nonfacts import learn_likeness
from unkgcp.evidence.trees import Boosting
from unkgcp.graph import write
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.loops import alone_cache
from unkgcp.run import Predictor, fit, fit_folds, recalibrate
from unkgcp.training import config_for
from unkgcp.training.model import NoModel

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
EVERY_DAY = """
import sys
from unkgcp.cli import main
from unkgcp.evidence import candidate_ranking, evidence_model, trees
few = trees.Boosting(rounds=5)  # what is loaded does not depend on how much is learned
evidence_model.learn.__kwdefaults__["rounds"] = evidence_model.TRIED["rounds"] = 5
candidate_ranking.learn_completer.__kwdefaults__ |= {"trees": few}
facts, run, queries, answers = sys.argv[1:]
for arguments in (
    ["fit", facts, "-o", run],
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
        learned = learn(dataset.splits.train, rounds=20)
    return unkgcp.calibrate(model, dataset.splits.calibration, method="evidence", evidence=learned)


def test_nothing_of_torch_is_loaded_by_whoever_fits_asks_and_serves(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed: see the extra evidence")
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
    assert "torch" not in loaded
    rows = (tmp_path / "answers.tsv").read_text().splitlines()
    assert [row.split("\t")[6] for row in rows[1:]] == ["ok", "unknown-entity"]


def test_a_small_question_loads_neither_pandas_nor_what_only_compiling_needs(
    predictor: Predictor, dataset: Dataset, tmp_path: Path
) -> None:
    predictor.save(tmp_path / "run")
    # whatever has to be compiled is compiled here
    expected = Predictor.load(tmp_path / "run").interval(dataset.splits.test[:50])
    if not isinstance(tree_kernels.sum_trees._cache, alone_cache()):
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
    assert loaded & {"pandas", "scipy.linalg", "lightgbm", "torch"} == set()
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
