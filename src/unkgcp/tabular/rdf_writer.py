"""Rows of head, relation, tail and more as RDF: further columns are said of the triple, which is quoted, not asserted.

    turtle          << s p o >> u:score "0.8"^^xsd:double ; u:status "ok" .      Turtle-star, and Turtle of RDF 1.2
    ntriples        _:unkgcp-row-0 rdf:reifies <<( s p o )>> .  _:unkgcp-row-0 u:score "0.8"^^xsd:double .     RDF 1.2
    ntriples-star   << s p o >> u:score "0.8"^^xsd:double .                      for stores that know RDF-star only

The same row always says the same. Labels become terms as `unkgcp.tabular.rdf_terms` has it; `u:` is
`urn:unkgcp:column:`. Numbers are written with all their digits, so that they are read back bit by bit; what is null is
not said. It works on whole columns, as the writer of delimited text does (`unkgcp.tabular.writer`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.errors import InputError
from unkgcp.tabular.columns import ROLES
from unkgcp.tabular.rdf_terms import Prefixes

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
        self.stream.write(_content(text))

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
        # a score has 32 bits, and its shortest digits are those of another number of 64 bits
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


def _content(text: pa.Array) -> memoryview:
    """The bytes of all rows, which lie end to end in one buffer."""
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int64)
    return memoryview(data)[ends[text.offset] : ends[text.offset + len(text)]]
