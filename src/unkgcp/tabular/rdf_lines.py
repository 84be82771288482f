"""RDF text as columns of terms, and columns as RDF text: N-Triples, N-Quads and Turtle.

N-Triples and N-Quads are read by patterns for whole blocks of lines, without pyoxigraph: it knows RDF 1.2 only, where
`<< s p o >>` cannot begin a line of N-Triples, while most RDF-star files in the world have just that. Here both are
read: `<< s p o >> p v .` (RDF-star) and `r rdf:reifies <<( s p o )>> .` (RDF 1.2). Turtle is parsed by pyoxigraph
(extra `rdf`), which writes the triples of some lines as N-Triples, so that what comes after is the same for all.

What a statement means is known by `unkgcp.tabular.rdf_statements`. `RdfWriter`, below, writes rows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any, NamedTuple, cast
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.errors import InputError, at, missing
from unkgcp.tabular.arrow_arrays import Malformed, content
from unkgcp.tabular.columns import NQUADS, NTRIPLES, ROLES
from unkgcp.tabular.rdf_terms import BLANK, IRI, LITERAL, Prefixes
from unkgcp.tabular.source import Source

QUADS = 1 << 16  # of Turtle that are written as N-Triples at a time

_ = r"[ \t]*"
_NODE = f"(?:{IRI}|{BLANK})"
_VALUE = f"(?:{IRI}|{BLANK}|{LITERAL})"
_END = rf"{_}\.{_}(?:#[^\n]*)?\r?\n?$"
_NOTHING = rf"^{_}(?:#[^\n]*)?\r?\n?$"
# Terms of a line that is known to be right, with one blank between them: far quicker than the exact patterns.
_ONE_NODE = r'(?:<[^>]*>|_:[^ \t<>"]+)'
_ONE_IRI = "<[^>]*>"
_ONE_VALUE = r'(?:<[^>]*>|_:[^ \t<>"]+|"(?:[^"\\]|\\.)*"(?:\^\^<[^>]*>|@[A-Za-z0-9-]+)?)'


class Form(NamedTuple):
    """What a line may look like: which lines do, and what stands in them, quickly for most and exactly for all."""

    whole: str
    quick: str
    exact: str


def _form(template: str, fields: str, graph: bool) -> Form:
    """`template` has a letter for each term, those of `fields` are handed on; n is a node, i an IRI, v any term."""
    exact_terms = {"n": _NODE, "i": IRI, "v": _VALUE}
    quick_terms = {"n": _ONE_NODE, "i": _ONE_IRI, "v": _ONE_VALUE}
    parts = template.split(" ")

    def pattern(terms: dict[str, str], names: bool, between: str) -> str:
        found, left = [], list(fields)
        for part in parts:
            if part not in terms:
                found.append(re.escape(part))
            else:
                found.append(f"(?P<{left.pop(0)}>{terms[part]})" if names else terms[part])
        return between.join(found)

    named = f"(?:{_}{_NODE})?" if graph else ""
    return Form(
        f"^{_}{pattern(exact_terms, False, _)}{named}{_END}",
        rf"^{pattern(quick_terms, True, ' ')}{f'(?: {_ONE_NODE})?' if graph else ''} \.\r?\n?$",
        f"^{_}{pattern(exact_terms, True, _)}{named}{_END}",
    )


_FORMS = {
    quads: {
        "plain": _form("n i v", "spo", quads),
        "quoted": _form("<< n i v >> i v", "spocv", quads),
        "reifying": _form("n i <<( n i v )>>", "rcspo", quads),
    }
    for quads in (False, True)
}
# RDF-star allows a quoted statement as the object, which a graph of triples cannot hold.
_QUOTED_OBJECT = rf"^{_}{_NODE}{_}{IRI}{_}<<{_}{_NODE}{_}{IRI}{_}{_VALUE}{_}>>{_END}"


class Lines(NamedTuple):
    """The statements of a block, each kind with its terms (s, p, o; c and v of a quoted statement; r and c of one that
    is given a name r) as N-Triples spells them, and the number of its line in the block, from 0.
    """

    plain: pa.Table
    quoted: pa.Table
    reifying: pa.Table
    size: int


def parse(block: pa.Buffer, kind: str) -> Lines:
    """The statements of whole lines; `Malformed` if one is none."""
    lines = lines_of(block)
    numbers = np.flatnonzero(np.asarray(pc.invert(pc.match_substring_regex(lines, _NOTHING))))
    left, found = lines.take(pa.array(numbers)), {}
    # most files hold lines of one form only, so those that were found are not looked at again
    forms = _FORMS[kind == NQUADS]
    for name in sorted(forms, key=lambda name: name != "quoted") if _begins_quoted(left) else forms:
        mask = pc.match_substring_regex(left, forms[name].whole)
        rows = np.asarray(mask)
        found[name] = _terms(left.filter(mask), numbers[rows], forms[name])
        left, numbers = left.filter(pc.invert(mask)), numbers[~rows]
    if len(left):
        raise Malformed
    return Lines(found["plain"], found["quoted"], found["reifying"], len(lines))


def _begins_quoted(lines: pa.Array) -> bool:
    return bool(len(lines)) and lines[0].as_py().lstrip().startswith("<<")


def _terms(chosen: pa.Array, numbers: NDArray[np.intp], form: Form) -> pa.Table:
    terms = pc.extract_regex(chosen, form.quick)
    if terms.null_count:
        exact = pc.extract_regex(chosen.filter(terms.is_null()), form.exact)
        rows = np.asarray(terms.is_null())
        order = np.where(rows, len(terms) + np.cumsum(rows) - 1, np.arange(len(terms)))
        terms = pa.concat_arrays([terms, exact]).take(pa.array(order))
    table = (
        pa.Table.from_struct_array(terms)
        if len(terms)
        else pa.table({field.name: pa.array([], pa.string()) for field in terms.type})
    )
    return table.append_column("line", pa.array(numbers, pa.int64()))


def lines_of(block: pa.Buffer) -> pa.StringArray:
    """Each line of a block with its end; `Malformed` if they are not valid UTF-8."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    if not len(ends) or ends[-1] < len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    lines = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), block])
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        raise Malformed from None


def is_statement(line: str, kind: str) -> bool:
    """Whether a line is a statement, slowly."""
    return any(re.search(form.whole, line) for form in _FORMS[kind == NQUADS].values())


def objection(block: pa.Buffer, kind: str) -> tuple[int, str]:
    """The first line of a block that is no statement, from 0, and what is wrong with it as the end of a sentence."""
    lines = block.to_pybytes().split(b"\n")
    for number, raw in enumerate(lines):
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            return number, "is not valid UTF-8: save the file as UTF-8 or correct the line"
        if re.search(_NOTHING, line) or is_statement(line, kind):
            continue
        shown = repr(line.strip() if len(line.strip()) <= 80 else line.strip()[:77] + "...")
        name = "N-Quads" if kind == NQUADS else "N-Triples"
        if re.search(_QUOTED_OBJECT, line):
            return (
                number,
                f"has a statement as its object ({shown}): remove it, only a subject can be one here",
            )
        if kind == NTRIPLES and is_statement(line, NQUADS):
            return number, "names a graph, which N-Triples does not: give --format nquads"
        if not re.search(r"\.\s*(?:#.*)?$", line):
            return (
                number,
                f"does not end in a dot ({shown}): correct it, or give --format turtle if it is Turtle",
            )
        return (
            number,
            f"is no statement of {name} ({shown}): correct it, or give --format turtle if it is Turtle",
        )
    return 0, "cannot be read: correct it"


# Turtle.


def turtle_blocks(source: Source) -> Iterator[pa.Buffer]:
    """The triples of a Turtle file as blocks of N-Triples."""
    try:
        from pyoxigraph import RdfFormat, parse, serialize
    except ModuleNotFoundError as error:
        raise missing(error) from None
    renamed = _Renamed()
    try:
        triples = parse(cast(IO[bytes], _Reader(source)), format=RdfFormat.TURTLE)
        while some := list(islice(triples, QUADS)):
            text = serialize((quad.triple for quad in some), format=RdfFormat.N_TRIPLES)
            yield pa.py_buffer(renamed(text or b""))
    except SyntaxError as error:
        reason = re.sub(r"^Parser error at line [^:]*: ", "", error.msg)
        raise InputError(
            f"{at(source.name, error.lineno)} is no Turtle ({reason.rstrip('.')}): correct it"
        ) from None


class _Reader(io.RawIOBase):
    """A source as a file for pyoxigraph."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = bytearray(size if size > 0 else 1 << 16)
        return bytes(found[: self._source.readinto(memoryview(found))])


class _Renamed:
    """Blank nodes without a name get a random one from pyoxigraph; here they are counted, so that the same file gives
    the same labels. Names of the file that look like ours are counted with them, so that no two nodes become one.
    """

    _RANDOM = re.compile(rb'("(?:[^"\\\n]|\\.)*")|_:([0-9a-f]{28,32}|unnamed\d+)(?![\w.-]*\w)')

    def __init__(self) -> None:
        self._names: dict[bytes, bytes] = {}

    def __call__(self, text: bytes) -> bytes:
        return self._RANDOM.sub(self._name, text)

    def _name(self, match: re.Match[bytes]) -> bytes:
        if match[1] is not None:
            return match[0]  # a literal that looks like a node
        return self._names.setdefault(match[2], b"_:unnamed%d" % len(self._names))


# Writing. Columns beside head, relation and tail are said of the triple, which is quoted, not asserted:
#
#     turtle          << s p o >> u:score "0.8"^^xsd:double ; u:status "ok" .      Turtle-star, and Turtle of RDF 1.2
#     ntriples        _:unkgcp-row-0 rdf:reifies <<( s p o )>> .  _:unkgcp-row-0 u:score "0.8"^^xsd:double .     RDF 1.2
#     ntriples-star   << s p o >> u:score "0.8"^^xsd:double .                      for stores that know RDF-star only
#
# `u:` is `urn:unkgcp:column:`. Labels become terms by `unkgcp.tabular.rdf_terms`. Numbers are written with all their
# digits, so that they are read back bit by bit; what is null is left out. Whole columns are written at once, as by the
# writer of delimited text (`unkgcp.tabular.writer`).


COLUMN = "urn:unkgcp:column:"
XSD = "http://www.w3.org/2001/XMLSchema#"
REIFIES = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies>"
ROW = "_:unkgcp-row-"
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


@dataclass(slots=True)
class RdfWriter:
    """Writes batches of one schema to a stream."""

    stream: IO[bytes]
    format: str
    prefixes: Prefixes = field(default_factory=Prefixes)
    rows: int = 0
    fresh: bool = True

    def __call__(self, batch: pa.RecordBatch) -> None:
        if self.fresh and self.format == "turtle":
            self.stream.write(f"@prefix u: <{COLUMN}> .\n@prefix xsd: <{XSD}> .\n".encode())
        self.fresh = False
        if not len(batch):
            return
        names = [name for name in batch.schema.names if name not in ROLES[:3]]
        said = [self._said(batch.column(name), name) for name in names]
        triple = self._triple(batch)
        if self.format == "turtle":
            about = _joined("<< ", triple, " >> ")
            text = _joined(about, _listed(said, " ; "), " .\n")
        elif self.format == "ntriples-star":
            about = _joined("<< ", triple, " >> ")
            text = _listed([_joined(about, column, " .\n") for column in said], "")
        else:
            number = pa.array(np.arange(self.rows, self.rows + len(batch))).cast(pa.large_string())
            node = _joined(f"{ROW}", number, " ")
            first = _joined(node, _joined(f"{REIFIES} <<( ", triple, " )>> .\n"), "")
            text = _listed([first, *(_joined(node, column, " .\n") for column in said)], "")
        self.rows += len(batch)
        self.stream.write(content(text).data)

    def _triple(self, batch: pa.RecordBatch) -> pa.Array:
        """Head, relation and tail of each row, as terms with a blank between them."""
        terms = []
        for role in ROLES[:3]:
            column = batch.column(role)
            coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            labels = coded.dictionary.cast(pa.string())
            found = self.prefixes.terms(labels, tails=role == "tail")
            nodes = pc.starts_with(found, ROW if role != "relation" else "_:")
            if nodes.true_count:
                label = labels.filter(nodes)[0].as_py()
                raise InputError(f"the label {label!r} cannot be written as a {role} of RDF: rename it")
            terms.append(found.cast(pa.large_string()).take(coded.indices))
        return pc.binary_join_element_wise(*terms, pa.scalar(" ", pa.large_string()))

    def _said(self, column: pa.Array, name: str) -> pa.Array:
        """A predicate and its object for each row, null where there is none."""
        kind = column.type
        short = self.format == "turtle"
        if pa.types.is_dictionary(kind):
            column, kind = column.dictionary_decode(), kind.value_type
        typed = next((name for test, name in _TYPES if test(kind)), None)
        if typed is None and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InputError(f"column {name!r} ({kind}) cannot be written as RDF; write Parquet")
        # a score has 32 bits: its shortest digits, read as a number of 64 bits, would give another number
        text = (column.cast(pa.float64()) if typed == "double" else column).cast(pa.large_string())
        if typed is None:
            for one, other in _ESCAPES:
                text = pc.replace_substring(text, one, other)
        plain = name.isascii() and name.isidentifier()
        predicate = f"u:{name}" if short and plain else f"<{COLUMN}{quote(name, safe='')}>"
        behind = "" if typed is None else f"^^xsd:{typed}" if short else f"^^<{XSD}{typed}>"
        return _joined(f'{predicate} "', text, f'"{behind}')


_TYPES = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "integer"),
    (pa.types.is_floating, "double"),
)


def _joined(*parts: Any) -> pa.Array:
    """Texts and columns of text end to end; null where a column is."""
    large = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*large, pa.scalar("", pa.large_string()))


def _listed(columns: list[pa.Array], between: str) -> pa.Array:
    """Columns of text in a row, without those that are null."""
    separator = pa.scalar(between, pa.large_string())
    return pc.binary_join_element_wise(*columns, separator, null_handling="skip")
