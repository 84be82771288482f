"""Files written whole, under a temporary name first, so that nobody ever sees half of one; and safe `.npz` files."""

from __future__ import annotations

import io
import math
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from unkgcp.errors import InputError


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it onto `target` on success, remove it on failure.

    The temporary name ends in the same suffixes as the target, for writers that look at them.
    """
    target = Path(target)
    _check_kind(target)
    # the name is known before the file is there, so that a signal at any moment leaves nothing behind
    temporary = target.parent / f".partial-{os.urandom(8).hex()}{''.join(target.suffixes)}"
    try:
        with explained(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.touch(mode=0o600, exist_ok=False)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~umask())
        with explained(target):
            temporary.replace(target)
    finally:
        with suppress(OSError):  # where it could not be made there is nothing to remove
            temporary.unlink(missing_ok=True)


def umask() -> int:
    """The permissions that this process does not give to files it makes."""
    found = os.umask(0)  # the system tells it only when it is set
    os.umask(found)
    return found


@contextmanager
def explained(target: str | os.PathLike[str]) -> Iterator[None]:
    """What the system says against writing `target` becomes one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{target} cannot be written ({error.strerror or error}); give another name"
        ) from None


def check_place(target: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, a target for which no folder can be made or written to."""
    with explained(target):
        place = Path(target).absolute().parent
        while not place.exists() and not place.is_symlink():
            place = place.parent
        handle, name = tempfile.mkstemp(dir=place, prefix=".partial-")  # no question tells as much as trying
        os.close(handle)
        os.unlink(name)


def check_file(target: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, a file that could not be written in the end."""
    _check_kind(Path(target))
    check_place(target)


def _check_kind(target: Path) -> None:
    """A folder cannot be replaced by a file, and a device or a pipe should not be."""
    if target.is_dir():
        raise InputError(f"{target} is a folder; give the name of a file")
    if target.exists() and not target.is_file():
        raise InputError(f"{target} is not a plain file; give another name")


def standard_output() -> BinaryIO:
    """Standard output for bytes; a program can be started without one."""
    if sys.stdout is None:
        raise InputError("standard output is closed; name a file with -o")
    return sys.stdout.buffer


def write_text(target: str | os.PathLike[str], text: str) -> None:
    with atomic_path(target) as path:
        path.write_text(text, encoding="utf-8")


# Named numeric arrays in one `.npz` file, read without trusting it.

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
