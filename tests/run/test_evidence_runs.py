"""Runs of the evidence method: fitted, written, read by a stranger, asked again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import unkgcp
from tests.worlds import mirrored_graph
from unkgcp.errors import InputError
from unkgcp.graph import write
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.run import fit
from unkgcp.training import TrainConfig

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
CONFIG = TrainConfig("ukge", dimension=8, batch_size=256, epochs=2, validate_every=1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("evidence") / "facts.tsv"
    write(mirrored_graph(1500, 3), path)
    return load_dataset(path, calibration=0.2, test=0.2)


@pytest.mark.parametrize("quick", [True, False])
def test_a_run_answers_as_before_it_was_written(dataset: Dataset, tmp_path: Path, quick: bool) -> None:
    predictor = fit(dataset, CONFIG, method="evidence", quick=quick, device="cpu")
    assert predictor.provenance["times"]["evidence"] > 0
    assert (predictor.method.backbone is None) is quick  # type: ignore[attr-defined]
    predictor.save(tmp_path / "run")
    again = unkgcp.Predictor.load(tmp_path / "run")
    test = dataset.splits.test
    before, after = (one.interval(test, [0.5, 0.9]) for one in (predictor, again))
    for column in ("score", "lower", "upper", "code"):
        np.testing.assert_array_equal(getattr(after, column), getattr(before, column))
    labels = [("e1", "r0", "e2"), ("nobody", "r0", "e2")]
    result = again.interval(labels, 0.8)
    assert result.status.tolist() == ["ok", "unknown-entity"]
    # nothing to run and nothing to unpickle
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert not {name for name in names if name.endswith((".pkl", ".pickle", ".py", ".txt"))}


def test_calibrate_learns_from_the_facts_of_the_model(dataset: Dataset) -> None:
    splits = dataset.splits
    model = unkgcp.train(splits.train, config=CONFIG, device="cpu")
    predictor = unkgcp.calibrate(model, splits.calibration, method="evidence")
    result = predictor.interval(splits.test, 0.9)
    inside = (result.lower <= splits.test.confidence) & (splits.test.confidence <= result.upper)
    assert inside.mean() > 0.8
    plain = unkgcp.calibrate(model, splits.calibration, method="cp").interval(splits.test, 0.9)
    assert result.width.mean() < plain.width.mean()


def test_quick_is_for_evidence(dataset: Dataset) -> None:
    with pytest.raises(InputError, match="--quick goes with --method evidence, not with cp"):
        fit(dataset, CONFIG, method="cp", quick=True)
