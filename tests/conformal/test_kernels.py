"""Compiled ends and NumPy ends are the same, bit for bit, and everything works without numba."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unkgcp.conformal import (
    EntropyResidual,
    Residual,
    ScaledResidual,
    SplitConformal,
    query_chunks,
)
from unkgcp.conformal.query_chunks import Engine, read_queries

pytest.importorskip("numba", reason="numba is not installed: pip install 'unkgcp[train]'")
from unkgcp.conformal import residual_kernels

LIMITS = [(0.0, 1.0), (-np.inf, np.inf), (-1.0, 0.5), (0.25, np.inf)]


def _both(
    score: Any, prediction: Any, scale: Any, limits: tuple[float, float], threshold: Any
) -> tuple[Any, Any]:
    """Ends by the kernels and by NumPy."""
    given = scale if score.takes_scale else None
    queries = read_queries(score, limits, prediction, given, None, None)
    fast = Engine(queries, query_chunks.WORTH_LOADING)
    assert fast.kernels is not None
    with np.errstate(all="ignore"):
        rows = fast.rows(0, len(prediction))
        ends = np.empty((2, len(prediction)))
        fast.fill_ends(rows, threshold, 0, len(prediction), *ends)
        return ends, score.bounds(rows[0], threshold, rows[1], limits)


def _data(size: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(size)
    prediction = np.concatenate([rng.random(size - 4), [0.0, 1.0, 0.5, 0.25]])
    return prediction, rng.random(size) * 10.0 ** rng.integers(-6, 6, size) + 1e-9


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("score", [Residual(), ScaledResidual(), EntropyResidual()], ids=lambda s: s.name)
def test_the_same_ends_as_numpy(score: Any, limits: tuple[float, float]) -> None:
    prediction, scale = _data(20_000)
    each = np.random.default_rng(1).random(20_000)
    for threshold in (np.float64(0), np.float64(0.3), np.float64(1.7), np.float64(1e-9), each):
        ends, reference = _both(score, prediction, scale, limits, threshold)
        assert np.array_equal(ends, reference)


@pytest.mark.parametrize("score", [Residual(), ScaledResidual(), EntropyResidual()], ids=lambda s: s.name)
def test_the_same_scores_as_numpy(score: Any) -> None:
    prediction, scale = _data(20_000)
    truth = np.random.default_rng(2).random(20_000)
    given = scale if score.takes_scale else None
    queries = read_queries(score, (0.0, 1.0), prediction, given, None, None)
    fast = Engine(queries, query_chunks.WORTH_LOADING)
    assert np.array_equal(fast.scores(truth, 5, 20_000), queries.scores(truth, 5, 20_000))


def test_ordinary_queries_never_go_back_to_numpy() -> None:
    """Otherwise compiled code would only cost time."""
    rng = np.random.default_rng(2)
    prediction, truth, scale = rng.random(200_000), rng.random(200_000), rng.random(200_000) + 0.05
    lower, upper = np.empty(200_000), np.empty(200_000)
    threshold = np.sort(np.abs(prediction - truth) / scale)
    for share in (0.5, 0.8, 0.9, 0.95):
        q = threshold[int(share * 200_000)]
        assert residual_kernels.ends_at_one(prediction, scale, q, 0.0, 1.0, lower, upper)
        assert residual_kernels.ends_at_one(prediction, scale, q, -np.inf, np.inf, lower, upper)


FLOATS = st.sampled_from([0.0, 1.0, 0.1, 1 / 3, -0.0, -1.0, 5e-324, 2.3e-308, 1e-300, 1e300, 1.7e308])
FLOATS |= st.floats(allow_nan=False, allow_infinity=False)


@given(
    prediction=FLOATS,
    scale=FLOATS.map(abs).filter(bool),
    threshold=FLOATS.map(abs),
    limits=st.sampled_from(LIMITS),
)
@settings(max_examples=300, deadline=None)
def test_the_same_ends_where_rounding_is_nasty(
    prediction: float, scale: float, threshold: float, limits: tuple[float, float]
) -> None:
    arrays = np.array([prediction]), np.array([scale])
    ends, reference = _both(ScaledResidual(), *arrays, limits, np.float64(threshold))
    assert np.array_equal(ends, reference)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["prediction", "scale", "truth"])
@pytest.mark.parametrize("level", [0, 0.5, 1])
def test_bad_values_are_reported_on_the_fast_lane_too(name: str, bad: float, level: float) -> None:
    columns = {name: np.full(40, 0.5) for name in ("prediction", "truth", "scale")}
    cal = SplitConformal().calibrate(**columns)
    columns[name][17] = bad
    with pytest.raises(ValueError, match=rf"{name}\[17\] is {bad}, expected a finite number"):
        cal.calibrate(**columns)
    truth = columns.pop("truth")
    if name == "truth":
        with pytest.raises(ValueError, match=rf"truth\[17\] is {bad}, expected a finite number"):
            cal.p_value(truth=truth, **columns)
        return
    with pytest.raises(ValueError, match=rf"{name}\[17\] is {bad}, expected a finite number"):
        cal.interval(confidence=level, **columns)


def test_labels_outside_the_bounds_and_scales_that_are_not_positive() -> None:
    cal = SplitConformal().calibrate([0.5, 0.6], [0.5, 0.7], scale=[1, 1])
    with pytest.raises(ValueError, match=r"truth\[1\] is 1.5, outside the bounds"):
        cal.p_value([0.5, 0.5], [0.5, 1.5], scale=[1, 1])
    for scale in (0.0, -1.0):
        with pytest.raises(ValueError, match=rf"scale\[0\] is {scale}, expected a positive number"):
            cal.interval([0.5], scale=[scale])


def test_a_large_call_uses_the_kernels_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    prediction, scale = _data(3000)
    truth = np.random.default_rng(3).random(3000)
    group = np.arange(3000) % 3
    cal = SplitConformal().calibrate(prediction, truth, scale=scale, group=group)
    asked = {"scale": scale, "group": group, "confidence": [0, 0.8, 0.9, 1]}
    ends = cal.interval(prediction, **asked)
    monkeypatch.setattr(query_chunks, "kernels_for", lambda rows: None)
    assert np.array_equal(ends, cal.interval(prediction, **asked))


def test_small_calls_do_not_load_numba_and_large_ones_work_without_it() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np\n"
        "from unkgcp.conformal import SplitConformal, query_chunks\n"
        "cal = SplitConformal().calibrate([0.1, 0.5], [0.2, 0.9])\n"
        "small = cal.interval([0.3], confidence=0.5)\n"
        "query_chunks.WORTH_LOADING = 1\n"
        "print((cal.interval([0.3], confidence=0.5) == small).all())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    code = (
        "import sys, numpy as np\n"
        "from unkgcp.conformal import SplitConformal\n"
        "SplitConformal().calibrate([0.1, 0.5], [0.2, 0.9]).interval(np.full(100_000, 0.3))\n"
        "print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_kernels_are_loaded_for_fewer_rows_where_numba_is_there_already() -> None:
    code = (
        "import sys, numba, numpy as np\n"
        "from unkgcp.conformal import SplitConformal, query_chunks\n"
        "cal = SplitConformal().calibrate([0.1, 0.5], [0.2, 0.9])\n"
        "for rows in (1000, query_chunks.WORTH_ADDING):\n"
        "    ends = cal.interval(np.full(rows, 0.3), confidence=0.5)\n"
        "    print('unkgcp.conformal.residual_kernels' in sys.modules, *ends[-1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    few, many = done.stdout.splitlines()
    assert few.replace("False", "True") == many != few


def test_the_entropy_has_the_same_bits_with_and_without(monkeypatch):
    from unkgcp.conformal import scores

    random = np.random.default_rng(0)
    edges = [0.0, 1.0, 1e-6, 1 - 1e-6, 0.5, 5e-324, np.nextafter(1, 0), np.nan, -1.0, 2.0]
    prediction = np.concatenate([edges, random.random(20_000), 10.0 ** random.uniform(-9, 0, 5_000)])
    with_them = scores.EntropyResidual().prepare(prediction)
    monkeypatch.setattr(scores, "loaded_kernels", lambda: None)
    without = scores.EntropyResidual().prepare(prediction)
    assert np.array_equal(with_them, without, equal_nan=True)
