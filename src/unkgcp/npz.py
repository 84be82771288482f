"""Named numeric arrays in one `.npz` file, read without trusting it.

What it is: the one reader and writer of the arrays of a run and of a saved calibration, for the subset of NumPy's
format that these need: uncompressed members, plain numbers and text, in C order. What it is not: a general reader;
Python objects, compressed members (a small file could ask for any amount of memory) and headers that promise more
than the file holds are refused. The same arrays always give the same bytes.

>>> write_npz("c.npz", {"scores": np.arange(3.0)})     # doctest: +SKIP
>>> read_npz("c.npz")["scores"]                        # doctest: +SKIP
array([0., 1., 2.])
"""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

MEMBERS = 1000


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the arrays, in their order. Not atomic: the caller writes under a temporary name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            npy.write_array(buffer, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), buffer.getvalue())


def read_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """The arrays by name; ValueError if this is anything but what `write_npz` writes, OSError if it cannot be read."""
    try:
        return _read(path)
    except (zipfile.BadZipFile, RuntimeError, MemoryError, OverflowError, SyntaxError) as error:
        # what zipfile says of encrypted and foreign members, and Python of headers made to be hard to parse
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def _read(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a plain file")  # a pipe would make the reader wait for ever
    size = found.st_size
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        # members that share their bytes could ask for far more memory than the file has
        if len(members) > MEMBERS or sum(member.file_size for member in members) > size:
            raise ValueError("it promises more than it holds")
        for member in members:
            name, suffix = os.path.splitext(member.filename)
            if suffix != ".npy" or member.compress_type != zipfile.ZIP_STORED or name in arrays:
                raise ValueError(f"member {member.filename} is not a plain array")
            arrays[name] = _array(archive.read(member), member.filename)
    return arrays


def _array(content: bytes, name: str) -> NDArray[Any]:
    buffer = io.BytesIO(content)
    if npy.read_magic(buffer) != (1, 0):
        raise ValueError(f"array {name} has an unknown version")
    shape, fortran, dtype = npy.read_array_header_1_0(buffer)
    if dtype.kind not in "biufU" or fortran:
        raise ValueError(f"array {name} does not hold plain numbers or text in C order")
    if math.prod(shape) * dtype.itemsize != len(content) - buffer.tell():
        raise ValueError(f"array {name} is not as long as its header says")
    return np.frombuffer(content, dtype, offset=buffer.tell()).reshape(shape)
