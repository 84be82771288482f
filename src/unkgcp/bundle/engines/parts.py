"""A file or folder of queries cut into parts, each answered as a whole by one worker.

What it is: the plan. A part is a run of rows of one Parquet file, whole row groups where they are not too large;
parts are numbered in the order of the input, files of a folder by name, so that answers named by their part and
read in the order of their names are in the order of the input. What it is not: a reader of the rows.

>>> plan(["a.parquet"], 1 << 20)[0]     # doctest: +SKIP
Part(number=0, path='a.parquet', first=0, rows=1048576, before=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from unkgcp.errors import InputError

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


def part_name(number: int) -> str:
    """Names sort as numbers do, up to ten million parts."""
    return f"part-{number:07d}{ENDING}"


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
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise InputError(
            f"{path} is a damaged Parquet file ({reason}): copy, download or write it again"
        ) from None
