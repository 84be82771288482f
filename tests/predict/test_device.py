"""Scores on a device are those of the model, up to the order of sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.rounding import apart, assert_within, ends_apart
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.predict.ray_worker import DeviceModel, on_device
from unkgcp.run import calibrate
from unkgcp.training import Model

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'unkgcp[train]'")


@pytest.mark.parametrize(("model", "method"), [("ukge", "unkgcp"), ("beurre", "cp"), ("ukge", "qr")])
def test_a_moved_predictor_answers_alike(
    model: str,
    method: str,
    make_model: Callable[..., Model],
    make_facts: Callable[..., Graph],
    quantiles: dict[float, Model],
) -> None:
    given = {"quantiles": quantiles} if method == "qr" else {}
    predictor = calibrate(make_model(model=model), make_facts(200), method, **given)
    moved = on_device(predictor, "cpu")  # torch's own sums, as on a GPU
    facts = make_facts(500, seed=1)
    expected, found = predictor.interval(facts), moved.interval(facts)
    np.testing.assert_array_equal(found.code, expected.code)
    # some hundred roundings of numbers of the order of 1: eight dimensions, for boxes with logarithms of their sides
    bound = apart(100, 1.0)
    known = found.code == 0
    assert_within(found.score[known], expected.score[known], bound)
    bound = ends_apart(bound, predictor.method.calibration.threshold(0.9)) if method == "unkgcp" else bound
    assert_within(found.lower, expected.lower, bound)
    assert_within(found.upper, expected.upper, bound)
    assert type(predictor.method.model) is Model  # the original stays where it was


def test_every_model_of_an_open_world_run_is_moved(
    make_model: Callable[..., Model], make_facts: Callable[..., Graph]
) -> None:
    model = replace(make_model(), facts=KnownFacts.of(make_facts(300)))
    members = [make_model(1), make_model(2)]
    world = calibrate(model, make_facts(200, seed=2), "cp", population="open", kinds=["uniform"])
    cross = calibrate(model, make_facts(200, seed=2), "cv+", members=members, fold=np.arange(200) % 2)
    for predictor in (world, cross):
        moved = on_device(predictor, "cpu")
        asked = {**moved.models(), **moved.method.models()}
        assert all(isinstance(each, DeviceModel) for each in asked.values())
        found, expected = (each.interval(make_facts(300, seed=1)) for each in (moved, predictor))
        bound = apart(100, 1.0)
        if predictor is cross:  # of which the nonconformity is that of unkgcp
            bound = ends_apart(bound, max(float(part.max()) for part in predictor.method.cross.residuals))
        assert_within(found.upper, expected.upper, bound)
    assert isinstance(on_device(world, "cpu").method.base.model, DeviceModel)  # type: ignore[attr-defined]


def test_no_gpu_is_a_sentence(
    make_model: Callable[..., Model], make_facts: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="no CUDA device here"):
        on_device(calibrate(make_model(), make_facts(50), "cp"), "cuda")
