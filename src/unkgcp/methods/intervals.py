"""Answers: score and interval of each query, column by column, for Arrow, pandas, polars, and as a picture.

`columns` is the one list of the columns of answers; all other forms are made of it. pandas, polars and matplotlib are
imported when they are asked for, and Arrow columns are made without any of them.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.conformal.ranks import Confidence, ExactLevels, percent
from unkgcp.errors import InputError
from unkgcp.graph.kinds import KINDS
from unkgcp.lazy import library
from unkgcp.tabular.arrow_arrays import Coded, Column, to_arrow

Floats = NDArray[np.float64]
Levels = Confidence | Iterable[Confidence] | ExactLevels

STATUSES = ("ok", "unknown-entity", "unknown-relation")
BASES = ("relation", "similar relations", "none")
"""Whose calibration facts a promise per relation stands on; where there are none the answer is the whole range."""
BY_LEVEL = ("lower", "upper", "no_fact", "fact_lower", "fact_upper")
"""Columns with an entry for each level."""
MODES = ("value", "belief", "other", "other_belief")
"""Columns of a method that answers from a distribution."""
SOME_HAVE = ("no_fact", "fact_lower", "fact_upper", *MODES, "presumes_fact", "expected", "p_value")
"""Columns that only some answers have, in their order."""
SHOWN = 20
"""Rows of the table in a notebook."""
MAX_DRAWN = 200
"""Intervals in one picture."""
BLUE, RED = "#2c6fbb", "#c0392b"


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Answers in the order of the queries.

    score: (n,), NaN for an unknown query. lower, upper: (n,) for one level, (n, levels) for several, NaN where the
    interval is empty.
    code: (n,) int8, the position in `STATUSES`. basis: (n,) int8, of a method that promises per relation: whose
    calibration facts set the threshold, by the position in `BASES`; None otherwise. no_fact, in the open world, in the
    shape of lower: whether the query may be no fact at all; lower and upper are then the hull of 0 and the interval
    from fact_lower to fact_upper in which its confidence lies if it is one. labels: the queries as they
    were asked, columns head, relation and tail.

    value, belief, other, other_belief: (n,), None unless the method answers from a distribution, as `evidence` does.
    The value is the median of the distribution, which lies in every interval of the query, and belief is the
    probability that the distribution gives to just this value, NaN where it is one of many close together. other is the
    likeliest other single value, where its probability is above 15 %, NaN elsewhere. In the open world all four are
    about the query if it is a fact. These probabilities are what the model believes; only the intervals are promised.

    p_value: (n,) and selected, (n,) under the name of each column (`selected`, or `selected_10` and so on for several
    shares of wrong ones): of a selection (`Predictor.select`), None otherwise.
    presumes_fact, expected: (n,), of completions alone. presumes_fact says that the interval is one for a fact, which a
    completion need not be; only a run for the open world promises something of those that are none. expected, from an
    evidence run, is what completions are ranked by: the confidence to be expected if one that is no fact has 0.
    """

    score: NDArray[np.float32]
    lower: Floats
    upper: Floats
    code: NDArray[np.int8]
    confidence: float | Sequence[float]
    basis: NDArray[np.int8] | None = None
    no_fact: NDArray[np.bool_] | None = None
    fact_lower: Floats | None = None
    fact_upper: Floats | None = None
    value: Floats | None = None
    belief: NDArray[np.float32] | None = None
    other: Floats | None = None
    other_belief: NDArray[np.float32] | None = None
    p_value: Floats | None = None
    selected: Mapping[str, NDArray[np.bool_]] | None = None
    presumes_fact: NDArray[np.bool_] | None = None
    expected: Floats | None = None
    labels: pa.Table | pa.RecordBatch | None = None
    kind: NDArray[np.int8] | None = None
    """(n,) position in `unkgcp.graph.kinds.KINDS`; None of a method that does not tell kinds apart."""

    def __len__(self) -> int:
        return len(self.score)

    @property
    def status(self) -> NDArray[np.str_]:
        """`ok`, `unknown-entity` or `unknown-relation`: (n,)."""
        return np.array(STATUSES)[self.code]

    @property
    def promise(self) -> NDArray[np.str_] | None:
        """Whose calibration facts the promise stands on: `relation`, `similar relations` or `none`: (n,).

        `none`: there are none for this query, and its interval is the whole range at every level.
        """
        return None if self.basis is None else np.array(BASES)[self.basis]

    @property
    def prediction(self) -> Floats:
        """The one number to use, inside the interval at every level: the median, or the score: (n,).

        The middle of the interval for a query that is not answered.
        """
        lower, upper = (ends if ends.ndim == 1 else ends.T for ends in (self.lower, self.upper))
        inner = (lower, upper) if self.lower.ndim == 1 else (lower.max(axis=0), upper.min(axis=0))
        best = self.score.astype(np.float64) if self.value is None else self.value
        return np.where(np.isnan(best), (inner[0] + inner[1]) / 2, np.clip(best, *inner))

    @property
    def width(self) -> Floats:
        """upper - lower, in the shape of both; 0 where the interval is empty."""
        width: Floats = self.upper - self.lower
        return np.where(np.isnan(width), 0.0, width)

    @property
    def levels(self) -> list[float]:
        """The levels that were asked for, one or several."""
        return [self.confidence] if isinstance(self.confidence, float) else list(self.confidence)

    @staticmethod
    def joined(pieces: Sequence[Intervals]) -> Intervals:
        """Answers of one method at the same levels, without labels, one after the other."""
        columns: dict[str, Any] = {
            field.name: np.concatenate([getattr(part, field.name) for part in pieces])
            for field in fields(Intervals)
            if isinstance(getattr(pieces[0], field.name), np.ndarray)
        }
        return replace(pieces[0], **columns)

    def to_arrow(self) -> pa.Table:
        """Columns score (null if unknown), lower and upper (`lower_80`, ... for several levels) and status.

        Ends of an empty interval are null.

        The labels of the queries come first where these are known. What some methods tell besides follows (see
        `columns`), and last the prediction, which lies inside the interval.
        """
        labels = self.labels
        named = {} if labels is None else dict(zip(labels.schema.names, labels, strict=True))
        return pa.table({**named, **arrow_columns(self), "prediction": self.prediction})

    def to_pandas(self) -> Any:
        """The same as a pandas data frame."""
        library("pandas", "a data frame of pandas")
        return spelt(self.to_arrow()).to_pandas()

    def to_polars(self) -> Any:
        """The same as a polars data frame."""
        return library("polars", "a data frame of polars").from_arrow(spelt(self.to_arrow()))

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows, with their intervals drawn."""
        return page(self)


def columns(answers: Intervals) -> dict[str, Column]:
    """All columns of answers, by name and in order: (n,), or (n, levels) for those in `BY_LEVEL` at several levels.

    This is the one list of columns; whoever writes answers down, as Arrow, a data frame or JSON, takes them from here,
    so that none can be forgotten in one place. NaN stands for a number that is not there: the score of an unknown
    query, the ends of an empty interval, a second value where none is likely. `promise` is there for a method that
    promises per relation, `no_fact` and the ends of a fact for the open world, `value` and those after it for a method
    that answers from a distribution, `presumes_fact` and `expected` for completions, `p_value` and what follows for a
    selection.
    """
    by_name: dict[str, Column | None] = {
        "score": answers.score,
        "lower": answers.lower,
        "upper": answers.upper,
        "status": Coded(answers.code, STATUSES),
        "kind": None if answers.kind is None else Coded(answers.kind, KINDS),
        "promise": None if answers.basis is None else Coded(answers.basis, BASES),
        **{name: getattr(answers, name) for name in SOME_HAVE},
        **(answers.selected or {}),
    }
    return {name: column for name, column in by_name.items() if column is not None}


def arrow_columns(answers: Intervals) -> dict[str, pa.Array]:
    """The columns for Arrow: at several levels `lower_80`, `upper_80`, `lower_90`, ...; null where NaN stands."""
    several = [] if isinstance(answers.confidence, float) else answers.confidence
    if len(set(several)) < len(several):
        raise ValueError(f"a level was asked for twice: {several}; a table has one column for each")
    by_name: dict[str, Column] = {}
    # neighbouring columns that have an entry for each level are written level by level
    for by_level, part in groupby(columns(answers).items(), lambda item: item[0] in BY_LEVEL):
        if by_level and several:
            arrays = {name: np.asarray(array) for name, array in part}
            for place, level in enumerate(several):
                by_name |= {f"{name}_{percent(level)}": array[:, place] for name, array in arrays.items()}
        else:
            by_name |= part
    return to_arrow(by_name)


def as_batch(answers: Intervals, before: dict[str, pa.Array]) -> pa.RecordBatch:
    """The columns `before`, then score, lower, upper (`lower_80`, ... for several levels) and status.

    What some methods tell besides follows, in the order of `columns`. Status and promise are dictionaries. What is not
    there, such as the score of an unknown query or the ends of an empty interval, is null.
    """
    by_name = {**before, **arrow_columns(answers)}
    return pa.record_batch(list(by_name.values()), names=list(by_name))


def spelt(answers: pa.Table) -> pa.Table:
    """The same table with names written out instead of dictionaries."""
    fields = [
        pa.field(field.name, pa.string()) if pa.types.is_dictionary(field.type) else field
        for field in answers.schema
    ]
    return answers.cast(pa.schema(fields))


def page(answers: Intervals) -> str:
    """The first rows as an HTML table, each with its intervals drawn between 0 and 1."""
    shown = spelt(answers.to_arrow().slice(0, SHOWN))
    records = shown.to_pylist()
    if answers.value is not None:
        for row in records:
            modes = row["value"], *(row.pop(name) for name in MODES[1:])  # the value stays where its title is
            row["value"] = None if modes[0] is None else in_words(*modes)
    titles = [*(name for name in shown.schema.names if name not in MODES[1:]), "0 … 1"]
    lower, upper = (np.reshape(ends, (len(answers), -1)) for ends in (answers.lower, answers.upper))
    rows = []
    for row, ends in zip(records, np.stack([lower, upper], axis=2).tolist(), strict=False):
        dot = None if row["score"] is None else row["prediction"]
        cells = [*map(_cell, row.values()), drawing(dot, ends)]
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    more = f"<p>{len(answers) - SHOWN:,} more rows</p>" if len(answers) > SHOWN else ""
    levels = ", ".join(f"{percent(level)} %" for level in answers.levels)
    return (
        f"<table><caption>{len(answers):,} answers at {levels}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>{more}"
    )


def in_words(
    value: float, belief: float | None, other: float | None = None, other_belief: float | None = None
) -> str:
    """The value of an answer and how likely it is, and the second one if there is one.

    >>> in_words(0.4375, 0.551, 1.0, 0.38), in_words(0.7, 0.999)
    ('0.4375 (55 %) or 1 (38 %)', '0.7 (>99 %)')
    """
    first = (
        f"about {value:.3f}"
        if belief is None or math.isnan(belief)
        else f"{_short(value)} ({_share(belief)})"
    )
    if other is None or other_belief is None or math.isnan(other):
        return first
    return f"{first} or {_short(other)} ({_share(other_belief)})"


def _short(value: float) -> str:
    """At most six decimals; halves go up, as they do on the explorer page."""
    return f"{math.floor(value * 1e6 + 0.5) / 1e6:.6f}".rstrip("0").rstrip(".")


def _share(belief: float) -> str:
    """In whole percent; nothing is called sure or impossible."""
    if belief >= 0.995:
        return ">99 %"
    return "<1 %" if belief < 0.005 else f"{math.floor(100 * belief + 0.5)} %"


def drawing(dot: float | None, intervals: Sequence[Sequence[float]]) -> str:
    """Intervals of several levels as nested lines between 0 and 1 with a dot on them; empty ones (NaN) are left out."""
    circle = "" if dot is None else f'<circle cx="{100 * dot:.1f}" cy="6" r="3" fill="{RED}"/>'
    nested = sorted(
        (ends for ends in intervals if not math.isnan(ends[0])), key=lambda ends: ends[0] - ends[1]
    )
    lines = [
        f'<path d="M{100 * lower:.1f} 6H{100 * max(upper, lower + 0.01):.1f}" stroke="{BLUE}" '
        f'stroke-width="{4 + 2 * depth}" stroke-opacity="{(depth + 1) / len(nested):.2g}"/>'
        for depth, (lower, upper) in enumerate(nested)  # a single value is as long as can be seen
    ]
    description = ", ".join(f"from {lower:.3f} to {upper:.3f}" for lower, upper in nested) or "empty"
    return (
        f'<svg width="104" height="12" viewBox="-2 0 104 12" role="img" aria-label="{description}">'
        f'<line x1="0" y1="6" x2="100" y2="6" stroke="#ccc"/>{"".join(lines)}{circle}</svg>'
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else html.escape(str(value))


def draw(answers: Intervals, ax: Any = None) -> Any:
    """Draw up to `MAX_DRAWN` answers with matplotlib, one line a query and levels nested; returns the axes."""
    if len(answers) > MAX_DRAWN:
        raise InputError(f"{len(answers):,} intervals are too many for one picture; draw at most {MAX_DRAWN}")
    n = len(answers)
    if ax is None:
        library("matplotlib", "a picture")
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(7, 0.8 + 0.3 * n), layout="constrained")
    single = isinstance(answers.confidence, float)
    levels = answers.levels
    lower, upper = (ends.reshape(n, len(levels)) for ends in (answers.lower, answers.upper))
    rows = np.arange(n)
    # the widest first, so that the narrower ones lie on top of it
    for depth, place in enumerate(np.argsort(levels)[::-1].tolist()):
        shade = 1.0 if single else 0.3 + 0.7 * (depth + 1) / len(levels)
        ax.hlines(
            rows,
            lower[:, place],
            upper[:, place],
            colors=BLUE,
            alpha=shade,
            linewidth=4 + 2 * depth,
            label=f"{percent(levels[place])} %",
        )
        # a single value would be a line without length, which is invisible
        single_value = np.flatnonzero(lower[:, place] == upper[:, place])
        ax.plot(
            lower[single_value, place], single_value, "|", color=BLUE, alpha=shade, markersize=14, zorder=4
        )
    answered = ~np.isnan(answers.score)
    inside = answers.prediction[answered]
    ax.plot(inside, rows[answered], "o", color=RED, markersize=5, label="prediction", zorder=5)
    if answers.other is not None and not np.isnan(answers.other).all():
        look = {"markerfacecolor": "none", "color": RED, "markersize": 7, "label": "other value"}
        ax.plot(answers.other, rows, "d", zorder=6, **look)
    ax.set(xlim=(-0.02, 1.02), ylim=(n - 0.5, -0.5), xlabel="confidence")
    ax.set_yticks(rows, [_title(answers, row) for row in range(n)])
    if n:
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    return ax


def _title(answers: Intervals, row: int) -> str:
    """The labels of a query, with dollar signs that are no formula."""
    if answers.labels is None:
        return str(row)
    labels = (answers.labels.column(name)[row].as_py() for name in ("head", "relation", "tail"))
    title = "  ".join("?" if label is None else label for label in labels).replace("$", r"\$")
    return title if answers.code[row] == 0 else f"{title} ({answers.status[row]})"
