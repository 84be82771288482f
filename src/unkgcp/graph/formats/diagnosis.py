"""What is wrong with a block of text, and on which line: the slow look after the quick one failed.

It reads line by line in Python, but only one block, and only when an error is certain.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator

import pyarrow as pa

from unkgcp.errors import InputError, at
from unkgcp.graph.formats.layout import Layout

_LINE_END = re.compile(r"\r\n|\n|\r")


def diagnose(layout: Layout, block: bytes, first_line: int, header: bool) -> InputError:
    """The error of the first bad line of a block that starts at line `first_line` of its file.

    `header` tells whether that line names the columns.
    """
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        good = block[: error.start].decode()
        line = first_line + len(_LINE_END.findall(good))
        # a fault on an earlier line comes first
        earlier = good[: max(good.rfind("\n"), good.rfind("\r")) + 1]
        return _first(layout, earlier, first_line, header) or InputError(
            f"{at(layout.name, line)} is not valid UTF-8: save the file as UTF-8 or correct the line"
        )
    last = first_line + len(_LINE_END.findall(text))
    return _first(layout, text, first_line, header) or InputError(
        f"{layout.name}, lines {first_line} to {last} cannot be read as {layout.format.name}: correct them, "
        "or choose another --format"
    )


def _first(layout: Layout, text: str, first_line: int, header: bool) -> InputError | None:
    try:
        for line, fields in _records(layout, text, first_line):
            if header and line == first_line:
                continue
            objection = _objection(layout, fields, line)
            if objection is not None:
                return InputError(f"{at(layout.name, line)} {objection}")
    except _Unclosed as error:
        return InputError(
            f"{at(layout.name, error.args[0])} has a quotation that is not closed, or text behind one: "
            "close it, and double quotation marks inside a field"
        )
    return None


class _Unclosed(Exception):
    pass


def _records(layout: Layout, text: str, first_line: int) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every record that is not an empty line."""
    if not layout.format.quoted:
        for number, line in enumerate(_LINE_END.split(text)):
            if line:
                yield first_line + number, line.split(layout.format.delimiter)
        return
    limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=layout.format.delimiter, strict=True)
        line = first_line
        while True:
            try:
                fields = next(reader, None)
            except csv.Error:
                raise _Unclosed(line) from None
            if fields is None:
                return
            if fields:
                yield line, fields
            line = first_line + reader.line_num
    finally:
        csv.field_size_limit(limit)


def _objection(layout: Layout, fields: list[str], line: int) -> str | None:
    """What is wrong with one record, as the end of a sentence."""
    if len(fields) != layout.width:
        columns = f"{len(fields)} column{'s' if len(fields) != 1 else ''}"
        return f"has {columns}, expected {layout.width}: correct the line, or choose another --format"
    named = {"head": layout.head, "relation": layout.relation, "tail": layout.tail}
    for role, position in named.items():
        if position is None:
            continue
        if not fields[position]:
            return f"has an empty {role}: give it a label or remove the line"
        if "\0" in fields[position]:
            return f"has a NUL byte in its {role}: the file is no text, or damaged"
    if layout.confidence is None:
        return None
    return _objection_to_confidence(layout, fields[layout.confidence].strip(), line)


def _objection_to_confidence(layout: Layout, field: str, line: int) -> str | None:
    shown = repr(field if len(field) <= 60 else field[:57] + "...")
    try:
        if layout.format.numbers is not None:
            value = layout.format.numbers(pa.array([field]))[0].as_py()
        else:
            value = pa.array([field]).cast(pa.float64())[0].as_py() if field else None
    except pa.ArrowException:
        remedy = (
            "correct it, or say with --header that this line names the columns" if line == 1 else "correct it"
        )
        return f"has the confidence {shown}, which is no number: {remedy}"
    if value is None:
        return f"has no confidence ({shown}): add it or remove the line"
    return layout.scale.objection(value)
