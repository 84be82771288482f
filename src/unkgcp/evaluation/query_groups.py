"""Which calibration facts stand behind the answer to a query: those of its kind, and those of its group.

Both follow from the ids of a query and the training facts, never from a label, so that the coverage of test facts may
be judged kind by kind and group by group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.facts import HasTriples
from unkgcp.graph.kinds import Kinds
from unkgcp.methods.method import IntervalPredictor, status_codes, training_facts
from unkgcp.methods.open_world import OpenWorld
from unkgcp.methods.partitions import Partitioned


def query_kinds(model: Any, triples: HasTriples) -> NDArray[np.int8]:
    """Position in `KINDS` of each query: (n,). Without training facts all pairs of known entities are known."""
    train = training_facts(model)
    if train is None:
        return np.array([0, 2, 3], np.int8)[status_codes(model, triples)]
    return Kinds.of(train, len(model.seen_entities), len(model.seen_relations)).codes(triples)


def answered(method: IntervalPredictor, triples: HasTriples) -> NDArray[np.bool_]:
    """Which queries have a prediction and an interval of their own, not just the whole range: (n,)."""
    return ~np.isnan(method.interval(triples).score)


class ThresholdGroups(NamedTuple):
    """The group of each query in one partition, and how many calibration facts it has: (n,) both."""

    code: NDArray[np.integer[Any]]
    size: NDArray[np.integer[Any]]

    def cases(self) -> list[tuple[int, int]]:
        """Calibration facts and queries of each group."""
        _, first, count = np.unique(self.code, return_index=True, return_counts=True)
        return list(zip(self.size[first].tolist(), count.tolist(), strict=True))


def threshold_groups(
    method: IntervalPredictor, triples: HasTriples, doubt: NDArray[np.float64] | None = None
) -> ThresholdGroups | None:
    """The groups of answered triples whose hits follow a law; None where no law holds.

    Hits in a group whose threshold is the k-th smallest of l scores are beta-binomial. Where a query takes the largest
    threshold of its groups in several partitions, each of these laws is a lower bound of its hits: the groups of one
    partition, whose facts are disjoint, may be added up, those of several may not. doubt: (n,), where it is known.
    """
    if isinstance(method, OpenWorld):
        return threshold_groups(method.base, triples, doubt)
    if "members" in method.needs or method.name == "mean-length":
        return None
    if method.one_threshold:
        one = np.zeros(len(triples.head), np.int64)
        return ThresholdGroups(one, one + method.size)
    if not isinstance(method, Partitioned) or not (columns := method.group_columns(triples, doubt)):
        return None
    name, codes = min(columns.items(), key=lambda item: len(np.unique(item[1])))
    return ThresholdGroups(codes, method._sizes(name, codes))
