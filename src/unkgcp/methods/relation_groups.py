"""Which relations have a threshold of their own, and which share one with relations like them.

Groups are made from training facts alone: calibration facts only fill them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

OWN = 35
"""Calibration facts a relation must be able to expect for a threshold of its own; 19 carry a level of 95 %."""
SHARED = 60
"""Calibration facts that a group of small relations should have together."""
_PRIOR = 20  # training facts' worth of the average relation, mixed into what is known of each

BASES = ("relation", "similar relations", "none")
"""Whose calibration facts set a query's threshold; where there are none it gets the whole range."""


@dataclass(frozen=True, eq=False)
class RelationGroups:
    """code: (relations,) int32, the group of each relation, -1 for one without training facts.

    own: (relations,) bool, whether a relation is alone in its group.
    """

    code: NDArray[np.int32]
    own: NDArray[np.bool_]

    def of(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
        """The group of each relation id: (n,); -1 beyond the known ones."""
        found: NDArray[np.int32] = np.append(self.code, np.int32(-1))[np.clip(relation, -1, len(self.code))]
        return found

    def basis(self, relation: NDArray[np.integer[Any]], size: NDArray[np.int64]) -> NDArray[np.int8]:
        """Position in `BASES` of each query, given how many calibration facts its group has: (n,)."""
        alone = np.append(self.own, False)[np.clip(relation, -1, len(self.own))]
        return np.where(size == 0, 2, np.where(alone, 0, 1)).astype(np.int8)


def group_relations(
    relation: NDArray[np.integer[Any]],
    score: NDArray[np.floating[Any]],
    relations: int,
    calibration: int,
    count: NDArray[np.integer[Any]] | None = None,
) -> RelationGroups:
    """Groups for `calibration` facts to come, from the relation and the nonconformity of training facts, (n,) each.

    A relation's own training facts say how strange the model finds it; ranks instead of scores, so that a few
    enormous ones do not decide. `count`: how many training facts each relation has, (relations,), where only some of
    them were scored.
    """
    size, scored = len(relation), np.bincount(relation, minlength=relations)
    count = scored if count is None else count
    expected = count * (calibration / max(int(count.sum()), 1))
    strangeness = np.empty(size)
    strangeness[np.argsort(score, kind="stable")] = (np.arange(size) + 0.5) / max(size, 1)
    total = np.bincount(relation, weights=strangeness, minlength=relations)
    typical = (total + 0.5 * _PRIOR) / (scored + _PRIOR)
    own = expected >= OWN
    code = np.full(relations, -1, np.int32)
    code[own] = np.arange(own.sum())
    small = np.flatnonzero(~own & (count > 0))
    small = small[np.argsort(typical[small], kind="stable")]
    pools = max(1, int(expected[small].sum() // SHARED))
    middle = np.cumsum(expected[small]) - expected[small] / 2
    code[small] = own.sum() + np.minimum(middle * pools // max(expected[small].sum(), 1e-9), pools - 1)
    # a pool that one relation fills is that relation's own
    alone = np.bincount(code[code >= 0], minlength=1) == 1
    return RelationGroups(code, np.append(alone, False)[code])


def each_relation(relations: int) -> RelationGroups:
    """Every relation for itself: where there are no training facts to compare relations by."""
    return RelationGroups(np.arange(relations, dtype=np.int32), np.ones(relations, np.bool_))
