"""What methods share that can promise coverage for every relation instead of on average over all facts.

What it is: the option `per="relation"`, whose facts an answer stands on, and what to say of small relations. What it
is not: the groups themselves (`unkgcp.conformal.relations`) or a threshold; a method makes its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.predictors.base import Floats, HasTriples, IntervalPredictor
from unkgcp.conformal.ranks import Confidence, exact, rank
from unkgcp.conformal.relations import RelationGroups
from unkgcp.errors import InputError

PER = "relation"


class PerRelation(IntervalPredictor):
    """An interval method with one threshold for all facts or, with `per="relation"`, one for every group of relations.

    A relation that can expect enough calibration facts is a group by itself, small ones share one with relations like
    them, and the promise holds in each group: one that in the end has too few calibration facts for a level gets the
    whole range. Groups come from training facts alone.
    """

    groups: RelationGroups | None = None

    def __init__(self, per: str | None = None) -> None:
        if per not in (None, PER):
            raise InputError(f"a promise per {per!r} is not on offer; leave it out or choose per {PER!r}")
        self.per = per

    @property
    @abstractmethod
    def group_sizes(self) -> dict[int, int]:
        """The number of calibration facts of each group that has any."""

    @abstractmethod
    def _group_size(self, group: NDArray[np.int32]) -> NDArray[np.int64]:
        """How many calibration facts each group has: (n,)."""

    @abstractmethod
    def pooled(self, triples: HasTriples, confidence: Confidence) -> Floats:
        """Ends of known triples at the threshold of all calibration facts, whatever their relation: (n, 2)."""

    def options(self) -> dict[str, Any]:
        return {} if self.per is None else {"per": self.per}

    def relation_sizes(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """How many calibration facts the group of each relation has: (n,)."""
        assert self.groups is not None
        return self._group_size(self.groups.of(relation))

    def relation_basis(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.int8]:
        """Position in `relations.BASES` of each relation: (n,)."""
        assert self.groups is not None
        return self.groups.basis(relation, self.relation_sizes(relation))

    def _basis(self, triples: HasTriples) -> NDArray[np.int8] | None:
        return None if self.groups is None else self.relation_basis(triples.relation)

    def caution(self, confidence: Confidence) -> str | None:
        level = exact(confidence)
        if level == 1:
            return None
        if rank(level, self.size) > self.size:
            return (
                f"{self.size:,} calibration facts are too few for confidence {float(level)}: "
                "every interval is the whole range"
            )
        return None if self.groups is None else self._group_caution(level)

    def _group_caution(self, level: Fraction) -> str | None:
        """How many relations share their promise, and how many have too few calibration facts for the level."""
        known = np.flatnonzero(self.model.seen_relations)
        shared = int((self.relation_basis(known) == 1).sum())
        wide = sum(rank(level, size) > size for size in self.relation_sizes(known).tolist())
        parts = [
            f"{shared:,} of {len(known):,} relations share their promise with relations like them"
            if shared
            else "",
            f"{wide:,} of {len(known):,} relations have too few calibration facts for confidence {float(level)}: "
            "their intervals are the whole range"
            if wide
            else "",
        ]
        return "; ".join(part for part in parts if part) or None

    def _group_arrays(self) -> dict[str, NDArray[Any]]:
        if self.groups is None:
            return {}
        return {"relation_groups": self.groups.code, "relation_own": self.groups.own}

    def _restored_groups(self, arrays: Mapping[str, NDArray[Any]]) -> RelationGroups | None:
        """The groups from what `_group_arrays` gave; ValueError if they do not fit."""
        if self.per is None:
            return None
        shape = (len(self.model.seen_relations),)
        code, own = arrays.get("relation_groups"), arrays.get("relation_own")
        if code is None or own is None or code.shape != shape or own.shape != shape:
            raise ValueError("the groups of the relations are missing or do not match the vocabulary")
        return RelationGroups(code.astype(np.int32), own.astype(np.bool_))
