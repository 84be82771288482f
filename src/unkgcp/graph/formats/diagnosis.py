"""What is wrong with a block of text, and on which line: the slow look after the quick one failed.

It reads line by line in Python, but only one block, and only when an error is certain.
"""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Iterator

import pyarrow as pa

from unkgcp.errors import InputError, at
from unkgcp.graph.formats.layout import Layout
from unkgcp.graph.formats.quoting import misplaced_quote

_LINE_END = re.compile(r"\r\n|\n|\r")


def diagnose(layout: Layout, block: bytes, first_line: int, header: bool) -> InputError:
    """The error of the first bad line of a block that starts at line `first_line` of its file.

    `header` tells whether that line names the columns.
    """
    end, objection = len(block), "cannot be told from a fact, nor be read as one: correct it"
    if layout.format.quoted:
        mark = misplaced_quote(pa.py_buffer(block), layout.format.delimiter)
        if mark is not None:
            end = mark
            objection = (
                "has a quotation mark that neither begins nor ends a field, or is never closed: "
                "put the field in quotation marks and double those inside it"
            )
    try:
        block[:end].decode()
    except UnicodeDecodeError as error:
        end, objection = error.start, "is not valid UTF-8: save the file as UTF-8 or correct the line"
    before = block[:end].decode()
    lines = before if end == len(block) else before[: max(before.rfind("\n"), before.rfind("\r")) + 1]
    for line, fields in _records(layout, lines, first_line):
        if header and line == first_line:
            continue
        found = _objection(layout, fields, line)
        if found is not None:
            return InputError(f"{at(layout.name, line)} {found}")
    return InputError(f"{at(layout.name, first_line + len(_LINE_END.findall(before)))} {objection}")


def _records(layout: Layout, text: str, first_line: int) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every record that is not an empty line."""
    if not layout.format.quoted:
        for number, line in enumerate(_LINE_END.split(text)):
            if line:
                yield first_line + number, line.split(layout.format.delimiter)
        return
    limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=layout.format.delimiter)
        line = first_line
        for fields in reader:
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
    numbers = layout.format.numbers
    shown = repr(field if len(field) <= 60 else field[:57] + "...")
    try:
        if numbers is not None:
            value = numbers(pa.array([field]))[0].as_py()
        else:
            value = pa.array([field]).cast(pa.float64())[0].as_py() if field else None
    except pa.ArrowException:
        if numbers is not None:
            return f"has {shown}, in which there is no confidence: correct it"
        remedy = ", or say with --header that this line names the columns" if line == 1 else ""
        return f"has the confidence {shown}, which is no number: correct it{remedy}"
    if layout.skip_missing and (value is None or math.isnan(value)):
        return None
    if value is None:
        return f"has no confidence ({shown}): add it, remove the line, or leave such lines out with --skip-missing"
    return layout.scale.objection(value)
