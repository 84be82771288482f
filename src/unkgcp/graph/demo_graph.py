"""The demo graph: generated, seeded, and with the true distribution of every confidence known.

About 40,000 facts over 2,400 invented people, companies, cities, skills and products in twelve relations:
easy and hard ones, symmetric ones and a composed one, popular and rare entities, entities whose facts scatter
more, stock values (0.7 is more than a quarter of all confidences) and some triples stated twice. It is no
benchmark: real graphs are messier, but none of them can say whether an interval covers *given the query*.

>>> graph, oracle = generate(seed=0)
>>> oracle.central(graph[:1000], confidence=0.9)       # the best possible intervals: (1000, 2)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp.graph.demo_world import (
    COMPOSED,
    RELATIONS,
    Floats,
    Ints,
    Pairs,
    World,
    arrange,
    build,
    draw_pairs,
    join,
)
from unkgcp.graph.facts import Graph, Vocabulary, concatenate, contained

__all__ = ["RULES", "Demo", "Oracle", "generate", "infer"]


class Demo(NamedTuple):
    """The graph and the oracle that knows where its confidences come from."""

    graph: Graph
    oracle: Oracle


def generate(seed: int = 0) -> Demo:
    """The demo graph of a seed: the same bytes every time."""
    generator = np.random.default_rng(seed)
    inhabitants = build(generator)
    pairs = draw_pairs(inhabitants, generator)
    oracle = Oracle(inhabitants, *_paths(inhabitants, pairs))
    head, relation, tail = arrange(pairs, generator)
    # entities without a fact are left out of the graph
    used, ends = np.unique(np.concatenate([head, tail]), return_inverse=True)
    labels = inhabitants.vocabulary
    blank = Graph(
        ends[: len(head)].astype(np.int32),
        relation.astype(np.int32),
        ends[len(head) :].astype(np.int32),
        np.zeros(len(head)),
        Vocabulary(labels.entities.take(pa.array(used)), labels.relations),
    )
    return Demo(blank.with_confidence(oracle.mixture(blank).draw(generator)), oracle)


def _paths(inhabitants: World, pairs: dict[str, Pairs]) -> tuple[Ints, Floats]:
    """Sorted keys (head * entities + tail) of the composed relation, and the product of places along the best path."""
    first, second = COMPOSED["works_in"]
    order = [row.name for row in RELATIONS]
    start, middle, end = join(pairs[first], pairs[second])
    product = place_of(inhabitants, start, np.full(len(start), order.index(first)), middle) * place_of(
        inhabitants, middle, np.full(len(start), order.index(second)), end
    )
    keys, inverse = np.unique(start * len(inhabitants.community) + end, return_inverse=True)
    best = np.zeros(len(keys))
    np.maximum.at(best, inverse, product)
    return keys, best


# Soft logic of the demo world: what its rules conclude about triples that are not among the given facts.

LEAST = 0.5  # weaker conclusions are left out
RULES = "\n".join(
    [
        *(f"{row.name}(A, B) -> {row.name}(B, A)" for row in RELATIONS if row.symmetric),
        *(f"{first}(A, B) & {second}(B, C) -> {name}(A, C)" for name, (first, second) in COMPOSED.items()),
    ]
)


def infer(facts: Graph) -> Graph:
    """Conclusions from the facts that are not facts themselves: every triple once, with its strongest bound."""
    conclusions = concatenate([*_turned(facts), *_composed(facts)])
    # 0.6 + 0.9 - 1 is meant to be 0.5
    conclusions = conclusions.with_confidence(np.round(conclusions.confidence, 3))
    conclusions = conclusions[np.lexsort((-conclusions.confidence, conclusions.keys))]
    first = np.diff(conclusions.keys, prepend=-1) > 0
    return conclusions[
        first & (conclusions.confidence >= LEAST) & ~contained(conclusions.keys, np.sort(facts.keys))
    ]


def _turned(facts: Graph) -> Iterator[Graph]:
    for row in RELATIONS:
        if row.symmetric:
            part = _of(facts, row.name)
            yield Graph(part.tail, part.relation, part.head, part.confidence, facts.vocabulary)


def _composed(facts: Graph) -> Iterator[Graph]:
    for name, (first, second) in COMPOSED.items():
        left, right = _of(facts, first), _of(facts, second)
        # joined by row number, so that the confidences come along
        at, _, to = join(
            (np.arange(len(left)), left.tail.astype(np.int64)),
            (right.head.astype(np.int64), np.arange(len(right))),
        )
        bound = np.maximum(0.0, left.confidence[at] + right.confidence[to] - 1)
        relation = np.repeat(facts.vocabulary.relation_ids([name]), len(at))
        yield Graph(left.head[at], relation, right.tail[to], bound, facts.vocabulary)


def _of(facts: Graph, name: str) -> Graph:
    return facts[facts.relation == facts.vocabulary.relation_ids([name])[0]]


# The true distribution of every confidence of the demo graph, which no real graph can tell.

STEPS = 1000  # confidences are multiples of 1 / STEPS
LOWEST = 50  # the smallest one, in steps
STATED, RECORDED = 0.7, 1.0

_MARGIN = 0.5 / STEPS


@dataclass(frozen=True, slots=True)
class Mixture:
    """Distributions of n confidences: weights of 0.7 and 1.0, place and scale of the rest; each (n,)."""

    stated: Floats
    recorded: Floats
    place: Floats
    scale: Floats

    def draw(self, generator: np.random.Generator) -> Floats:
        """One confidence each: (n,)."""
        kind, within = generator.random((2, len(self.place)))
        low, high = self._ends()
        value = self.place + self.scale * _logit(low + within * (high - low))
        value = np.clip(np.round(value * STEPS), LOWEST, STEPS) / STEPS
        value[kind < self.stated] = STATED
        value[kind >= 1 - self.recorded] = RECORDED
        return value

    def below(self, steps: NDArray[np.float64]) -> Floats:
        """P(confidence <= steps / STEPS) for whole numbers of steps, (n,) or (n, m): the same shape."""
        column = (slice(None),) + (None,) * (steps.ndim - 1)
        low, high = self._ends()
        inside = np.clip(steps, LOWEST - 1, STEPS)
        share = _logistic((inside / STEPS + _MARGIN - self.place[column]) / self.scale[column])
        rest = (1 - self.stated - self.recorded)[column]
        continuous = rest * (share - low[column]) / (high - low)[column]
        return (
            continuous
            + self.stated[column] * (steps >= round(STATED * STEPS))
            + self.recorded[column] * (steps >= round(RECORDED * STEPS))
        )

    def _ends(self) -> tuple[Floats, Floats]:
        low = _logistic((LOWEST / STEPS - _MARGIN - self.place) / self.scale)
        high = _logistic((1 + _MARGIN - self.place) / self.scale)
        return low, high


@dataclass(frozen=True, slots=True, eq=False)
class Oracle:
    """The conditional distributions of a demo graph; every method takes a graph and answers row by row.

    The graph may have been read from a file: labels count, not ids. `path_keys` and `path_places` hold the
    composed relation: head * entities + tail, sorted, and the place that the best path over a company gives.
    """

    world: World
    path_keys: NDArray[np.int64]
    path_places: Floats

    def mixture(self, graph: Graph) -> Mixture:
        """The distribution of each row's confidence."""
        head, relation, tail = self._ids(graph)
        place = place_of(self.world, head, relation, tail)
        composed = np.array([row.name == "works_in" for row in RELATIONS])[relation]
        place[composed] = self._over_a_company(head[composed], tail[composed])
        # a symmetric statement is the same statement from either end
        by = np.array([0.5 if row.symmetric else 1.0 for row in RELATIONS])[relation, None]
        habit = by * self.world.habits[head] + (1 - by) * self.world.habits[tail]
        weight = habit * np.array([(row.stated, row.recorded) for row in RELATIONS])[relation]
        careless = np.sqrt(self.world.carelessness[head] * self.world.carelessness[tail])
        spread = np.array([row.spread for row in RELATIONS])[relation]
        return Mixture(weight[:, 0], weight[:, 1], place, spread * careless)

    def central(self, graph: Graph, confidence: float) -> Floats:
        """From the (1 - confidence) / 2 to the (1 + confidence) / 2 quantile, given the triple: (n, 2).

        No interval has a smaller expected interval score, whatever one knows.
        """
        tail, held = (1 - confidence) / 2, self.table(graph)[:, 1:]
        # the smallest values at or below which these shares of the mass lie
        steps_below = [np.sum(held < share - 1e-12, axis=1) for share in (tail, 1 - tail)]
        steps: Floats = np.minimum(np.stack(steps_below, axis=1), held.shape[1] - 1) + LOWEST
        return steps / STEPS

    def table(self, graph: Graph) -> Floats:
        """P(confidence < LOWEST), P(<= LOWEST), ... P(<= STEPS) of each row: (n, steps)."""
        steps = np.arange(LOWEST - 1, STEPS + 1, dtype=np.float64)
        return self.mixture(graph).below(np.broadcast_to(steps, (len(graph), len(steps))))

    def _ids(self, graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        words = self.world.vocabulary
        entity = words.entity_ids(graph.vocabulary.entities).astype(np.int64)
        relation = words.relation_ids(graph.vocabulary.relations).astype(np.int64)
        ids = entity[graph.head], relation[graph.relation], entity[graph.tail]
        if any(np.any(column < 0) for column in ids):
            raise ValueError("the oracle knows the entities and relations of the demo graph only")
        return ids

    def _over_a_company(self, head: NDArray[np.int64], tail: NDArray[np.int64]) -> Floats:
        keys = head * len(self.world.vocabulary.entities) + tail
        position = np.minimum(np.searchsorted(self.path_keys, keys), len(self.path_keys) - 1)
        # without a path over a company there is little reason to believe the statement
        return np.where(self.path_keys[position] == keys, self.path_places[position], 0.1)


def place_of(
    world: World, head: NDArray[np.int64], relation: NDArray[np.int64], tail: NDArray[np.int64]
) -> Floats:
    """Where the continuous part of a confidence is centred, in [0.05, 1], unless the relation is composed.

    The affinity of two positions is a weighted product, coordinate by coordinate: what DistMult can express.
    """
    affinity = np.einsum("nd,nd,nd->n", world.position[head], world.direction[relation], world.position[tail])
    weights = np.array([(row.base, row.affinity, row.head, row.tail) for row in RELATIONS])[relation]
    strength = (
        weights[:, 0]
        + weights[:, 1] * affinity
        + weights[:, 2] * world.standing[head]
        + weights[:, 3] * world.standing[tail]
    )
    lowest = LOWEST / STEPS
    return lowest + (1 - lowest) * _logistic(strength)


def _logistic(x: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _logit(p: Floats) -> Floats:
    return np.log(p) - np.log1p(-p)
