"""Kinds of files that facts come in: recognised by their first line or their name, or chosen by the user."""

from __future__ import annotations

from pathlib import PurePath

from unkgcp.errors import InputError
from unkgcp.graph.formats.conceptnet import CONCEPTNET
from unkgcp.graph.formats.delimited import CSV, TSV
from unkgcp.graph.formats.layout import TextFormat, first_line
from unkgcp.graph.formats.nell import NELL
from unkgcp.graph.formats.source import Source
from unkgcp.graph.formats.stringdb import ACTIONS, LINKS

PARQUET = "parquet"
# In the order in which their signatures are tried; the plain ones have none and are known by the file's name.
TEXT_FORMATS = {kind.name: kind for kind in (LINKS, ACTIONS, NELL, CONCEPTNET, TSV, CSV)}
NAMES = ("tsv", "csv", PARQUET, "string-links", "string-actions", "conceptnet", "nell")

_ENDINGS = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".parquet": PARQUET, ".pq": PARQUET}


def recognise(source: Source, chosen: str | None = None, plain: bool = False) -> str:
    """The name of a file's format: the chosen one, else what its first bytes, line or name say.

    `plain` leaves out the formats with columns of their own, because the caller knows which columns to read.
    """
    if chosen is not None and chosen not in NAMES:
        raise InputError(f"the format {chosen!r} is none of {', '.join(NAMES)}")
    if not source.sample:
        raise InputError(f"{source.name} is empty: give a file with at least one fact a line")
    expected = chosen or ending(source.name)
    if source.sample.startswith(b"PAR1"):
        if chosen not in (None, PARQUET):
            raise InputError(f"{source.name} is a Parquet file, not {chosen}: leave --format out")
        return PARQUET
    if expected == PARQUET:
        raise InputError(
            f"{source.name} is not a Parquet file: name its format with --format or write it again"
        )
    line = first_line(source.sample, source.name, quoted=expected == "csv")
    if chosen is None and not plain:
        for kind in TEXT_FORMATS.values():
            if kind.recognises(line):
                return kind.name
    return _checked(expected, chosen is not None, line, source.name)


def ending(name: str) -> str | None:
    """The format that a file's name promises, looking behind `.gz`."""
    return _ENDINGS.get(PurePath(PurePath(name).stem if name.endswith(".gz") else name).suffix.lower())


def _checked(expected: str | None, chosen: bool, line: str, name: str) -> str:
    """Tabs or commas, where the name and the first line agree; the caller's word is not doubted."""
    tabs, commas = "\t" in line, "," in line
    if chosen or (expected == "tsv" and tabs) or (expected == "csv" and commas):
        return expected or ""
    if expected == "tsv" and commas:
        raise InputError(
            f"{name} has commas and no tab on line 1: give --format csv if it is comma-separated"
        )
    if expected == "csv" and tabs:
        raise InputError(f"{name} has tabs and no comma on line 1: give --format tsv if it is tab-separated")
    if expected is None and tabs != commas:
        return "tsv" if tabs else "csv"
    if expected is None and tabs:
        raise InputError(
            f"{name} has both tabs and commas on line 1: say with --format tsv or csv which one separates"
        )
    raise InputError(
        f"{name} has neither tabs nor commas on line 1, so its columns cannot be told apart: "
        "separate them, or name its format with --format"
    )


__all__ = ["NAMES", "PARQUET", "TEXT_FORMATS", "Source", "TextFormat", "ending", "first_line", "recognise"]
