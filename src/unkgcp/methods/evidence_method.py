"""Evidence intervals: central intervals of a distribution learned from the training graph, calibrated by rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranking import GroupRankings
from unkgcp.conformal.selection import Range
from unkgcp.conformal.storage import to_arrays
from unkgcp.errors import InputError
from unkgcp.evidence.crossfit import CrossFit
from unkgcp.evidence.distribution import Centre, Distribution
from unkgcp.evidence.evidence_model import DOUBT_LEVEL, EvidenceModel
from unkgcp.files import joined, under
from unkgcp.graph.facts import Graph, HasTriples, Triples
from unkgcp.methods import register
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import Scorer, some_rows, training_facts
from unkgcp.methods.partitions import (
    KIND,
    Groups,
    KindGroups,
    Partitioned,
    group_degrees,
    group_doubt,
    group_relations,
)

CHUNK = 1 << 14
MAX_CALIBRATION_FACTS = 100_000
"""Calibration facts: coverage at 0.9 then has a standard deviation of 0.001, and more would only take longer."""
SECOND = 0.15  # probability above which a second value is told
FACT_COLUMNS = ("head", "relation", "tail", "confidence")


@register
class EvidenceIntervals(Partitioned):
    """The central interval of the distribution of a query's confidence, at a calibrated mass.

    `evidence` is what `unkgcp.evidence.learn` made of the proper training set. The nonconformity of a confidence is
    the central mass that just excludes it (`unkgcp.evidence.distribution`). The threshold of a group is the k-th
    smallest one of its calibration facts, and a query gets the largest threshold of its groups: by default those of the
    facts of its kind that are doubted like it, and of its kind and relation or relations like it
    (`per="doubt,relation"`). Where single values are so certain that they cover what was asked in a whole group, its
    threshold would be near 0, and doubtful facts would be answered with a single value, too. Therefore `floor`, the
    default where there are groups, puts a second rank under each threshold, of at most the level: that of calibration
    facts whose confidences take a random place in the mass of their value. Between such values both ranks are the same;
    otherwise intervals leave out no more mass than was asked. A floor can only enlarge them. The score is the mean of
    the distribution, the value its median.

    Guarantee: a fact's confidence lies in its interval with probability at least `confidence`, over calibration facts
    and query together, for every kind of question and in every group, however good or bad the distribution is.
    Assumption: calibration facts and query of a kind are exchangeable, and the distribution was learned without the
    confidences of the calibration facts.

    `per="none"` has one threshold for each kind. Its promise is one on average only, and it is not kept for the
    doubtful facts: where single values are so certain that they alone cover nearly what was asked, sure and doubtful
    facts alike are answered with a single value, which is wrong for most of the latter.
    """

    name: str = "evidence"
    guarantee: str = "coverage of at least the level, for facts exchangeable with the calibration facts"
    needs: tuple[str, ...] = ("evidence",)
    asks_model: bool = False
    own_answers: bool = True
    ranks_scores: bool = True
    default_per: tuple[str, ...] = ("doubt", "relation")
    max_calibration_facts: int | None = MAX_CALIBRATION_FACTS

    def __init__(
        self,
        evidence: EvidenceModel | None = None,
        backbone: CrossFit | None = None,
        per: str | None = None,
        floor: bool | None = None,
        by_kind: bool = True,
    ) -> None:
        """`backbone`: the cross-fitted models with which a stored evidence model is restored."""
        if floor is not None and not isinstance(floor, bool):
            raise InputError(f"floor is {floor!r} but must be true or false")
        super().__init__(per, by_kind)
        self.floor = bool(self.per) if floor is None else floor
        self.evidence = evidence
        self.backbone = backbone if evidence is None else evidence.backbone

    @property
    def one_threshold(self) -> bool:
        return super().one_threshold and not self.floor

    @property
    def within(self) -> str:
        within = super().within
        if self.per:
            return within
        return f"{within}, on average: facts that the model doubts are covered less".removeprefix(", ")

    def models(self) -> dict[str, Scorer]:
        crossfit = self.backbone.by_name() if isinstance(self.backbone, CrossFit) else {}
        return {**super().models(), **{f"crossfit/{name}": model for name, model in crossfit.items()}}

    @classmethod
    def made_of(cls, models: Mapping[str, Any]) -> dict[str, Any]:
        crossfit = {
            name.removeprefix("crossfit/"): model
            for name, model in models.items()
            if name.startswith("crossfit/")
        }
        return {"backbone": CrossFit.from_names(crossfit)} if crossfit else {}

    def with_models(self, models: Mapping[str, Any]) -> Self:
        again = super().with_models(models)
        if self.evidence is not None:
            again.evidence = self.evidence.with_backbone(again.backbone)
        return again

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        self.partitions = tuple(self._group(name) for name in self._partition_names())
        scores, placed, doubt = (np.empty(len(facts)) for _ in range(3))
        rng = self._generator()
        for part, _, distributions in self._chunks(facts):
            scores[part] = distributions.scores(facts.confidence[part])
            placed[part] = distributions.placed_scores(facts.confidence[part], rng)
            if "doubt" in self.per:
                doubt[part] = distributions.width(DOUBT_LEVEL)
        columns = self.group_columns(facts, doubt)
        self.rankings, self.floor_rankings = (GroupRankings.of(each, columns) for each in (scores, placed))

    def _group(self, name: str) -> Groups:
        """Made from the doubt and the strangeness of training facts, each asked as if it were not in the graph."""
        assert self.evidence is not None
        if name == KIND:
            return KindGroups()
        train, practice = self.evidence.evidence.train, self.evidence.practice
        counts = self.kind_counts
        if name == "degree":
            return group_degrees(train, train.n_entities, np.zeros(len(train), np.int8), counts)
        if name == "doubt":
            kind = practice.kind if self.tells_kinds else np.zeros(len(practice.kind), np.int8)
            return group_doubt(practice.doubt, kind, counts)
        count = np.bincount(train.relation, minlength=train.n_relations)
        return group_relations(practice.relation, practice.strangeness, len(count), counts, count)

    def options(self) -> dict[str, Any]:
        return {**super().options(), "floor": self.floor}

    def doubt(self, triples: HasTriples, score: Floats | None = None) -> Floats:
        """The width of the distribution's own central interval: (n,)."""
        return self._of_each(triples, lambda _, distributions: distributions.width(DOUBT_LEVEL))

    def passing(self, triples: HasTriples, condition: Range) -> Floats:
        """The mass that the distribution gives to the confidences that pass: (n,)."""
        return self._of_each(triples, lambda _, distributions: distributions.mass_inside(condition.part))

    def nonconformity(self, triples: HasTriples, truth: Floats) -> Floats:
        """Score of a label of each triple: (n,)."""
        return self._of_each(triples, lambda part, distributions: distributions.scores(truth[part]))

    def floor_scores(self, triples: HasTriples, truth: Floats) -> Floats | None:
        rng = self._generator()
        return (
            self._of_each(triples, lambda part, each: each.placed_scores(truth[part], rng))
            if self.floor
            else None
        )

    def _generator(self) -> np.random.Generator:
        """Of the places that labels take in the mass of their value."""
        assert self.evidence is not None
        return np.random.default_rng((self.evidence.seed, 0xF100))

    def _tables(self, levels: list[Fraction]) -> list[Floats]:
        """For each partition the thresholds of its groups, or their floors where these are larger."""
        tables = self.rankings.tables(levels)
        if not self.floor:
            return tables
        highest = np.array([float(level) if level < 1 else 0.0 for level in levels])
        floors = (np.minimum(floor, highest) for floor in self.floor_rankings.tables(levels))
        return [np.maximum(*pair) for pair in zip(tables, floors, strict=True)]

    def _answers(
        self, triples: HasTriples, answered: NDArray[np.bool_], levels: list[Fraction]
    ) -> tuple[NDArray[np.float32], Floats, dict[str, Any]]:
        n, answerable = len(triples.head), np.flatnonzero(answered)
        score = np.full(n, np.nan, dtype=np.float32)
        ends = np.empty((len(levels), 2, n)).transpose(2, 1, 0)
        ends[:, 0], ends[:, 1] = 0.0, 1.0
        centre = np.full((len(Centre._fields), n), np.nan)
        tables = self._tables(levels)
        for part, queries, distributions in self._chunks(some_rows(triples, answerable)):
            rows = answerable[part]
            score[rows] = distributions.centre.mean
            centre[:, rows] = distributions.centre
            doubt = distributions.width(DOUBT_LEVEL) if "doubt" in self.per else None
            ends[rows] = distributions.bounds(self._thresholds(tables, queries, doubt))
        return score, ends, _likely_values(Centre(*centre))

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        return self._answers(triples, np.ones(len(score), np.bool_), levels)[1]

    def _of_each(self, triples: HasTriples, figure: Callable[[slice, Distribution], Floats]) -> Floats:
        """One figure of each triple, from the places of a chunk and its distributions: (n,)."""
        figures = np.empty(len(triples.head))
        for part, _, distributions in self._chunks(triples):
            figures[part] = figure(part, distributions)
        return figures

    def _chunks(self, triples: HasTriples) -> Iterator[tuple[slice, Triples, Distribution]]:
        """Consecutive chunks of the triples: where each stands, its triples and their distributions."""
        if self.evidence is None:
            raise InputError(
                "method 'evidence' needs an evidence model; learn one with unkgcp.evidence.learn"
            )
        for start in range(0, len(triples.head), CHUNK):
            part = slice(start, start + CHUNK)
            queries = some_rows(triples, part)
            yield part, queries, self.evidence.distribution(queries)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        assert self.evidence is not None
        learned = _without_facts(self.evidence, self.model)
        model = {f"evidence.{name}": array for name, array in learned.items()}
        rankings = {"ranking": to_arrays(self.rankings), "floor": to_arrays(self.floor_rankings)}
        return joined(rankings) | self._group_arrays() | model

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.partitions = self._restored_groups(arrays)
        self.rankings, self.floor_rankings = (
            self._restored_rankings(under(f"{name}/", arrays)) for name in ("ranking", "floor")
        )
        if min(self.rankings.scores.min(), self.floor_rankings.scores.min()) < 0:
            raise ValueError("a calibration score is below zero")
        sizes = (len(self.model.seen_entities), len(self.model.seen_relations))
        learned = _with_facts(under("evidence.", arrays), self.model)
        self.evidence = EvidenceModel.restore(learned, *sizes, self.backbone)


# The model keeps the facts that evidence is learned from. Evidence has them in the same order at first, and with new
# ones at the end after an update. A run stores the facts once, and their order in the evidence, which decides how sums
# are rounded.


def _without_facts(evidence: EvidenceModel, model: Scorer) -> dict[str, NDArray[Any]]:
    """The arrays of evidence; if the model keeps the same facts, the array `order` replaces them.

    It has the place of each fact among those of the model, or nothing if they are in the same order.
    """
    arrays, train = evidence.arrays(), evidence.evidence.train
    kept, order = training_facts(model), np.argsort(train.keys, kind="stable")
    if kept is None or len(kept) != len(train):
        return arrays
    if not all(np.array_equal(getattr(kept, name), arrays[name][order]) for name in FACT_COLUMNS):
        return arrays
    place = np.empty(len(order), np.uint32)
    place[order] = np.arange(len(order), dtype=np.uint32)
    same = bool((np.diff(order) == 1).all())
    rest = {name: array for name, array in arrays.items() if name not in FACT_COLUMNS}
    return {"order": place[:0] if same else place, **rest}


def _with_facts(arrays: dict[str, NDArray[Any]], model: Scorer) -> dict[str, NDArray[Any]]:
    """The arrays of evidence with its facts, checked; they hold the facts themselves where the model has others."""
    if "order" not in arrays:
        return arrays
    kept, place = training_facts(model), arrays["order"]
    if kept is None:
        raise ValueError("the training facts that the evidence was learned from are missing")
    columns = {name: getattr(kept, name) for name in FACT_COLUMNS}
    if place.dtype != np.uint32 or place.shape not in ((0,), (len(kept),)) or (place >= len(kept)).any():
        raise ValueError("the order of the evidence's facts is damaged or belongs to other facts")
    if len(place):
        if np.bincount(place).max() > 1:
            raise ValueError("the order of the evidence's facts names a fact twice")
        columns = {name: column[place] for name, column in columns.items()}
    return {**columns, **arrays}


def _likely_values(centre: Centre) -> dict[str, NDArray[Any]]:
    """The columns of answers about likely values, NaN for queries that are not answered."""
    likely = centre.other_belief > SECOND
    # sums of masses are rounded, and may be a little above 1
    belief, other_belief = (
        np.minimum(mass, 1.0).astype(np.float32) for mass in (centre.belief, centre.other_belief)
    )
    return {
        "value": centre.median,
        "belief": belief,
        "other": np.where(likely, centre.other, np.nan),
        "other_belief": np.where(likely, other_belief, np.float32(np.nan)),
    }
