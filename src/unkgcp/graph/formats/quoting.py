"""Where quotations begin and end in CSV, for a whole block at once.

A field that holds a delimiter, a line end or a quotation mark stands in quotation marks, and marks inside it are
doubled. Then the marks of a file alternate: one opens, the next closes (a doubled mark closes and opens again).
Anything else has no agreed meaning, and is refused rather than guessed at.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_MARK, _LINE_END, _RETURN = ord('"'), ord("\n"), ord("\r")


def last_record_end(data: NDArray[np.uint8]) -> int:
    """Where the last line ends that is not inside a quotation, 0 if none does. Data starts outside of one."""
    marks = np.flatnonzero(data == _MARK)
    ends = np.flatnonzero(data == _LINE_END)
    outside = ends[np.searchsorted(marks, ends) % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0


def misplaced_quote(block: pa.Buffer, delimiter: str) -> int | None:
    """Position of the first quotation mark that neither begins nor ends a field, or is left open."""
    data = np.frombuffer(block, np.uint8)
    marks = np.flatnonzero(data == _MARK)
    if not len(marks):
        return None
    borders = np.array([ord(delimiter), _LINE_END, _RETURN, _MARK], np.uint8)
    opening, closing = marks[::2], marks[1::2]
    wrong = [
        opening[(opening > 0) & ~np.isin(data[opening - 1], borders)],
        closing[(closing < len(data) - 1) & ~np.isin(data[np.minimum(closing + 1, len(data) - 1)], borders)],
        marks[-1:] if len(marks) % 2 else marks[:0],
    ]
    found = np.concatenate(wrong)
    return int(found.min()) if len(found) else None
