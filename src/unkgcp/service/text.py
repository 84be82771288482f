"""JSON in and out: strict on the way in, quick both ways.

What it is: the one place where bytes become Python values and back. NaN, Infinity, numbers out of range, deep
nesting, invalid UTF-8 and lone surrogates are refused. What it is not: it knows no fields.

>>> from_text(b'[1, 2]')
[1, 2]
>>> to_text({"score": float("nan")})
b'{"score":null}'
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json, to_json


def from_text(data: bytes) -> Any:
    """The value a JSON text stands for; ValueError says what and where."""
    return from_json(data, allow_inf_nan=False)


def to_text(value: Any) -> bytes:
    """JSON text of plain values; what is not finite becomes null."""
    return to_json(value, inf_nan_mode="null")
