"""A file or folder of queries cut into parts, each answered as a whole by one worker.

A part is a range of rows of one Parquet file, whole row groups where they are not too large. Parts are numbered in the
order of the input, in which the files of a folder come by name. The answers of a part are a file named by its number,
so that the order of the names is the order of the input. They wait in a folder until all are there, and become the
output then.

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
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from unkgcp.errors import InputError
from unkgcp.files import explained, umask
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

    There is at least one part, empty if there are no rows, so that the output has its columns.
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


# The folder in which the answers of parts wait, and how they become the output, whole or not at all.

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
        (answers / name).unlink()  # an unfinished file of a worker that died
    if is_folder(target):
        answers.rename(str(target).rstrip("/" + os.sep) or "/")
        return
    with open_output(target, style) as write:
        for name in names:
            with pq.ParquetFile(answers / name) as file:
                for batch in file.iter_batches():
                    write(batch)
            (answers / name).unlink()  # so that the disk never holds all answers twice
