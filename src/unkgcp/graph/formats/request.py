"""What a caller says of a file before it is read; all of it may be left out."""

from __future__ import annotations

from dataclasses import dataclass

from unkgcp.graph.formats.columns import Columns
from unkgcp.graph.scaling import Scale


@dataclass(frozen=True, slots=True)
class Request:
    """How a file is to be read.

    format           tsv, csv, parquet, string-links, string-actions, conceptnet or nell; None: recognise it
    header           whether the first line names the columns; None: recognise it
    columns          head, relation, tail and confidence by name, or by position counted from 0
    scale            how numbers become confidences; None: as is usual for the format
    language         ConceptNet only: keep the assertions within one language, `en` for instance
    skip_missing     leave out rows whose confidence is empty or NaN; they are an error otherwise
    with_confidence  False for queries, whose confidence column, if there is one, is not looked at
    """

    format: str | None = None
    header: bool | None = None
    columns: Columns | None = None
    scale: Scale | None = None
    language: str | None = None
    skip_missing: bool = False
    with_confidence: bool = True
