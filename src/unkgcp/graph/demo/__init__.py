"""The demo graph: generated, seeded, and with the true distribution of every confidence known.

About 40,000 facts over 2,400 invented people, companies, cities, skills and products in twelve relations:
easy and hard ones, symmetric ones and a composed one, popular and rare entities, entities whose facts scatter
more, stock values (0.7 is more than a quarter of all confidences) and some triples stated twice. It is no
benchmark: real graphs are messier, but none of them can say whether an interval covers *given the query*.

>>> graph, oracle = generate(seed=0)
>>> oracle.width(graph[:1000], confidence=0.9)         # how wide the best possible intervals are
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from unkgcp.graph.demo import drawing, world
from unkgcp.graph.demo.logic import RULES, infer
from unkgcp.graph.demo.oracle import Oracle, place_of
from unkgcp.graph.facts import Graph
from unkgcp.graph.vocabulary import Vocabulary

__all__ = ["RULES", "Demo", "Oracle", "generate", "infer"]


class Demo(NamedTuple):
    """The graph and the oracle that knows where its confidences come from."""

    graph: Graph
    oracle: Oracle


def generate(seed: int = 0) -> Demo:
    """The demo graph of a seed: the same bytes every time."""
    generator = np.random.default_rng(seed)
    inhabitants = world.build(generator)
    pairs = drawing.draw_pairs(inhabitants, generator)
    oracle = Oracle(inhabitants, *_paths(inhabitants, pairs))
    head, relation, tail = drawing.arrange(pairs, generator)
    # nobody hears of entities without a fact
    used, ends = np.unique(np.concatenate([head, tail]), return_inverse=True)
    labels = inhabitants.vocabulary
    blank = Graph(
        ends[: len(head)].astype(np.int32),
        relation.astype(np.int32),
        ends[len(head) :].astype(np.int32),
        np.zeros(len(head)),
        Vocabulary(labels.entities.take(pa.array(used)), labels.relations),
    )
    return Demo(oracle.draw(blank, generator), oracle)


def _paths(inhabitants: world.World, pairs: dict[str, drawing.Pairs]) -> tuple[drawing.Ints, world.Floats]:
    """Sorted keys (head * entities + tail) of the composed relation, and the best way's product of places."""
    first, second = drawing.COMPOSED["works_in"]
    order = [row.name for row in world.RELATIONS]
    start, middle, end = drawing.join(pairs[first], pairs[second])
    product = place_of(inhabitants, start, np.full(len(start), order.index(first)), middle) * place_of(
        inhabitants, middle, np.full(len(start), order.index(second)), end
    )
    keys, inverse = np.unique(start * len(inhabitants.community) + end, return_inverse=True)
    best = np.zeros(len(keys))
    np.maximum.at(best, inverse, product)
    return keys, best
