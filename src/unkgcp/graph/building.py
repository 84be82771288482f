"""Batches of facts made into a graph: labels become ids, columns grow, nothing else is kept.

Most labels of a batch are known already. Those are looked up by whichever thread parsed the batch, in a frozen
copy of the index; only the others wait for their turn in the order of the file. So ids follow the first
appearance of a label, row by row and head before tail, however many threads there are.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.graph.vocabulary import Vocabulary
from unkgcp.tabular.label_index import Ids, LabelIndex, binary
from unkgcp.tabular.layout import Batch, Malformed, acceptable
from unkgcp.tabular.plain_lines import Plain
from unkgcp.tabular.scaling import Scale

# The frozen copy is renewed when the index has grown by this share: often enough to be useful, and all copies
# together cost no more than a few of the last.
GROWTH = 1 / 16


@dataclass(slots=True)
class Prepared:
    """A batch with the ids of the entities that were known, and the others: once each, and where they stand.

    Relations are codes into the batch's own labels.
    """

    head: Ids
    tail: Ids
    unknown_heads: NDArray[np.intp]
    unknown_tails: NDArray[np.intp]
    unknown: pa.DictionaryArray
    relation: Ids
    relations: pa.BinaryArray
    confidence: NDArray[np.float64]


@dataclass(slots=True)
class PlainPrepared:
    """The same for facts that still stand in their block, whose entities are looked for when their turn comes."""

    facts: Plain
    relation: Ids
    relations: pa.BinaryArray


AnyPrepared = Prepared | PlainPrepared


class GraphBuilder:
    """Collects the facts of one file after the other over one vocabulary."""

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        self._given = vocabulary
        self._entities = LabelIndex(binary(vocabulary.entities) if vocabulary else None)
        self._relations = LabelIndex(binary(vocabulary.relations) if vocabulary else None)
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
        relation = facts.find_relations(known)
        rows = np.flatnonzero(relation < 0)
        others = facts.labels(facts.relations[rows]).dictionary_encode()
        relation[rows] = np.asarray(others.indices) + len(known)
        return PlainPrepared(facts, relation, pa.concat_arrays([binary(known.labels()), others.dictionary]))

    def add(self, prepared: AnyPrepared) -> None:
        """Take in the next batch of the file; raises `Malformed` if one of its labels will not do."""
        entities, relations = len(self._entities), len(self._relations)
        if isinstance(prepared, PlainPrepared):
            confidence = prepared.facts.confidence
            head, tail = prepared.facts.enter_entities(self._entities)
        else:
            confidence = prepared.confidence
            head, tail = self._enter(prepared)
        relation = self._relations.encode(prepared.relations)[prepared.relation]
        if not acceptable(self._entities.labels(entities)) or not acceptable(
            self._relations.labels(relations)
        ):
            raise Malformed
        self._pieces.append((head, relation, tail, confidence))
        if len(self._relations) > relations:
            self._known_relations = self._relations.frozen()

    def _enter(self, prepared: Prepared) -> tuple[Ids, Ids]:
        """Ids of heads and tails, those of new labels filled in."""
        head, tail, split = prepared.head, prepared.tail, len(prepared.unknown_heads)
        ids = self._entities.encode_distinct(prepared.unknown.dictionary)
        ids = ids[np.asarray(prepared.unknown.indices)]
        head[prepared.unknown_heads], tail[prepared.unknown_tails] = ids[:split], ids[split:]
        if len(self._entities) > len(self._known) * (1 + GROWTH):
            self._known = self._entities.frozen()
        return head, tail

    def columns(self) -> tuple[Ids, Ids, Ids, NDArray[np.float64]]:
        """The columns of all facts since the last call, confidences as they stand in the file."""
        pieces, self._pieces = self._pieces, []
        if not pieces:
            empty = np.empty(0, np.int32)
            return empty, empty, empty, np.empty(0, np.float64)
        with ThreadPoolExecutor() as executor:
            head, relation, tail, confidence = executor.map(np.concatenate, zip(*pieces, strict=True))
        return head, relation, tail, confidence

    def vocabulary(self) -> Vocabulary:
        """All labels so far; the given vocabulary itself if nothing was added to it."""
        given, size = self._given, (len(self._entities), len(self._relations))
        if given is not None and (len(given.entities), len(given.relations)) == size:
            return given
        return Vocabulary(_text(self._entities), _text(self._relations))


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
