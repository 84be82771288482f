"""One measurement of `benchmarks/conformal.py` in a process of its own: one library, one job, one size.

    python conformal_case.py '{"library": "crepes", "job": "interval", "calibration": 1000000, ...}'

Prints a JSON object with the seconds of calibrating and of predicting, call by call (the first one cold), the
peak memory above the imports, and writes every so many rows of the answers for comparison.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def resident(field: str) -> int:
    """Bytes of memory this process has (VmRSS) or had at its highest (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def entropy(prediction: Array) -> Array:
    """What a user of a library without it would write."""
    mass = np.clip(prediction, 1e-6, 1 - 1e-6)
    return -mass * np.log(mass) - (1 - mass) * np.log(1 - mass)


def data(size: int, seed: int) -> tuple[Array, Array, Array]:
    """Predictions, truths and scales in [0, 1], errors in proportion to the scale: (size,) each."""
    rng = np.random.default_rng(seed)
    prediction = rng.random(size)
    scale = 0.4 * rng.random(size) + 0.02
    return prediction, np.clip(prediction + scale * rng.standard_normal(size), 0, 1), scale


Fit = Callable[[Array, Array, Array], Any]


def ours(job: str, levels: list[float]) -> tuple[Fit, Callable[..., Array]]:
    from unkgcp.conformal import SplitConformal

    SplitConformal().calibrate([0.1, 0.2], [0.1, 0.3]).interval([0.5], confidence=0.5)

    if job == "entropy":
        return (
            lambda p, y, s: SplitConformal("entropy").calibrate(p, y),
            lambda cal, p, y, s: cal.interval(p, confidence=levels),
        )
    fit: Fit = lambda p, y, s: SplitConformal().calibrate(p, y, scale=s)  # noqa: E731
    if job == "p_value":
        return fit, lambda cal, p, y, s: cal.p_value(p, y, scale=s)
    return fit, lambda cal, p, y, s: cal.interval(p, scale=s, confidence=levels)


def crepes(job: str, levels: list[float]) -> tuple[Fit, Callable[..., Array]]:
    from crepes import ConformalRegressor

    def predict(cal: Any, p: Array, y: Array, s: Array) -> Array:
        if job == "p_value":
            return np.ravel(cal.predict_p(p, y, sigmas=s, smoothing=False))
        sigmas = entropy(p) if job == "entropy" else s
        return [cal.predict_int(p, sigmas=sigmas, confidence=level, y_min=0, y_max=1) for level in levels]

    def fit(p: Array, y: Array, s: Array) -> Any:
        return ConformalRegressor().fit(y - p, sigmas=entropy(p) if job == "entropy" else s)

    return fit, predict


def mapie(job: str, levels: list[float]) -> tuple[Fit, Callable[..., Array]]:
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import SplitConformalRegressor
    from sklearn.base import BaseEstimator, RegressorMixin

    class Column(RegressorMixin, BaseEstimator):  # type: ignore[misc]
        """A finished model: what it predicts stands in a column of the input."""

        def __init__(self, index: int = 0) -> None:
            self.index = index

        def fit(self, X: Any, y: Any = None) -> Column:
            self.fitted_ = True
            return self

        def predict(self, X: Array) -> Array:
            return X[:, self.index]

    def fit(p: Array, y: Array, s: Array) -> Any:
        score = ResidualNormalisedScore(residual_estimator=Column(1).fit(None), prefit=True)
        model = SplitConformalRegressor(
            Column(0).fit(None), confidence_level=levels, conformity_score=score, prefit=True
        )
        return model.conformalize(np.stack([p, s], axis=1), y)

    def predict(cal: Any, p: Array, y: Array, s: Array) -> Array:
        ends: Array = cal.predict_interval(np.stack([p, s], axis=1))[1]
        return np.clip(ends, 0, 1, out=ends)

    return fit, predict


def sample(answers: Any) -> Array:
    """Some two thousand rows of the answers, several levels in the last dimension."""
    if isinstance(answers, list):
        return np.stack([sample(each) for each in answers], axis=-1)
    return np.array(answers[:: max(1, len(answers) // 2000)])


def main(case: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    fit, predict = {"ours": ours, "crepes": crepes, "mapie": mapie}[case["library"]](
        case["job"], case["levels"]
    )
    base = resident("VmRSS")
    known: list[Any] = list(data(case["calibration"], 0))
    asked: list[Any] = list(data(case["queries"], 1))
    if case["job"] != "p_value":
        asked[1] = None
    if case["job"] == "entropy":
        known[2] = asked[2] = None
    calibrate_seconds, predict_seconds = [], []
    forget_peak()
    for _ in range(case["repeats"] + 1):
        start = time.perf_counter()
        cal = fit(*known)
        between = time.perf_counter()
        answers = predict(cal, *asked)
        predict_seconds.append(time.perf_counter() - between)
        calibrate_seconds.append(between - start)
        output = sum(each.nbytes for each in (answers if isinstance(answers, list) else [answers]))
        np.save(case["sample"], sample(answers))
        del answers, cal
    # the calibration scores are output of calibrating
    held = sum(each.nbytes for each in [*known, *asked, known[0]] if each is not None) + output
    return {
        "calibrate": calibrate_seconds,
        "predict": predict_seconds,
        "peak": resident("VmHWM") - base,
        "held": held,
        "numpy": np.__version__,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
