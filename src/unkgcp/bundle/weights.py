"""Model parameters in a safetensors file, mapped into memory: nothing is read until it is used.

What it is: a reader for what a run needs of the format, plain 32-bit floats in tables, that believes nothing: every
table must lie within the file, where its shape says, and no two may overlap. What it is not: a writer (the
safetensors library does that), or a check of the numbers (`finite`, which reads them all).

>>> read_weights(Path("run/model.safetensors"))["model/entity"].shape     # doctest: +SKIP
(27221, 128)
"""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.bundle.opening import opened

HEADER = 1 << 20  # bytes of the header, far more than the names and shapes of some tables need
BLOCK = 1 << 18  # numbers: they stay in the cache while they are looked at
LARGEST = 1 << 48
LINE = 64  # bytes

Weights = dict[str, NDArray[np.float32]]


def read_weights(path: Path, mapped: bool = True) -> Weights:
    """Tables by name, read-only, mapped or read into memory; ValueError if the file is not what it says."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(HEADER, size - 8):
            raise ValueError("its header has no sensible length")
        header = json.loads(file.read(length).decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError("its header names no tables")
        header.pop("__metadata__", None)
        places = sorted((_place(name, entry), name, entry) for name, entry in header.items())
        end = 0
        for (start, stop), name, _ in places:
            if start != end or stop < start:
                raise ValueError(f"table {name!r} does not begin where the one before it ends")
            end = stop
        if 8 + length + end != size:
            raise ValueError(f"its tables need {8 + length + end:,} bytes and it has {size:,}")
        if (8 + length) % 4:
            raise ValueError("its tables are not aligned")
        if not end:
            return {name: np.zeros(entry["shape"], np.float32) for _, name, entry in places}
        if mapped:
            numbers = np.frombuffer(
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), "<f4", offset=8 + length
            )
        else:
            numbers = _room(end // 4, max(((stop - start, start) for (start, stop), _, _ in places))[1])
            if file.readinto(numbers.data.cast("B")) != end:
                raise ValueError("it ends too early")
            numbers.flags.writeable = False
    return {
        name: numbers[start // 4 : stop // 4].reshape(entry["shape"]) for (start, stop), name, entry in places
    }


def _room(count: int, place: int) -> NDArray[np.float32]:
    """Memory for so many numbers, so that the byte at `place` begins a line of the processor's cache.

    It is written to once: the system hands over large pages then, and small ones, slowly, to a file that is read.
    """
    whole = np.empty(count + LINE // 4, "<f4")
    whole.fill(0)
    first = -(whole.ctypes.data + place) % LINE // 4
    return whole[first : first + count]


def _place(name: str, entry: Any) -> tuple[int, int]:
    """Where a table begins and ends behind the header; its shape must say the same."""
    if not isinstance(entry, dict) or entry.get("dtype") != "F32":
        raise ValueError(f"table {name!r} does not hold 32-bit floats")
    shape, place = _pair(name, entry.get("shape")), _pair(name, entry.get("data_offsets"))
    if place[1] - place[0] != 4 * shape[0] * shape[1] or place[0] % 4:
        raise ValueError(f"table {name!r} is not as large as its shape says")
    return place


def _pair(name: str, numbers: Any) -> tuple[int, int]:
    if (
        isinstance(numbers, list)
        and len(numbers) == 2
        and all(type(n) is int and 0 <= n < LARGEST for n in numbers)
    ):
        return numbers[0], numbers[1]
    raise ValueError(f"table {name!r} has no sensible shape or place")


def finite(table: NDArray[np.float32]) -> bool:
    """Whether no number is infinite or none at all; looks at a megabyte at a time."""
    flat = table.reshape(-1)
    # the largest and the smallest number carry NaN and infinity out
    parts = (flat[start : start + BLOCK] for start in range(0, len(flat), BLOCK))
    return all(bool(np.isfinite(part.max()) and np.isfinite(part.min())) for part in parts)
