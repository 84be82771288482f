"""Sources of bytes: a file here or elsewhere, or a pipe; packed ones are unpacked, and the first bytes are shown.

Everything that can go wrong before the first byte of content (no such file, a folder, no permission, a broken gzip)
becomes one sentence here. Files elsewhere can be written, too (`sent`). Nothing here knows of facts.

>>> with Source("facts.tsv.gz") as source:      # doctest: +SKIP
...     source.sample[:20]
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import re
import select
import shutil
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa

from unkgcp.errors import InputError, missing, public
from unkgcp.files import room_for

SAMPLE = 1 << 20
LONGEST = 16 << 20
"""Bytes of the longest line; in CSV of the longest record."""
SILENCE = float(os.environ.get("UNKGCP_SILENCE", 600))
"""Seconds within which a pipe or a file elsewhere must bring the end of a line."""

Origin = str | os.PathLike[str] | BinaryIO

_PARQUET = b"PAR1"
_PACKED: dict[bytes, tuple[str, Callable[[Any], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    b"BZh": ("bzip2", bz2.BZ2File),
    b"\xfd7zXZ\x00": ("xz", lzma.LZMAFile),
    b"\x28\xb5\x2f\xfd": ("zstandard", lambda file: pa.CompressedInputStream(file, "zstd")),
}
_FOREIGN = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"%PDF": "a PDF document",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"ARROW1": "an Arrow file",
}
_READING = (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError, csv.Error, pa.ArrowException)


def is_parquet(start: bytes) -> bool:
    """Whether a file that begins with these bytes is a Parquet file."""
    return start.startswith(_PARQUET)


def records(
    text: Iterable[str], delimiter: str, quoted: bool = True, empty: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The line, counted from 1, and the fields of every record; with `empty` also of empty lines.

    `text` gives lines with their ends, as a file opened with `newline=""` does. Slow: only to find what is wrong.
    """
    limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(
            text, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
        )
        line = 1
        for fields in reader:
            if fields or empty:
                yield line, fields
            line = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)


class Source:
    """An open file or pipe; `-` is standard input. `sample` holds its first bytes, which reading gives again."""

    def __init__(self, origin: Origin) -> None:
        self._open = ExitStack()
        here = origin != "-" and isinstance(origin, str | os.PathLike) and not is_remote(origin)
        self.path = Path(origin) if here else None  # type: ignore[arg-type]
        self.name = public(str(origin)) if is_remote(origin) else str(self.path or "standard input")
        self.sample = b""
        self.packed: str | None = None
        try:
            with self.explained():
                self._stream: Any = self._unpacked(self._bytes(origin))
                self.sample = self._first()
            for magic, what in _FOREIGN.items():
                if self.sample.startswith(magic):
                    raise InputError(
                        f"{self.name} is {what}: unpack or export it as TSV, CSV or Parquet first"
                    )
        except BaseException:
            self._open.close()
            raise
        self._pending = memoryview(self.sample)

    def readinto(self, view: memoryview) -> int:
        """Fill the view with the next bytes and return their number, which is smaller than the view only at the end."""
        filled = min(len(view), len(self._pending))
        view[:filled] = self._pending[:filled]
        self._pending = self._pending[filled:]
        with self.explained():
            while filled < len(view):
                count = self._stream.readinto(view[filled:])
                if not count:
                    break
                filled += count
        return filled

    def read(self, size: int) -> bytes:
        """The next bytes, fewer than `size` only at the end."""
        view = memoryview(bytearray(size))
        return bytes(view[: self.readinto(view)])

    def on_disk(self) -> Path:
        """A path with the unpacked content; a temporary copy where there is no such file. To be called once."""
        if self.path and self.path.is_file() and not self.packed:
            return self.path
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="unkgcp-"))
        path = Path(folder) / "content"
        with self.explained(), room_for(folder), path.open("wb") as copy:
            copy.write(self._pending)
            shutil.copyfileobj(self._stream, copy, SAMPLE)
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def _bytes(self, origin: Origin) -> io.BufferedReader:
        if self.path is not None:
            if self.path.is_dir():
                raise IsADirectoryError
            here = self._open.enter_context(self.path.open("rb"))
            pipe = _descriptor(here) is not None
            return io.BufferedReader(_Incoming(here, self.name), SAMPLE) if pipe else here
        if is_remote(origin):
            url = str(origin)
            with _explained(url, "read"):
                system, path = _system(url)
                # http: the whole file in one request, since it could change between several
                file = system.open(path, "rb", **({"block_size": 0} if _protocol(url) in READ_ONLY else {}))
            self._open.enter_context(suppress(Exception))  # what closing brings is of no interest
            self._open.callback(file.close)
            return io.BufferedReader(_Incoming(file, self.name, url), SAMPLE)
        if origin == "-" and sys.stdin is None:
            raise InputError("standard input is closed: give the name of a file")
        # the caller opened it, so it stays open
        return io.BufferedReader(_Incoming(sys.stdin.buffer if origin == "-" else origin, self.name), SAMPLE)

    def _unpacked(self, stream: io.BufferedReader) -> Any:
        start = stream.peek(8)
        for magic, (name, opener) in _PACKED.items():
            if start.startswith(magic):
                self.packed = name
                return io.BufferedReader(self._open.enter_context(opener(stream)), SAMPLE)
        return stream

    def _first(self) -> bytes:
        """The first bytes; more than usual if the first line is longer."""
        sample = bytes(self._stream.read(SAMPLE))
        while b"\n" not in sample and SAMPLE <= len(sample) <= LONGEST:
            more = self._stream.read(len(sample))
            if not more:
                break
            sample += more
        return sample

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of reading become an `InputError` with one sentence."""
        try:
            yield
        except _READING as error:
            raise InputError(self._sentence(error)) from None

    def _sentence(self, error: Exception) -> str:
        reason = _reason(error)
        match error:
            case FileNotFoundError():
                return f"{self.name} does not exist: there is no such file, check its name"
            case IsADirectoryError():
                return f"{self.name} is a folder: give one of the files in it"
            case PermissionError():
                return f"{self.name} may not be read: change its permissions"
            case UnicodeDecodeError() if is_parquet(self.sample):
                # labels are decoded by Arrow, so it is the name of a column, which is decoded by Python
                return f"{self.name} has a column whose name is not valid UTF-8: write it with that column renamed"
            case _ if is_parquet(self.sample) and not (isinstance(error, OSError) and error.strerror):
                return f"{self.name} is a damaged Parquet file ({reason}): copy, download or write it again"
            case _ if self.packed and not (isinstance(error, OSError) and error.strerror):
                return f"{self.name} is a damaged or incomplete {self.packed} file ({reason}): copy or fetch it again"
        return f"{self.name} cannot be read ({reason}): check the file and its disk"


class _Incoming(io.RawIOBase):
    """What comes from elsewhere or through a pipe: it must go on, and end where it should."""

    def __init__(self, file: Any, name: str, url: str | None = None) -> None:
        self._file, self._name, self._url, self._done = file, name, url, 0
        self._waits = _descriptor(file)
        self._line_end = time.monotonic()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._waits is not None and not select.select([self._waits], [], [], SILENCE)[0]:
            raise self._too_slow()
        try:
            # a pipe gives what there is; a file elsewhere has no such function
            data = getattr(self._file, "read1", self._file.read)(len(buffer))
        except Exception as error:
            if self._url is None:
                raise
            if self._done:
                raise self._broken_off(_reason(error)) from None
            with _explained(self._url, "read"):
                raise
        size = getattr(self._file, "size", None)
        if not data and isinstance(size, int) and self._done < size:
            raise self._broken_off(f"it has {size:,} bytes")
        now = time.monotonic()
        if b"\n" in data:
            self._line_end = now
        elif data and now - self._line_end > SILENCE:
            raise self._too_slow()
        self._done += len(data)
        buffer[: len(data)] = data
        return len(data)

    def _too_slow(self) -> InputError:
        return InputError(
            f"{self._name} brought no end of a line for {SILENCE:g} seconds, after {self._done:,} bytes: "
            "see what it waits for, or set UNKGCP_SILENCE to more seconds"
        )

    def _broken_off(self, reason: str) -> InputError:
        return InputError(
            f"{self._name} broke off after {self._done:,} bytes ({reason}): it may have been removed or replaced, or "
            "the connection was lost; try again"
        )


def _descriptor(file: Any) -> int | None:
    """The descriptor of a pipe or a socket, for which one can wait."""
    try:
        number = int(file.fileno())
        mode = os.fstat(number).st_mode
    except (OSError, AttributeError, ValueError, TypeError):
        return None
    return number if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


# Files elsewhere (`s3://`, `gs://`, `hf://`, `https://`, ...), by way of fsspec (extra `remote`). Reading is one pass
# over a stream, as from a pipe. A file to be written is made on this machine first, and sent when it is whole: under a
# temporary name that is then changed, or under its own name where the store shows nothing until it has everything.
# fsspec and its drivers raise whatever errors their libraries do; here each becomes one sentence.


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Stores in which a file appears when all of it has arrived, and in which renaming would copy it.
WHOLE = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "hf", "oci", "oss")
READ_ONLY = ("http", "https")
CONNECTION = 60.0  # seconds without a byte after which a connection counts as lost


def is_remote(origin: object) -> bool:
    """Whether this is the address of a file elsewhere.

    >>> is_remote("s3://bucket/facts.tsv"), is_remote("facts.tsv")
    (True, False)
    """
    return isinstance(origin, str) and _URL.match(origin) is not None


def check_remote(url: str) -> None:
    """Refuse, before any work is done, an address to which nothing can be written: an empty file is written to try."""
    with _explained(url, "written"):
        system, path = _system(url, writing=True)
        trial = _beside(path)
        if system.isdir(path):
            raise InputError(f"{public(url)} is a folder; give the name of a file")
        system.pipe_file(trial, b"")
    with suppress(Exception):
        system.rm_file(trial)


@contextmanager
def sent(url: str) -> Iterator[Path]:
    """A path on this machine; what is written there is sent to `url` on success, and nothing is on failure."""
    with _explained(url, "written"):
        system, path = _system(url, writing=True)
    with tempfile.TemporaryDirectory(prefix="unkgcp-") as folder:
        here = Path(folder) / path.rsplit("/", 1)[-1]
        with room_for(folder):
            yield here
        there = path if _protocol(url) in WHOLE else _beside(path)
        with _explained(url, "written"):
            try:
                with suppress(NotImplementedError):
                    system.makedirs(system._parent(path), exist_ok=True)
                system.put_file(str(here), there)
                if there != path:
                    system.mv(there, path)
            except BaseException:
                if there != path:
                    with suppress(Exception):
                        system.rm_file(there)
                raise


def _system(url: str, writing: bool = False) -> tuple[Any, str]:
    """The file system of an address and the path in it."""
    protocol, settings = _protocol(url), {}
    if protocol in READ_ONLY:
        if writing:
            raise InputError(
                f"{public(url)} cannot be written, since {protocol} is for reading: give another place"
            )
        from aiohttp import ClientTimeout

        # the driver would give up after five minutes, however well it goes
        timeout = ClientTimeout(total=None, sock_connect=CONNECTION, sock_read=CONNECTION)
        settings = {"client_kwargs": {"timeout": timeout}}
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url, **settings)
    return system, str(path)


def _protocol(url: str) -> str:
    return url.partition("://")[0].lower()


def _beside(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.partial-{os.urandom(8).hex()}-{name}"


@contextmanager
def _explained(url: str, what: str) -> Iterator[None]:
    """Whatever a driver raises becomes one sentence; `what` was to be done: read or written."""
    try:
        yield
    except (InputError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        raise missing(error) from None
    except Exception as error:
        driver = isinstance(error, ImportError)
        name, cause = public(url), (None if driver else error.__cause__) or error
        status = getattr(error, "status", None) or getattr(cause, "status", None)
        if isinstance(error, PermissionError) or status in (401, 403):
            raise InputError(
                f"{name} may not be {what} ({_reason(cause)}): check your rights and credentials for it"
            ) from None
        # the driver for http raises FileNotFoundError for other failures, too, such as a refused connection
        if isinstance(error, FileNotFoundError) and (
            _protocol(url) not in READ_ONLY or cause is error or status == 404
        ):
            raise InputError(f"{name} does not exist: there is no such file, check its address") from None
        remedy = "install that driver" if driver else "check its address, your rights and the connection"
        raise InputError(f"{name} cannot be {what} ({_reason(cause)}): {remedy}") from None


def _reason(error: BaseException) -> str:
    return (
        public(getattr(error, "strerror", None) or str(error).split("\n")[0]).rstrip(".")
        or type(error).__name__
    )
