"""Where bytes come from: a file, here or elsewhere, or a pipe; unpacked if they are gzip, with a look at the first.

It knows nothing of facts. Everything that can go wrong between the disk and the first byte of content (no such
file, a folder, no permission, a broken gzip) becomes one sentence here.

>>> with Source("facts.tsv.gz") as source:      # doctest: +SKIP
...     source.sample[:20]
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa

from unkgcp.errors import InputError
from unkgcp.tabular.remote import is_remote, open_remote

# Bytes looked at before reading; more, up to the second figure, if the first line is longer than that.
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


class Source:
    """An open file or pipe. `sample` holds its first bytes, which are still to be read. `-` is standard input."""

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
        """Fill the view from where reading stands; fewer bytes than it holds only at the end."""
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
            self._open.callback(stream.detach)  # what others opened stays open
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
        """What goes wrong inside while reading becomes one sentence."""
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
            case UnicodeDecodeError() if is_parquet(
                self.sample
            ):  # labels are checked by Arrow, names by Python
                return (
                    f"{self.name} has a column whose name is not valid UTF-8: "
                    "write the file again with that column renamed"
                )
            case OSError() if error.strerror or not is_parquet(self.sample):
                return f"{self.name} cannot be read ({error.strerror or error}): check the file and its disk"
        return f"{self.name} is a damaged Parquet file ({reason}): copy, download or write it again"
