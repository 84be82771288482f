"""Interval methods that promise their level within groups of facts: what such methods share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.group_rankings import GroupRankings
from unkgcp.conformal.ranking import group_codes
from unkgcp.conformal.ranks import Confidence, exact, rank
from unkgcp.graph.facts import HasTriples
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import IntervalPredictor
from unkgcp.methods.partitions import NONE, Groups, RelationGroups, partition_names, restored


class Partitioned(IntervalPredictor):
    """An interval method with one threshold for all facts or one for every group of facts.

    `per` names the partitions into groups, separated by commas (`unkgcp.methods.partitions`), or says `none`. A query
    is answered by the largest threshold of its groups, so that the promise holds in each of them; a group that in the
    end has too few calibration facts for a level gets the whole range. Groups come from training facts alone.
    """

    default_per: tuple[str, ...] = ()
    """The partitions of a method that is asked for none in particular."""

    def __init__(self, per: str | None = None) -> None:
        self.per = partition_names(per, self.default_per)

    @property
    @abstractmethod
    def rankings(self) -> GroupRankings:
        """The calibration scores in order, in the groups of each partition."""

    @abstractmethod
    def _group(self, name: str) -> Groups:
        """The partition of this name, made from training facts and the number of calibration facts."""

    @abstractmethod
    def pooled(self, triples: HasTriples, confidence: Confidence) -> Floats:
        """Ends of known triples at the threshold of all calibration facts, whatever their group: (n, 2)."""

    def options(self) -> dict[str, Any]:
        return {"per": ",".join(self.per) or NONE} if self.per or self.default_per else {}

    @property
    def within(self) -> str:
        return " and ".join(f"within {groups.within}" for groups in self.partitions)

    @property
    def relation_groups(self) -> RelationGroups | None:
        """The groups by relation, if it promises per relation."""
        return next((groups for groups in self.partitions if isinstance(groups, RelationGroups)), None)

    def group_columns(
        self, triples: HasTriples, doubt: Floats | None = None
    ) -> dict[str, NDArray[np.int32]] | None:
        """The group of each known triple, (n,), in every partition; None if there are none.

        doubt: (n,), what `doubt` says of the triples, where that is known already.
        """
        if not self.partitions:
            return None
        if doubt is None and "doubt" in self.per:
            doubt = self.doubt(triples)
        return {groups.name: groups.codes(triples, doubt) for groups in self.partitions}

    def threshold_sizes(self, triples: HasTriples, doubt: Floats | None = None) -> NDArray[np.int64]:
        """Of the groups of each triple the largest one counts: the others' thresholds can only add to coverage."""
        columns = self.group_columns(triples, doubt)
        if columns is None:
            return np.full(len(triples.head), self.size)
        sizes = np.stack([self._sizes(name, codes) for name, codes in columns.items()])
        return np.asarray(sizes.max(axis=0))

    def _sizes(self, name: str, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """How many calibration facts groups of a partition have: (n,)."""
        found = self.rankings.partitions[name]
        assert found.groups is not None
        # the code -1 of a group without facts is the place of the last segment, which is empty
        return found.ranking.sizes[group_codes(found.groups, codes)]

    def relation_sizes(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """How many calibration facts the group of each relation has: (n,)."""
        assert self.relation_groups is not None
        return self._sizes("relation", self.relation_groups.of(relation))

    def relation_basis(self, relation: NDArray[np.integer[Any]]) -> NDArray[np.int8]:
        """Position in `BASES` of each relation: (n,)."""
        assert self.relation_groups is not None
        return self.relation_groups.basis(relation, self.relation_sizes(relation))

    def _basis(self, triples: HasTriples) -> NDArray[np.int8] | None:
        return None if self.relation_groups is None else self.relation_basis(triples.relation)

    def caution(self, confidence: Confidence) -> str | None:
        level = exact(confidence)
        if level == 1:
            return None
        if rank(level, self.size) > self.size:
            return (
                f"{self.size:,} calibration facts are too few for confidence {float(level)}: "
                "every interval is the whole range"
            )
        if not self.partitions:
            return None
        said = [part for groups in self.partitions for part in self._group_cautions(groups, level)]
        return "; ".join(said) or None

    def _group_cautions(self, groups: Groups, level: Fraction) -> Iterator[str]:
        """How many relations share their promise, and how many groups have too few calibration facts for the level."""
        known = np.flatnonzero(self.model.seen_relations)
        if isinstance(groups, RelationGroups):
            if shared := int((self.relation_basis(known) == 1).sum()):
                yield f"{shared:,} of {len(known):,} relations share their promise with relations like them"
            sizes, what = self.relation_sizes(known), "relations"
        else:
            sizes = self._sizes(groups.name, np.arange(groups.count, dtype=np.int32))
            what = f"groups by {groups.name}"
        if wide := sum(rank(level, size) > size for size in sizes.tolist()):
            yield (
                f"{wide:,} of {len(sizes):,} {what} have too few calibration facts for confidence {float(level)}: "
                "their intervals are the whole range"
            )

    def _group_arrays(self) -> dict[str, NDArray[Any]]:
        return {name: array for groups in self.partitions for name, array in groups.arrays().items()}

    def _restored_groups(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[Groups, ...]:
        """The partitions from what `_group_arrays` gave; ValueError if they do not fit."""
        shape = len(self.model.seen_entities), len(self.model.seen_relations)
        return tuple(restored(name, arrays, *shape) for name in self.per)
