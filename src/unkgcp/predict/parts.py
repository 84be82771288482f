"""A file or folder of queries cut into parts, each answered as a whole by one worker.

A part is a run of rows of one Parquet file, whole row groups where they are not too large. Parts are numbered in the
order of the input, files of a folder by name, so that answers named by their part and read in the order of their
names are in the order of the input. Their answers wait in a folder until all are there, and become the output then.

>>> plan(["a.parquet"], 1 << 20)[0]     # doctest: +SKIP
Part(number=0, path='a.parquet', first=0, rows=1048576, before=0)
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.files import explained, umask
from unkgcp.run.folder import CALIBRATION
from unkgcp.run.predictor import Predictor
from unkgcp.tabular.writer import ENDINGS, USUAL, Style, open_output

ROWS = 1 << 20
ENDING = ".parquet"


class Part(NamedTuple):
    """Rows `first` to `first + rows` of the file at `path`; `before` rows of the input come before them."""

    number: int
    path: str
    first: int
    rows: int
    before: int


def plan(paths: Sequence[str], rows_per_part: int = ROWS) -> list[Part]:
    """All rows of the files in parts of about `rows_per_part` rows, in order. Only the footers are read.

    There is at least one part, empty if there are no rows: its answers have columns all the same.
    """
    parts: list[Part] = []
    before = 0
    for path in paths:
        for first, rows in _cuts(_group_sizes(path), rows_per_part):
            parts.append(Part(len(parts), path, first, rows, before))
            before += rows
    return parts or [Part(0, path, 0, 0, 0) for path in paths[:1]]


def spooled(batches: Iterator[pa.RecordBatch], folder: Path, rows: int) -> Iterator[str]:
    """Write batches as Parquet files of about `rows` rows; yields their names."""
    number, writer, written = 0, None, 0
    try:
        for batch in batches:
            if writer is None:
                path = folder / part_name(number)
                writer, written = pq.ParquetWriter(path, batch.schema, compression="lz4"), 0
                yield str(path)
            writer.write_batch(batch)
            written += len(batch)
            if written >= rows:
                writer.close()
                writer, number = None, number + 1
    finally:
        if writer is not None:
            writer.close()


def part_name(number: int, ending: str = ENDING) -> str:
    """Names sort as numbers do, up to ten million parts."""
    return f"part-{number:07d}{ending}"


def _cuts(groups: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """(first, rows) of each part: row groups together while they fit, a larger one in even pieces."""
    cuts: list[tuple[int, int]] = []
    first = rows = 0
    for size in groups:
        if rows and rows + size > limit:
            cuts.append((first, rows))
            first, rows = first + rows, 0
        if size > limit:
            pieces = -(-size // limit)
            ends = [size * piece // pieces for piece in range(pieces + 1)]
            cuts += [(first + begin, end - begin) for begin, end in pairwise(ends)]
            first += size
        else:
            rows += size
    if rows:
        cuts.append((first, rows))
    return cuts


def _group_sizes(path: str) -> list[int]:
    try:
        with pq.ParquetFile(path) as file:
            footer = file.metadata
            return [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: check the name") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise InputError(
            f"{path} is a damaged Parquet file ({reason}): copy, download or write it again"
        ) from None


# Where parts are kept until all of them are there, and how they become the output, whole or not at all.

ANSWERS, ATTEMPTS, QUERIES, PLACES, INDEX = "answers", "attempts", "queries", "places", "index"


def is_folder(target: str | None) -> bool:
    """Whether the output is to be a folder of parts: an existing one, or a name without an ending."""
    if target is None or target == "-":
        return False
    if target.endswith(("/", os.sep)) or Path(target).is_dir():
        return True
    return not target.lower().endswith(ENDINGS) and not Path(target).suffix


def check_target(target: str | None, style: Style = USUAL) -> None:
    """Refuse, before any work is done, an output that could not be written in the end."""
    if target is None or target == "-":
        return
    path = Path(target)
    if not is_folder(target):
        if style.format is None and not target.lower().endswith(ENDINGS):
            raise InputError(
                f"{target} does not end in {', '.join(ENDINGS)}; its ending says how to write it, "
                "and the name of a folder of Parquet files ends in /"
            )
    elif path.is_dir() and any(path.iterdir()):
        raise InputError(f"{target} is a folder with something in it; give the name of a new one with -o")
    elif path.exists() and not path.is_dir():
        raise InputError(f"{target} is a file; give the name of a new folder with -o")


@contextmanager
def staged(target: str | None) -> Iterator[Path]:
    """A folder for the parts, on the file system of the output; gone at the end, whatever happens."""
    beside = Path(tempfile.gettempdir()) if target in (None, "-") else Path(target).absolute().parent
    with explained(target or beside):
        beside.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(dir=beside, prefix=".partial-"))
    try:
        for name in (ANSWERS, ATTEMPTS, QUERIES, PLACES):
            (stage / name).mkdir()
        stage.chmod(0o777 & ~umask())  # workers may run as somebody else
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def deliver(stage: Path, parts: int, target: str | None, style: Style = USUAL) -> None:
    """Make the output of the parts 0 to `parts` - 1."""
    answers = stage / ANSWERS
    names = [part_name(number) for number in range(parts)]
    there = {entry.name for entry in answers.iterdir()}
    if missing := set(names) - there:
        raise FileNotFoundError(f"{min(missing)} is missing among the answers in {answers}")
    for name in there - set(names):
        (answers / name).unlink()  # what a worker was writing when it died
    if is_folder(target):
        answers.rename(str(target).rstrip("/" + os.sep) or "/")
        return
    with open_output(target, style) as write:
        for name in names:
            with pq.ParquetFile(answers / name) as file:
                for batch in file.iter_batches():
                    write(batch)
            (answers / name).unlink()  # the disk never holds the answers twice


# The index of an evidence run, several times as large as its facts: it is made once and written down, and workers map
# the files into their memory, where those of one machine share them.


def write_index(predictor: Predictor, stage: Path) -> None:
    """Write the index of the training graph, if the run answers from one."""
    if predictor.method.evidence is not None:
        folder = _index_folder(predictor, stage)
        folder.mkdir()
        for name, array in predictor.method.evidence.evidence.index().items():
            np.save(folder / f"{name}.npy", array)


def use_index(predictor: Predictor, stage: Path) -> None:
    """Have a predictor of the same run use what `write_index` wrote; nothing of it is copied."""
    if predictor.method.evidence is not None and (folder := _index_folder(predictor, stage)).is_dir():
        predictor.method.evidence.evidence.use_index(
            {path.name.removesuffix(".npy"): _mapped(path) for path in folder.iterdir()}
        )


def _index_folder(predictor: Predictor, stage: Path) -> Path:
    """Another one for every run: a worker may find that a run has taken the place of the one that was planned for."""
    return stage / f"{INDEX}-{predictor.provenance['files'][CALIBRATION]['sha256']}"


def _mapped(path: Path) -> NDArray[Any]:
    """Mapped as if to be written, which nobody does: for arrays that may not be, loops would be compiled once more."""
    try:
        return np.asarray(np.load(path, mmap_mode="c"))
    except ValueError:  # an array without numbers, of which there is nothing to map
        return np.asarray(np.load(path))
