"""Files that appear whole (written under a temporary name, then renamed), YAML settings, and `.npz` files that are read
without trusting them.
"""

from __future__ import annotations

import errno
import hashlib
import io
import math
import os
import re
import stat
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from unkgcp.errors import InputError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of the system when there is no more room: on the disk, for this user or in this file."""
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""The beginning of an address such as `s3://bucket`; a `Path` made of it has one stroke only."""


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it onto `target` on success, remove it on failure.

    The temporary name ends in the same suffixes as the target, for writers that look at them.
    """
    check_here(target, "it is written on this machine; give a path here, and copy it from there")
    target = Path(target)
    _check_kind(target)
    # the name is known before the file is there, so that a signal at any moment leaves nothing behind
    temporary = target.parent / f".partial-{os.urandom(8).hex()}{''.join(target.suffixes)}"
    try:
        with explained(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.touch(mode=0o600, exist_ok=False)
        with completed(temporary, target):
            yield temporary
        with explained(target):
            temporary.replace(target)
        sync(target.parent)
    finally:
        with suppress(OSError):  # where it could not be made there is nothing to remove
            temporary.unlink(missing_ok=True)


@contextmanager
def completed(path: Path, named: str | os.PathLike[str]) -> Iterator[None]:
    """After the block, the file `path` that it wrote is on the disk and has the usual permissions.

    Some writers make files that only their owner can read. A full disk becomes a sentence about `named`, the final name
    of the file.
    """
    with room_for(named):
        yield
        sync(path)
    path.chmod(0o666 & ~umask())


def write_files(
    folder: Path, writers: Mapping[str, Callable[[Path], Any]], final: Path
) -> dict[str, dict[str, Any]]:
    """Write files to a folder, each by its own function; gives the size and the SHA-256 of each.

    A full disk becomes a sentence about `final`, the folder that the files will be in.
    """
    for name, write in writers.items():
        with completed(folder / name, final / name):
            write(folder / name)
    paths = {name: folder / name for name in writers}
    return {name: {"bytes": path.stat().st_size, "sha256": digest(path)} for name, path in paths.items()}


def digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of the file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def umask() -> int:
    """The permissions that this process does not give to files it makes."""
    found = os.umask(0)  # the system tells the old value only when a new one is set
    os.umask(found)
    return found


@contextmanager
def explained(target: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the system while writing `target` become one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{target} cannot be written ({error.strerror or error}); give another name"
        ) from None


@contextmanager
def room_for(target: str | os.PathLike[str]) -> Iterator[None]:
    """A disk that is full becomes one sentence that names `target`; any other error stays what it is."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise InputError(
            f"{target} cannot be written ({os.strerror(error.errno)}); free some room or give another place"
        ) from None


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or the names in a folder, are on the disk and would survive a loss of power."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        if os.path.isdir(path):
            return  # some systems open no folders; nothing more can be done there
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot do this with a folder
            raise
    finally:
        os.close(handle)


def check_place(target: str | os.PathLike[str], prefix: str = ".partial-") -> None:
    """Refuse, before any work is done, a target for which no folder can be made or written to.

    A file is made to try, and removed; `prefix` begins its name.
    """
    check_here(target, "it is written on this machine; give a path here, and copy it from there")
    with explained(target):
        place = Path(target).absolute().parent
        while not place.exists() and not place.is_symlink():
            place = place.parent
        handle, name = tempfile.mkstemp(
            dir=place, prefix=prefix
        )  # permissions alone do not tell whether it works
        os.close(handle)
        with suppress(FileNotFoundError):  # another process that tidies the folder up may have been quicker
            os.unlink(name)


def check_here(target: str | os.PathLike[str], remedy: str) -> None:
    """Refuse an address where only a path will do; as a path it would name a folder called `s3:`."""
    if ADDRESS.match(str(target)):
        raise InputError(f"{target} is an address: {remedy}")


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
    """Standard output for bytes; InputError if the program was started without one."""
    if sys.stdout is None:
        raise InputError("standard output is closed; name a file with -o")
    return sys.stdout.buffer


def write_text(target: str | os.PathLike[str], text: str) -> None:
    with atomic_path(target) as path:
        path.write_text(text, encoding="utf-8")


# Settings in YAML.


@cache
def _loader() -> Any:
    import yaml  # not at import: start-up time

    class Loader(yaml.SafeLoader):
        """YAML without references, which can make a small file grow without end, and without a name twice in one
        mapping, of which YAML would silently keep the last.
        """

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("it refers to one value from several places")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            found = super().construct_mapping(node, deep)
            if len(found) < len(node.value):
                lines: dict[Any, list[int]] = {}
                for key, _ in node.value:
                    lines.setdefault(self.construct_object(key), []).append(key.start_mark.line + 1)
                name, (one, two, *_) = next(each for each in lines.items() if len(each[1]) > 1)
                raise ValueError(
                    f"it says {name} twice, in line {one} and in line {two}; leave one of them out"
                )
            return found

    return Loader


def parse_yaml(text: str) -> Any:
    """The values in a text; ValueError if it repeats a name or refers to a value, yaml.YAMLError if it is no YAML."""
    import yaml

    try:
        return yaml.load(text, _loader())
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


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
    # opened once, and without waiting: a pipe would make the reader wait for ever
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is not a plain file")
        return arrays_of(file.read(about.st_size))


def arrays_of(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays in the bytes of a file; they take no more memory than the bytes. ValueError as for `read_npz`."""
    try:
        return _arrays(content)
    except (zipfile.BadZipFile, RuntimeError, OverflowError) as error:
        # errors of zipfile for encrypted and foreign members
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def _arrays(content: bytes) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        # members that share their bytes could ask for far more memory than the file has
        if len(members) > MEMBERS or sum(member.file_size for member in members) > len(content):
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
    try:
        shape, fortran, dtype = npy.read_array_header_1_0(buffer)
    except (MemoryError, RecursionError, SyntaxError):  # raised for headers made to be hard to parse
        raise ValueError(f"array {name} has a header that is none") from None
    if dtype.kind not in "biufU" or fortran:
        raise ValueError(f"array {name} does not hold plain numbers or text in C order")
    if math.prod(shape) * dtype.itemsize != len(content) - buffer.tell():
        raise ValueError(f"array {name} is not as long as its header says")
    return np.frombuffer(content, dtype, offset=buffer.tell()).reshape(shape)
