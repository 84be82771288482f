"""Columns between NumPy and Arrow, without pandas: the same as with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from unkgcp.tabular.arrow_arrays import numbers, texts, values

RNG = np.random.default_rng(0)
ARRAYS: list[NDArray[Any]] = [
    RNG.random(21) < 0.5,
    RNG.integers(-9, 9, 21, dtype=np.int8),
    RNG.integers(-9, 9, 21),
    RNG.random(21, dtype=np.float32),
    RNG.random((21, 2))[:, 1],
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_there_and_back(array: NDArray[Any]) -> None:
    column = numbers(array)
    assert column == pa.array(array)
    for first, length in ((0, 21), (0, 0), (3, 5), (8, 8), (13, 8), (21, 0)):
        found = values(column.slice(first, length))
        np.testing.assert_array_equal(found, array[first : first + length])
        assert found.dtype == array.dtype


def test_what_is_not_valid_is_null() -> None:
    column = numbers(np.arange(11), np.arange(11) != 9)
    assert column.to_pylist() == [*range(9), None, 10]


def test_names() -> None:
    names = ["", "a", "Zo\u00eb", "\u65e5\u672c"]
    assert texts(names) == pa.array(names)
    assert texts([]) == pa.array([], pa.string())
