"""Files of a stranger's folder, opened with care: plain files only, never larger than they may be.

What it is: the one way in which files of a run are opened. A link could lead anywhere, a pipe could make the
reader wait for ever, and a size is known before a byte is read. What it is not: it does not look inside.

>>> read_bytes(folder / "config.yaml", most=1 << 16)     # doctest: +SKIP
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from unkgcp.errors import InputError


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
