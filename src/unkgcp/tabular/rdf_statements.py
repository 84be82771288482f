"""Which statements of an RDF file are facts, and with which confidence.

An RDF file gives a statement its confidence in one of three ways:

    << s p o >> ex:confidence 0.9 .                          RDF-star; in Turtle also  s p o {| ex:confidence 0.9 |} .
    r rdf:reifies <<( s p o )>> .  r ex:confidence 0.9 .     RDF 1.2, which the two above are short for in Turtle
    r rdf:subject s ; rdf:predicate p ; rdf:object o ; ex:confidence 0.9 .                  a reified statement

Each such annotation is a fact, also where the same statement has several. The statement by itself, where the file has
it too, adds nothing. A statement without a confidence is an error, is left out, or has the default, as the caller says.
Other annotations of r and the names of graphs in N-Quads are ignored.

Lines about one r need not stand together, but memory holds those that are not yet complete. Unless statements without a
confidence are left out, it also holds the ids of all statements that the file has by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.errors import InputError, at
from unkgcp.tabular.arrow_arrays import Batch, Batches, Malformed, acceptable, binary, one_array
from unkgcp.tabular.columns import NTRIPLES, ROLES, TURTLE, WORDS, Request, Scale
from unkgcp.tabular.delimited import Block, blocks_of, in_turn, line_of_first
from unkgcp.tabular.label_index import LabelIndex
from unkgcp.tabular.rdf_text import Lines, Prefixes, objection, parse, turtle_blocks
from unkgcp.tabular.source import Source

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
SUBJECT, PREDICATE, OBJECT, TYPE, REIFIES, CONFIDENCE = range(6)
_NAMES = ("subject", "predicate", "object", "type", "reifies")
_CONFIDENCE = rf"(?i)(?:^|[#/:])(?:has)?(?:{'|'.join(sorted(WORDS['confidence']))})(?:value|score|level)?>?$"
_NUMBER = r'^"[ ]*(?P<number>[^"]*?)[ ]*"(?:\^\^<http://www\.w3\.org/2001/XMLSchema#[A-Za-z]+>)?$'

T = TypeVar("T")

# Tables below have columns of labels, s, p and o of statements, and the number of the `line`. Facts also have `by` and
# `value`, the predicate and the literal of their confidence. Pieces, the lines about some r, also have this `node` and
# one of the roles above: what the line says about it.
_STATEMENT = pa.schema([("s", pa.string()), ("p", pa.string()), ("o", pa.string()), ("line", pa.int64())])
_FACT = pa.schema([*_STATEMENT, ("by", pa.string()), ("value", pa.string())])
_PIECE = pa.schema([*_STATEMENT, ("node", pa.string()), ("role", pa.int8())])


class Sorted(NamedTuple):
    """The lines of a block by what they say: facts, statements (quoted ones too) without a confidence, and pieces."""

    facts: pa.Table
    statements: pa.Table
    pieces: pa.Table
    size: int


class RdfFile:
    """An open RDF file, read once: either its facts or its triples."""

    def __init__(self, source: Source, kind: str, request: Request) -> None:
        self.name, self.statements = source.name, 0
        self._source, self._kind = source, kind
        self._lines = kind != TURTLE
        self._default, self._keeps = request.default_confidence, not request.skip_missing
        self._scale = request.scale or Scale()
        self.prefixes = Prefixes(request.prefixes)
        terms = pa.array([f"<{RDF}{name}>" for name in (*_NAMES, "Statement")])
        *words, self._class = self.prefixes.labels(terms).to_pylist()
        self._roles = {word: role for role, word in enumerate(words)}
        self._reifies = words[REIFIES]
        self._predicates = None
        if request.confidence_predicates is not None:  # given as IRIs or as labels
            given = pa.array(request.confidence_predicates, pa.string())
            self._predicates = self.prefixes.labels(self.prefixes.terms(given, tails=False))
        self._by: str | None = None
        self._pending = _PIECE.empty_table()
        self._reifiers = LabelIndex()

    # reading

    def facts(self, then: Callable[[Batch], T], aside: Callable[[Batch], None]) -> Batches[T]:
        """What `then` makes of each batch of facts, as in `text_batches`; statements without one go to `aside`."""
        for found in self._sorted():
            joined = self._join(found.pieces)
            yield from self._handed_on(_in_lines([found.facts, joined]), then)
            if self._keeps:
                aside(_batch(found.statements, 0.0))
        if self._keeps:
            aside(_batch(self._left(), 0.0))

    def _handed_on(self, facts: pa.Table, then: Callable[[Batch], T]) -> Batches[T]:
        if not len(facts):
            return
        self._check_predicate(facts)
        error = partial(self._error, facts)
        try:
            result = then(_batch(facts, _numbers(facts["value"])))
        except Malformed:
            raise error() from None
        yield result, error

    def triples(self) -> Iterator[pa.RecordBatch]:
        """The statements of a file of queries, quoted ones too, columns head, relation and tail.

        A statement whose lines stand together counts once.
        """
        last = None
        for found in self._sorted():
            whole = self._join(found.pieces, with_confidence=False)
            table = _in_lines([found.facts.select(_STATEMENT.names), found.statements, whole])
            table = table.filter(pa.array(self._reifiers.find(binary(table["s"])) < 0))
            rows = [one_array(table[name]) for name in "spo"]
            fresh = np.zeros(len(table), np.bool_)
            for column in rows:
                fresh[1:] |= np.asarray(pc.not_equal(column[1:], column[:-1]))
            if len(table):
                first = [column[0].as_py() for column in rows]
                fresh[0] = first != last
                last = [column[-1].as_py() for column in rows]
            if not all(acceptable(binary(column)) for column in rows):
                raise self._error(table)
            yield pa.record_batch([column.filter(pa.array(fresh)) for column in rows], names=list(ROLES[:3]))

    def _sorted(self) -> Iterator[Sorted]:
        """The lines of each block; what is wrong with one is said in a sentence."""
        if self._lines:
            blocks, line = blocks_of(self._source, quoted=False), line_of_first(self._source)
        else:
            text = turtle_blocks(self._source)
            blocks, line = (Block(np.frombuffer(some, np.uint8), 0, len(some)) for some in text), 1

        def work(block: Block, first: bool) -> Sorted:
            return self._sort(parse(block.arrow(), self._kind if self._lines else NTRIPLES))

        for block, sorted_ in in_turn(self._source, blocks, work):
            try:
                found = sorted_()
            except Malformed:
                number, wrong = objection(block.arrow(), self._kind)
                raise InputError(f"{at(self.name, line + number)} {wrong}") from None
            self.statements += len(found.facts) + len(found.statements) + len(found.pieces)
            facts, statements, pieces = (_shifted(table, line) for table in found[:3])
            yield Sorted(facts, statements, pieces, found.size)
            line += found.size

    def _sort(self, lines: Lines) -> Sorted:
        """Facts, statements and pieces of a block, with labels in the place of terms. Any thread may do this."""
        plain, quoted, reifying = (self._labelled(table) for table in lines[:3])
        says = self._tells(quoted["c"])
        facts = quoted.filter(says).rename_columns(["s", "p", "o", "by", "value", "line"])
        if pc.any(pc.not_equal(reifying["c"], self._reifies)).as_py():
            raise Malformed
        role = np.full(len(plain), -1, np.int8)
        for name, number in self._roles.items():
            role[np.asarray(pc.equal(plain["p"], name))] = number
        role[(role == TYPE) & ~np.asarray(pc.equal(plain["o"], self._class))] = -1
        role[np.asarray(self._tells(plain["p"]))] = CONFIDENCE
        described = plain.append_column("node", plain["s"]).append_column("role", pa.array(role))
        named = reifying.append_column("node", reifying["r"])
        named = named.append_column("role", pa.array(np.full(len(named), REIFIES, np.int8)))
        return Sorted(
            facts.select(_FACT.names).cast(_FACT),
            pa.concat_tables(
                [
                    plain.filter(pa.array(role < 0)).select(_STATEMENT.names).cast(_STATEMENT),
                    quoted.filter(pc.invert(says)).select(_STATEMENT.names).cast(_STATEMENT),
                ]
            ),
            pa.concat_tables(
                [
                    described.filter(pa.array(role >= 0)).select(_PIECE.names).cast(_PIECE),
                    named.select(_PIECE.names).cast(_PIECE),
                ]
            ),
            lines.size,
        )

    def _labelled(self, table: pa.Table) -> pa.Table:
        columns = {
            name: table[name] if name == "line" else self.prefixes.labels(one_array(table[name]))
            for name in table.column_names
        }
        return pa.table(columns)

    def _tells(self, predicates: pa.ChunkedArray) -> pa.Array:
        """Which of the predicates tell a confidence."""
        coded = one_array(predicates).dictionary_encode()
        if self._predicates is not None:
            tells = pc.is_in(coded.dictionary, self._predicates)
        else:
            tells = pc.match_substring_regex(coded.dictionary, _CONFIDENCE)
        return tells.take(coded.indices)

    # putting together what several lines say

    def _join(self, new: pa.Table, with_confidence: bool = True) -> pa.Table:
        """The facts that are complete with these pieces; the others are kept for those to come."""
        pieces = pa.concat_tables([self._pending, new]).combine_chunks()
        if not len(pieces):
            return (_FACT if with_confidence else _STATEMENT).empty_table()
        node = one_array(pieces["node"]).dictionary_encode()
        code, role = np.asarray(node.indices), np.asarray(pieces["role"])
        n = len(node.dictionary)
        reifier = np.zeros(n, np.bool_)
        reifier[code[role != CONFIDENCE]] = True
        if self._keeps or not with_confidence:  # only then `is_reifier` or `triples` asks for them
            self._reifiers.encode(binary(node.dictionary.filter(pa.array(reifier))))
        whole = self._whole(pieces, code, role, n)
        if not with_confidence:
            plain = (role == CONFIDENCE) & ~reifier[code]
            spoken = whole[0][code]
            self._pending = pieces.filter(pa.array(~spoken & (role != CONFIDENCE) & (role != REIFIES)))
            return pa.concat_tables([whole[1].select(_STATEMENT.names), _statements(pieces, plain)])
        told = self._single(pieces, code, role, CONFIDENCE, n, "value")
        of = np.asarray(whole[1]["code"])
        complete = told[of] >= 0
        rows = pieces.take(pa.array(told[of[complete]]))
        facts = whole[1].filter(pa.array(complete)).select(["s", "p", "o"])
        for name, source in (("line", "line"), ("by", "p"), ("value", "o")):
            facts = facts.append_column(name, rows[source])
        done = np.zeros(n, np.bool_)
        done[of[complete]] = True
        self._pending = pieces.filter(pa.array(~done[code]))
        return facts.cast(_FACT)

    def _whole(
        self, pieces: pa.Table, code: NDArray[np.int32], role: NDArray[np.int8], n: int
    ) -> tuple[NDArray[np.bool_], pa.Table]:
        """Which nodes stand for a statement, and all these statements with the code of their node."""
        direct = np.flatnonzero(role == REIFIES)
        parts = [
            self._single(pieces, code, role, number, n, _NAMES[number])
            for number in (SUBJECT, PREDICATE, OBJECT)
        ]
        described = np.flatnonzero(np.minimum.reduce(parts) >= 0)
        terms = [pieces["o"].take(pa.array(part[described])) for part in parts]
        one = pieces.take(pa.array(direct)).select(_STATEMENT.names)
        two = pa.table([*terms, pieces["line"].take(pa.array(parts[2][described]))], schema=_STATEMENT)
        of = np.concatenate([code[direct], described.astype(np.int32)])
        spoken = np.zeros(n, np.bool_)
        spoken[of] = True
        return spoken, pa.concat_tables([one, two]).append_column("code", pa.array(of))

    def _single(
        self,
        pieces: pa.Table,
        code: NDArray[np.int32],
        role: NDArray[np.int8],
        wanted: int,
        n: int,
        what: str,
    ) -> NDArray[np.int64]:
        """The row of each node in which this role is told, -1 where it is not; InputError if it is told in two ways."""
        rows = np.flatnonzero(role == wanted)
        place = np.full(n, -1, np.int64)
        place[code[rows[::-1]]] = rows[::-1]
        again = rows[place[code[rows]] != rows]
        if len(again):
            first = place[code[again]]
            same = pc.equal(pieces["o"].take(pa.array(again)), pieces["o"].take(pa.array(first)))
            if not pc.all(same).as_py():
                row = int(again[np.argmin(np.asarray(same))])
                which = "confidences" if wanted == CONFIDENCE else f"times rdf:{what}"
                place_of_row, node = self._where(pieces, row)
                raise InputError(
                    f"{place_of_row} has two {which} for the statement {node}: remove one of them, or choose with "
                    "--confidence-predicate"
                )
        return place

    def _left(self) -> pa.Table:
        """What is left at the end of the file: statements without a confidence."""
        pieces = self._pending.combine_chunks()
        if not len(pieces):
            return _STATEMENT.empty_table()
        node = one_array(pieces["node"]).dictionary_encode()
        code, role = np.asarray(node.indices), np.asarray(pieces["role"])
        spoken, whole = self._whole(pieces, code, role, len(node.dictionary))
        reifier = (self._reifiers.find(binary(node.dictionary)) >= 0)[code]
        late = np.flatnonzero(reifier & (role == CONFIDENCE))
        if len(late):
            place, node = self._where(pieces, int(late[0]))
            raise InputError(
                f"{place} has a second confidence for the statement {node}, or one without its statement: "
                "remove it or complete it"
            )
        cut = np.flatnonzero(reifier & ~spoken[code] & (role != TYPE))
        if len(cut):
            place, node = self._where(pieces, int(cut[0]))
            raise InputError(
                f"{place} describes the statement {node}, which lacks rdf:subject, rdf:predicate or rdf:object: "
                "complete it or remove it"
            )
        plain = _statements(pieces, (role == CONFIDENCE) & ~reifier)
        return pa.concat_tables([whole.select(_STATEMENT.names), plain])

    def is_reifier(self, labels: pa.Array) -> NDArray[np.bool_]:
        """Which labels are nodes that stand for a statement, so that what is said of them is an annotation."""
        found: NDArray[np.bool_] = self._reifiers.find(binary(labels)) >= 0
        return found

    # what is wrong

    def _check_predicate(self, facts: pa.Table) -> None:
        """One predicate tells the confidences of a file, unless the caller names several."""
        if self._predicates is not None:
            return
        for by in pc.unique(facts["by"]).to_pylist():
            self._by = self._by or by
            if by != self._by:
                raise InputError(
                    f"{self.name} has {self._by!r} and {by!r}, which may both tell the confidence: "
                    "choose with --confidence-predicate"
                )

    def _error(self, facts: pa.Table) -> InputError:
        """The first fact with a confidence or a label that will not do."""
        for row in facts.to_pylist():
            place = self._place(row["line"])
            shown = f"the statement {row['s']} {row['p']} {row['o']}"[:200]
            if "value" in row:
                try:
                    value = _numbers(pa.array([row["value"]]))[0].as_py()
                except Malformed:
                    return InputError(
                        f"{place} has {row['value'][:60]!r} as the confidence of {shown}, no number: correct it"
                    )
                if (wrong := self._scale.objection(value)) is not None:
                    return InputError(f"{place} {wrong.replace(':', f', for {shown}:', 1)}")
            if any("\0" in row[name] for name in "spo"):
                return InputError(f"{place} has a NUL byte in {shown!r}: remove it")
        return InputError(f"{self.name} has a label that will not do: correct it")

    def _where(self, pieces: pa.Table, row: int) -> tuple[str, str]:
        """The place of a piece in the file, and the node that it describes."""
        return self._place(pieces["line"][row].as_py()), pieces["node"][row].as_py()

    def _place(self, line: int) -> str:
        return at(self.name, line) if self._lines else self.name


def missing_confidence(name: str, statement: str, count: int, facts: int) -> InputError:
    """The error for `count` statements without confidence, of which `statement` is the first, beside `facts` facts."""
    if not facts:
        return InputError(
            f"{name} has no statement with a confidence (RDF-star, rdf:reifies or rdf:Statement): name the predicate "
            "of the confidence with --confidence-predicate, or give all of them one with --default-confidence"
        )
    others = f", nor have {count - 1} others" if count > 1 else ""
    return InputError(
        f"{name} has no confidence for the statement {statement[:200]}{others}: add it, leave such statements out with "
        "--skip-missing, or give them one with --default-confidence"
    )


def _batch(table: pa.Table, confidence: float | pa.Array) -> Batch:
    head, relation, tail = (binary(table[name]) for name in "spo")
    number = pa.array(np.full(len(table), confidence)) if isinstance(confidence, float) else confidence
    return Batch(head, relation.dictionary_encode(), tail, number)


def _numbers(values: pa.ChunkedArray | pa.Array) -> pa.DoubleArray:
    """The numbers of literals; `Malformed` if one is none."""
    found = pc.extract_regex(one_array(values), _NUMBER)
    if found.null_count:
        raise Malformed
    texts = pc.utf8_ltrim(found.field("number"), characters="+")
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        raise Malformed from None


def _statements(pieces: pa.Table, mask: NDArray[np.bool_]) -> pa.Table:
    return pieces.filter(pa.array(mask)).select(_STATEMENT.names)


def _in_lines(tables: Sequence[pa.Table]) -> pa.Table:
    """Several tables as one, in the order of the lines."""
    filled = [table for table in tables if len(table)]
    if len(filled) < 2:
        return filled[0] if filled else tables[0]
    whole = pa.concat_tables(filled)
    return whole.take(pa.array(np.argsort(np.asarray(whole["line"]), kind="stable")))


def _shifted(table: pa.Table, line: int) -> pa.Table:
    place = table.schema.get_field_index("line")
    return table.set_column(place, "line", pc.add(table["line"], line))
