"""NumPy arrays as Arrow columns and back, without pandas.

`pa.array` and `np.asarray` of an Arrow column would do the same, but they load pandas, where it is installed, to see
whether the array is one of its own. That takes longer than answering a small file of queries.

>>> values(numbers(np.array([3, 1])).take(numbers(np.array([1]))))
array([1])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NUMPY_TYPES = {
    pa.from_numpy_dtype(np.dtype(name)): np.dtype(name)
    for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
"""The type of NumPy for each Arrow type of numbers; `to_pandas_dtype` of older versions of Arrow loads pandas."""


def numbers(array: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of numbers or truth values (n,) as an Arrow column, null where it is not valid."""
    array = np.ascontiguousarray(array)
    if array.dtype == np.bool_:
        flags = pa.py_buffer(np.packbits(array, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(array), [None, flags])
    bits = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [bits, pa.py_buffer(array)])


class Coded(NamedTuple):
    """A column of names: `code` (n,) is the place of each row's name in `names`."""

    code: NDArray[np.int8]
    names: Sequence[str]

    def spelt(self) -> list[str]:
        """The name of each row."""
        return [self.names[place] for place in self.code.tolist()]


Column = NDArray[Any] | Coded


def to_arrow(columns: Mapping[str, Column]) -> dict[str, pa.Array]:
    """Columns (n,) as Arrow arrays: names become dictionaries, NaN becomes null."""
    return {name: _arrow(column) for name, column in columns.items()}


def _arrow(column: Column) -> pa.Array:
    if isinstance(column, Coded):
        return pa.DictionaryArray.from_arrays(numbers(column.code), texts(column.names))
    # the sum is NaN if one of the numbers is; unlike np.isnan of all of them, it takes no memory
    holds_nan = column.dtype != np.bool_ and bool(np.isnan(column.sum()))
    return numbers(column, ~np.isnan(column) if holds_nan else None)


def texts(names: Sequence[str]) -> pa.StringArray:
    """A few names as an Arrow column."""
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def values(column: pa.Array) -> NDArray[Any]:
    """A column of numbers or truth values, none of them null, as an array (n,); of numbers it is no copy."""
    first, end, data = column.offset, column.offset + len(column), column.buffers()[1]
    if not len(column) or data is None:
        return np.zeros(0, NUMPY_TYPES[column.type])
    if pa.types.is_boolean(column.type):
        packed = np.frombuffer(data, np.uint8)[first // 8 : -(-end // 8)]
        return np.unpackbits(packed, bitorder="little").view(np.bool_)[first % 8 :][: len(column)]
    return np.frombuffer(data, NUMPY_TYPES[column.type])[first:end]


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The chunks of a column as one array."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def content(column: pa.Array) -> NDArray[np.uint8]:
    """The bytes of all rows of a column of text, which lie end to end in one buffer; no copy."""
    _, offsets, data = column.buffers()
    if not len(column) or data is None:
        return np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64 if pa.types.is_large_string(column.type) else np.int32)
    return np.frombuffer(data, np.uint8)[bounds[column.offset] : bounds[column.offset + len(column)]]
