"""An uncertain graph: facts as integer columns with a confidence each, and a vocabulary of the labels behind the ids.

A graph is not a set: repeated triples and self-loops are kept, in the order in which they were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from unkgcp.errors import InputError
from unkgcp.lazy import library
from unkgcp.loops import places_in
from unkgcp.tabular.arrow_arrays import numbers
from unkgcp.tabular.columns import rounded
from unkgcp.tabular.label_index import Ids, LabelIds, Labels

COLUMNS = ("head", "relation", "tail", "confidence")


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary(LabelIds):
    """Entity and relation labels; the position of a label is its id.

    `symmetric` (relations,) says for which relations (h, r, t) and (t, r, h) are one fact; if it is shorter, further
    relations are not symmetric.

    >>> vocabulary = Vocabulary.of(["a", "b"], ["likes"])
    >>> vocabulary.entity_ids(["b", "nobody"]).tolist()
    [1, -1]
    """

    symmetric: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __post_init__(self) -> None:
        symmetric = np.zeros(len(self.relations), np.bool_)
        symmetric[: len(self.symmetric)] = self.symmetric
        object.__setattr__(self, "symmetric", symmetric)

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
        alike = self.entities.equals(other.entities) and self.relations.equals(other.relations)
        return bool(alike and np.array_equal(self.symmetric, other.symmetric))

    def __hash__(self) -> int:
        return hash((len(self.entities), len(self.relations)))

    def triple_ids(self, head: Labels, relation: Labels, tail: Labels) -> tuple[Ids, Ids, Ids]:
        """Ids of the three columns of triples, in canonical order, -1 for an unknown label: (n,) int32 each."""
        return self.canonical(*LabelIds.triple_ids(self, head, relation, tail))

    def canonical(self, head: Ids, relation: Ids, tail: Ids) -> tuple[Ids, Ids, Ids]:
        """The same triples; in those of a symmetric relation the smaller id is the head, an unknown one the tail."""
        if not self.symmetric.any():
            return head, relation, tail
        in_vocabulary = (relation >= 0) & (relation < len(self.symmetric))
        turned = in_vocabulary & self.symmetric.take(relation, mode="clip")
        turned &= head.astype(np.uint32) > tail.astype(np.uint32)  # -1 is the largest
        return np.where(turned, tail, head), relation, np.where(turned, head, tail)


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

    Slicing and selecting rows gives a graph with the same vocabulary: `graph[:10]`, `graph[mask]`. The ends of facts of
    symmetric relations are in canonical order, whatever order they are given in. Where confidences
    are intervals, `ends` (n, 2) holds their lower and upper ends, and `confidence` is the middle between them. `splits`
    are the parts that a benchmark or a folder came in; other graphs have none.
    """

    head: Ids
    relation: Ids
    tail: Ids
    confidence: NDArray[np.float64]
    vocabulary: Vocabulary
    ends: NDArray[np.float64] | None = None
    splits: Splits | None = None

    def __post_init__(self) -> None:
        n = len(self.head)
        if self.ends is not None and self.ends.shape != (n, 2):
            raise ValueError(f"ends have shape {self.ends.shape}, expected ({n}, 2)")
        for name in COLUMNS:
            if (shape := getattr(self, name).shape) != (n,):
                raise ValueError(f"column {name} has shape {shape}, expected ({n},)")
        ids = self.vocabulary.canonical(self.head, self.relation, self.tail)
        columns: tuple[NDArray[Any], ...] = (*ids, self.confidence)
        for name, column in zip(COLUMNS, columns, strict=True):
            if column is not getattr(self, name) or column.flags.writeable:
                column = column.view()
                column.flags.writeable = False
                object.__setattr__(self, name, column)

    @classmethod
    def of(
        cls, head: Ids, relation: Ids, tail: Ids, truth: NDArray[np.float64], vocabulary: Vocabulary
    ) -> Graph:
        """Facts with confidences (n,), or with their lower and upper ends (n, 2)."""
        if truth.ndim == 1:
            return cls(head, relation, tail, truth, vocabulary)
        return cls(head, relation, tail, truth[:, 0], vocabulary).with_ends(truth)

    def __len__(self) -> int:
        return len(self.head)

    def __getitem__(self, rows: Rows) -> Graph:
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, **columns, ends=None if self.ends is None else self.ends[rows], splits=None)

    def __repr__(self) -> str:
        sizes = f"{len(self):,} facts, {self.n_entities:,} entities, {self.n_relations:,} relations"
        if not len(self):
            return f"Graph({sizes})"
        low, high = self.confidence.min(), self.confidence.max()
        return f"Graph({sizes}, confidences {low:.4g} to {high:.4g})"

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
            return replace(self, vocabulary=vocabulary, splits=None)
        entity = vocabulary.entity_ids(self.vocabulary.entities)
        relation = vocabulary.relation_ids(self.vocabulary.relations)
        head, tail = entity[self.head], entity[self.tail]
        return Graph(head, relation[self.relation], tail, self.confidence, vocabulary, self.ends)

    def with_confidence(self, confidence: NDArray[np.float64]) -> Graph:
        return replace(self, confidence=confidence, ends=None, splits=None)

    def with_ends(self, ends: NDArray[np.float64]) -> Graph:
        """The same triples with intervals as confidences, (n, 2): lower and upper."""
        return replace(self, confidence=rounded(ends.mean(axis=1)), ends=ends, splits=None)

    def table(self) -> pa.Table:
        """Columns head, relation, tail (strings) and confidence, or lower and upper where it is an interval.

        As in every graph that was read, confidences have nine decimals.
        """
        entities, relations = self.vocabulary.entities, self.vocabulary.relations
        columns = {
            "head": entities.take(pa.array(self.head)),
            "relation": relations.take(pa.array(self.relation)),
            "tail": entities.take(pa.array(self.tail)),
        }
        if self.ends is None:
            return pa.table({**columns, "confidence": pa.array(rounded(self.confidence))})
        lower, upper = (pa.array(rounded(np.ascontiguousarray(self.ends[:, end]))) for end in (0, 1))
        return pa.table({**columns, "lower": lower, "upper": upper})

    def to_pandas(self) -> Any:
        """The same as a pandas data frame."""
        library("pandas", "a data frame of pandas")
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """The same as a polars data frame."""
        return library("polars", "a data frame of polars").from_arrow(self.table())

    def to_networkx(self) -> Any:
        """A NetworkX MultiDiGraph: an edge a fact, with the attributes relation and confidence (or lower and upper).

        Nodes are labels. Keys are numbers, so that repeated triples stay apart.
        """
        network = library("networkx", "a NetworkX graph").MultiDiGraph()
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
        hold_out: str | None = None,
        seed: int = 0,
    ) -> Splits:
        """Random parts of this graph; see `unkgcp.graph.facts.split`."""
        return split(
            self, calibration=calibration, test=test, validation=validation, hold_out=hold_out, seed=seed
        )


def concatenate(graphs: Sequence[Graph]) -> Graph:
    """The facts of several graphs over one vocabulary, one after the other."""
    first = graphs[0]
    if any(graph.vocabulary != first.vocabulary for graph in graphs[1:]):
        raise ValueError("graphs over different vocabularies cannot be joined; read them together")
    columns: Any = {name: np.concatenate([getattr(graph, name) for graph in graphs]) for name in COLUMNS}
    # among intervals, a single confidence is an interval of width 0
    some = any(graph.ends is not None for graph in graphs)
    ends = np.concatenate([both_ends(graph.truth) for graph in graphs]) if some else None
    return replace(first, **columns, ends=ends, splits=None)


def both_ends(truth: ArrayLike) -> NDArray[np.float64]:
    """Lower and upper end of each label, the same where it is a number: (n, 2)."""
    label = np.asarray(truth, dtype=np.float64)
    return label if label.ndim == 2 else np.stack([label, label], axis=1)


def merge_repeats(facts: Graph) -> Graph:
    """Every triple once, with the mean of its confidences, in order of the triples."""
    _, first, inverse = np.unique(facts.keys, return_index=True, return_inverse=True)
    total = np.bincount(inverse, weights=facts.confidence, minlength=len(first))
    return facts[first].with_confidence(total / np.bincount(inverse, minlength=len(first)))


def triple_keys(head: Ids, relation: Ids, tail: Ids, n_entities: int, n_relations: int) -> NDArray[np.int64]:
    """(head * relations + relation) * entities + tail as int64; the product must fit."""
    if n_entities**2 * max(n_relations, 1) >= 2**63:
        raise ValueError(
            f"{n_entities} entities and {n_relations} relations are too many for 64-bit triple keys"
        )
    return (head.astype(np.int64) * n_relations + relation) * n_entities + tail


def pair_keys(triples: HasTriples, entities: int) -> NDArray[np.int64]:
    """One number for the two entities of each triple, whichever is the head: (n,)."""
    head, tail = triples.head.astype(np.int64), triples.tail.astype(np.int64)
    return np.minimum(head, tail) * entities + np.maximum(head, tail)


def distinct_keys(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """All different keys in ascending order. (np.unique puts whole numbers into a table, which takes ten times as long
    where there are many.)"""
    ordered = np.sort(keys)
    return np.asarray(ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0])


def contained(keys: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the keys occur in a sorted array: (n,) bool."""
    if len(ordered) == 0:
        return np.zeros(len(keys), dtype=np.bool_)
    return np.asarray(ordered.take(places_in(ordered, keys), mode="clip") == keys)


# Random parts of a graph: training, validation, calibration and test.

CALIBRATION, TEST = 0.07, 0.08
UNITS = ("entities", "pairs", "triples", "rows")
"""What facts are held out by, from the largest to the smallest."""
DEFAULT_UNITS = "pairs,rows"
FEWEST_UNITS = 20
"""With fewer of a unit than this, none of them is held out."""
LEAST_KNOWN = 0.01
"""Of the held-out facts, how many must have a relation that is learned."""


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
    hold_out: str | None = None,
    seed: int = 0,
) -> Splits:
    """Divide a graph at random, by whole units.

    `calibration` and `test` are shares of all facts, `validation` is a share of the training part that is left: asking
    for a validation slice changes neither the calibration nor the test facts.

    `hold_out` says what is drawn, which decides what queries calibration facts are exchangeable with:

    - `rows`: single rows, exchangeable with a random row of this graph; beside other units, only rows of a pair that
      keeps another row in training, exchangeable with a row that was left out of such a pair;
    - `triples`: a triple with all its repeats, exchangeable with the rows of a random triple that training lacks;
    - `pairs`: all facts that join the same two entities, in either direction, exchangeable with the facts of a random
      pair of this graph that no training fact joins;
    - `entities`: an entity with all its facts, exchangeable with the facts of a random entity that has no training
      fact.

    Of several, separated by commas, each gives an equal share of the held-out facts. The default is `pairs,rows`, which
    is `pairs` where no pair has several rows, and `rows` where there are fewer than 20 pairs. At most half of the rows
    that pairs have beyond one are held out as `rows`; pairs give the rest. Units with more facts than the smaller part
    always train.
    """
    generator = np.random.default_rng(seed)
    calibrating, testing = _draw(graph, {"calibration": calibration, "test": test}, hold_out, generator)
    training = ~(calibrating | testing)
    validating = np.zeros(len(graph), dtype=np.bool_)
    if validation:
        rows = np.flatnonzero(training)
        (chosen,) = _draw(graph[rows], {"validation": validation}, hold_out, generator)
        validating[rows[chosen]] = True
        training &= ~validating
    _check_relations(graph.relation[training], graph.relation[calibrating | testing], graph.n_relations)
    return Splits(graph[training], graph[calibrating], graph[testing], graph[validating])


def _check_relations(trained: Ids, held: Ids, relations: int) -> None:
    """Refuse facts of which hardly any shares its relation with another one: nothing can be learned from them."""
    has_training_fact = np.bincount(trained, minlength=relations)[held] > 0
    if len(held) >= FEWEST_UNITS and has_training_fact.mean() < LEAST_KNOWN:
        raise InputError(
            f"hardly any of the {relations:,} relations has a second fact, so nothing can be learned of them: name the "
            "column of the relation with --columns, or give all facts one relation"
        )


def hold_out(graph: Graph, fraction: float, seed: int, units: str | None = None) -> tuple[Graph, Graph]:
    """(rest, held out): a random `fraction` of the facts set aside, by the `units` that `hold_out` of `split` names."""
    (held,) = _draw(graph, {"held-out": fraction}, units, np.random.default_rng(seed))
    return graph[~held], graph[held]


def _draw(
    graph: Graph, shares: dict[str, float], units: str | None, generator: np.random.Generator
) -> list[NDArray[np.bool_]]:
    """One mask of shape (n,) for each share; no row is in two of them and some row is in none."""
    for name, share in shares.items():
        if not 0 < share < 1:
            raise InputError(f"the {name} fraction is {share:g}; it must lie between 0 and 1, both excluded")
    if sum(shares.values()) >= 1:
        listed = " and ".join(f"{share:g} ({name})" for name, share in shares.items())
        raise InputError(f"the fractions {listed} leave nothing for training; their sum must stay below 1")
    n = len(graph)
    wanted = np.array([int(share * n + 0.5) for share in shares.values()])
    part = _draw_parts(graph, wanted, units, generator)
    masks = [part == place for place in range(1, len(wanted) + 1)]
    facts = "one fact only" if n == 1 else f"{n:,} facts"
    for name, mask in zip(shares, masks, strict=True):
        if not mask.any():
            raise InputError(
                f"{facts} cannot be split: the {name} part ({shares[name]:g} of them) would be empty; "
                "give more facts or a larger fraction"
            )
    if part.all():
        raise InputError(
            f"{facts} cannot be split: nothing is left for training; give more facts or smaller fractions"
        )
    return masks


def _draw_parts(
    graph: Graph, wanted: NDArray[np.int64], units: str | None, generator: np.random.Generator
) -> NDArray[np.int8]:
    """The part of each row, 0 for training, with about `wanted` rows in the parts 1, 2, ...: (n,)."""
    requested = (DEFAULT_UNITS if units is None else units).split(",")
    names = [unit for unit in UNITS if unit in map(str.strip, requested)]
    if len(names) < len(requested):
        raise InputError(
            f"facts are held out by {', '.join(UNITS)}, or by several of these, each once; not by {units!r}"
        )
    n, spare, last = len(graph), len(graph), np.zeros(0, np.int64)
    codes = {"triples": number_keys(graph.keys)} if "triples" in names else {}
    if "pairs" in names or len(names) > 1:
        codes["pairs"] = pair = number_keys(pair_keys(graph, graph.n_entities))
    if len(names) > 1 and "rows" in names:
        last = np.empty(int(pair.max(initial=-1)) + 1, np.int64)
        order = generator.permutation(n)
        last[pair[order]] = order  # a random row of each pair, which is not drawn as a row
        spare = (n - len(last)) // 2
        if units is None and len(last) < FEWEST_UNITS:
            names, spare, last = ["rows"], n, last[:0]
    larger = [unit for unit in names if unit != "rows"]
    part = np.zeros(n, np.int8)
    by_rows = min(1 / len(names), spare / max(int(wanted.sum()), 1)) if "rows" in names else 0.0
    for place, unit in enumerate(larger):
        target = wanted * (1 - by_rows) * (place + 1) / len(larger)
        room = np.rint(target).astype(np.int64) - np.bincount(part, minlength=len(wanted) + 1)[1:]
        rows = np.flatnonzero(part == 0)
        code = codes[unit][rows] if unit in codes else None
        part[rows] = _draw_units(graph[rows], unit, code, room.clip(0), generator)
    if "rows" in names:
        free = part == 0
        free[last] = False
        left = wanted - np.bincount(part, minlength=len(wanted) + 1)[1:]
        if (total := int(left.sum())) > spare:
            left = left * spare // total
        rows = generator.permutation(np.flatnonzero(free))
        for place, drawn in enumerate(np.split(rows, np.cumsum(left.clip(0)))[:-1]):
            part[drawn] = place + 1
    return part


def _draw_units(
    graph: Graph,
    unit: str,
    code: NDArray[np.int32] | None,
    room: NDArray[np.int64],
    generator: np.random.Generator,
) -> NDArray[np.int8]:
    """As `_draw_parts`, by one kind of unit that may have several rows; `code` is the unit's number, None for entities.

    All that is held out is drawn first, and then divided at random among the parts, so that these are alike.
    """
    n, limit = graph.n_entities, int(room.min())
    # the place of each row's unit in a random order, that of an entity before or after that of its neighbours
    if code is None:
        sizes = np.bincount(graph.head, minlength=n) + np.bincount(
            graph.tail[graph.tail != graph.head], minlength=n
        )
    else:
        sizes = np.bincount(code)
    drawn = generator.permutation(len(sizes))
    if (count := np.count_nonzero(sizes)) < FEWEST_UNITS and len(graph):
        raise InputError(
            f"there are only {count} {unit} in {len(graph):,} facts, too few to hold out some of them "
            f"({FEWEST_UNITS} are needed); hold out rows instead"
        )
    drawn = np.where(sizes > max(limit, int(sizes[sizes > 0].min(initial=len(graph)))), len(sizes), drawn)
    first = np.minimum(drawn[graph.head], drawn[graph.tail]) if code is None else drawn[code]
    of_place = np.bincount(first, minlength=len(sizes) + 1)[:-1]
    # others remain beside a giant one
    eligible = int(len(sizes) * max(0.5, room.sum() / max(len(graph), 1))) + 1
    held = generator.permutation(_nearest(of_place[:eligible], int(room.sum())))
    part_of_place = np.zeros(len(sizes) + 1, np.int8)
    shares = room / max(int(room.sum()), 1) * of_place[held].sum()
    for place, rows in enumerate(shares[:-1].tolist()):
        drawn_now = _nearest(of_place[held], rows)
        part_of_place[held[:drawn_now]] = place + 1
        held = held[drawn_now:]
    part_of_place[held] = len(room)
    return np.asarray(part_of_place[first], np.int8)


def number_keys(keys: NDArray[np.int64]) -> NDArray[np.int32]:
    """Numbers from 0 on for the distinct keys, in ascending order: (n,)."""
    order = np.argsort(keys)  # in half the time of np.unique
    numbers = np.empty(len(keys), np.int32)
    numbers[order] = np.cumsum(np.diff(keys[order], prepend=keys[order[:1]]) != 0, dtype=np.int32)
    return numbers


def _nearest(sizes: NDArray[np.int64], room: float) -> int:
    """How many of the first units have together as many rows as comes nearest to `room`."""
    return int(np.argmin(np.abs(np.concatenate([[0], np.cumsum(sizes)]) - room)))
