"""Delimited text from Arrow columns, without a loop over rows.

What it is: the one place where columns of text become lines, for facts, answers and intervals alike. What it is
not: a writer of files; it knows no headers and no names.

>>> bytes(lines([pa.array(["a", "b"]), pa.array([None, "x y"])], ","))
b'a,\\nb,x y\\n'
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_EMPTY: dict[str, Any] = {"null_handling": "replace", "null_replacement": ""}


def lines(columns: list[pa.Array], delimiter: str) -> memoryview:
    """The rows of columns of text (or of what casts to it), each ended by a line feed; a null is an empty field."""
    if not len(columns[0]):
        return memoryview(b"")
    nothing, line_end, between = (pa.scalar(text, pa.large_string()) for text in ("", "\n", delimiter))
    texts = [column.cast(pa.large_string()) for column in columns]
    texts[-1] = pc.binary_join_element_wise(texts[-1], line_end, nothing, **_EMPTY)
    rows = pc.binary_join_element_wise(*texts, between, **_EMPTY)
    # the strings of an Arrow array lie end to end in one buffer: the text is already there
    _, offsets, data = rows.buffers()
    ends = np.frombuffer(offsets, np.int64)
    return memoryview(data)[ends[rows.offset] : ends[rows.offset + len(rows)]]


def quoted(column: pa.Array, delimiter: str) -> pa.Array:
    """A column of text with quotation marks around the fields that need them, as CSV has it."""
    characters = f'"\r\n{delimiter}'
    if not holds_any(column, characters.encode()):
        return column
    nothing, mark = (pa.scalar(text, column.type) for text in ("", '"'))
    wrapped = pc.binary_join_element_wise(mark, pc.replace_substring(column, '"', '""'), mark, nothing)
    return pc.if_else(pc.match_substring_regex(column, f"[{re.escape(characters)}]"), wrapped, column)


def holds_any(column: pa.Array, characters: bytes) -> bool:
    """Whether one of these bytes is anywhere in a column of text; far quicker than to search each field."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return False
    ends = np.frombuffer(offsets, np.int64 if pa.types.is_large_string(column.type) else np.int32)
    text = np.frombuffer(data, np.uint8)[ends[column.offset] : ends[column.offset + len(column)]]
    wanted = np.zeros(256, np.bool_)
    wanted[list(characters)] = True
    return bool(wanted[text].any())
