"""A run written to its folder whole, in one step, while others may read the run that is there.

The files of a new run are written to a hidden folder inside the run's own, which is then renamed to `.incoming`. This
one rename is the step: before it the run is the old one, after it the new one, whenever the program is killed or the
power fails. Only then do the files move to their places, one after the other, `provenance.json` last. A reader looks
for each file in `.incoming` first (`run_reader.places`), so that it finds the new run whole however far the move has
come; the next writer finishes a move that was cut short (`settle`). A reader that began before the step may meet files
of both runs: it notices by their hashes, and by a `provenance.json` that is another one now, and begins again.

Writers keep each other out by a lock on the folder (`writing`), which the system takes back from a process that dies.
Where a file system knows no locks, the rename still fails for all writers but one: `.incoming` is not replaced while it
holds anything.

>>> write_run("run", parts)                  # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from unkgcp.errors import InputError
from unkgcp.files import check_here, check_place, explained, sync, umask, write_files, write_npz
from unkgcp.run.provenance import (
    CALIBRATION,
    CONFIG,
    FACTS,
    FORMAT,
    METRICS,
    MODEL,
    NOT_ALWAYS,
    PROVENANCE,
    VERSION,
    VOCABULARY,
)
from unkgcp.run.run_reader import CHECKPOINT, INCOMING, KINDS, Arrays, Mask, RunParts

if TYPE_CHECKING:
    from unkgcp.graph.facts import Vocabulary

try:
    import fcntl
except ImportError:  # not on this system: see above
    fcntl = None  # type: ignore[assignment]

STAGE = ".partial-run-"
"""How the names of the temporary folders of writers begin."""

Writer = Callable[[Path], Any]
_HELD: ContextVar[frozenset[str]] = ContextVar("the folders that this work may write to", default=frozenset())


def check_target(folder: str | os.PathLike[str]) -> None:
    """Refuse to write a run where none can be, or over something else: the target must be new, empty or a run."""
    folder = Path(folder)
    if folder.is_dir():
        names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(".partial-")}
        if names and not names & {PROVENANCE, CHECKPOINT, INCOMING}:
            raise InputError(f"{folder} exists and is not a run of unkgcp; give another folder with -o")
    elif folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} is not a folder; give another name with -o")
    check_here(folder, "a run is written on this machine; give a folder here, and copy it from there")
    check_place(folder)
    if folder.is_dir():
        check_place(folder / PROVENANCE, STAGE)


def write_run(folder: str | os.PathLike[str], parts: RunParts) -> None:
    """Write a run whole, in one step; one that is there is replaced, and its readers see the old one or the new one.

    InputError while another program writes to the folder.
    """
    folder, writers = Path(folder), _writers(parts)
    with writing(folder):
        settle(folder)
        stage = folder / f"{STAGE}{os.urandom(8).hex()}"
        try:
            with explained(folder):
                stage.mkdir(mode=0o700)
            files = write_files(stage, writers, folder)
            about = {"format": FORMAT, "version": VERSION}
            # a run that was read from disk brings a format and a version, which are written anew
            provenance = {**about, **parts.provenance, **about, "files": files}
            write_files(stage, {PROVENANCE: _text(_json(provenance))}, folder)
            stage.chmod(0o777 & ~umask())  # others read the files here until they are moved
            replace_files(folder, stage)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def _writers(parts: RunParts) -> dict[str, Writer]:
    """What writes each file but the list of them."""
    seen = (parts.seen_entities, parts.seen_relations)
    writers: dict[str, Writer] = {
        CONFIG: _text(yaml.safe_dump(parts.config, sort_keys=False, allow_unicode=True)),
        VOCABULARY: partial(write_labels, parts.vocabulary, *seen),
        CALIBRATION: partial(write_npz, arrays=parts.calibration),
        METRICS: _text(_json(parts.metrics)),
    }
    if parts.tensors:
        writers[MODEL] = partial(_write_weights, parts.tensors)
    if parts.facts is not None:
        writers[FACTS] = partial(write_npz, arrays=parts.facts.arrays())
    return writers


def _text(text: str) -> Writer:
    return partial(Path.write_text, data=text, encoding="utf-8")


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _write_weights(tensors: Arrays, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        # the number of the system's error is only in the text of this one
        if found := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
        raise


def write_labels(vocabulary: Vocabulary, seen_entities: Mask, seen_relations: Mask, path: Path) -> None:
    """Write the labels, and which of them have training facts."""
    entities, relations = vocabulary.entities, vocabulary.relations
    kind = np.repeat(np.arange(2, dtype=np.int8), [len(entities), len(relations)])
    table = pa.table(
        {
            "kind": pa.DictionaryArray.from_arrays(kind, pa.array(KINDS)),
            "label": pa.concat_arrays([entities, relations]),
            "seen": pa.array(np.concatenate([seen_entities, seen_relations])),
        }
    )
    # one row group, because each has a dictionary of its own; labels are all different and need no dictionary
    pq.write_table(
        table,
        path,
        compression="none",
        use_dictionary=["kind"],
        row_group_size=max(1, len(table)),
        store_schema=False,
    )


# One run takes the place of another.


@contextmanager
def writing(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other writers out of a run's folder, which is made if there is none.

    InputError if another is at work, or if no run can be written there (`check_target`). Work that holds the lock may
    enter again. A folder that was made here and is empty in the end is removed.
    """
    name = os.path.realpath(folder)
    if name in _HELD.get():
        yield
        return
    check_target(folder)
    folder = Path(folder)
    made = not folder.exists()
    handle = _locked(folder)
    if handle is not None:  # temporary folders that are there now were left by writers that were killed
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
        # another writer may have removed its empty folder meanwhile
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
    """Move the files of `.incoming` to their places, also those of a writer that was killed before it could."""
    incoming = folder / INCOMING
    if incoming.is_symlink() or not incoming.is_dir():
        return
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        listed = json.loads((incoming / PROVENANCE).read_text(encoding="utf-8"))["files"]
        for name in NOT_ALWAYS:
            if name not in listed:
                (folder / name).unlink(missing_ok=True)
    for name in sorted(os.listdir(incoming), key=lambda name: name == PROVENANCE):
        with explained(folder / name), suppress(FileNotFoundError):  # another process has moved it
            (incoming / name).replace(folder / name)
    sync(folder)
    with suppress(OSError):  # another run has come
        incoming.rmdir()


def _busy(folder: Path) -> InputError:
    return InputError(
        f"{folder} is being written by another program; wait until it is done, or give another folder with -o"
    )
