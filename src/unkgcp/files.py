"""Files written whole: under a temporary name first, then renamed, so that nobody ever sees half of one."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

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
