"""An uncertain graph: facts as integer columns with a confidence each, and a vocabulary of the labels behind the ids.

A graph is not a set: repeated triples and self-loops are kept, in the order in which they were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.tabular.arrow_arrays import numbers
from unkgcp.tabular.label_index import Ids, LabelIds

COLUMNS = ("head", "relation", "tail", "confidence")


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary(LabelIds):
    """Entity and relation labels; the position of a label is its id.

    >>> vocabulary = Vocabulary.of(["a", "b"], ["likes"])
    >>> vocabulary.entity_ids(["b", "nobody"]).tolist()
    [1, -1]
    """

    @classmethod
    def of(cls, entities: Sequence[str], relations: Sequence[str]) -> Vocabulary:
        return cls(pa.array(entities, pa.string()), pa.array(relations, pa.string()))

    @classmethod
    def numbered(cls, entities: int, relations: int) -> Vocabulary:
        """As many labels 0, 1, 2, ... of each kind, for graphs of which only ids matter."""
        return cls(*(numbers(np.arange(size)).cast(pa.string()) for size in (entities, relations)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return bool(self.entities.equals(other.entities) and self.relations.equals(other.relations))

    def __hash__(self) -> int:
        return hash((len(self.entities), len(self.relations)))


class HasTriples(Protocol):
    """Anything with three id columns of one length: `Triples`, a `Graph`."""

    @property
    def head(self) -> NDArray[np.int32]: ...
    @property
    def relation(self) -> NDArray[np.int32]: ...
    @property
    def tail(self) -> NDArray[np.int32]: ...


class Triples(NamedTuple):
    """Query triples as ids, each column (n,) int32; -1 stands for a label that is not in the vocabulary."""

    head: NDArray[np.int32]
    relation: NDArray[np.int32]
    tail: NDArray[np.int32]


def in_vocabulary(triples: HasTriples) -> NDArray[np.bool_]:
    """Which triples have no id -1, which stands for a label that the vocabulary lacks: (n,)."""
    return (triples.head >= 0) & (triples.relation >= 0) & (triples.tail >= 0)


Rows = slice | NDArray[np.integer] | NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Facts with confidences. Every column has shape (n,) and is read-only.

    Slicing and selecting rows gives a graph with the same vocabulary: `graph[:10]`, `graph[mask]`. Where confidences
    are intervals, `ends` (n, 2) holds their lower and upper ends, and `confidence` is the middle between them.
    """

    head: Ids
    relation: Ids
    tail: Ids
    confidence: NDArray[np.float64]
    vocabulary: Vocabulary
    ends: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        n = len(self.head)
        if self.ends is not None and self.ends.shape != (n, 2):
            raise ValueError(f"ends have shape {self.ends.shape}, expected ({n}, 2)")
        for name in COLUMNS:
            column = getattr(self, name)
            if column.shape != (n,):
                raise ValueError(f"column {name} has shape {column.shape}, expected ({n},)")
            if column.flags.writeable:
                column = column.view()
                column.flags.writeable = False
                object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.head)

    def __getitem__(self, rows: Rows) -> Graph:
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, **columns, ends=None if self.ends is None else self.ends[rows])

    def __repr__(self) -> str:
        return f"Graph({len(self):,} facts, {self.n_entities:,} entities, {self.n_relations:,} relations)"

    @property
    def n_entities(self) -> int:
        return len(self.vocabulary.entities)

    @property
    def n_relations(self) -> int:
        return len(self.vocabulary.relations)

    @property
    def keys(self) -> NDArray[np.int64]:
        """One integer a triple, equal exactly for equal triples of the same vocabulary: (n,) int64."""
        return triple_keys(self.head, self.relation, self.tail, self.n_entities, self.n_relations)

    @property
    def truth(self) -> NDArray[np.float64]:
        """The confidences (n,), or lower and upper ends (n, 2) where they are intervals."""
        return self.confidence if self.ends is None else self.ends

    @property
    def self_loops(self) -> int:
        """Rows whose head is their tail."""
        return int(np.count_nonzero(self.head == self.tail))

    def over(self, vocabulary: Vocabulary) -> Graph:
        """The same facts in the ids of another vocabulary; a label that it lacks becomes -1."""
        if self.vocabulary == vocabulary:
            return replace(self, vocabulary=vocabulary)
        entity = vocabulary.entity_ids(self.vocabulary.entities)
        relation = vocabulary.relation_ids(self.vocabulary.relations)
        head, tail = entity[self.head], entity[self.tail]
        return replace(self, head=head, relation=relation[self.relation], tail=tail, vocabulary=vocabulary)

    def with_confidence(self, confidence: NDArray[np.float64]) -> Graph:
        return replace(self, confidence=confidence, ends=None)

    def with_ends(self, ends: NDArray[np.float64]) -> Graph:
        """The same triples with intervals as confidences, (n, 2): lower and upper."""
        return replace(self, confidence=ends.mean(axis=1), ends=ends)

    def table(self) -> pa.Table:
        """Columns head, relation, tail (strings) and confidence, or lower and upper where it is an interval."""
        entities, relations = self.vocabulary.entities, self.vocabulary.relations
        columns = {
            "head": entities.take(pa.array(self.head)),
            "relation": relations.take(pa.array(self.relation)),
            "tail": entities.take(pa.array(self.tail)),
        }
        if self.ends is None:
            return pa.table({**columns, "confidence": pa.array(self.confidence)})
        lower, upper = (pa.array(np.ascontiguousarray(self.ends[:, end])) for end in (0, 1))
        return pa.table({**columns, "lower": lower, "upper": upper})

    def to_pandas(self) -> Any:
        """The same as a pandas data frame."""
        _library("pandas", "a data frame of pandas")
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """The same as a polars data frame."""
        return _library("polars", "a data frame of polars").from_arrow(self.table())

    def to_networkx(self) -> Any:
        """A NetworkX MultiDiGraph: an edge a fact, with the attributes relation and confidence (or lower and upper).

        Nodes are labels. Keys are numbers, so that repeated triples stay apart.
        """
        network = _library("networkx", "a NetworkX graph").MultiDiGraph()
        network.add_nodes_from(self.vocabulary.entities.to_pylist())
        rows = self.table().to_pylist()
        network.add_edges_from((row.pop("head"), row.pop("tail"), row) for row in rows)
        return network

    def split(
        self,
        calibration: float = 0.07,
        test: float = 0.08,
        *,
        validation: float = 0.0,
        seed: int = 0,
        keep_repeats_together: bool = False,
    ) -> Splits:
        """Random parts of this graph; see `unkgcp.graph.facts.split`."""
        return split(
            self,
            calibration=calibration,
            test=test,
            validation=validation,
            seed=seed,
            keep_repeats_together=keep_repeats_together,
        )


def _library(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InputError(f"{what} needs {name}: pip install {name}") from None


def concatenate(graphs: Sequence[Graph]) -> Graph:
    """The facts of several graphs over one vocabulary, one after the other."""
    first = graphs[0]
    if any(graph.vocabulary != first.vocabulary for graph in graphs[1:]):
        raise ValueError("graphs over different vocabularies cannot be joined; read them together")
    columns: Any = {name: np.concatenate([getattr(graph, name) for graph in graphs]) for name in COLUMNS}
    if all(graph.ends is None for graph in graphs):
        return replace(first, **columns, ends=None)
    # among intervals, a single confidence is an interval of width 0
    ends = [g.ends if g.ends is not None else np.stack([g.confidence] * 2, axis=1) for g in graphs]
    return replace(first, **columns, ends=np.concatenate(ends))


def triple_keys(head: Ids, relation: Ids, tail: Ids, n_entities: int, n_relations: int) -> NDArray[np.int64]:
    """(head * relations + relation) * entities + tail as int64; the product must fit."""
    if n_entities**2 * max(n_relations, 1) >= 2**63:
        raise ValueError(
            f"{n_entities} entities and {n_relations} relations are too many for 64-bit triple keys"
        )
    return (head.astype(np.int64) * n_relations + relation) * n_entities + tail


def contained(keys: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the keys occur in a sorted array: (n,) bool."""
    if len(ordered) == 0:
        return np.zeros(len(keys), dtype=np.bool_)
    position = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[position] == keys
    return found


# Random parts of a graph: training, validation, calibration and test.

CALIBRATION, TEST = 0.07, 0.08


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """The parts of a graph, all over one vocabulary; rows keep the order in which they were read.

    `validation` may have no rows. It is for early stopping and belongs to what a model may look at;
    `calibration` and `test` are not.
    """

    train: Graph
    calibration: Graph
    test: Graph
    validation: Graph

    @property
    def graph(self) -> Graph:
        """All facts: train, validation, calibration, test, one after the other."""
        return concatenate(list(self.parts().values()))

    def parts(self) -> dict[str, Graph]:
        return {name: getattr(self, name) for name in ("train", "validation", "calibration", "test")}

    def sizes(self) -> dict[str, int]:
        """The number of facts of each part."""
        return {name: len(facts) for name, facts in self.parts().items()}


def split(
    graph: Graph,
    *,
    calibration: float = CALIBRATION,
    test: float = TEST,
    validation: float = 0.0,
    seed: int = 0,
    keep_repeats_together: bool = False,
) -> Splits:
    """Divide a graph at random.

    `calibration` and `test` are shares of the whole graph, `validation` is a share of the training part
    that is left: asking for a validation slice changes neither the calibration nor the test facts.

    `keep_repeats_together` puts all rows of one triple into the same part. Without it a triple that is listed
    several times can be in train and in test, and the test is then partly a test of memory. With it triples are
    exchangeable and rows no longer are, since a calibration row has its repeats beside it and a test row has not: of
    m calibration triples with r rows each, a row's coverage at level a may be a (1 - 1/r) / (m + 1) too low.
    """
    generator = np.random.default_rng(seed)
    keys = graph.keys if keep_repeats_together else None
    shares = {"calibration": calibration, "test": test}
    calibrating, testing = _draw(len(graph), keys, shares, generator)
    training = ~(calibrating | testing)
    validating = np.zeros(len(graph), dtype=np.bool_)
    if validation:
        rows = np.flatnonzero(training)
        (chosen,) = _draw(
            len(rows), None if keys is None else keys[rows], {"validation": validation}, generator
        )
        validating[rows[chosen]] = True
        training &= ~validating
    return Splits(graph[training], graph[calibrating], graph[testing], graph[validating])


def hold_out(
    graph: Graph, fraction: float, seed: int, keep_repeats_together: bool = False
) -> tuple[Graph, Graph]:
    """(rest, held out): a random `fraction` of the facts set aside."""
    keys = graph.keys if keep_repeats_together else None
    (held,) = _draw(len(graph), keys, {"held-out": fraction}, np.random.default_rng(seed))
    return graph[~held], graph[held]


def _draw(
    n: int, keys: NDArray[np.int64] | None, shares: dict[str, float], generator: np.random.Generator
) -> list[NDArray[np.bool_]]:
    """One mask of shape (n,) for each share; no row is in two of them and some row is in none."""
    for name, share in shares.items():
        if not 0 < share < 1:
            raise InputError(f"the {name} fraction is {share:g}; it must lie between 0 and 1, both excluded")
    if sum(shares.values()) >= 1:
        listed = " and ".join(f"{share:g} ({name})" for name, share in shares.items())
        raise InputError(f"the fractions {listed} leave nothing for training; their sum must stay below 1")
    wanted = [int(share * n + 0.5) for share in shares.values()]
    facts = "one fact only" if n == 1 else f"{n:,} facts"
    masks = _draw_rows(n, wanted, generator) if keys is None else _draw_groups(keys, wanted, generator)
    for name, mask in zip(shares, masks, strict=True):
        if not mask.any():
            raise InputError(
                f"{facts} cannot be split: the {name} part ({shares[name]:g} of them) would be empty; "
                "give more facts or a larger fraction"
            )
    if sum(int(mask.sum()) for mask in masks) == n:
        raise InputError(
            f"{facts} cannot be split: nothing is left for training; give more facts or smaller fractions"
        )
    return masks


def _draw_rows(n: int, wanted: Sequence[int], generator: np.random.Generator) -> list[NDArray[np.bool_]]:
    masks = np.zeros((len(wanted), n), np.bool_)
    for mask, rows in zip(masks, np.split(generator.permutation(n), np.cumsum(wanted)), strict=False):
        mask[rows] = True
    return list(masks)


def _draw_groups(
    keys: NDArray[np.int64], wanted: Sequence[int], generator: np.random.Generator
) -> list[NDArray[np.bool_]]:
    """Whole groups of equal keys, drawn in random order, with row counts as near to `wanted` as possible."""
    _, group, size = np.unique(keys, return_inverse=True, return_counts=True)
    waiting = generator.permutation(len(size))
    masks = []
    for count in wanted:
        chosen = _fill(size[waiting], count)
        mask = np.zeros(len(size), dtype=np.bool_)
        mask[waiting[chosen]] = True
        waiting = waiting[~chosen]
        masks.append(mask[group])
    return masks


def _fill(size: NDArray[np.int64], room: int) -> NDArray[np.bool_]:
    """Which groups, taken in the given order and skipping those that do not fit, fill `room` rows: (n,) bool.

    Every round ends at a group that is too large for what is left, so there are at most as many rounds as
    distinct sizes.
    """
    chosen = np.zeros(len(size), dtype=np.bool_)
    left = np.arange(len(size))
    while room > 0:
        left = left[size[left] <= room]
        if not len(left):
            break
        used = np.cumsum(size[left])
        fitting = int(np.searchsorted(used, room, side="right"))
        chosen[left[:fitting]] = True
        room -= int(used[fitting - 1])
        left = left[fitting:]
    if room > 0 and not chosen.all():
        # the smallest group that is left, if one too many is nearer than one too few
        others = np.flatnonzero(~chosen)
        smallest = others[np.argmin(size[others])]
        chosen[smallest] = size[smallest] - room < room
    return chosen
