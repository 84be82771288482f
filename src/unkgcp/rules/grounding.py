"""Lower bounds that rules give for the confidence of unseen facts, by the Lukasiewicz t-norm.

For a rule `w: b1 & ... & bk -> h` and every way to fill its variables from the training graph, the body is
true to the degree max(0, c1 + ... + ck - (k - 1)) and the head at least to the degree max(0, body + w - 1).
An unseen head fact gets the highest such bound of all its groundings; UKGE then asks its score to be at least
that.

- Facts of symmetric relations fill atoms in both directions.
- A triple stated several times counts once, with the mean of its confidences: the value that training on the
  repeated facts aims at.
- The bounds follow from the training graph alone. Conclusions about calibration facts stay among them, as those about
  new queries do: training must treat both alike if intervals are to hold.
- Rules and facts that contradict each other are not weighed: a stated fact keeps its confidence, whatever bound the
  rules give it.

>>> import numpy as np
>>> from unkgcp.graph import Graph, Vocabulary
>>> from unkgcp.rules import parse
>>> ids = np.array([0, 1], np.int32)
>>> facts = Graph(ids, ids * 0, ids + np.int32(1), np.array([0.9, 0.8]), Vocabulary.of("abc", ["likes"]))
>>> bounds = ground(parse("likes(A, B) & likes(B, C) -> likes(A, C)"), facts)
>>> bounds.head.tolist(), bounds.tail.tolist(), bounds.confidence.tolist()
([0], [2], [0.7])
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, concatenate, contained, merge_repeats
from unkgcp.progress import Progress, Silent
from unkgcp.rules.language import Rule, RuleAtom

MINIMUM = 0.3
"""Bounds smaller than this say too little to be worth a training fact (the files published with UKGE start at 0.3)."""

LIMIT = 20_000_000
"""Distinct bindings that a rule may have at once: a few GB."""

ROUNDING = 1e-9  # smaller differences are rounding: 0.7 + 0.6 - 1 is meant to be 0.3


def ground(
    rules: Sequence[Rule],
    facts: Graph,
    *,
    minimum: float = MINIMUM,
    rounds: int | None = 1,
    names: Mapping[str, str] | None = None,
    limit: int = LIMIT,
    progress: Progress | None = None,
) -> Graph:
    """Unseen facts with their lower bound as confidence, in order of their triples.

    Bounds below `minimum` are left out, and bounds of 0 always. With `rounds` above 1 the bounds found so far
    take part in the bodies of the next round; `None` goes on until no bound rises. `names` are the names behind
    relation labels that are mere ids; rules may use either.
    """
    if not 0.0 <= minimum <= 1.0:
        raise InputError(f"the minimum bound {minimum} is no degree of truth; choose it between 0 and 1")
    if rounds is not None and rounds < 1:
        raise InputError(f"{rounds} rounds derive nothing; choose 1 or more")
    progress = progress or Silent()
    named = relation_ids(rules, facts, names)
    stated = merge_repeats(facts)
    derived = facts[:0]
    done = 0
    while rounds is None or done < rounds:
        facts_so_far = concatenate([stated, derived])
        bounds = [facts[:0]]
        for number, rule in enumerate(rules, start=1):
            bounds.append(_heads(rule, named, facts_so_far, minimum, limit))
            progress.update(done * len(rules) + number, f"{len(bounds[-1]):,} bounds from {rule.place}")
        before = derived
        derived = _highest(concatenate(bounds))
        derived = derived[~contained(derived.keys, stated.keys)]
        done += 1
        if len(derived) == len(before) and np.allclose(derived.confidence, before.confidence, 0, ROUNDING):
            break
    return derived


def relation_ids(
    rules: Sequence[Rule], facts: Graph, names: Mapping[str, str] | None = None
) -> dict[str, int]:
    """The id of every relation that the rules name; the error for an unknown one names the nearest label."""
    labels = {label: i for i, label in enumerate(facts.vocabulary.relations.to_pylist())}
    position = {name: labels[label] for label, name in (names or {}).items() if label in labels} | labels
    ids = {}
    for rule in rules:
        for atom in (*rule.body, rule.head):
            if atom.relation not in position:
                few = ", ".join(repr(label) for label in list(position)[:3])
                remedy = f"it has {few} and others" if few else "it is empty"
                lowered = {label.lower(): label for label in position}
                for near in difflib.get_close_matches(atom.relation.lower(), lowered, n=1, cutoff=0.5):
                    remedy = f"did you mean {lowered[near]!r}?"
                raise InputError(f"{rule.place}: the graph has no relation {atom.relation!r}; {remedy}")
            ids[atom.relation] = position[atom.relation]
    return ids


def _heads(rule: Rule, named: dict[str, int], facts: Graph, minimum: float, limit: int) -> Graph:
    """The head facts of one rule with their best bounds, stated ones included."""
    n = max(facts.n_entities, 1)
    floor = max(minimum - ROUNDING, ROUNDING)
    ends, atoms = {rule.head.first, rule.head.second}, list(rule.join_order())
    bound: set[str] = set()
    bindings = Bindings({}, np.empty(0))
    try:
        for number, atom in enumerate(atoms):
            pairs = _atom(atom, named[atom.relation], facts)
            if number:
                pieces: Iterable[Bindings] = join(bindings, pairs, n, floor)
            else:
                truth = pairs.truth + rule.weight - 1.0
                pieces = [Bindings(pairs.columns, truth)[truth >= floor]]
            bound |= {atom.first, atom.second}
            later = {name for other in atoms[number + 1 :] for name in (other.first, other.second)}
            undecided = {name for pair in rule.distinct if not bound.issuperset(pair) for name in pair}
            keep = sorted(bound & (ends | later | undecided))
            bindings = best((_differing(piece, rule.distinct) for piece in pieces), keep, n, limit)
    except OverflowError:
        raise InputError(
            f"{rule.place}: the rule has more than {limit:,} distinct groundings; raise the minimum bound "
            f"(now {minimum:g}) or add atoms that narrow it"
        ) from None
    head, tail = bindings.columns[rule.head.first], bindings.columns[rule.head.second]
    relation = np.full(len(bindings), named[rule.head.relation], np.int32)
    truth = np.clip(np.round(bindings.truth, 12), 0.0, 1.0)
    return Graph(head.astype(np.int32), relation, tail.astype(np.int32), truth, facts.vocabulary)


def _atom(atom: RuleAtom, relation: int, facts: Graph) -> Bindings:
    """The ends of all facts of a relation; those of a symmetric one hold in both directions."""
    rows: NDArray[np.bool_] = facts.relation == relation
    if atom.first == atom.second:
        rows &= facts.head == facts.tail
    head, tail, truth = facts.head[rows], facts.tail[rows], facts.confidence[rows]
    if facts.vocabulary.symmetric[relation]:
        head, tail, truth = np.append(head, tail), np.append(tail, head), np.tile(truth, 2)
    return Bindings({atom.first: head.astype(np.int64), atom.second: tail.astype(np.int64)}, truth)


def _differing(bindings: Bindings, pairs: Sequence[tuple[str, str]]) -> Bindings:
    for first, second in pairs:
        if first in bindings.columns and second in bindings.columns:
            bindings = bindings[bindings.columns[first] != bindings.columns[second]]
    return bindings


def _highest(facts: Graph) -> Graph:
    """Every triple once, with its highest confidence, in order of the triples."""
    order = np.lexsort((-facts.confidence, facts.keys))
    return facts[order[np.unique(facts.keys[order], return_index=True)[1]]]


# Joins: of all the ways to fill in the variables that are still needed, only the best truth value is kept.

Column = NDArray[np.int64]

PIECE = 4_000_000
"""Rows of a join that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Bindings:
    """Values of variables, one row a binding: columns of shape (n,), and their truth, shape (n,)."""

    columns: Mapping[str, Column]
    truth: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.truth)

    def __getitem__(self, rows: slice | NDArray[np.bool_] | NDArray[np.intp]) -> Bindings:
        return Bindings({name: column[rows] for name, column in self.columns.items()}, self.truth[rows])


def join(left: Bindings, atom: Bindings, n: int, floor: float) -> Iterator[Bindings]:
    """Pieces of `left` joined with `atom` on the variables they share; truth is t + c - 1, at least `floor`.

    `n` bounds every value of every column.
    """
    shared = [name for name in atom.columns if name in left.columns]
    key = _row_key([atom.columns[name] for name in shared], n)
    order = np.argsort(key, kind="stable")
    key, atom = key[order], atom[order]
    sought = _row_key([left.columns[name] for name in shared], n)
    start = np.searchsorted(key, sought)
    count = np.searchsorted(key, sought, side="right") - start
    ends = np.cumsum(count)
    first = 0
    while first < len(left):
        done = ends[first - 1] if first else 0
        # a piece has at least one row; a single row never has more partners than the relation has facts
        last = max(first + 1, int(np.searchsorted(ends, done + PIECE, side="right")))
        counts = count[first:last]
        rows = np.repeat(np.arange(first, last), counts)
        partner = np.arange(len(rows)) + np.repeat(
            start[first:last] - (ends[first:last] - counts - done), counts
        )
        truth = left.truth[rows] + atom.truth[partner] - 1.0
        likely = truth >= floor
        rows, partner = rows[likely], partner[likely]
        columns = {name: column[partner] for name, column in atom.columns.items()}
        columns |= {name: column[rows] for name, column in left.columns.items()}
        yield Bindings(columns, truth[likely])
        first = last


def best(pieces: Iterable[Bindings], keep: Sequence[str], n: int, limit: int) -> Bindings:
    """One row for each distinct binding of the variables in `keep`, with the highest truth of all pieces, in order.

    Raises `OverflowError` when more than `limit` rows are left.
    """
    merged = Bindings({name: np.empty(0, np.int64) for name in keep}, np.empty(0))
    for piece in pieces:
        truth = np.concatenate([merged.truth, piece.truth])
        columns = {name: np.concatenate([merged.columns[name], piece.columns[name]]) for name in keep}
        key = _row_key(list(columns.values()), n)
        order = np.argsort(key, kind="stable")
        _, first = np.unique(key[order], return_index=True)
        columns = {name: column[order[first]] for name, column in columns.items()}
        merged = Bindings(columns, np.maximum.reduceat(truth[order], first))
        if len(merged) > limit:
            raise OverflowError(len(merged))
    return merged


def _row_key(columns: Sequence[Column], n: int) -> Column:
    """One integer for each row, equal exactly for equal rows and ordered like them."""
    key, span = columns[0], n
    for column in columns[1:]:
        if span * n >= 2**62:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            span = int(key.max(initial=0)) + 1
        key, span = key * n + column, span * n
    return key
