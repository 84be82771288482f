"""Kinds of files that facts come in: recognised by their first line or their name, or chosen by the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as json
import pyarrow.parquet as pq

from unkgcp.errors import InputError
from unkgcp.tabular.columns import Columns, Request, interval_positions
from unkgcp.tabular.layout import NQUADS, NTRIPLES, RDF, TURTLE, Batch, Filter, Layout, TextFormat, first_line
from unkgcp.tabular.scaling import Scale
from unkgcp.tabular.source import Origin, Source, is_parquet

# In TSV a quotation mark is a character like any other, so a label cannot hold a tab or a line end. In CSV it can hold
# commas and line ends, in quotation marks.
TSV = TextFormat("tsv", "\t", "tab-separated file")
CSV = TextFormat("csv", ",", "comma-separated file", quoted=True)


# ConceptNet 5 assertions: assertion, relation, start, end and a JSON object, separated by tabs, no header.

_WEIGHT = json.ParseOptions(
    explicit_schema=pa.schema([("weight", pa.float64())]), unexpected_field_behavior="ignore"
)


def weights(fields: pa.StringArray) -> pa.DoubleArray:
    """The weight of each object, null where it has none.

    >>> weights(pa.array(['{"weight": 2.0}', '{"dataset": "/d/x"}'])).to_pylist()
    [2.0, None]
    """
    if not len(fields):
        return pa.array([], pa.float64())
    lines = pc.binary_join_element_wise(fields, "\n", "")
    data = lines.buffers()[2]
    options = json.ReadOptions(use_threads=False, block_size=len(data))
    table = json.read_json(pa.BufferReader(data), read_options=options, parse_options=_WEIGHT)
    if len(table) != len(fields):
        raise pa.ArrowInvalid("a field holds no object, or more than one")
    return pa.concat_arrays(table.column("weight").chunks)


def in_language(language: str) -> Filter:
    """Keep the assertions between two concepts of one language, `en` for instance."""
    prefix = f"/c/{language}/"

    def keep(batch: Batch) -> pa.BooleanArray:
        return pc.and_(pc.starts_with(batch.head, prefix), pc.starts_with(batch.tail, prefix))

    return keep


CONCEPTNET = TextFormat(
    "conceptnet",
    "\t",
    "ConceptNet assertions file",
    header=False,
    columns=(2, 1, 3, 4),
    scale=Scale("log", cap=3.0, floor=0.1, low=0.1),
    numbers=weights,
    signature=lambda fields: (
        len(fields) == 5 and fields[0].startswith("/a/[") and fields[1].startswith("/r/")
    ),
    by_language=in_language,
)


# NELL's beliefs, "ESV CSV": tab-separated in spite of the name, thirteen columns, one belief a line.


def probabilities(fields: pa.StringArray) -> pa.DoubleArray:
    """The number in each field, the largest of a list, null where there is none.

    >>> probabilities(pa.array(["0.5", "[0.25, 0.75]", "", "NaN"])).to_pylist()
    [0.5, 0.75, None, None]
    """
    if not len(fields):
        return pa.array([], pa.float64())
    lists = pc.split_pattern_regex(pc.utf8_trim(fields, characters="[] "), pattern=r"[,\s]+")
    texts = lists.flatten()
    texts = pc.if_else(pc.equal(texts, ""), "NaN", texts)
    values = np.asarray(texts.cast(pa.float64()))
    largest = np.fmax.reduceat(values, np.asarray(lists.offsets)[:-1] - lists.offsets[0].as_py())
    return pa.array(largest, pa.float64(), mask=np.isnan(largest))


NELL = TextFormat(
    "nell",
    "\t",
    "NELL ESV file",
    header=True,
    columns=("Entity", "Relation", "Value", "Probability"),
    numbers=probabilities,
    signature=lambda fields: tuple(fields[:3]) == ("Entity", "Relation", "Value"),
)


# STRING, the database of protein interactions: links and actions, scores 0 to 1000.

LINK = "linked"


LINKS = TextFormat(
    "string-links",
    " ",
    "STRING protein.links file",
    header=True,
    columns=("protein1", "protein2", "combined_score"),
    relation=LINK,
    scale=Scale(unit=1000.0),
    signature=lambda fields: tuple(fields[:2]) == ("protein1", "protein2"),
)
ACTIONS = TextFormat(
    "string-actions",
    "\t",
    "STRING protein.actions file",
    header=True,
    columns=("item_id_a", "mode", "item_id_b", "score"),
    scale=Scale(unit=1000.0),
    signature=lambda fields: tuple(fields[:2]) == ("item_id_a", "item_id_b"),
)

PARQUET = "parquet"
# In the order in which their signatures are tried; the plain ones have none and are known by the file's name.
TEXT_FORMATS = {kind.name: kind for kind in (LINKS, ACTIONS, NELL, CONCEPTNET, TSV, CSV)}
NAMES = ("tsv", "csv", PARQUET, "string-links", "string-actions", "conceptnet", "nell", *RDF)

_ENDINGS = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".parquet": PARQUET, ".pq": PARQUET}
_ENDINGS |= {
    ".nt": NTRIPLES,
    ".nts": NTRIPLES,
    ".nq": NQUADS,
    ".nqs": NQUADS,
    ".ttl": TURTLE,
    ".ttls": TURTLE,
}


def recognise(source: Source, chosen: str | None = None, plain: bool = False) -> str:
    """The name of a file's format: the chosen one, else what its first bytes, line or name say.

    `plain` leaves out the formats with columns of their own, because the caller knows which columns to read.
    """
    if chosen is not None and chosen not in NAMES:
        raise InputError(f"the format {chosen!r} is none of {', '.join(NAMES)}")
    if not source.sample:
        raise InputError(f"{source.name} is empty: give a file with at least one fact a line")
    expected = chosen or ending(source.name)
    if is_parquet(source.sample):
        if chosen not in (None, PARQUET):
            raise InputError(f"{source.name} is a Parquet file, not {chosen}: leave --format out")
        return PARQUET
    if expected == PARQUET:
        raise InputError(
            f"{source.name} is not a Parquet file: name its format with --format or write it again"
        )
    line = first_line(source.sample, source.name, quoted=expected == "csv")
    if expected is None and line.startswith(("<", "_:", "@prefix", "@base", "PREFIX")):
        expected = _rdf_kind(line)
    if expected in RDF:
        return expected
    if chosen is None and not plain:
        for kind in TEXT_FORMATS.values():
            if kind.recognises(line):
                return kind.name
    return _checked(expected, chosen is not None, line, source.name)


def _rdf_kind(line: str) -> str | None:
    """The format of RDF that a first line is in, None if it is in none."""
    if not line.startswith(("<", "_:")):
        return TURTLE
    from unkgcp.tabular.rdf_lines import is_statement

    return next((kind for kind in (NTRIPLES, NQUADS) if is_statement(line, kind)), None)


def layout_of(source: Source, request: Request) -> Layout | str:
    """Where a text file keeps its facts; for Parquet and RDF, which need not be told that, the name of the format."""
    kind = recognise(source, request.format, plain=request.columns is not None)
    if kind not in RDF and request.confidence_predicates:
        raise InputError(f"{source.name} is read as {kind}: --confidence-predicate is for RDF, leave it out")
    if kind in RDF and (
        request.columns is not None or request.header is not None or request.language is not None
    ):
        raise InputError(
            f"{source.name} is read as {kind}, which has no columns: leave header, columns and language out"
        )
    if kind not in TEXT_FORMATS:
        return kind
    text = TEXT_FORMATS[kind]
    return text.layout(source.name, first_line(source.sample, source.name, text.quoted), request)


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


# Confidences that are intervals: files whose first line names the columns lower and upper.


def interval_columns(
    paths: Mapping[str, Origin], request: Request
) -> dict[str, tuple[Columns, Columns] | None]:
    """For each part the columns of its lower and of its upper ends, each with those of the labels.

    None for a part with plain confidences.
    """
    return {part: _end_columns(path, request) for part, path in paths.items()}


def _end_columns(path: Origin, request: Request) -> tuple[Columns, Columns] | None:
    if request.columns is not None:
        if len(request.columns) != 5:
            return None
        *labels, lower, upper = request.columns
        return [*labels, lower], [*labels, upper]
    if request.header is False or not is_file(path):
        return None
    names = _names(path, request)
    positions = None if names is None else interval_positions(names, str(path))
    if positions is None:
        return None
    *head, lower, upper = positions
    return [*head, lower], [*head, upper]


def is_file(path: Origin) -> bool:
    """Whether this names a file, which can be read twice."""
    return isinstance(path, str | os.PathLike) and os.fspath(path) != "-"


def _names(path: Origin, request: Request) -> list[str] | None:
    """The fields of the first line, for the formats that have no columns of their own."""
    with Source(path) as source:
        kind = recognise(source, request.format)
        if kind == PARQUET:
            try:
                return list(pq.read_schema(source.on_disk()).names)
            except (
                pa.ArrowException,
                OSError,
                UnicodeDecodeError,
            ):  # whoever reads it says what is wrong with it
                return None
        if kind in RDF:
            return None
        text = TEXT_FORMATS[kind]
        if text.columns is not None:
            return None
        return text.fields(first_line(source.sample, source.name, text.quoted))
