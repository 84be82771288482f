"""The oracle of the demo graph with what only tests ask of it: coverage of given intervals, the shortest intervals, and
confidences that are drawn afresh."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from unkgcp.graph import Graph, demo_graph
from unkgcp.graph.demo_graph import LOWEST, STEPS
from unkgcp.graph.demo_world import Floats

ROWS = 2048  # rows whose whole distribution is held in memory at a time


class Oracle(demo_graph.Oracle):
    """See `unkgcp.graph.demo_graph.Oracle`."""

    def cdf(self, graph: Graph, value: ArrayLike) -> Floats:
        """P(confidence <= value) for a value, or one value a row: (n,)."""
        return self.coverage(graph, 0.0, value)

    def coverage(self, graph: Graph, lower: ArrayLike, upper: ArrayLike) -> Floats:
        """P(lower <= confidence <= upper), the conditional coverage of any given intervals: (n,)."""
        mixture = self.mixture(graph)
        lowers = np.broadcast_to(np.asarray(lower, dtype=np.float64), (len(graph),))
        uppers = np.broadcast_to(np.asarray(upper, dtype=np.float64), (len(graph),))
        left = mixture.below(np.ceil(lowers * STEPS - 1e-6) - 1)
        return np.maximum(mixture.below(np.floor(uppers * STEPS + 1e-6)) - left, 0.0)

    def mean(self, graph: Graph) -> Floats:
        """The expected confidence, the best prediction in squared error: (n,)."""
        values = np.arange(LOWEST, STEPS + 1) / STEPS
        return np.concatenate([np.diff(below, axis=1) @ values for below in self._tables(graph)])

    def interval(self, graph: Graph, confidence: float) -> Floats:
        """The shortest interval that covers with this probability, given the triple: (n, 2).

        Of several equally short ones the one with the largest coverage.
        """
        if not 0 < confidence <= 1:
            raise ValueError(f"confidence is {confidence}, expected a number in (0, 1]")
        return np.concatenate([_shortest(below, confidence) for below in self._tables(graph)])

    def width(self, graph: Graph, confidence: float) -> float:
        """Mean width of the shortest intervals: no method that covers every kind of query equally can be sharper."""
        ends = self.interval(graph, confidence)
        return float(np.mean(ends[:, 1] - ends[:, 0]))

    def _tables(self, graph: Graph) -> Iterator[Floats]:
        """The tables of some rows at a time, at least one."""
        for start in range(0, max(len(graph), 1), ROWS):
            yield self.table(graph[start : start + ROWS])

    def draw(self, graph: Graph, generator: np.random.Generator) -> Graph:
        """The same triples with freshly drawn confidences."""
        return graph.with_confidence(self.mixture(graph).draw(generator))

    def draw_intervals(self, graph: Graph, generator: np.random.Generator) -> Graph:
        """The same triples with intervals as confidences: from the smaller to the larger of two drawn ones.

        Both ends lie in [lower, upper] with probability `coverage(graph, lower, upper) ** 2`, given the triple.
        """
        mixture = self.mixture(graph)
        return graph.with_ends(np.sort([mixture.draw(generator) for _ in range(2)], axis=0).T)


def generate(seed: int = 0) -> tuple[Graph, Oracle]:
    """The demo graph of a seed, and this oracle of it."""
    graph, oracle = demo_graph.generate(seed)
    return graph, Oracle(oracle.world, oracle.path_keys, oracle.path_places)


def _shortest(below: Floats, confidence: float) -> Floats:
    """The shortest windows that hold a mass, of several the fullest, from tables (n, values + 1): (n, 2)."""
    ends, start = np.empty((len(below), 2)), np.arange(below.shape[1] - 1)
    for row, held in enumerate(below):
        # the window from each value to the first at which it holds enough, where there is one
        stop = np.searchsorted(held, held[:-1] + confidence - 1e-12)
        width = np.where(stop < len(held), stop - start, len(held))
        mass = held[np.minimum(stop, len(held) - 1)] - held[:-1]
        first = np.where(width == width.min(), mass, -1.0).argmax()
        ends[row] = first, first + width[first] - 1
    return (ends + LOWEST) / STEPS
