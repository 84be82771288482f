"""What answers tell, column by column, and the same for Arrow, pandas, polars, and as a picture for a notebook.

What it is: `columns`, the one list of what answers tell, and conversions of it; `Intervals` has some as methods. What
it is not: a place where numbers change. pandas and polars are imported when they are asked for, and Arrow columns are
made without either.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.conformal.ranks import percent
from unkgcp.errors import InputError

if TYPE_CHECKING:
    from unkgcp.conformal.predictors.base import Intervals

SHOWN = 20
"""Rows of the table in a notebook."""


class Coded(NamedTuple):
    """A column of names, given by their positions (n,) in `names`."""

    code: NDArray[np.int8]
    names: Sequence[str]

    def spelt(self) -> list[str]:
        """The names one by one."""
        return [self.names[place] for place in self.code.tolist()]


Column = NDArray[Any] | Coded
BY_LEVEL = ("lower", "upper", "no_fact", "fact_lower", "fact_upper")
"""Columns with an entry for each level."""


def columns(answers: Intervals) -> dict[str, Column]:
    """All that answers tell, by name and in order: (n,), or (n, levels) for those in `BY_LEVEL` at several levels.

    This is the one list of columns; whoever writes answers down, as Arrow, a data frame or JSON, takes them from here,
    so that none can be forgotten in one place. NaN stands for a number that is not there: the score of an unknown
    query, the ends of an empty interval. `promise` is there for a method that promises per relation, the last three
    for the open world.
    """
    from unkgcp.conformal.predictors.base import STATUSES
    from unkgcp.conformal.relations import BASES

    found: dict[str, Column] = {"score": answers.score, "lower": answers.lower, "upper": answers.upper}
    found["status"] = Coded(answers.code, STATUSES)
    if answers.basis is not None:
        found["promise"] = Coded(answers.basis, BASES)
    if answers.no_fact is not None and answers.fact_lower is not None and answers.fact_upper is not None:
        found |= {"no_fact": answers.no_fact}
        found |= {"fact_lower": answers.fact_lower, "fact_upper": answers.fact_upper}
    return found


def arrow_columns(answers: Intervals) -> dict[str, pa.Array]:
    """The columns for Arrow: at several levels `lower_80`, `upper_80`, `lower_90`, ...; null where NaN stands."""
    several = [] if isinstance(answers.confidence, float) else answers.confidence
    if len(set(several)) < len(several):
        raise ValueError(f"a level was asked for twice: {several}; a table has one column for each")
    found: dict[str, pa.Array] = {}
    # neighbours that have an entry for each level are written level by level
    for by_level, part in groupby(columns(answers).items(), lambda item: item[0] in BY_LEVEL):
        if by_level and several:
            arrays = {name: np.asarray(array) for name, array in part}
            for place, level in enumerate(several):
                found |= {
                    f"{name}_{percent(level)}": _arrow(array[:, place]) for name, array in arrays.items()
                }
        else:
            found |= {name: _arrow(column) for name, column in part}
    return found


def _arrow(column: Column) -> pa.Array:
    """A column (n,) for Arrow, null where NaN stands."""
    if isinstance(column, Coded):
        return pa.DictionaryArray.from_arrays(numbers(column.code), texts(column.names))
    # a sum is NaN if something in it is, and takes no memory
    some = column.dtype != np.bool_ and bool(np.isnan(column.sum()))
    return numbers(column, ~np.isnan(column) if some else None)


def numbers(array: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of numbers (n,) as an Arrow column, null where it is not valid."""
    # pa.array would do, but it loads pandas to see whether the array is one of its own
    array = np.ascontiguousarray(array)
    if array.dtype == np.bool_:
        flags = pa.py_buffer(np.packbits(array, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(array), [None, flags])
    bits = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [bits, pa.py_buffer(array)])


def texts(names: Sequence[str]) -> pa.StringArray:
    """A few names as an Arrow column."""
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def table(answers: Intervals) -> pa.Table:
    """The columns as a table, after the labels of the queries where these are known."""
    labels = (
        {} if answers.labels is None else dict(zip(answers.labels.schema.names, answers.labels, strict=True))
    )
    return pa.table({**labels, **arrow_columns(answers)})


def frame(answers: Intervals, library: str) -> Any:
    """The table as a data frame of `pandas` or `polars`."""
    plain = spelt(table(answers))
    try:
        if library == "pandas":
            return plain.to_pandas()
        import polars

        return polars.from_arrow(plain)
    except ImportError:
        raise InputError(f"a data frame of {library} needs it: pip install {library}") from None


def spelt(answers: pa.Table) -> pa.Table:
    """The same table with names written out instead of dictionaries."""
    fields = [
        pa.field(field.name, pa.string()) if pa.types.is_dictionary(field.type) else field
        for field in answers.schema
    ]
    return answers.cast(pa.schema(fields))


def page(answers: Intervals) -> str:
    """The first rows as an HTML table, each with its interval drawn between 0 and 1."""
    shown = spelt(table(answers).slice(0, SHOWN))
    single = isinstance(answers.confidence, float)
    titles = [*shown.schema.names, *(["0 … 1"] if single else [])]
    rows = []
    for row in shown.to_pylist():
        cells = [f"<td>{_cell(value)}</td>" for value in row.values()]
        if single:
            cells.append(f"<td>{drawing(row['score'], row['lower'], row['upper'])}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    more = f"<p>{len(answers) - SHOWN:,} more rows</p>" if len(answers) > SHOWN else ""
    levels = [answers.confidence] if isinstance(answers.confidence, float) else answers.confidence
    said = ", ".join(f"{percent(level)} %" for level in levels)
    return (
        f"<table><caption>{len(answers):,} answers at {said}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>{more}"
    )


def drawing(score: float | None, lower: float | None, upper: float | None) -> str:
    """One interval as a line between 0 and 1 with the score as a dot; nothing but the dot if it is empty."""
    dot = "" if score is None else f'<circle cx="{100 * score:.1f}" cy="6" r="3" fill="#c0392b"/>'
    said, line = "empty", ""
    if lower is not None and upper is not None:
        said = f"from {lower:.3f} to {upper:.3f}"
        first, last = 100 * lower, 100 * max(upper, lower + 0.01)  # a single value is to be seen too
        line = f'<path d="M{first:.1f} 6H{last:.1f}" stroke="#2c6fbb" stroke-width="4"/>'
    return (
        f'<svg width="104" height="12" viewBox="-2 0 104 12" role="img" aria-label="{said}">'
        '<line x1="0" y1="6" x2="100" y2="6" stroke="#ccc"/>'
        f"{line}{dot}</svg>"
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else html.escape(str(value))
