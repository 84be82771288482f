"""Files of facts as columns of ids and confidences, with the labels behind the ids.

Most labels of a batch are known already. The thread that parsed the batch looks them up in a frozen copy of the index;
only new labels wait until it is their batch's turn in the order of the file. So ids follow the first appearance of a
label, row by row and head before tail, however many threads there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.tabular.arrow_arrays import Batch, Batches, Malformed, acceptable, binary
from unkgcp.tabular.columns import Request, Scale
from unkgcp.tabular.delimited import Block, text_batches
from unkgcp.tabular.formats import PARQUET, Layout, layout_of
from unkgcp.tabular.label_index import Ids, LabelIndex
from unkgcp.tabular.parquet import parquet_batches, table_batches
from unkgcp.tabular.source import Origin, Source

# The frozen copy is renewed when the index has grown by this share: often enough to be useful, and all copies
# together cost no more than a few of the last.
GROWTH = 1 / 16


@dataclass(slots=True)
class Prepared:
    """A batch with ids for the entities that were known. The others are in `unknown`, once each, first those of heads.

    Relations are codes into `relations`, the batch's own labels.
    """

    head: Ids
    tail: Ids
    unknown_heads: NDArray[np.intp]
    unknown_tails: NDArray[np.intp]
    unknown: pa.DictionaryArray
    relation: Ids
    relations: pa.BinaryArray
    confidence: NDArray[np.float64]

    def enter(self, index: LabelIndex) -> tuple[Ids, Ids]:
        """Ids of heads and tails; new labels are added to the index."""
        ids = index.encode_distinct(self.unknown.dictionary)[np.asarray(self.unknown.indices)]
        split = len(self.unknown_heads)
        self.head[self.unknown_heads], self.tail[self.unknown_tails] = ids[:split], ids[split:]
        return self.head, self.tail


@dataclass(slots=True)
class PlainPrepared:
    """The same for facts that are still text in their block; ids of heads and tails in turns, -1 for unknown ones."""

    facts: Plain
    entity: Ids
    relation: Ids
    relations: pa.BinaryArray

    @property
    def confidence(self) -> NDArray[np.float64]:
        return self.facts.confidence

    def enter(self, index: LabelIndex) -> tuple[Ids, Ids]:
        """Ids of heads and tails; new labels are added to the index."""
        unknown = np.flatnonzero(self.entity < 0)
        self.entity[unknown] = self.facts.enter(index, self.facts.entities[unknown])
        return self.entity[::2], self.entity[1::2]


AnyPrepared = Prepared | PlainPrepared
Labels = tuple[pa.StringArray, pa.StringArray]  # of entities and of relations
FactColumns = tuple[Ids, Ids, Ids, NDArray[np.float64]]  # head, relation, tail and confidence


def read_columns(
    paths: Mapping[str, Origin], request: Request, known: Labels | None = None
) -> tuple[dict[str, FactColumns], Labels]:
    """The columns of every part in the given order, and the labels that their ids stand for.

    `known` labels keep the ids they have there; new ones follow. A scale that was asked for sees all parts as one.
    """
    collector = Collector(known)
    columns: dict[str, FactColumns] = {}
    for part, path in paths.items():
        with Source(path) as source:
            layout = layout_of(source, request)
            scale = (request.scale or Scale()) if isinstance(layout, str) else layout.scale
            prepare: Callable[[Batch], AnyPrepared] = partial(collector.prepare, scale=scale)
            if layout == PARQUET:
                collector.add_all(parquet_batches(source, request, prepare))
            elif isinstance(layout, str):
                _add_rdf(collector, source, layout, request, prepare)
            else:
                collector.add_all(
                    text_batches(source, layout, prepare, plain_reader(collector, source, layout))
                )
            head, relation, tail, numbers = collector.columns()
            if not len(numbers):
                raise InputError(f"{source.name} holds no facts: give a file with at least one fact")
        columns[part] = head, relation, tail, numbers if request.scale else scale(numbers)
    if request.scale:
        scaled = request.scale.together([found[3] for found in columns.values()])
        columns = {
            part: (*found[:3], confidence)
            for (part, found), confidence in zip(columns.items(), scaled, strict=True)
        }
    return columns, collector.labels()


def _add_rdf(
    collector: Collector, source: Source, kind: str, request: Request, prepare: Callable[[Batch], AnyPrepared]
) -> None:
    """Collect the facts of an RDF file, and then its statements without a confidence if they have the default.

    Statements that stand in the file by themselves are collected apart: most of them turn out to be facts or
    annotations, whose labels must not get an id from here.
    """
    from unkgcp.tabular.rdf_statements import RdfFile, missing_confidence

    aside, file = Collector(), RdfFile(source, kind, request)
    collector.add_all(file.facts(prepare, lambda batch: aside.add(aside.prepare(batch, Scale()))))
    head, relation, tail, _ = aside.columns()
    entities, relations = (binary(column) for column in aside.labels())
    left = ~file.is_reifier(entities)[head] & ~collector.holds(entities, relations, (head, relation, tail))
    rows = np.flatnonzero(left)
    rows = rows[np.sort(np.unique(_keys(head[rows], relation[rows], tail[rows]), return_index=True)[1])]
    batch = Batch(
        entities.take(pa.array(head[rows])),
        relations.take(pa.array(relation[rows])).dictionary_encode(),
        entities.take(pa.array(tail[rows])),
        pa.array(np.full(len(rows), request.default_confidence or 0.0)),
    )
    if len(rows) and request.default_confidence is None:
        first = (batch.head[0], relations[int(relation[rows[0]])], batch.tail[0])
        statement = " ".join(label.as_py().decode() for label in first)
        raise missing_confidence(source.name, statement, len(rows), collector.waiting)
    if len(rows):
        collector.add(prepare(batch))
    elif file.statements and not collector.waiting:
        raise missing_confidence(source.name, "", 0, 0)


def _keys(head: Ids, relation: Ids, tail: Ids) -> NDArray[np.int64]:
    """A number for each triple, the same for the same ones and for no others: (n,)."""
    pair = np.unique(head.astype(np.int64) << 31 | relation, return_inverse=True)[1]
    keys: NDArray[np.int64] = pair.astype(np.int64) << 31 | tail
    return keys


def table_columns(table: pa.Table, name: str, request: Request) -> tuple[FactColumns, Labels]:
    """The columns of a table in memory, which errors call `name`, and the labels that their ids stand for."""
    collector, scale = Collector(), request.scale or Scale()
    collector.add_all(table_batches(table, name, request, partial(collector.prepare, scale=scale)))
    head, relation, tail, numbers = collector.columns()
    if not len(numbers):
        raise InputError(f"{name} holds no facts: give it at least one")
    return (head, relation, tail, scale(numbers)), collector.labels()


class Collector:
    """Collects the facts of one file after the other, with one numbering of their labels."""

    def __init__(self, known: Labels | None = None) -> None:
        entities, relations = known or (None, None)
        self._entities = LabelIndex(None if entities is None else binary(entities))
        self._relations = LabelIndex(None if relations is None else binary(relations))
        self._known = self._entities.frozen()
        self._known_relations = self._relations.frozen()
        self._pieces: list[tuple[NDArray[np.generic], ...]] = []

    def prepare(self, batch: Batch, scale: Scale) -> Prepared:
        """What can be done with a batch in any thread and order; raises `Malformed` for a bad confidence."""
        assert batch.confidence is not None
        confidence = np.asarray(batch.confidence)
        if batch.confidence.null_count or not scale.accepts(confidence):
            raise Malformed
        known = self._known
        head, tail = known.find(batch.head), known.find(batch.tail)
        heads, tails = np.flatnonzero(head < 0), np.flatnonzero(tail < 0)
        labels = batch.head.take(pa.array(heads)), batch.tail.take(pa.array(tails))
        relation, relations = np.asarray(batch.relation.indices), binary(batch.relation.dictionary)
        unknown = _row_by_row(heads, tails, *labels)
        return Prepared(head, tail, heads, tails, unknown, relation, relations, confidence)

    def prepare_plain(self, facts: Plain, scale: Scale) -> PlainPrepared:
        """The same for facts whose labels still stand in the block."""
        if not scale.accepts(facts.confidence):
            raise Malformed
        known = self._known_relations
        entity, relation = facts.find(self._known, facts.entities), facts.find(known, facts.relations)
        rows = np.flatnonzero(relation < 0)
        others = facts.labels(facts.relations[rows]).dictionary_encode()
        relation[rows] = np.asarray(others.indices) + len(known)
        return PlainPrepared(
            facts, entity, relation, pa.concat_arrays([binary(known.labels()), others.dictionary])
        )

    def add_all(self, batches: Batches[AnyPrepared]) -> None:
        """Take in the batches of a file; what is wrong with one of them is said in a sentence."""
        for prepared, error in batches:
            try:
                self.add(prepared)
            except Malformed:
                raise error() from None

    def add(self, prepared: AnyPrepared) -> None:
        """Take in the next batch of the file; raises `Malformed` if one of its labels will not do."""
        entities, relations = len(self._entities), len(self._relations)
        head, tail = prepared.enter(self._entities)
        relation = self._relations.encode(prepared.relations)[prepared.relation]
        if not acceptable(self._entities.labels(entities)) or not acceptable(
            self._relations.labels(relations)
        ):
            raise Malformed
        self._pieces.append((head, relation, tail, prepared.confidence))
        if len(self._relations) > relations:
            self._known_relations = self._relations.frozen()
        if len(self._entities) > len(self._known) * (1 + GROWTH):
            self._known = self._entities.frozen()

    @property
    def waiting(self) -> int:
        """How many facts there are since the last call of `columns`."""
        return sum(len(piece[0]) for piece in self._pieces)

    def holds(
        self, entities: pa.Array, relations: pa.Array, triples: tuple[Ids, Ids, Ids]
    ) -> NDArray[np.bool_]:
        """Which triples, with ids in these labels, are among the facts since the last call of `columns`: (n,)."""
        entity, relation = self._entities.find(entities), self._relations.find(relations)
        asked = entity[triples[0]], relation[triples[1]], entity[triples[2]]
        there, facts = np.minimum.reduce(asked) >= 0, self.waiting
        found = np.zeros(len(there), np.bool_)
        if facts and there.any():
            known = [np.concatenate(columns) for columns in zip(*self._pieces, strict=True)]
            both = [np.concatenate([known[place], asked[place][there]]) for place in range(3)]
            keys = _keys(both[0], both[1], both[2])
            found[there] = np.isin(keys[facts:], keys[:facts])
        return found

    def columns(self) -> FactColumns:
        """The columns of all facts since the last call, confidences as they stand in the file."""
        pieces, self._pieces = self._pieces, []
        if not pieces:
            empty = np.empty(0, np.int32)
            return empty, empty, empty, np.empty(0, np.float64)
        with ThreadPoolExecutor() as executor:
            head, relation, tail, confidence = executor.map(np.concatenate, zip(*pieces, strict=True))
        return head, relation, tail, confidence

    def labels(self) -> Labels:
        """All labels so far."""
        return _text(self._entities), _text(self._relations)


def _row_by_row(
    heads: NDArray[np.intp], tails: NDArray[np.intp], head_labels: pa.Array, tail_labels: pa.Array
) -> pa.DictionaryArray:
    """The labels of these heads and then of these tails, distinct ones in the order of the rows, head before tail."""
    labels = pa.concat_arrays([head_labels, tail_labels])
    order = np.argsort(np.concatenate([2 * heads, 2 * tails + 1]), kind="stable")
    encoded = labels.take(pa.array(order)).dictionary_encode()
    indices = np.empty(len(order), np.int32)
    indices[order] = encoded.indices
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary)


def _text(index: LabelIndex) -> pa.StringArray:
    text = index.labels().cast(pa.large_string())
    # offsets of 64 bits are needed only by vocabularies of more than 2 GiB
    return text.cast(pa.string()) if text.nbytes < 2**31 else text


# Large files of plain lines: compiled code finds the fields without copying the text. A block is read this way only if
# all its lines are plain: no quotation, no NUL byte, no empty line, no label of 64 bytes or more. Any other block is
# left to Arrow (`delimited`). The facts are the same either way.

# Bytes of a file. Smaller ones are read by Arrow before numba would have been loaded.
LARGE = 128 << 20


@dataclass(frozen=True, slots=True)
class Plain:
    """Facts of a block: begin and end of their heads and tails in turns (2 n, 2) and of their relations (n, 2), and
    their confidences (n,)."""

    kernels: Any
    data: NDArray[np.uint8]
    entities: NDArray[np.int32]
    relations: NDArray[np.int32]
    confidence: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.relations)

    def find(self, index: LabelIndex, spans: NDArray[np.int32]) -> Ids:
        """Ids of the labels in the spans (m, 2), -1 for those the index does not know."""
        if not len(index) or not index.settled_by_words:
            return np.full(len(spans), -1, np.int32)
        return index.search(self.kernels, self.data, spans)

    def enter(self, index: LabelIndex, spans: NDArray[np.int32]) -> Ids:
        """The same; labels the index did not know are added to it in their order."""
        if index.settled_by_words:
            return index.search(self.kernels, self.data, spans, add=True)
        return index.encode(self.labels(spans))

    def labels(self, spans: NDArray[np.int32]) -> pa.BinaryArray:
        """What stands in the spans (m, 2) of the block."""
        offsets = np.zeros(len(spans) + 1, np.int32)
        np.cumsum(spans[:, 1] - spans[:, 0], out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        self.kernels.gather(self.data, spans, offsets, data)
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(spans), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )


def plain_reader(
    collector: Collector, source: Source, layout: Layout
) -> Callable[[Block, bool], tuple[AnyPrepared, int] | None] | None:
    """What reads the blocks of a large file of plain lines, None for other files and where numba is not there."""
    simple = (
        not layout.format.quoted
        and layout.format.numbers is None
        and None not in (layout.relation, layout.confidence)
        and layout.keep is None
        and not layout.skip_missing
        and layout.default is None
    )
    if not simple or source.path is None or source.gzip or source.path.stat().st_size < LARGE:
        return None
    try:
        from unkgcp.tabular import label_kernels as kernels
    except ImportError:
        return None
    if layout.width > kernels.WIDEST:
        return None
    places = np.array([layout.head, layout.tail, layout.relation, layout.confidence], np.int64)
    delimiter = ord(layout.format.delimiter)

    def read(block: Block, skip: bool) -> tuple[AnyPrepared, int] | None:
        facts = _read_plain(kernels, block, skip, delimiter, layout.width, places)
        return None if facts is None else (collector.prepare_plain(facts, layout.scale), len(facts) + skip)

    return read


def _read_plain(
    kernels: Any, block: Block, skip: bool, delimiter: int, width: int, places: NDArray[np.int64]
) -> Plain | None:
    begin = block.begin
    if skip:
        begin += block.data[begin : block.end].tobytes().find(b"\n") + 1
    most = len(block) // width + 1  # a line has at least one byte a field
    entities, relations = np.empty((2 * most, 2), np.int32), np.empty((most, 2), np.int32)
    confidence, unread = np.empty(most), np.empty((most, 3), np.int32)
    rows, left = kernels.cut(
        block.data, begin, block.end, delimiter, width, places, entities, relations, confidence, unread
    )
    if rows < 0:
        return None
    found = Plain(kernels, block.data, entities[: 2 * rows], relations[:rows], confidence[:rows].copy())
    return found if not left or _read_by_arrow(found, unread[:left]) else None


def _read_by_arrow(found: Plain, unread: NDArray[np.int32]) -> bool:
    """Fill in the numbers that are not plain decimals; False if one is no finite number."""
    text = found.labels(np.ascontiguousarray(unread[:, 1:]))
    try:
        numbers = np.asarray(pc.cast(text.view(pa.string()), pa.float64()))
    except pa.ArrowInvalid:
        return False
    found.confidence[unread[:, 0]] = numbers
    return bool(np.isfinite(numbers).all())
