"""Symmetric relations: those of which (h, r, t) and (t, r, h) are one fact.

Some graphs list such facts in both directions, some in one. Over a vocabulary with symmetric relations the ends of
every fact are in one order (`Vocabulary.canonical`), in which facts are split, counted, learned from and asked about.

>>> from unkgcp.graph.objects import graph_from
>>> pairs = [(f"p{i}", f"p{i + 1}", i / 20) for i in range(10)]
>>> both = graph_from([(*ends, score) for h, t, score in pairs for ends in ((h, "binds", t), (t, "binds", h))])
>>> with_symmetric(both, "auto")
Graph(10 facts, 11 entities, 1 relations, confidences 0 to 0.45)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Vocabulary, number_keys, triple_keys

Choice: TypeAlias = str | Sequence[str] | None
"""`auto`: what the facts show; `none`; or labels of relations, in one string separated by commas or one by one."""

NEARLY_ALL = 0.95
SAMPLED, ENOUGH = 500_000, 100
"""About so many facts are looked at first. Of a relation with so many among them, of which none is mirrored, hardly any
fact is."""
SHOWN = 8  # relations that are named
FEWEST = 10
"""Facts that a relation needs for its symmetry to be no accident."""


@dataclass(frozen=True, slots=True, eq=False)
class Mirrors:
    """How many facts of each relation, self-loops apart, are listed in both directions: (relations,) each."""

    vocabulary: Vocabulary
    facts: NDArray[np.int64]
    mirrored: NDArray[np.int64]
    """Facts (h, r, t) for which (t, r, h) is listed as well."""
    equal: NDArray[np.int64]
    """Those of them with the same confidence in both directions."""

    @classmethod
    def of(cls, graph: Graph) -> Mirrors:
        """Of a large graph some pairs are looked at first, and then only the relations that may be mirrored."""
        facts = graph.head != graph.tail
        total = np.bincount(graph.relation[facts], minlength=graph.n_relations)
        step = len(graph) // SAMPLED
        if step > 1:
            # a pair is looked at in both directions or in none
            seen, mirrored, _ = _counts(graph[facts & ((graph.head + graph.tail) % step == 0)])
            facts &= ((mirrored > 0) | (seen < ENOUGH))[graph.relation]
        return cls(graph.vocabulary, total, *_counts(graph[facts])[1:])

    @property
    def symmetric(self) -> NDArray[np.bool_]:
        """Relations of which nearly all facts are mirrored, nearly all of these with equal confidence."""
        nearly_all = self.mirrored >= NEARLY_ALL * self.facts
        return nearly_all & (self.equal >= NEARLY_ALL * self.mirrored) & (self.facts >= FEWEST)

    def lines(self, chosen: NDArray[np.bool_], least: float = 0.5) -> list[str]:
        """A line for each relation with at least this share of mirrored facts; some were `chosen` as symmetric."""
        shown: NDArray[np.bool_] = (self.mirrored >= least * self.facts) & (self.facts >= FEWEST) | chosen
        lines = []
        for relation in np.argsort(-self.facts, kind="stable").tolist():
            facts, mirrored, equal = (
                int(count[relation]) for count in (self.facts, self.mirrored, self.equal)
            )
            if shown[relation]:
                lines.append(
                    f"{self.vocabulary.relations[relation]}: {mirrored / max(facts, 1):.1%} of {facts:,} facts are "
                    f"listed in both directions, {equal / max(mirrored, 1):.1%} of these with the same confidence"
                    + ("; symmetric" if chosen[relation] else "")
                )
        return [*lines[:SHOWN], f"{len(lines) - SHOWN} more relations"] if len(lines) > SHOWN else lines

    def sentence(self, chosen: NDArray[np.bool_]) -> str | None:
        """Which relations are symmetric, or could be; None if none is."""
        shown = chosen if chosen.any() else self.symmetric
        if not shown.any():
            return None
        facts, mirrored, equal = (
            int(count[shown].sum()) for count in (self.facts, self.mirrored, self.equal)
        )
        labels = self.vocabulary.relations.filter(shown).to_pylist()
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        alike = f", {equal / mirrored:.1%} of these with the same confidence" if mirrored else ""
        return (
            f"of {', '.join(labels[:SHOWN])}{more} {mirrored / max(facts, 1):.1%} of the facts are listed in both "
            f"directions{alike}: "
            + (
                "both are one fact"
                if chosen.any()
                else "they count as two facts, with --symmetric auto as one"
            )
        )


def _counts(facts: Graph) -> list[NDArray[np.int64]]:
    """How many facts of each relation there are, are mirrored, and are so with equal confidence: (relations,) each."""
    forth, n = facts.head < facts.tail, facts.n_relations
    ends = np.minimum(facts.head, facts.tail), facts.relation, np.maximum(facts.head, facts.tail)
    group = number_keys(triple_keys(*ends, facts.n_entities, n))
    both = np.flatnonzero(_in_both(group, forth))
    _, values = np.unique(facts.truth[both], return_inverse=True, axis=0)
    same = group[both] * np.int64(len(both) + 1) + values.ravel()
    equal = both[_in_both(number_keys(same), forth[both])]
    return [np.bincount(facts.relation[rows], minlength=n) for rows in (slice(None), both, equal)]


def _in_both(group: NDArray[np.integer], forth: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows are in a group that has rows of both directions: (n,)."""
    directions = np.zeros((2, int(group.max(initial=-1)) + 1), np.bool_)
    directions[forth.astype(np.int8), group] = True
    return np.asarray((directions[0] & directions[1])[group])


def symmetric_relations(graph: Graph, choice: Choice) -> NDArray[np.bool_]:
    """Which relations a choice means: (relations,); InputError for one that the graph lacks."""
    if choice is None or choice == "none":
        return np.zeros(graph.n_relations, np.bool_)
    if choice == "auto":
        return Mirrors.of(graph).symmetric
    labels = choice.split(",") if isinstance(choice, str) else list(choice)
    ids = graph.vocabulary.relation_ids(labels)
    if (ids < 0).any():
        raise InputError(
            f"there is no relation {labels[int(np.argmin(ids))]!r} that could be symmetric; name relations of these "
            "facts, auto or none"
        )
    return np.isin(np.arange(graph.n_relations), ids)


def with_symmetric(graph: Graph, choice: Choice | NDArray[np.bool_]) -> Graph:
    """The graph with symmetric relations.

    Of rows that list one fact in both directions with the same confidence, those in the direction of the first stay.
    """
    symmetric = choice if isinstance(choice, np.ndarray) else symmetric_relations(graph, choice)
    if not symmetric.any():
        return graph
    canonical = replace(graph, vocabulary=replace(graph.vocabulary, symmetric=symmetric), splits=None)
    rows = np.flatnonzero(symmetric[graph.relation])
    columns = [*np.atleast_2d(canonical.truth[rows].T), canonical.keys[rows]]
    order = np.lexsort(columns)
    turned = (canonical.head != graph.head)[rows][order]
    first = np.any([np.diff(column[order], prepend=np.nan) != 0 for column in columns], axis=0)
    kept = np.ones(len(graph), np.bool_)
    kept[rows[order]] = turned == turned[np.flatnonzero(first)][np.cumsum(first) - 1]
    return canonical[kept]


def symmetric_as_in(graph: Graph, vocabulary: Vocabulary) -> Graph:
    """The graph with those relations symmetric that are so in a vocabulary."""
    labels = vocabulary.relations.filter(vocabulary.symmetric)
    return with_symmetric(graph, np.isin(np.arange(graph.n_relations), graph.vocabulary.relation_ids(labels)))
