"""Sources of bytes: a file on this machine or elsewhere, or a pipe; gzip is unpacked, and the first bytes are shown.

Everything that can go wrong before the first byte of content (no such file, a folder, no permission, a broken gzip)
becomes one sentence here. Files elsewhere can be written, too (`sent`). Nothing here knows of facts.

>>> with Source("facts.tsv.gz") as source:      # doctest: +SKIP
...     source.sample[:20]
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa

from unkgcp.errors import InputError, missing
from unkgcp.files import room_for

# Bytes of the sample; more, up to the second figure, if the first line is longer.
SAMPLE = 1 << 20
LONGEST = 64 << 20

_PARQUET = b"PAR1"
READING = (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, pa.ArrowException)

Origin = str | os.PathLike[str] | BinaryIO

_ARCHIVES = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"%PDF": "a PDF document",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"ARROW1": "an Arrow file",
}


def is_parquet(start: bytes) -> bool:
    """Whether a file that begins with these bytes is a Parquet file."""
    return start.startswith(_PARQUET)


def is_file(origin: Origin) -> bool:
    """Whether this names a file, which can be read twice."""
    return isinstance(origin, str | os.PathLike) and os.fspath(origin) != "-"


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
        self.name = str(origin) if is_remote(origin) else str(self.path or "standard input")
        self.sample = b""
        with self._close_on_error(), self.explained():
            stream = self._buffered(origin)
            self.gzip = stream.peek(2)[:2] == b"\x1f\x8b"
            self._stream: gzip.GzipFile | io.BufferedReader = stream
            if self.gzip:
                self._stream = self._open.enter_context(gzip.GzipFile(fileobj=stream, mode="rb"))
            self.sample = self._stream.read(SAMPLE)
            while b"\n" not in self.sample and SAMPLE <= len(self.sample) < LONGEST:
                more = self._stream.read(len(self.sample))
                if not more:
                    break
                self.sample += more
            self._pending = memoryview(self.sample)
            for magic, what in _ARCHIVES.items():
                if self.sample.startswith(magic):
                    raise InputError(
                        f"{self.name} is {what}: unpack or export it as TSV, CSV or Parquet first"
                    )

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

    def on_disk(self) -> Path:
        """A path with the unpacked content; a temporary copy where there is no such file. To be called once."""
        if self.path and not self.gzip:
            return self.path
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="unkgcp-"))
        path = Path(folder) / "content"
        with self.explained(), path.open("wb") as copy:
            copy.write(self._pending)
            shutil.copyfileobj(self._stream, copy, SAMPLE)
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def _buffered(self, origin: Origin) -> io.BufferedReader:
        if is_remote(origin):
            return self._open.enter_context(io.BufferedReader(open_remote(str(origin)), SAMPLE))
        if self.path is None:
            if origin == "-" and sys.stdin is None:
                raise InputError("standard input is closed: give the name of a file")
            given: Any = sys.stdin.buffer if origin == "-" else origin
            stream = io.BufferedReader(given)
            self._open.callback(stream.detach)  # a stream that the caller opened stays open
            return stream
        if self.path.is_dir():
            raise IsADirectoryError
        return self._open.enter_context(self.path.open("rb"))

    @contextmanager
    def _close_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._open.close()
            raise

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of reading become an `InputError` with one sentence."""
        try:
            yield
        except READING as error:
            raise InputError(self.sentence(error)) from None

    def sentence(self, error: Exception) -> str:
        """What to say of one of the errors READING."""
        reason = str(error).split("\n")[0].rstrip(".")
        match error:
            case FileNotFoundError():
                return f"{self.name} does not exist: there is no such file, check its name"
            case IsADirectoryError():
                return f"{self.name} is a folder: give one of the files in it"
            case PermissionError():
                return f"{self.name} may not be read: change its permissions"
            case EOFError() | gzip.BadGzipFile() | zlib.error():
                return (
                    f"{self.name} is a damaged or incomplete gzip file ({reason}): copy or download it again"
                )
            case UnicodeDecodeError() if is_parquet(self.sample):
                # labels are decoded by Arrow, so it is the name of a column, which is decoded by Python
                return (
                    f"{self.name} has a column whose name is not valid UTF-8: "
                    "write the file again with that column renamed"
                )
            case OSError() if error.strerror or not is_parquet(self.sample):
                return f"{self.name} cannot be read ({error.strerror or error}): check the file and its disk"
        return f"{self.name} is a damaged Parquet file ({reason}): copy, download or write it again"


# Files elsewhere (`s3://`, `gs://`, `hf://`, `https://`, ...), by way of fsspec (extra `remote`). Reading is one pass
# over a stream, as from a pipe. A file to be written is made on this machine first, and sent when it is whole: under a
# temporary name that is then changed, or under its own name where the store shows nothing until it has everything.
# fsspec and its drivers raise whatever errors their libraries do; here each becomes one sentence.


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Stores in which a file appears when all of it has arrived, and in which renaming would copy it.
WHOLE = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "hf", "oci", "oss")
READ_ONLY = ("http", "https")
SILENCE = 60.0  # seconds without a byte after which a connection counts as lost
_RIGHTS = ("credential", "forbidden", "denied", "unauthorized", "not authorized", "permission")


def is_remote(origin: object) -> bool:
    """Whether this is the address of a file elsewhere.

    >>> is_remote("s3://bucket/facts.tsv"), is_remote("facts.tsv")
    (True, False)
    """
    return isinstance(origin, str) and _URL.match(origin) is not None


def open_remote(url: str) -> io.RawIOBase:
    """A file elsewhere, to be read from its beginning to its end."""
    system, path = _system(url)
    try:
        # http: the whole file in one request, since it could change between several
        file = system.open(path, "rb", **({"block_size": 0} if _protocol(url) in READ_ONLY else {}))
    except Exception as error:
        raise _explained(url, error, "read") from None
    return _Remote(url, file)


class _Remote(io.RawIOBase):
    """A file of fsspec whose errors become sentences."""

    def __init__(self, url: str, file: Any) -> None:
        self._url, self._file, self._done = url, file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            found = self._file.read(len(buffer))
        except Exception as error:
            if not self._done:
                raise _explained(self._url, error, "read") from None
            raise self._broken_off(_reason(error)) from None
        size = getattr(self._file, "size", None)
        if not found and isinstance(size, int) and self._done < size:
            raise self._broken_off(f"it has {size:,} bytes")
        self._done += len(found)
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        with suppress(Exception):
            self._file.close()
        super().close()

    def _broken_off(self, reason: str) -> InputError:
        return InputError(
            f"{self._url} broke off after {self._done:,} bytes ({reason}): it may have been removed or replaced, or "
            "the connection was lost; try again"
        )


def check_remote(url: str) -> None:
    """Refuse, before any work is done, an address to which nothing can be written: an empty file is written to try."""
    system, path = _writable(url)
    trial = _beside(path)
    try:
        if system.isdir(path):
            raise InputError(f"{url} is a folder; give the name of a file")
        system.pipe_file(trial, b"")
    except InputError:
        raise
    except Exception as error:
        raise _explained(url, error, "written") from None
    with suppress(Exception):
        system.rm_file(trial)


@contextmanager
def sent(url: str) -> Iterator[Path]:
    """A path on this machine; what is written there is sent to `url` on success, and nothing is on failure."""
    system, path = _writable(url)
    with tempfile.TemporaryDirectory(prefix="unkgcp-") as folder:
        here = Path(folder) / path.rsplit("/", 1)[-1]
        with room_for(folder):
            yield here
        there = path if _protocol(url) in WHOLE else _beside(path)
        try:
            with suppress(NotImplementedError):
                system.makedirs(system._parent(path), exist_ok=True)
            system.put_file(str(here), there)
            if there != path:
                system.mv(there, path)
        except Exception as error:
            if there != path:
                with suppress(Exception):
                    system.rm_file(there)
            raise _explained(url, error, "written") from None


def _writable(url: str) -> tuple[Any, str]:
    """The same as `_system`, for writing."""
    if _protocol(url) in READ_ONLY:
        raise InputError(
            f"{url} cannot be written, since {_protocol(url)} is for reading: give another place"
        )
    return _system(url)


def _system(url: str) -> tuple[Any, str]:
    """The file system of an address and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as error:
        raise missing(error) from None
    try:
        system, path = url_to_fs(url, **_settings(url))
    except ImportError as error:
        if _protocol(url) in READ_ONLY:
            raise InputError(
                f"{url} needs aiohttp, which is not installed: pip install 'unkgcp[remote]'"
            ) from None
        said = _reason(error)
        driver = re.search(r"[Ii]nstall (?:the )?`?([\w-]+)|No module named '([\w-]+)", said)
        name = (driver[1] or driver[2]) if driver else "its driver"
        raise InputError(f"{url} needs a driver that is not installed ({said}): pip install {name}") from None
    except ValueError as error:
        raise InputError(
            f"{url} is no address that can be read ({_reason(error)}): check how it begins"
        ) from None
    except Exception as error:
        raise _explained(url, error, "read") from None
    return system, str(path)


def _settings(url: str) -> dict[str, Any]:
    """Time for large files: the driver for http would give up after five minutes, however well it goes."""
    if _protocol(url) not in READ_ONLY:
        return {}
    from aiohttp import ClientTimeout

    return {"client_kwargs": {"timeout": ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)}}


def _protocol(url: str) -> str:
    return url.partition("://")[0].lower()


def _beside(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.partial-{os.urandom(8).hex()}-{name}"


def _explained(url: str, error: Exception, what: str) -> InputError:
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and len(chain) < 5:
        chain.append(cause)
    said = " ".join(f"{type(each).__name__} {each}" for each in chain)
    # without the address, which may hold the words of _RIGHTS as well
    said = said.replace(url, "").replace(url.partition("://")[2], "").lower()
    statuses = {getattr(each, "status", None) for each in chain}
    if statuses & {401, 403} or isinstance(error, PermissionError) or any(word in said for word in _RIGHTS):
        return InputError(
            f"{url} may not be {what} ({_reason(chain[-1])}): check your rights and credentials for it"
        )
    # the driver for http raises FileNotFoundError for other failures, too, such as a refused connection
    really = _protocol(url) not in READ_ONLY or 404 in statuses or len(chain) == 1
    if isinstance(error, FileNotFoundError) and really:
        return InputError(f"{url} does not exist: there is no such file, check its address")
    if isinstance(error, IsADirectoryError):
        return InputError(f"{url} is a folder: give one of the files in it")
    return InputError(f"{url} cannot be {what} ({_reason(chain[-1])}): check its address and the connection")


def _reason(error: BaseException) -> str:
    return str(error).split("\n")[0].rstrip(".") or type(error).__name__
