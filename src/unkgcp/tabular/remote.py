"""Files that are elsewhere (`s3://`, `gs://`, `hf://`, `https://`, ...), by way of fsspec (extra `remote`).

Reading is one pass over a stream, as from a pipe. What is written is made here first, and sent when it is whole: under
a temporary name that is then changed, or at once where the store itself shows nothing until it has everything. fsspec
and its drivers raise whatever their libraries do; here all of it becomes one sentence.

>>> is_remote("s3://bucket/facts.tsv"), is_remote("facts.tsv")
(True, False)
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unkgcp.errors import InputError, missing
from unkgcp.files import room_for

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Stores in which a file appears when all of it has arrived; in them changing a name means to copy.
WHOLE = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "hf", "oci", "oss")
READ_ONLY = ("http", "https")
SILENCE = 60.0  # seconds without a byte after which a connection counts as lost
_RIGHTS = ("credential", "forbidden", "denied", "unauthorized", "not authorized", "permission")


def is_remote(origin: object) -> bool:
    """Whether this is the address of a file elsewhere."""
    return isinstance(origin, str) and _URL.match(origin) is not None


def open_remote(url: str) -> io.RawIOBase:
    """A file elsewhere, to be read from its beginning to its end."""
    system, path = _system(url)
    try:
        # one request for all of it where the driver can do so: in many, the file could change between them
        file = system.open(path, "rb", **({"block_size": 0} if _protocol(url) in READ_ONLY else {}))
    except Exception as error:
        raise _explained(url, error, "read") from None
    return _Remote(url, file)


class _Remote(io.RawIOBase):
    """Reads from fsspec's file, and says what goes wrong."""

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
    """Refuse, before any work is done, an address to which nothing can be written: by trying, and taking it away."""
    if _protocol(url) in READ_ONLY:
        raise InputError(
            f"{url} cannot be written, since {_protocol(url)} is for reading: give another place"
        )
    system, path = _system(url)
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
    if _protocol(url) in READ_ONLY:
        raise InputError(
            f"{url} cannot be written, since {_protocol(url)} is for reading: give another place"
        )
    system, path = _system(url)
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
    """Patience for large files: the web's driver would give up after five minutes, however well it goes."""
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
    said = (
        said.replace(url, "").replace(url.partition("://")[2], "").lower()
    )  # any word may be part of a name
    statuses = {getattr(each, "status", None) for each in chain}
    if statuses & {401, 403} or isinstance(error, PermissionError) or any(word in said for word in _RIGHTS):
        return InputError(
            f"{url} may not be {what} ({_reason(chain[-1])}): check your rights and credentials for it"
        )
    # the web's driver calls a file that is not there whatever goes wrong, such as a connection that is refused
    really = _protocol(url) not in READ_ONLY or 404 in statuses or len(chain) == 1
    if isinstance(error, FileNotFoundError) and really:
        return InputError(f"{url} does not exist: there is no such file, check its address")
    if isinstance(error, IsADirectoryError):
        return InputError(f"{url} is a folder: give one of the files in it")
    return InputError(f"{url} cannot be {what} ({_reason(chain[-1])}): check its address and the connection")


def _reason(error: BaseException) -> str:
    return str(error).split("\n")[0].rstrip(".") or type(error).__name__
