"""Batches of facts, as every reader of files gives them, and what may be wrong with a fact.

A batch is a record batch with the columns head, relation and tail, each of text or a dictionary of texts, and
confidence (or lower and upper) where that was asked for. A batch is checked as a whole, quickly; if that fails,
`Malformed` is raised, and the reader looks for the first bad row (`objection`) to name it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.tabular.arrow_arrays import content, values
from unkgcp.tabular.columns import INTERVAL, ROLES, Request, Scale

LONGEST_LABEL = 64 << 10
"""Bytes of the longest label that a file may have."""


class Malformed(Exception):
    """Raised where a quick check of many rows fails."""


def batch_of(columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """Head, relation, tail and perhaps confidence, or lower and upper, as a batch."""
    roles = ROLES if len(columns) < len(INTERVAL) else INTERVAL
    return pa.record_batch(list(columns), names=list(roles[: len(columns)]))


def beside(batch: pa.RecordBatch, further: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """The batch with further columns after its own; one that is called like one of these gets `input_` before it."""
    names = batch.schema.names
    titles = [f"input_{title}" if title in names else title for title in further]
    return pa.record_batch([*batch.columns, *further.values()], names=[*names, *titles])


def settled(batch: pa.RecordBatch, request: Request) -> pa.RecordBatch:
    """The batch without rows that have no confidence, or with the default there, as was asked for."""
    if batch.num_columns < 4 or not request.settles:
        return batch
    numbers = batch.columns[3:]
    missing = [pc.is_null(column, nan_is_null=True) for column in numbers]
    if request.default_confidence is None:
        return batch.filter(pc.invert(reduce(pc.or_, missing)))
    default = float(request.default_confidence)
    filled = [pc.if_else(empty, default, column) for empty, column in zip(missing, numbers, strict=True)]
    return batch_of([*batch.columns[:3], *filled])


def checked(batch: pa.RecordBatch, scale: Scale | None = None) -> pa.RecordBatch:
    """The same batch; `Malformed` if a label or a confidence will not do."""
    for labels in batch.columns[:3]:
        if labels.null_count or not acceptable(
            labels.dictionary if pa.types.is_dictionary(labels.type) else labels
        ):
            raise Malformed
    numbers = batch.columns[3:]
    if scale and any(column.null_count or not scale.accepts(values(column)) for column in numbers):
        raise Malformed
    if len(numbers) == 2 and (values(numbers[0]) > values(numbers[1])).any():
        raise Malformed
    return batch


def acceptable(labels: pa.StringArray) -> bool:
    """Whether no label is null, empty or too long, or holds a NUL byte."""
    if not len(labels):
        return True
    length = pc.min_max(pc.binary_length(labels))
    return bool(
        not labels.null_count
        and length["min"].as_py() > 0
        and length["max"].as_py() <= LONGEST_LABEL
        and content(labels).min() > 0  # no NUL byte
    )


def objection_to_labels(labels: Sequence[str | None], row: str = "line") -> str | None:
    """What is wrong with a head, relation or tail, as the end of a sentence; None if nothing."""
    for role, label in zip(ROLES, labels, strict=False):
        if not label:
            return f"has an empty {role}: give it a label or remove the {row}"
        if len(label.encode()) > LONGEST_LABEL:
            return f"has a {role} of more than {LONGEST_LABEL >> 10} KiB ({label[:40]!r}...): shorten it"
        if "\0" in label:
            return f"has a NUL byte in its {role}: the file is no text, or damaged"
    return None


def objection_to_confidence(
    value: float | None, shown: str, request: Request, scale: Scale, largest: float, row: str = "line"
) -> str | None:
    """What is wrong with a confidence, which is spelt `shown`, among those up to `largest`."""
    if value is not None and not math.isnan(value):
        return scale.objection(value, largest)
    if request.settles:
        return None
    return (
        f"has no confidence ({shown}): add it, remove the {row}, leave such {row}s out with the setting skip_missing, "
        "or give them one with the setting default_confidence"
    )


def objection_to_ends(ends: Sequence[float | None]) -> str | None:
    """What is wrong with the lower and the upper end of one confidence; None if nothing, or if it is no interval."""
    lower, upper = (end or 0.0 for end in ends) if len(ends) == 2 else (0.0, 0.0)
    if lower <= upper:
        return None
    return (
        f"has the lower end {lower:g} above the upper end {upper:g}: correct it, or name the columns in their "
        "order with --columns"
    )
