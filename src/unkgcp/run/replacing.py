"""One run takes the place of another in one step, while others read it; nobody ever sees a mixture.

The files of a new run are written to a hidden folder inside the run's own, which is then renamed to `.incoming`. This
one rename is the step: before it the run is the old one, after it the new one, whenever the program is killed or the
power fails. Only then do the files move to their places, one after the other, `provenance.json` last. A reader looks
for each file in `.incoming` first (`safe_files.places`), so that it finds the new run whole however far the move has
come; the next writer finishes a move that was cut short (`settle`). A reader that began before the step may meet files
of both runs: it notices by their hashes, and by a `provenance.json` that is another one now, and begins again
(`unkgcp.run.folder`).

Writers keep each other out by a lock on the folder (`writing`), which the system takes back from a process that dies.
Where a file system knows no locks, the step still fails for all but one: `.incoming` is not replaced while it holds
anything.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from unkgcp.errors import InputError
from unkgcp.files import explained, sync
from unkgcp.run.safe_files import INCOMING

try:
    import fcntl
except ImportError:  # not on this system: see above
    fcntl = None  # type: ignore[assignment]

STAGE = ".partial-run-"
"""How the names begin of all that writers make for themselves."""
NOT_ALWAYS = ("model.safetensors", "facts.npz")
"""The files that not every run has: one that takes the place of another leaves none of them behind."""

_HELD: ContextVar[frozenset[str]] = ContextVar("the folders that this work may write to", default=frozenset())


@contextmanager
def writing(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other writers out of a run's folder, which is made if there is none; InputError if another is at work.

    Whoever is inside may enter again. A folder that was made here and is empty in the end is taken away.
    """
    folder = Path(folder)
    name = os.path.realpath(folder)
    if name in _HELD.get():
        yield
        return
    made = not folder.exists()
    handle = _locked(folder)
    if handle is not None:  # what is there now was left by writers that were killed
        for left in folder.glob(f"{STAGE}*"):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
    before = _HELD.set(_HELD.get() | {name})
    try:
        yield
    finally:
        _HELD.reset(before)
        if made:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        if handle is not None:
            os.close(handle)


def _locked(folder: Path) -> int | None:
    """A handle that holds the lock until it is closed; None where there are no locks."""
    while True:
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if fcntl is None:
            return None
        try:
            handle = os.open(folder, os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise _busy(folder) from None
        except OSError:
            os.close(handle)
            return None
        # another writer may have taken its empty folder away meanwhile
        with suppress(OSError):
            if os.path.samestat(os.fstat(handle), os.stat(folder)):
                return handle
        os.close(handle)


def replace_files(folder: Path, stage: Path) -> None:
    """Put the finished files of `stage`, a folder inside `folder`, in the place of the run there."""
    sync(stage)
    try:
        stage.rename(folder / INCOMING)
    except OSError:
        if (folder / INCOMING).exists():
            raise _busy(folder) from None
        raise
    sync(folder)
    settle(folder)


def settle(folder: Path) -> None:
    """Move files that have come to their places, also those of a writer that was killed before it could."""
    incoming = folder / INCOMING
    if incoming.is_symlink() or not incoming.is_dir():
        return
    last = "provenance.json"
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        listed = json.loads((incoming / last).read_text(encoding="utf-8"))["files"]
        for name in NOT_ALWAYS:
            if name not in listed:
                (folder / name).unlink(missing_ok=True)
    for name in sorted(os.listdir(incoming), key=lambda name: name == last):
        with explained(folder / name), suppress(FileNotFoundError):  # somebody else has moved it
            (incoming / name).replace(folder / name)
    sync(folder)
    with suppress(OSError):  # another one has come
        incoming.rmdir()


def _busy(folder: Path) -> InputError:
    return InputError(
        f"{folder} is being written by another program; wait until it is done, or give another folder with -o"
    )
