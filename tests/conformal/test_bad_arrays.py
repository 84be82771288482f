"""Arrays that `SplitConformal` refuses, with errors that say what is wrong and where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unkgcp.conformal import SplitConformal
from unkgcp.loops import ROWS

GOOD = np.linspace(0, 1, 30)


def _spoil(value: float, row: int = 17) -> NDArray[Any]:
    spoiled = GOOD.copy()
    spoiled[row] = value
    return spoiled


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prediction": [], "truth": []}, "prediction is empty, calibration needs at least one point"),
        ({"prediction": _spoil(np.nan)}, r"prediction\[17\] is nan, expected a finite number"),
        ({"prediction": _spoil(np.inf)}, r"prediction\[17\] is inf, expected a finite number"),
        ({"truth": _spoil(np.nan)}, r"truth\[17\] is nan, expected a finite number"),
        ({"truth": _spoil(1.5)}, r"truth\[17\] is 1.5, outside the bounds \(0, 1\)"),
        ({"truth": GOOD[:-1]}, "truth has 29 rows, but prediction has 30"),
        ({"truth": np.eye(30)}, r"truth has shape \(30, 30\), expected \(n,\)"),
        ({"prediction": 0.5}, r"prediction has shape \(\), expected \(n,\)"),
        ({"prediction": np.array(["a"] * 30)}, "prediction has dtype <U1, expected real numbers"),
        ({"prediction": np.array([None] + [0.5] * 29)}, r"prediction\[0\] is nan"),
        (
            {"prediction": np.array(["x"] + [0.5] * 29, object)},
            "prediction holds values that are not numbers",
        ),
        ({"prediction": GOOD + 1j}, "prediction has dtype complex128"),
        ({"scale": _spoil(0)}, r"scale\[0\] is 0.0, expected a positive number"),
        ({"scale": _spoil(-1) + 1}, r"scale\[17\] is 0.0, expected a positive number"),
        ({"scale": _spoil(np.inf) + 1}, r"scale\[17\] is inf, expected a finite number"),
        ({"scale": GOOD[:3] + 1}, "scale has 3 rows, but prediction has 30"),
        ({"weight": _spoil(-0.5)}, r"weight\[17\] is -0.5, expected no negative number"),
        ({"weight": _spoil(np.nan)}, r"weight\[17\] is nan, expected a finite number"),
        ({"weight": np.zeros(30)}, "weight is zero everywhere"),
        ({"weight": GOOD[:2]}, "weight has 2 rows, but prediction has 30"),
        ({"group": ["a"] * 29}, "group has 29 rows, but prediction has 30"),
        ({"group": [["a"]] * 30}, r"group has shape \(30, 1\)"),
        ({"group": np.array(["a", None] * 15, object)}, r"group\[1\] is None, expected strings"),
        ({"group": GOOD}, "group has dtype float64, expected strings or integers"),
    ],
)
def test_bad_calibration_arrays(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        SplitConformal().calibrate(**{"prediction": GOOD, "truth": GOOD, **arguments})


def test_bad_rows_are_found_in_long_arrays() -> None:
    long = np.full(40 * ROWS, 0.5)
    long[[30 * ROWS + 5, 39 * ROWS]] = np.nan
    with pytest.raises(ValueError, match=rf"prediction\[{30 * ROWS + 5}\] is nan"):
        SplitConformal().calibrate(GOOD, GOOD).interval(long)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prediction": _spoil(np.nan)}, r"prediction\[17\] is nan"),
        ({"prediction": [GOOD]}, r"prediction has shape \(1, 30\)"),
        ({"scale": GOOD + 1}, "the residual score takes no scale"),
        ({"group": ["a"] * 30}, "group is given, but there was no group at calibration"),
        ({"weight": GOOD}, "weight is given, but there was no weight at calibration"),
        ({"confidence": 1.5}, "confidence must be a number from 0 to 1"),
        ({"confidence": [0.9, np.nan]}, "confidence must be a number from 0 to 1"),
    ],
)
def test_bad_query_arrays(arguments: dict[str, Any], sentence: str) -> None:
    cal = SplitConformal().calibrate(GOOD, GOOD)
    with pytest.raises(ValueError, match=sentence):
        cal.interval(**{"prediction": GOOD, **arguments})


def test_p_values_of_bad_labels() -> None:
    cal = SplitConformal().calibrate(GOOD, GOOD)
    for label, sentence in (
        (_spoil(np.nan), r"truth\[17\] is nan"),
        (_spoil(2), r"truth\[17\] is 2.0, outside"),
    ):
        with pytest.raises(ValueError, match=sentence):
            cal.p_value(GOOD, label)
    with pytest.raises(ValueError, match="truth has 3 rows"):
        cal.p_value(GOOD, GOOD[:3])


def test_bad_settings() -> None:
    with pytest.raises(
        ValueError, match="no nonconformity score is named 'entrpy'; there are entropy, residual"
    ):
        SplitConformal("entrpy")
    with pytest.raises(ValueError, match="bounds must be a smaller and a larger number"):
        SplitConformal(bounds=(1, 0))
    with pytest.raises(ValueError, match="training_conditional must be above 0 and below 1"):
        SplitConformal(training_conditional=0)
    with pytest.raises(RuntimeError, match="call calibrate"):
        SplitConformal().interval([0.5])
    with pytest.raises(ValueError, match="the scaled score needs a scale for every query"):
        SplitConformal().calibrate(GOOD, GOOD, scale=GOOD + 1).interval(GOOD)
    with pytest.raises(ValueError, match="training_conditional has no meaning with weights"):
        SplitConformal(training_conditional=0.1).calibrate(GOOD, GOOD, weight=GOOD)
