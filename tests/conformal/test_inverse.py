"""An interval's end is the last float inside, in both precisions and where rounding is difficult."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.rounding import EXP_ULPS, apart
from unkgcp.conformal import EntropyResidual, Residual, ScaledResidual, make_score
from unkgcp.conformal.scores import outermost, score_names

UNLIMITED = (-np.inf, np.inf)


def _is_the_last(score: Any, prediction: Any, threshold: Any, scale: Any, lower: Any, upper: Any) -> None:
    """No float further out has a score within the threshold, and the ends themselves do."""
    with np.errstate(all="ignore"):
        for end, out in ((lower, -np.inf), (upper, np.inf)):
            finite = np.isfinite(end)
            value = score.score(prediction, end, scale)
            assert (value <= threshold)[finite].all()
            beyond = np.nextafter(end, np.array(out, end.dtype))
            further = score.score(prediction, beyond, scale)
            assert (further > threshold)[finite & np.isfinite(beyond)].all()
            assert np.broadcast_to(threshold == np.inf, finite.shape)[~finite].all()


def _numbers(dtype: Any, **options: Any) -> st.SearchStrategy[float]:
    """Floats of every size, the difficult ones first."""
    width = 8 * np.dtype(dtype).itemsize
    info = np.finfo(dtype)
    corners = [0.0, 1.0, 0.5, 0.1, 0.3, 1 / 3, 0.7, 2.0, float(info.tiny), float(info.smallest_subnormal)]
    corners += [float(info.max), float(np.nextafter(info.dtype.type(1), info.dtype.type(0))), 1e-6, 1e6]
    good = [float(info.dtype.type(corner)) for corner in corners]
    low, high = options.get("min_value"), options.get("max_value")
    good = [x for x in good if (low is None or x >= low) and (high is None or x <= high)]
    return st.sampled_from(good) | st.floats(width=width, allow_nan=False, allow_infinity=False, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
@settings(max_examples=250, deadline=None)
def test_scaled_residual_ends_are_exact(dtype: Any, data: st.DataObject) -> None:
    prediction = np.array([data.draw(_numbers(dtype))], dtype)
    scale = np.array([data.draw(_numbers(dtype, min_value=0).filter(lambda s: s > 0))], dtype)
    threshold = dtype(data.draw(_numbers(dtype, min_value=0) | st.just(np.inf)))
    score = ScaledResidual()
    with np.errstate(all="ignore"):
        lower, upper = score.bounds(prediction, threshold, scale, UNLIMITED)
    assert lower.dtype == upper.dtype == dtype
    _is_the_last(score, prediction, threshold, scale, lower, upper)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
@settings(max_examples=250, deadline=None)
def test_residual_ends_are_exact(dtype: Any, data: st.DataObject) -> None:
    prediction = np.array([data.draw(_numbers(dtype))], dtype)
    threshold = dtype(data.draw(_numbers(dtype, min_value=0) | st.just(np.inf)))
    score = Residual()
    with np.errstate(all="ignore"):
        lower, upper = score.bounds(prediction, threshold, None, UNLIMITED)
    _is_the_last(score, prediction, threshold, None, lower, upper)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", score_names())
def test_ends_are_exact_for_many_ordinary_queries(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    score = make_score(name)
    prediction = rng.random(20_000).astype(dtype)
    prediction[:100] = np.round(prediction[:100], 1)
    scale = score.prepare(prediction, (rng.random(20_000) + 0.01).astype(dtype))
    for threshold in (dtype(0), dtype(0.01), dtype(0.3), dtype(1.7), rng.random(20_000).astype(dtype)):
        lower, upper = score.bounds(prediction, threshold, scale, UNLIMITED)
        _is_the_last(score, prediction, threshold, scale, lower, upper)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", score_names())
def test_limits_cut_the_ends_and_change_nothing_else(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    score = make_score(name)
    prediction = np.concatenate([rng.random(5000), [0, 1, -0.0, -0.25, 1.25]]).astype(dtype)
    scale = score.prepare(prediction, (rng.random(5005) + 0.01).astype(dtype))
    for limits in ((0.0, 1.0), (-1.0, 0.5), (0.25, np.inf), (-np.inf, 0.0)):
        for threshold in (dtype(0), dtype(0.2), dtype(2), rng.random(5005).astype(dtype)):
            lower, upper = score.bounds(prediction, threshold, scale, limits)
            free_lower, free_upper = score.bounds(prediction, threshold, scale, UNLIMITED)
            assert np.array_equal(lower, np.maximum(free_lower, dtype(limits[0])))
            assert np.array_equal(upper, np.minimum(free_upper, dtype(limits[1])))


def test_the_textbook_formula_loses_its_own_calibration_points() -> None:
    """The reason for the exact inverse: prediction +- q scale leaves out labels whose score is exactly q."""
    rng = np.random.default_rng(3)
    prediction, truth, scale = rng.random(10_000), rng.random(10_000), rng.random(10_000) + 0.1
    score = ScaledResidual()
    threshold = score.score(prediction, truth, scale)
    lost = (truth < prediction - threshold * scale) | (truth > prediction + threshold * scale)
    assert lost.mean() > 0.01
    lower, upper = score.bounds(prediction, threshold, scale, UNLIMITED)
    assert ((lower <= truth) & (truth <= upper)).all()


@pytest.mark.parametrize("guess", [-np.inf, -1e308, -1.0, -0.0, 0.0, 5e-324, 3.0, 1e308, np.inf])
@pytest.mark.parametrize("radius", [0.0, 5e-324, 0.1, 1e300, np.inf])
def test_the_search_copes_with_a_hopeless_guess(guess: float, radius: float) -> None:
    prediction = np.array([0.3, -7.0, 1e300, 0.0])
    with np.errstate(all="ignore"):
        expected = Residual().bounds(prediction, np.float64(radius), None, UNLIMITED)[1]
        for positive in (False, True) if guess > -np.inf else (False,):
            ends = outermost(
                lambda y, rows: y - prediction[rows],
                np.float64(radius),
                np.full(4, guess),
                1,
                np.inf,
                positive,
            )
            assert np.array_equal(ends, expected)


@given(mass=st.floats(0, 1), slope=st.sampled_from([1.0, 0.5]))
def test_entropy_is_that_of_a_coin_and_at_least_the_floor(mass: float, slope: float) -> None:
    score = EntropyResidual(slope=slope, offset=1 - slope)
    for dtype in (np.float32, np.float64):
        entropy = float(score.prepare(np.array([mass], dtype))[0])
        m = min(max(slope * mass + 1 - slope, 1e-6), 1 - 1e-6)
        # the slope is at most 14; m is off by three roundings, then come two logarithms, two products and a sum
        bound = 14 * apart(3, 1.0, dtype) + apart(4 * EXP_ULPS + 3, 1.0, dtype)
        assert entropy == pytest.approx(-m * np.log(m) - (1 - m) * np.log(1 - m), abs=bound)
        assert entropy >= 1e-6


def test_entropy_has_the_same_bits_alone_as_among_others() -> None:
    """Otherwise a p-value asked for alone could disagree with an interval asked for in bulk."""
    rng = np.random.default_rng(4)
    for dtype in (np.float32, np.float64):
        mass: NDArray[Any] = rng.random(1003).astype(dtype)
        together = EntropyResidual().prepare(mass)
        for size in (1, 2, 3, 5, 7, 8, 9, 17):
            for start in range(0, 900, 31):
                alone = EntropyResidual().prepare(mass[start : start + size].copy())
                assert np.array_equal(alone, together[start : start + size])
