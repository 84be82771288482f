"""Files that appear whole (written under a temporary name, then renamed), YAML settings, and files of named arrays that
are read without trusting whoever wrote them.

A *container* is a safetensors file of named arrays with a JSON text in its metadata and one SHA-256 over all of it. A
class that stores arrays declares them as `Field`s, and `check_fields` compares what was read with the declaration:

>>> FACTS = (Field("head", np.integer, ("facts",), 0, "entities"), Field("confidence", np.float64, ("facts",), 0, 1))
>>> check_fields({"head": np.array([0, 3]), "confidence": np.array([0.5, 1.0])}, FACTS, entities=4)
{'entities': 4, 'facts': 2}
>>> check_fields({"head": np.array([0, 4]), "confidence": np.array([0.5, 1.0])}, FACTS, entities=4)
Traceback (most recent call last):
ValueError: 'head' holds 4, which is not between 0 and 3
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError, public

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
            temporary.touch(exist_ok=False)
            permissions = temporary.stat().st_mode
        with room_for(target):
            yield temporary
            sync(temporary)
        with explained(target):
            temporary.chmod(permissions)  # some writers make files that only their owner can read
            temporary.replace(target)
        with suppress(OSError):  # some systems open no folders, some cannot sync them
            sync(target.parent)
    finally:
        with suppress(OSError):  # where it could not be made there is nothing to remove
            temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Wait until no other program holds the lock of the folder of this path, and keep others waiting meanwhile.

    The system lets go of the lock when the program that holds it ends, in whatever way. Some systems have none.
    """
    with ExitStack() as held:
        with suppress(ImportError, OSError):
            import fcntl

            folder = Path(path).absolute().parent
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY)
            held.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of the file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        # on the disk, for this user, in this file
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise InputError(
            f"{target} cannot be written ({os.strerror(error.errno)}); free some room or give another place"
        ) from None


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or the names in a folder, are on the disk and would survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_place(target: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, a target for which no folder can be made or written to."""
    check_here(target, "it is written on this machine; give a path here, and copy it from there")
    with explained(target):
        place = Path(target).absolute().parent
        while not place.exists() and not place.is_symlink():
            place = place.parent
        tempfile.TemporaryFile(dir=place).close()  # permissions alone do not tell whether it works


def check_here(target: str | os.PathLike[str], remedy: str) -> None:
    """Refuse an address where only a path will do; as a path it would name a folder called `s3:`."""
    if ADDRESS.match(str(target)):
        address = re.sub(":/+", "://", str(target), count=1)
        raise InputError(f"{public(address)} is an address: {remedy}")


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
def _loading() -> Any:
    """The function that loads YAML, made when it is first needed."""
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
            mapping = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                lines: dict[Any, list[int]] = {}
                for key, _ in node.value:
                    lines.setdefault(self.construct_object(key), []).append(key.start_mark.line + 1)
                name, (one, two, *_) = next(each for each in lines.items() if len(each[1]) > 1)
                raise ValueError(
                    f"it says {name} twice, in line {one} and in line {two}; leave one of them out"
                )
            return mapping

    return partial(yaml.load, Loader=Loader)


def parse_yaml(text: str) -> Any:
    """The values in a text; ValueError if it repeats a name or refers to a value, yaml.YAMLError if it is no YAML."""
    try:
        return _loading()(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


# Named arrays in one file, read without trusting it.

KEY = "unkgcp"
"""Where the metadata have the digest and the JSON text."""


@dataclass(frozen=True)
class Field:
    """What is known of one stored array before it is read.

    dtype: a NumPy type or a family of them (`np.unsignedinteger`), or several. shape: a length for each dimension: a
    number, the name of a size ("entities"), or such a name and a number ("entities+1"); None for any shape. A size that
    the caller does not give is that of the first array that has it. low: the least value. high: the largest one, or the
    name of a size below which all values are (ids). rising: whether values never fall from one to the next. Floats are
    finite unless `finite` is False. An optional array may be missing.
    """

    name: str
    dtype: Any
    shape: tuple[int | str, ...] | None = ()
    low: float = -np.inf
    high: float | str | None = None
    rising: bool = False
    optional: bool = False
    finite: bool = True

    def check(self, array: NDArray[Any], sizes: dict[str, int]) -> None:
        """ValueError unless the array is as declared; sizes that it brings are added."""
        if not any(np.issubdtype(array.dtype, kind) for kind in np.atleast_1d(np.array(self.dtype, object))):
            raise ValueError(f"{self.name!r} holds numbers of the type {array.dtype}")
        if self.shape is not None:
            if array.ndim != len(self.shape):
                raise ValueError(f"{self.name!r} has {array.ndim} dimensions and not {len(self.shape)}")
            for length, declared in zip(array.shape, self.shape, strict=True):
                size, _, more = str(declared).partition("+")
                expected = int(size) if size.isdigit() else sizes.setdefault(size, length - int(more or 0))
                if length != expected + int(more or 0):
                    raise ValueError(f"{self.name!r} has {length:,} of {declared} = {expected:,}")
        if not array.size or array.dtype == np.bool_:
            return
        least, largest = array.min(), array.max()  # NaN shows in both
        if self.finite and not (np.isfinite(least) and np.isfinite(largest)):
            raise ValueError(f"{self.name!r} holds a number that is not finite")
        high = sizes[self.high] - 1 if isinstance(self.high, str) else self.high
        if least < self.low or (high is not None and largest > high):
            value = least if least < self.low else largest
            raise ValueError(f"{self.name!r} holds {value}, which is not between {self.low} and {high}")
        if self.rising and (array[1:] < array[:-1]).any():
            raise ValueError(f"{self.name!r} falls somewhere, although its values never fall")


def check_fields(arrays: Mapping[str, NDArray[Any]], fields: Iterable[Field], **sizes: int) -> dict[str, int]:
    """All sizes, those included that the arrays bring; ValueError unless the arrays are those that are declared."""
    declared = {field.name: field for field in fields}
    for name, field in declared.items():
        if name in arrays:
            field.check(arrays[name], sizes)
        elif not field.optional:
            raise ValueError(f"{name!r} is missing")
    if strange := arrays.keys() - declared.keys():
        raise ValueError(f"{min(strange)!r} does not belong there")
    return sizes


def under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin with the prefix, by their names without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def joined(parts: Mapping[str, Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """All arrays of several parts, each called `name of its part/its own name`; `under("part/", ...)` finds them."""
    return {f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


class Container(NamedTuple):
    """The read-only arrays of a container by name, the JSON value beside them, and the SHA-256 over both."""

    arrays: dict[str, NDArray[Any]]
    about: Any
    digest: str


def write_container(
    path: str | os.PathLike[str], format: str, arrays: Mapping[str, NDArray[Any]], about: Any
) -> None:
    """Write arrays of numbers or text and a JSON value. Not atomic: the caller writes under a temporary name."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    texts = [name for name, array in plain.items() if array.dtype.kind == "U"]
    for name in texts:  # as the numbers of their characters
        spelt = plain[name].astype(f"U{max(1, plain[name].itemsize // 4)}")
        plain[name] = spelt.reshape(-1).view(np.uint32).reshape(*spelt.shape, -1)
    text = json.dumps({"format": format, "about": about, "texts": texts}, allow_nan=False)
    try:
        # one entry only: the library writes several in any order
        save_file(plain, path, {KEY: f"{_digest(plain, text)} {text}"})
    except SafetensorError as error:
        # the number of the system's error is only in the text of this one
        if number := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
        raise


def read_container(path: str | os.PathLike[str], format: str, remedy: str) -> Container:
    """Read what `write_container` wrote, all of it into memory, which is no more than the file has bytes.

    InputError, which ends with the remedy, if it is anything else, was altered, or has another format.
    """
    with reading(path, remedy):
        return _read(Path(path), format)


@contextmanager
def reading(path: str | os.PathLike[str], remedy: str) -> Iterator[None]:
    """Any error inside becomes one sentence about the file: what a stranger wrote can cause any error where it is read.

    Only what tells of this machine rather than of the file stays what it is.
    """
    try:
        yield
    except ImportError:
        raise
    except MemoryError:
        raise MemoryError(
            f"there is too little memory for {path}: free some, or use a machine with more"
        ) from None
    except PermissionError:
        raise InputError(f"{path} may not be read: change its permissions") from None
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path} is damaged or foreign ({why}); {remedy}") from error


def digest_of(path: str | os.PathLike[str], remedy: str) -> str:
    """The digest of a container, as it says itself; InputError if there is none."""
    from safetensors import safe_open

    with reading(path, remedy), safe_open(path, "numpy") as file:
        return str(file.metadata()[KEY].partition(" ")[0])


def _read(path: Path, format: str) -> Container:
    from safetensors import safe_open

    if not path.is_file():  # a pipe would make the reader wait for ever
        raise ValueError("it is not a plain file")
    with safe_open(path, "numpy") as file:
        digest, _, text = (file.metadata() or {}).get(KEY, " {}").partition(" ")
        metadata = json.loads(text)
        if metadata.get("format") != format:
            raise ValueError(
                f"its format is {str(metadata.get('format'))[:40]!r}, this program reads {format!r}"
            )
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if digest != _digest(arrays, text):
        raise ValueError("it is not what was written")
    for name in metadata["texts"]:
        codes = arrays[name]
        if codes.dtype != np.uint32 or codes.max(initial=0) > sys.maxunicode:
            raise ValueError(f"{name!r} holds no text")
        arrays[name] = codes.reshape(-1).view(f"U{codes.shape[-1]}").reshape(codes.shape[:-1])
    for array in arrays.values():
        array.flags.writeable = False
    return Container(arrays, metadata["about"], digest)


def _digest(arrays: Mapping[str, NDArray[Any]], text: str) -> str:
    """SHA-256 over the text and the name, type, shape and bytes of every array, in hexadecimal."""
    described = [[name, arrays[name].dtype.str, arrays[name].shape] for name in sorted(arrays)]
    sha = hashlib.sha256(json.dumps([text, described]).encode())
    for name in sorted(arrays):
        sha.update(arrays[name].reshape(-1).view(np.uint8).data)
    return sha.hexdigest()
