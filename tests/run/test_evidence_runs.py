"""Runs of the evidence method: fitted, written, read by a stranger, asked again."""

from __future__ import annotations

import dataclasses
from copy import copy
from pathlib import Path

import numpy as np
import pytest

import unkgcp
from tests.worlds import mirrored_graph
from unkgcp.files import read_container
from unkgcp.graph import write
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.methods import create
from unkgcp.run import fit
from unkgcp.run.store import FORMAT, RUN
from unkgcp.training import TrainConfig

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
CONFIG = TrainConfig("ukge", dimension=8, batch_size=256, epochs=2, validate_every=1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("evidence") / "facts.tsv"
    write(mirrored_graph(1500, 3), path)
    return load_dataset(path, calibration=0.2, test=0.2)


@pytest.fixture(scope="module")
def quick_run(dataset: Dataset) -> unkgcp.Predictor:
    return fit(dataset)


@pytest.mark.parametrize("quick", [True, False])
def test_a_run_answers_as_before_it_was_written(
    dataset: Dataset, quick_run: unkgcp.Predictor, tmp_path: Path, quick: bool
) -> None:
    predictor = quick_run if quick else fit(dataset, CONFIG, method="evidence", device="cpu")
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


FACTS = ("head", "relation", "tail", "confidence")


def in_other_order(predictor: unkgcp.Predictor) -> unkgcp.Predictor:
    """The same over its training facts in another order, but for those of one triple, as an update leaves them."""
    method, own = copy(predictor.method), predictor.method.evidence
    assert own is not None
    triples, place = np.unique(own.evidence.train.keys, return_inverse=True)
    shuffled = np.argsort(np.random.default_rng(0).permutation(len(triples))[place], kind="stable")
    method.evidence = own.over(own.evidence.train[shuffled])
    return dataclasses.replace(predictor, method=method)


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_run_holds_its_training_facts_once(
    quick_run: unkgcp.Predictor, tmp_path: Path, shuffled: bool
) -> None:
    """Beside them their order, with which sums are rounded as before."""
    predictor = in_other_order(quick_run) if shuffled else quick_run
    predictor.save(tmp_path / "run")
    stored = read_container(tmp_path / "run" / RUN, FORMAT, "").arrays
    assert not {f"calibration/evidence.{name}" for name in FACTS} & {*stored}
    before, after = predictor.method.evidence, unkgcp.Predictor.load(tmp_path / "run").method.evidence
    assert before is not None
    assert after is not None
    assert len(stored["calibration/evidence.order"]) == shuffled * len(before.evidence.train)
    for column in FACTS:
        one, other = (getattr(evidence.evidence.train, column) for evidence in (before, after))
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("damage", ["twice", "beyond", "short", "kind", "facts"])
def test_a_damaged_order_is_refused(quick_run: unkgcp.Predictor, damage: str) -> None:
    model, arrays = quick_run.model, dict(in_other_order(quick_run).method.arrays())
    order = arrays["evidence.order"].copy()
    if damage in ("twice", "beyond"):
        order[0] = order[1] if damage == "twice" else len(order)
    arrays["evidence.order"] = {"short": order[1:], "kind": order.astype(np.int64)}.get(damage, order)
    if damage == "facts":
        model = dataclasses.replace(model, facts=None)
    with pytest.raises(ValueError, match=r"order of the evidence's facts|are missing"):
        create("evidence", **quick_run.method.options()).restore(model, arrays)
