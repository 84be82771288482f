"""Intervals for a table of predictions, calibrated with a table of predictions and truth: `unkgcp conformalize`."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from unkgcp.conformal.ranks import percent, rank
from unkgcp.conformal.scores import recipe_names
from unkgcp.conformal.split import SmallCalibrationWarning, SmallGroupWarning, SplitConformal
from unkgcp.errors import InputError, public
from unkgcp.files import standard_output
from unkgcp.tabular.query_files import Table
from unkgcp.tabular.writer import check_target, write_at_the_end, write_file

GROUP = "group"
OPTIONAL = ("scale", "kind")
ENDINGS = (".csv", ".tsv", ".parquet", ".pq")


def conformalize(
    calibration: str,
    source: str,
    output: str | None,
    *,
    levels: Sequence[float] = (0.9,),
    score: str = "residual",
    bounds: tuple[float, float] | None = (0.0, 1.0),
    groups: Sequence[str] | None = None,
) -> list[str]:
    """Write the rows of `source` with lower and upper ends.

    The calibration table needs prediction and truth; scale and group are used if it has them, and kind for a score
    that is learned, and then the source needs them too. `groups` names columns of groups instead of `group`; with
    several the promise holds in every group of each. All other columns of the source are carried through. Without
    `output`, or where it is `-`, the result goes to standard output. One of the tables may be `-`, standard input.
    Nothing is written unless every row could be answered. Gives what a user should know of the answers: a sentence
    where there were too few rows to learn the score from, and one for every level that is out of reach.
    """
    output = None if output == "-" else output
    if output is None:
        standard_output()
    else:
        if not output.lower().removesuffix(".gz").endswith(ENDINGS):
            raise InputError(
                f"{public(output)} does not end in {', '.join(ENDINGS)}, or one of them and .gz; "
                "its ending says how to write it"
            )
        check_target(output)
    if calibration == source == "-":
        raise InputError("only one table can come from standard input; give the name of a file for the other")
    with Table(calibration) as labelled, Table(source) as unlabelled:
        return _conformalize(labelled, unlabelled, output, levels, score, bounds, groups)


def _conformalize(
    labelled: Table,
    unlabelled: Table,
    output: str | None,
    levels: Sequence[float],
    score: str,
    bounds: tuple[float, float] | None,
    group_names: Sequence[str] | None,
) -> list[str]:
    labelled.require(["prediction", "truth", *(group_names or [])])
    unlabelled.require(["prediction", *(group_names or [])])
    optional = [name for name in OPTIONAL if name != "kind" or score in recipe_names()]
    optional += [GROUP] if group_names is None else []
    used = [name for name in optional if name in labelled.names]
    unlabelled.require(used, f"which {labelled.name} has")
    for name in optional:
        if name in unlabelled.names and name not in used:
            raise InputError(
                f"{labelled.name} has no column {name!r}, which {unlabelled.name} has; add it or rename it"
            )
    groups = group_names or [name for name in used if name == GROUP]
    used = [name for name in used if name != GROUP]
    if score != "residual" and "scale" in used:
        why = "has its own scale" if score == "entropy" else "takes no scale"
        raise InputError(f"{labelled.name}: the {score} score {why}; rename the column 'scale'")
    for name in [*_end_names(levels), *(["group_size"] if groups else [])]:
        if name in unlabelled.names:
            raise InputError(f"{unlabelled.name} already has a column {name!r}; rename it")
    cal = _calibrate(labelled, used, groups, score, bounds)
    sizes: Counter[int] = Counter()
    typed = output is not None and output.lower().removesuffix(".gz").endswith(ENDINGS[2:])
    # standard output has the delimiter of the source; a file appears only on success
    with (
        write_at_the_end(standard_output(), unlabelled.delimiter or ",")
        if output is None
        else write_file(output, carried=True)
    ) as write:
        for batch, first in unlabelled.batches():
            columns = _answer(cal, unlabelled, batch, first, used, groups, levels)
            sizes.update(columns.get("group_size", np.full(len(batch), cal.size)).tolist())
            carried = {name: _carried(unlabelled, batch, name, first, typed) for name in unlabelled.names}
            write(pa.record_batch({**carried, **columns}))
    cautions = list(_cautions(cal, labelled, unlabelled, levels, sizes))
    if score in recipe_names() and not cal.learned:
        cautions.insert(
            0, f"{labelled.name} has too few rows to learn the {score} score from; the residual was used"
        )
    return cautions


def _cautions(
    cal: SplitConformal, labelled: Table, unlabelled: Table, levels: Sequence[float], sizes: Counter[int]
) -> Iterator[str]:
    """A sentence for each level that needs more rows than there are; `sizes` counts the rows asked by group size."""
    for level in levels:
        if level == 1:
            continue
        if rank(level, cal.size) > cal.size:
            yield (
                f"{labelled.name}: {cal.size:,} rows to calibrate on are too few for confidence {level}: every "
                "interval is the whole range"
            )
        elif few := sum(rows for size, rows in sizes.items() if rank(level, size) > size):
            yield (
                f"{few:,} rows of {unlabelled.name} are in groups with too few rows in {labelled.name} for "
                f"confidence {level}: their intervals are the whole range"
            )


def _calibrate(
    table: Table,
    used: Sequence[str],
    groups: Sequence[str],
    score: str,
    bounds: tuple[float, float] | None,
) -> SplitConformal:
    columns: dict[str, list[Any]] = {name: [] for name in ("prediction", "truth", *used, *groups)}
    for batch, first in table.batches():
        for name, pieces in columns.items():
            pieces.append(_column(table, batch, first, name, groups))
    arrays = _with_groups({name: np.concatenate(pieces) for name, pieces in columns.items()}, groups)
    if not len(arrays["prediction"]):
        raise InputError(f"{table.name} has no rows; calibration needs at least one labelled prediction")
    kind = None if score == "residual" else score
    with _located(table, 0), warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallCalibrationWarning)  # said once, at the end
        return SplitConformal(kind, bounds=bounds).calibrate(**arrays)


def _answer(
    cal: SplitConformal,
    table: Table,
    batch: pa.RecordBatch,
    first: int,
    used: Sequence[str],
    groups: Sequence[str],
    levels: Sequence[float],
) -> dict[str, Any]:
    """The new columns of a batch, by name."""
    names = ("prediction", *used, *groups)
    arrays = _with_groups({name: _column(table, batch, first, name, groups) for name in names}, groups)
    with _located(table, first), warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)  # counted and said once, at the end
        ends = cal.interval(confidence=levels, **arrays)
    flat = np.ascontiguousarray(ends.transpose(2, 1, 0).reshape(2 * len(levels), len(batch)))
    columns: dict[str, Any] = dict(zip(_end_names(levels), flat, strict=True))
    if groups:
        columns["group_size"] = cal.group_size(arrays["group"])
    return columns


def _column(table: Table, batch: pa.RecordBatch, first: int, name: str, groups: Sequence[str]) -> Any:
    """A column of labels, or of numbers: (n,)."""
    is_label = name == "kind" or name in groups
    return table.strings(batch, name) if is_label else table.numbers(batch, name, first)


def _with_groups(arrays: dict[str, Any], groups: Sequence[str]) -> dict[str, Any]:
    """The same arrays, with the columns of groups joined into the argument `group`."""
    if not groups:
        return arrays
    rest = {name: array for name, array in arrays.items() if name not in groups}
    grouped = {name: arrays[name] for name in groups}
    return {**rest, GROUP: arrays[groups[0]] if len(groups) == 1 else grouped}


def _end_names(levels: Sequence[float]) -> list[str]:
    endings = [""] if len(levels) == 1 else [f"_{percent(level)}" for level in levels]
    return [f"{side}{ending}" for ending in endings for side in ("lower", "upper")]


def _carried(table: Table, batch: pa.RecordBatch, name: str, first: int, typed: bool) -> pa.Array:
    """A column as it is; in Parquet the numbers of a text file become numbers."""
    if typed and table.delimiter and name in ("prediction", "truth", "scale"):
        return pa.array(table.numbers(batch, name, first))
    return batch.column(name)


@contextmanager
def _located(table: Table, first: int) -> Iterator[None]:
    """Errors about arrays (`prediction[3] is nan, ...`) become errors that name the file and the line."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        match = re.match(r"(\w+)\[(\d+)\] (.*)", str(error))
        if not match:
            raise InputError(f"{table.name}: {error}") from error
        name, row, problem = match.groups()
        problem = re.sub(r"; set bounds= .*", "; correct it or give --bounds", problem)
        raise InputError(f"{table.place(first + int(row))}: {name} {problem}") from error
