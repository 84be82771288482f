"""The facts a model was trained on, kept with it: compact and sorted.

The facts of an entity are found without a search through all facts. Since facts are sorted by head, relation and tail,
a fact is stored as its relation, its tail and the number of its confidence among the distinct ones, each in as few
bytes as possible (NL27k: 6 in all), and a head as the row where its facts begin. `graph` makes a `Graph` of them.

>>> columns = np.array([[0, 0], [0, 0], [1, 0]], np.int32)
>>> known = KnownFacts.of(Graph(*columns, np.array([0.9, 0.5]), Vocabulary.of(["a", "b"], ["likes"])))
>>> known.tails(0, 0).tolist(), known.heads(0, 1).tolist()
([0, 1], [0])
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.files import Field, check_fields
from unkgcp.graph.facts import Graph, HasTriples, Vocabulary, contained, hold_out, in_vocabulary, pair_keys
from unkgcp.loops import places_in
from unkgcp.tabular.label_index import Ids

Integers = NDArray[np.integer[Any]]
PIECE = 1 << 18
RANKED, WAITING = "ranked.", "waiting."
"""How names of arrays begin in a run: of calibration facts, and of facts held out that set no threshold."""


COLUMNS = (
    Field("offsets", np.unsignedinteger, ("entities+1",), rising=True),
    Field("relation", np.unsignedinteger, ("facts",), high="relations"),
    Field("tail", np.unsignedinteger, ("facts",), high="entities"),
    Field("values", np.float64, ("values",), 0, 1),
    Field("code", np.unsignedinteger, ("facts",), high="values"),
)


@dataclass(frozen=True, eq=False)
class KnownFacts:
    """Training facts, sorted by head, relation and tail; those of head h are rows offsets[h] to offsets[h + 1]."""

    offsets: Integers
    relation: Integers
    tail: Integers
    code: Integers
    values: NDArray[np.float64]

    @classmethod
    def of(cls, facts: Graph) -> KnownFacts:
        order = np.argsort(facts.keys, kind="stable")
        values = distinct(facts.confidence)
        code = places_among(values, facts.confidence[order], np.min_scalar_type(max(len(values) - 1, 0)))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(facts.head, minlength=facts.n_entities))])
        return cls(_small(offsets), _small(facts.relation[order]), _small(facts.tail[order]), code, values)

    @classmethod
    def stored(cls, arrays: Mapping[str, NDArray[Any]], entities: int, relations: int) -> KnownFacts:
        """The facts that `arrays` gave; ValueError if they are not facts over so many entities and relations."""
        sizes = check_fields(arrays, COLUMNS, entities=entities, relations=relations)
        facts = cls(**arrays)
        if facts.offsets[0] != 0 or facts.offsets[-1] != sizes["facts"]:
            raise ValueError("the heads do not add up to the facts")
        return facts

    def __len__(self) -> int:
        return len(self.tail)

    def tails(self, head: int, relation: int) -> Ids:
        """The tails of (head, relation, ?), sorted; the tail of a repeated fact is repeated."""
        start, stop = self.offsets[head : head + 2].tolist()
        return np.asarray(self.tail[start:stop][self.relation[start:stop] == relation], np.int32)

    def heads(self, relation: int, tail: int) -> Ids:
        """The heads of (?, relation, tail), sorted."""
        order, offsets = self._tails_first
        rows = np.sort(order[offsets[tail] : offsets[tail + 1]])
        rows = rows[self.relation[rows] == relation]
        return np.asarray(np.searchsorted(self.offsets, rows, side="right") - 1, np.int32)

    def graph(self, vocabulary: Vocabulary) -> Graph:
        """All facts, in their order."""
        head = np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), np.diff(self.offsets))
        relation, tail = self.relation.astype(np.int32), self.tail.astype(np.int32)
        return Graph(head, relation, tail, self.values[self.code], vocabulary)

    @cached_property
    def _tails_first(self) -> tuple[Integers, Integers]:
        """Rows sorted by tail, and where those of each tail begin; made when first needed."""
        tail = self.tail
        counts = np.bincount(tail, minlength=len(self.offsets) - 1)
        return np.argsort(tail, kind="stable"), np.concatenate([[0], np.cumsum(counts)])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The columns by name, for saving."""
        return {field.name: getattr(self, field.name) for field in COLUMNS}


def facts_to_arrays(sets: Mapping[str, Graph | None]) -> dict[str, NDArray[Any]]:
    """Several sets of facts as arrays of a calibration, whose names begin with the name of the set.

    The order inside the arrays follows from the facts alone.
    """
    stored = {
        prefix: KnownFacts.of(facts[np.argsort(facts.confidence, kind="stable")])
        for prefix, facts in sets.items()
        if facts is not None
    }
    return {
        prefix + name: array for prefix, known in stored.items() for name, array in known.arrays().items()
    }


def distinct(confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """All different confidences in ascending order; found piece by piece, since even a large graph has few."""
    return np.unique(
        np.concatenate([np.zeros(0), *(np.unique(confidence[rows]) for rows in pieces(len(confidence)))])
    )


def places_among(values: NDArray[np.float64], confidence: NDArray[np.float64], kind: Any) -> Integers:
    """The place of each confidence in ascending values that hold them all: (n,) integers of the given kind."""
    out: Integers = np.empty(len(confidence), kind)
    for rows in pieces(len(out)):
        out[rows] = places_in(values, confidence[rows])
    return out


def pieces(n: int) -> Iterator[slice]:
    """Consecutive pieces of n rows: working on one at a time takes little memory beside a graph."""
    for start in range(0, n, PIECE):
        yield slice(start, min(start + PIECE, n))


def _small(numbers: Integers) -> Integers:
    """The same numbers, none negative, in as few bytes as the largest needs."""
    return np.asarray(numbers.astype(np.min_scalar_type(int(numbers.max(initial=0)))))


# Questions about all training facts at once.


def degrees(facts: HasTriples, entities: int) -> NDArray[np.int64]:
    """The number of facts with each entity as head, as tail or as both: (entities,)."""
    other = facts.tail[facts.tail != facts.head]  # a self-loop counts once
    return np.bincount(np.concatenate([facts.head, other]), minlength=entities).astype(np.int64)


def degree_of(triples: HasTriples, degree: NDArray[np.int64]) -> NDArray[np.int64]:
    """The degree of each triple of known entities, which is the smaller of its head's and its tail's: (n,)."""
    return np.minimum(degree[triples.head], degree[triples.tail])


def hold_out_known(facts: Graph, fraction: float) -> tuple[Graph, Graph]:
    """(rest, held out): a random slice whose entities and relations all keep at least one fact in the rest.

    A plain random slice would take the only fact of many rare entities; the model would never see them, and test
    facts about them would be predicted from nothing. The choice looks at training facts alone.
    """
    order = np.random.default_rng(0).permutation(len(facts))
    kept = np.zeros(len(facts), dtype=bool)
    sides = np.concatenate([facts.head[order], facts.tail[order]])
    first_of_entity = np.unique(sides, return_index=True)[1] % len(facts)
    first_of_relation = np.unique(facts.relation[order], return_index=True)[1]
    kept[order[first_of_entity]] = kept[order[first_of_relation]] = True
    candidates = order[~kept[order]]
    held = candidates[: max(1, round(fraction * len(facts)))]
    if len(held) == 0:
        return hold_out(facts, max(fraction, 1 / len(facts)), seed=0)
    mask = np.zeros(len(facts), dtype=bool)
    mask[held] = True
    return facts[~mask], facts[mask]


def fingerprints(facts: Graph) -> NDArray[np.uint64]:
    """A number for each fact, the same for equal triples with equal confidences: (n,)."""
    number = facts.confidence.astype(np.float32).view(np.uint32).astype(np.uint64)
    keys = facts.keys.astype(np.uint64)
    return keys * np.uint64(0x9E3779B97F4A7C15) ^ number * np.uint64(0xD6E8FEB86659FD93)


def adopted(facts: Graph, vocabulary: Vocabulary) -> Graph:
    """The facts in the ids of a vocabulary that has grown by their new labels, in the order of their appearance.

    >>> old = Vocabulary.of(["a", "b"], ["likes"])
    >>> ids = np.array([0, 1], np.int32)
    >>> facts = Graph(ids, np.zeros(2, np.int32), ids[::-1], np.ones(2), Vocabulary.of(["c", "b"], ["likes"]))
    >>> grown = adopted(facts, old)
    >>> grown.head.tolist(), grown.vocabulary.entities.to_pylist()
    ([2, 1], ['a', 'b', 'c'])
    """
    words = facts.vocabulary
    entity, entities = _numbered(
        vocabulary.entity_ids(words.entities),
        np.stack([facts.head, facts.tail], axis=1).ravel(),
        len(vocabulary.entities),
    )
    relation, relations = _numbered(
        vocabulary.relation_ids(words.relations), facts.relation, len(vocabulary.relations)
    )
    if len(entities) or len(relations):
        vocabulary = Vocabulary(
            pa.concat_arrays([vocabulary.entities, words.entities.take(pa.array(entities))]),
            pa.concat_arrays([vocabulary.relations, words.relations.take(pa.array(relations))]),
            vocabulary.symmetric,
        )
    columns = (entity[facts.head], relation[facts.relation], entity[facts.tail])
    return Graph(*columns, facts.confidence, vocabulary, facts.ends)


def _numbered(
    ids: NDArray[np.int32], used: NDArray[np.int32], size: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The ids of labels, where labels that are used but unknown (-1) get numbers from `size` on; and these labels."""
    labels, first = np.unique(used, return_index=True)
    new = labels[np.argsort(first)]
    new = new[ids[new] < 0]
    numbers = ids.copy()
    numbers[new] = size + np.arange(len(new), dtype=np.int32)
    return numbers, new


# Facts that two parts of a graph have in common, because the graph repeats them.
#
# Of two equal facts the first may train and the second calibrate. How many such pairs a random split cuts apart follows
# from the repeats within the training facts. Repeated triples with another confidence are facts of their own and are
# not counted. Equal facts join the same two entities, and a split by pairs and rows draws up to half of the held-out
# facts among those that do. So the counting is done there: among training facts of pairs that have several, and
# calibration facts of pairs that training facts join, at most as many of these as either way of splitting draws.

FALSE_ALARM = 1e-3
"""How often a random split of a graph with repeats may have more repeats than are explained."""
HALF = 0.5
"""Pairs of equal facts added to those seen in training."""


class Trained(NamedTuple):
    """How many calibration facts are training facts, and how many of these the repeats of the graph explain."""

    shared: int
    expected: float
    """The number that repeats bring on average, in random splits."""
    explained: int
    """The number that repeats exceed only with probability `FALSE_ALARM`."""

    @property
    def excess(self) -> int:
        return max(0, self.shared - self.explained)


def count_trained(training: Graph, facts: Graph) -> Trained:
    """How many of the facts (triple and confidence) are training facts, and how many may be in a random split.

    >>> from unkgcp.graph import Graph, Vocabulary
    >>> ids = np.zeros(3, np.int32)
    >>> facts = Graph(ids, ids, ids, np.array([0.1, 0.2, 0.3]), Vocabulary.of(["a"], ["likes"]))
    >>> count_trained(facts[:2], facts[1:])
    Trained(shared=1, expected=0.0, explained=0)
    """
    usable = facts.over(training.vocabulary)
    usable = usable[in_vocabulary(usable)]
    marks, count = np.unique(fingerprints(training), return_counts=True)
    shared = int(np.isin(fingerprints(usable), marks).sum())
    twins = int(count[count > 1].sum())
    pairs, rows = np.unique(pair_keys(training, training.n_entities), return_counts=True)
    several = int(rows[rows > 1].sum())
    at_random = len(facts) * several / max(len(training), 1)
    joined = int(contained(pair_keys(usable, training.n_entities), pairs).sum())
    drawn = math.ceil(min(joined, max(at_random, min(len(facts), several) / 2)))
    return Trained(shared, drawn * twins / max(several, 1), explained(twins, several, drawn))


def explained(twins: int, training: int, calibration: int) -> int:
    """How many calibration facts may be training facts by chance, if `twins` training facts have an equal one there.

    Cut a graph at random. Of two equal facts, one trains and one calibrates with odds 2 l : n against both being
    among the n training facts (l calibrate). So beside twins / 2 such pairs in training, the number of pairs that were
    cut apart is negative binomial; this is its upper quantile, exceeded with probability `FALSE_ALARM`. Half a pair is
    added because training holds only a part of the graph's repeats. Without any in training nothing is explained: one
    fact in common is then worth a sentence.
    """
    if not twins:
        return 0
    from scipy.stats import nbinom

    return min(
        int(nbinom.isf(FALSE_ALARM, twins / 2 + HALF, training / (training + 2 * calibration))), calibration
    )
