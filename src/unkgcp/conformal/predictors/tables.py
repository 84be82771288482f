"""Answers as tables: Arrow columns, pandas, polars, and a picture of each interval for a notebook.

What it is: conversions; `Intervals` has them as methods. What it is not: a place where numbers change. pandas and
polars are imported when they are asked for, and Arrow columns are made without either.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.conformal.ranks import percent
from unkgcp.errors import InputError

if TYPE_CHECKING:
    from unkgcp.conformal.predictors.base import Intervals

SHOWN = 20
"""Rows of the table in a notebook."""


def columns(answers: Intervals) -> dict[str, pa.Array]:
    """score (null if unknown), lower and upper (`lower_80`, ... for several levels), status; perhaps more."""
    from unkgcp.conformal.predictors.base import STATUSES
    from unkgcp.conformal.relations import BASES

    found = {"score": numbers(answers.score, answers.code == 0)}
    found |= _by_level(answers, {"lower": answers.lower, "upper": answers.upper})
    found["status"] = coded(answers.code, STATUSES)
    if answers.basis is not None:
        found["promise"] = coded(answers.basis, BASES)
    open_world = {name: getattr(answers, name) for name in ("no_fact", "fact_lower", "fact_upper")}
    if answers.no_fact is not None:
        found |= _by_level(answers, open_world)
    return found


def _by_level(answers: Intervals, parts: dict[str, NDArray[Any]]) -> dict[str, pa.Array]:
    """Columns of one level, or of several level by level with the level in their names."""
    if isinstance(answers.confidence, float):
        return {name: ends(array) for name, array in parts.items()}
    if len(set(answers.confidence)) < len(answers.confidence):
        raise ValueError(
            f"a level was asked for twice: {answers.confidence}; a table has one column for each"
        )
    return {
        f"{name}_{percent(level)}": ends(array[:, place])
        for place, level in enumerate(answers.confidence)
        for name, array in parts.items()
    }


def ends(array: NDArray[Any]) -> pa.Array:
    """Ends of intervals (n,) as an Arrow column, null where the interval is empty; or flags."""
    # a sum is NaN if something in it is, and takes no memory
    some = array.dtype != np.bool_ and bool(np.isnan(array.sum()))
    return numbers(array, ~np.isnan(array) if some else None)


def numbers(array: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of numbers (n,) as an Arrow column, null where it is not valid."""
    # pa.array would do, but it loads pandas to see whether the array is one of its own
    array = np.ascontiguousarray(array)
    if array.dtype == np.bool_:
        flags = pa.py_buffer(np.packbits(array, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(array), [None, flags])
    bits = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [bits, pa.py_buffer(array)])


def coded(code: NDArray[np.int8], names: Sequence[str]) -> pa.DictionaryArray:
    """Names given by their positions (n,), as a dictionary."""
    return pa.DictionaryArray.from_arrays(numbers(code), texts(names))


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
    return pa.table({**labels, **columns(answers)})


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
