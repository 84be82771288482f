"""Scores on a device are those of the model, up to the order of sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.rounding import apart, assert_within, ends_apart
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.predict.device import on_device
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


def test_no_gpu_is_a_sentence(
    make_model: Callable[..., Model], make_facts: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="no CUDA device here"):
        on_device(calibrate(make_model(), make_facts(50), "cp"), "cuda")
