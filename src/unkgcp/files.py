"""Files written whole: under a temporary name first, then renamed, so that nobody ever sees half of one."""

from __future__ import annotations

import hashlib
import io
import math
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import yaml
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
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=target.parent, prefix=".partial-", suffix="".join(target.suffixes)
        )
        os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        with explained(target):
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


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


# Files of a stranger's folder, opened with care: plain files only, never larger than they may be.


@contextmanager
def reading(path: Path) -> Iterator[Path]:
    """Whatever goes wrong inside while reading `path` becomes one sentence."""
    try:
        yield path
    except InputError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path} is damaged or foreign ({why}); fit the run again") from error


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """The file, which must be a plain one and no link."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        if path.is_symlink():
            raise InputError(f"{path} is a link; a run holds its files itself, so copy the file there")
        handle = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise InputError(f"{path} is missing, so the run is not whole; fit the run again") from None
    except PermissionError:
        raise InputError(f"{path} may not be read: change its permissions") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); fit the run again") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path} is not a plain file, so this is no run; fit the run again")
    with os.fdopen(handle, "rb") as file:
        yield file


def size_of(path: Path) -> int:
    """Bytes of the file, which must be a plain one."""
    with opened(path) as file:
        return os.fstat(file.fileno()).st_size


def read_bytes(path: Path, most: int) -> bytes:
    """All of the file; a ValueError if it is larger than it may be."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"it has {size:,} bytes, more than the {most:,} it may have")
        return file.read(most)


def digest(path: Path) -> str:
    """SHA-256 of the file, in hexadecimal."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


# Settings of a stranger: YAML that is a tree of plain values, and nothing that grows when it is read.


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("it refers to one value from several places")
        return super().compose_node(parent, index)


def load_yaml(text: bytes) -> dict[str, Any]:
    """The settings by name; a ValueError if it is anything else."""
    found = yaml.load(text.decode("utf-8"), _Loader)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ValueError("it holds no settings")
    return found
