"""Answers as JSON text, written quickly: all numbers of a request at once, then one template for all rows.

>>> write_answers((0.9,), True, np.array([0.5]), np.array([[0.4]]), np.array([[0.6]]), np.array([0]), [])
b'{"confidence":0.9,"answers":[{"score":0.5,"lower":0.4,"upper":0.6,"status":"ok"}],"notes":[]}'
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.predictors.base import STATUSES
from unkgcp.service.text import to_text

Floats = NDArray[np.floating[Any]]

_STATUS = [status.encode() for status in STATUSES]


def write_answers(
    levels: Sequence[float],
    single: bool,
    score: Floats,
    lower: Floats,
    upper: Floats,
    code: NDArray[np.integer[Any]],
    notes: Sequence[str],
) -> bytes:
    """The body of an answer; score, code: (n,), lower, upper: (n, levels)."""
    rows = b""
    if len(score):
        numbers = to_text(np.column_stack([score, lower, upper]).ravel().tolist())[1:-1].split(b",")
        templates = [_template(len(levels), single, status) for status in _STATUS]
        rows = b",".join([templates[one] for one in code.tolist()]) % tuple(numbers)
    asked = to_text(levels[0] if single else list(levels))
    return b'{"confidence":%b,"answers":[%b],"notes":%b}' % (asked, rows, to_text(list(notes)))


@cache
def _template(levels: int, single: bool, status: bytes) -> bytes:
    """One answer with a place for each number."""
    ends = b",".join([b"%b"] * levels)
    ends = ends if single else b"[" + ends + b"]"
    return b'{"score":%%b,"lower":%b,"upper":%b,"status":"%b"}' % (ends, ends, status)
