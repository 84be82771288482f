"""The evidence model: from a query to the distribution of its confidence.

Its law has three parts. Boosted trees give the probabilities that the confidence is one of the values that other facts
of the pair suggest. Further trees give the probabilities of all other values that many facts share (atoms) and of
coarse cells between them. And a location, a scale and the shape of standardised errors, from trees as well, divide the
mass between atoms. Which of these parts serve a graph (`FORMS`) is tried out on training facts. All trees get the
features of the query (`features`) and, if there are any, cross-fitted backbone scores.

Everything is learned from training facts, each asked as a query of the graph without it (`folds`). Like a backbone, the
model has a `score`, the mean of the distribution.

>>> model = learn(splits.train)                                        # doctest: +SKIP
>>> model.distribution(splits.test).centre.median                      # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evidence.candidate_ranking import Completer, learn_completer
from unkgcp.evidence.crossfit import CrossFit, cross_fit, fold_of_rows, shortened
from unkgcp.evidence.distribution import IDENTITY, Cells, Distribution, Floats, actual_masses
from unkgcp.evidence.fact_groups import Ints, Values, commonest
from unkgcp.evidence.factors import Factors
from unkgcp.evidence.features import FREQUENT, Evidence, Features
from unkgcp.evidence.folds import Rehearsal
from unkgcp.evidence.pairs import SLOTS
from unkgcp.evidence.trees import Boosting, Trees, arrays_of, threads_for, two_at_once
from unkgcp.files import under
from unkgcp.graph.facts import Graph, HasTriples, Triples, Vocabulary
from unkgcp.progress import Part, Progress, Silent
from unkgcp.training.config import TrainConfig
from unkgcp.training.model import seen

SUGGESTED, ELSEWHERE = Boosting(rounds=100), Boosting(rounds=80)
LOCATION = Boosting(rounds=240, learning_rate=0.1, patience=15)
SCALE = Boosting(rounds=120, leaves=15, learning_rate=0.1, patience=15)
CHUNK = 1 << 15  # queries that are answered together
Submit = Callable[..., Future[Any]]
WORK = 100  # the total that `learn` reports as progress; `PARTS` says where each of its parts ends, by time
PARTS = {"asking": 40, "forms": 50, "values": 75, "errors": WORK}
DOUBT_LEVEL = 0.9  # the doubt of a query is the width of its own central interval of this mass
CONTINUOUS = 200  # fewer facts between atoms teach no location and scale
QUANTILES, SHAPES, OF_SHAPE = (
    200,
    8,
    400,
)  # of standardised errors; groups by location, and facts of each at least
LEAST_SCALE = 1e-3  # of the standard deviation of the confidences
TRIED_ON, TURNS = 12_000, 3  # rows that forms are tried out on, and how often where there are few
TRIED: dict[str, Any] = {"rounds": 30, "leaves": 15, "bins": 63, "learning_rate": 0.25}
"""Settings of the trees that forms are tried out with: coarser ones, which take a third of the time."""
FEW_ROWS = 50_000
"""Up to so many rows all forms are tried, and errors are learned at half the rate in twice the rounds, which costs no
more than seconds; more rows teach the frequent values well enough to keep them."""
TRIED_LEVELS = (0.8, 0.9, 0.95)
PRACTISED = 20_000  # training facts whose doubts and scores are kept


class Form(NamedTuple):
    """Which values a law knows of."""

    suggested: bool
    """Whether values that other facts of the pair suggest have a mass of their own."""
    atom_share: float
    """The share of facts that makes a value an atom."""
    coarse: bool
    """Whether there are coarse cells between atoms."""


FORMS = (Form(True, 0.01, True), Form(False, 0.03, True), Form(False, 1.1, False))
BY_ERRORS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How much of the masses of coarse cells the errors may say, and not the trees."""


@dataclass(frozen=True, eq=False)
class Errors:
    """Location and scale of a confidence given the features, and the shape of standardised errors by location."""

    locations: tuple[Trees, ...]
    """Each learned without one part of the facts; the location is their mean."""
    scales: tuple[Trees, ...]
    """Logarithms of the scale, given features and location; the scale is the geometric mean."""
    edges: Floats
    """(G - 1,) locations at which the groups of shapes end."""
    shape: Floats
    """(G, QUANTILES)"""

    @classmethod
    def none(cls) -> Errors:
        """For confidences that are all atoms, or too few others: mass between atoms is divided alike for all."""
        return cls((), (), np.zeros(0), np.zeros((1, 0)))

    @classmethod
    def learn(
        cls,
        table: NDArray[np.float32],
        confidence: Floats,
        part: NDArray[np.int8],
        settings: tuple[Boosting, Boosting],
        submit: Submit,
    ) -> Errors:
        """Learn from rows (n, F) with their confidences; errors are those of trees that did not see the row's part.

        `settings`: those of the trees for location and scale.
        """
        if len(confidence) < CONTINUOUS or confidence.min() == confidence.max():
            return cls.none()
        deviation = float(confidence.std())
        centre, target = float(confidence.mean()), (confidence - float(confidence.mean())) / deviation

        def in_turns(
            boosting: Boosting, objective: str, turns: int, table: NDArray[np.float32], target: Floats
        ) -> tuple[list[Trees], Floats]:
            """Trees that were learned without one part each, and what they predict of it."""

            def learned(out: NDArray[np.bool_]) -> Trees:
                return boosting.regress(table[~out], target[~out], table[out], target[out], objective)

            parts, predicted = [part % turns == turn for turn in range(turns)], np.empty(len(target))
            trees = [future.result() for future in [submit(learned, out) for out in parts]]
            for out, each in zip(parts, trees, strict=True):
                predicted[out] = each.sums(table[out])[:, 0]
            return trees, predicted

        locations, predicted = in_turns(settings[0], "regression", 3, table, target)
        wide = _with_column(table, predicted * deviation + centre)
        sizes = np.maximum(np.abs(target - predicted), LEAST_SCALE)
        scales, log_scale = in_turns(settings[1], "gamma", 2, wide, sizes)
        error = (target - predicted) / np.exp(log_scale)
        groups = max(1, min(SHAPES, len(target) // OF_SHAPE))
        location = predicted * deviation + centre
        edges = np.unique(np.quantile(location, np.arange(1, groups) / groups))
        group = np.searchsorted(edges, location, side="right")
        used, ranks = np.unique(group), (np.arange(QUANTILES) + 0.5) / QUANTILES
        shape = np.stack([np.quantile(error[group == each], ranks) for each in used])
        return cls(
            tuple(trees.scaled(deviation, centre) for trees in locations),
            tuple(trees.scaled(1.0, np.log(deviation)) for trees in scales),
            edges[used[1:] - 1],
            _ascending(shape),
        )

    def of(self, table: NDArray[np.float32]) -> tuple[Floats, Floats, Ints]:
        """Location, scale and group of shape of rows of features, (n,) each."""
        if not self.locations:
            return np.zeros(len(table)), np.ones(len(table)), np.zeros(len(table), np.int64)
        location: Floats = np.mean([trees.sums(table)[:, 0] for trees in self.locations], axis=0)
        wide = _with_column(table, location)
        scale: Floats = np.exp(np.mean([trees.sums(wide)[:, 0] for trees in self.scales], axis=0))
        group: Ints = np.searchsorted(self.edges, np.atleast_1d(location), side="right").astype(np.int64)
        return location, scale, group


@dataclass(frozen=True, eq=False)
class Law:
    """From features to distributions."""

    cells: Cells
    suggested: Trees | None
    """The probability that the confidence is suggested value 0, 1, 2, or none of them; None without such values."""
    elsewhere: Trees
    """The probability of each atom and of everything between, if the confidence is none of the suggested values."""
    between: Trees | None
    """The probability of each coarse cell, if the confidence is no atom either; None without such cells."""
    errors: Errors
    by_errors: float
    """How much of the masses of coarse cells the errors say, and not the trees."""
    actual: Floats
    """What central masses really hold, see `Distribution`."""

    def distribution(self, features: Features, values: Values) -> Distribution:
        table, slots = features
        suggested = 0.0 if self.suggested is None else self.suggested.probabilities(table)[:, :SLOTS]
        mass = np.where(slots >= 0, suggested, 0.0)
        rest = np.maximum(1.0 - mass.sum(axis=1, keepdims=True), 0.0)
        location, scale, group = self.errors.of(table)
        share = self.elsewhere.probabilities(table)
        if self.between is not None:
            share = np.concatenate([share[:, :-1], share[:, -1:] * self.between.probabilities(table)], axis=1)
        distribution = Distribution(
            self.cells,
            self.errors.shape,
            rest * share,
            location,
            scale,
            group,
            np.where(slots >= 0, values.centre[slots], 0.0),
            mass,
            self.actual,
        )
        return distribution.blended(self.by_errors) if self.by_errors else distribution


class Practice(NamedTuple):
    """Training facts that were asked as queries of the graph without them: how doubtful and strange queries will be."""

    doubt: Floats
    strangeness: Floats
    """(n,) nonconformity of their confidences."""
    relation: NDArray[np.int32]
    kind: NDArray[np.int8]
    """(n,) position in `KINDS`."""
    held: NDArray[np.bool_]
    """(n,) whether a fact was not learned from."""


@dataclass(frozen=True, eq=False)
class EvidenceModel:
    """The distribution of the confidence of any query, as `learn` learned it."""

    evidence: Evidence
    law: Law
    practice: Practice
    backbone: CrossFit | None = None
    completer: Completer | None = None
    """It ranks the candidates for the missing entity of a question, if that was learned already; see `ranking`."""
    seed: int = 0
    _latest: list[tuple[Triples, Distribution]] = field(default_factory=list, init=False, repr=False)

    @cached_property
    def ranking(self) -> Completer:
        """What ranks completions, learned when the first one is asked for."""
        if self.completer is not None:
            return self.completer
        train = self.evidence.train
        fold = None if self.backbone is None else fold_of_rows(len(train), self.seed)
        return learn_completer(train, seed=self.seed, backbone=self.backbone, fold=fold)

    @cached_property
    def seen_entities(self) -> NDArray[np.bool_]:
        return seen(self.evidence.train)[0]

    @cached_property
    def seen_relations(self) -> NDArray[np.bool_]:
        return seen(self.evidence.train)[1]

    @property
    def columns(self) -> int:
        """The number of features of a query, including backbone scores."""
        return len(self.evidence.names) + (self.backbone.columns if self.backbone else 0)

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        """The mean of each query's distribution: (n,)."""
        out = np.empty(len(head), np.float32)
        for start in range(0, len(head), CHUNK):
            part = slice(start, start + CHUNK)
            ids = (np.asarray(column[part], np.int32) for column in (head, relation, tail))
            out[part] = self.distribution(Triples(*ids)).centre.mean
        return out

    def distribution(self, triples: HasTriples) -> Distribution:
        """The distributions of all queries together; it takes memory, so ask for some ten thousand at most.

        Those of the last two calls are kept: who judges answers asks several things of the same facts and non-facts.
        """
        ids = Triples(*(np.array(column) for column in (triples.head, triples.relation, triples.tail)))
        for queries, kept in tuple(self._latest):
            if all(map(np.array_equal, queries, ids)):
                return kept
        answer = self.law.distribution(self.features(ids), self.evidence.values)
        self._latest[:] = [(ids, answer), *self._latest[:1]]
        return answer

    def features(self, triples: HasTriples, fold: NDArray[np.int8] | None = None) -> Features:
        """The features of queries, with scores by the backbones of given folds (n,) or of the folds of queries."""
        features = self.evidence.features(triples)
        if self.backbone is None:
            return features
        scores = self.backbone.scores(triples, fold)
        return Features(np.concatenate([features.table, scores], axis=1, dtype=np.float32), features.slots)

    def over(self, train: Graph) -> EvidenceModel:
        """The same trees with features from a graph that has grown; earlier rows and ids keep their meaning.

        Confidences may differ. A backbone knows nothing of new entities, so that a model with a backbone cannot grow.
        """
        if self.backbone is not None:
            raise ValueError("a model with cross-fitted backbones has to be learned again")
        evidence = self.evidence.grown(train)
        cells = self.law.cells.over(self.evidence.values, evidence.values)
        return replace(
            self,
            evidence=evidence,
            law=replace(self.law, cells=cells),
            completer=None if self.completer is None else self.completer.over(train),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything except the backbone, as plain arrays."""
        train, law = self.evidence.train, self.law
        arrays: dict[str, NDArray[Any]] = {
            **{name: getattr(train, name) for name in ("head", "relation", "tail", "confidence")},
            "entities": np.array(train.n_entities),
            "relations": np.array(train.n_relations),
            "frequent": self.evidence.frequent,
            "symmetric": train.vocabulary.symmetric,
            "actual": law.actual,
            "by_errors": np.array(law.by_errors),
            "seed": np.array(self.seed),
        }
        by_prefix: dict[str, dict[str, NDArray[Any]]] = {
            "factors": self.evidence.factors.arrays(),
            "cells": arrays_of(law.cells),
            "elsewhere": law.elsewhere.arrays(),
            "errors": {"edges": law.errors.edges, "shape": law.errors.shape},
            "practice": self.practice._asdict(),
            "completing": {} if self.completer is None else self.completer.arrays(),
            "suggested": {} if law.suggested is None else law.suggested.arrays(),
            "between": {} if law.between is None else law.between.arrays(),
            **{f"location{place}": trees.arrays() for place, trees in enumerate(law.errors.locations)},
            **{f"scale{place}": trees.arrays() for place, trees in enumerate(law.errors.scales)},
        }
        return arrays | {
            f"{prefix}.{name}": array
            for prefix, columns in by_prefix.items()
            for name, array in columns.items()
        }

    def with_backbone(self, backbone: CrossFit | None) -> EvidenceModel:
        """The same model with other copies of the cross-fitted backbones."""
        completer = self.completer
        if completer is not None and completer.backbone is not None:
            completer = replace(completer, backbone=backbone)
        return replace(self, backbone=backbone, completer=completer)

    @classmethod
    def restore(
        cls,
        arrays: Mapping[str, NDArray[Any]],
        entities: int,
        relations: int,
        backbone: CrossFit | None = None,
    ) -> EvidenceModel:
        """The model that `arrays` stored, of a graph with so many entities and relations.

        ValueError if the arrays do not fit together or belong to another graph. They are checked before they are used,
        so that memory is bounded by their own size and that of the graph.
        """
        try:
            train = _restore_facts(arrays, entities, relations)
            frequent = arrays["frequent"]
            values = Values.of(_joined(train.confidence, frequent))
            stored = under("cells.", arrays)
            cells = Cells(**{**stored, "classes": int(stored["classes"])})  # type: ignore[arg-type]
            cells.check(len(values))
            errors = Errors(
                _restore_trees("location", arrays), _restore_trees("scale", arrays),
                arrays["errors.edges"], arrays["errors.shape"],
            )  # fmt: skip
            suggested, between = (
                Trees.restore(columns) if (columns := under(name, arrays)) else None
                for name in ("suggested.", "between.")
            )
            elsewhere = Trees.restore(under("elsewhere.", arrays))
            law = Law(
                cells, suggested, elsewhere, between, errors, float(arrays["by_errors"]), arrays["actual"]
            )
            practice = Practice(**under("practice.", arrays))
            completing = under("completing.", arrays)
            completer = Completer.restore(completing, train, backbone) if completing else None
            factors = Factors.restore(under("factors.", arrays), entities, relations)
            seed = int(arrays["seed"])
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"the evidence lacks {error}") from None
        top = values.code(frequent).astype(np.int64)
        evidence = Evidence.of(train, values, top, factors)
        model = cls(evidence, law, practice, backbone, completer, seed)
        model._check()
        return model

    def _check(self) -> None:
        law, errors = self.law, self.law.errors
        atoms = law.cells.atoms
        totals = (
            (law.elsewhere, atoms + 1),
            (law.between, law.cells.classes - atoms),
            (law.suggested, SLOTS + 1),
        )
        if any(each is not None and each.total != total for each, total in totals) or (
            law.between is None and law.cells.classes > atoms + 1
        ):
            raise ValueError("the trees of the evidence tell other classes apart than there are")
        trees = [*(each for each, _ in totals if each is not None), *errors.locations]
        if {each.features for each in trees} != {self.columns} or any(
            each.features != self.columns + 1 for each in errors.scales
        ):
            raise ValueError("the trees of the evidence were learned from other features: fit it again")
        shape = errors.shape
        sound = (
            len(errors.locations) in (0, 3)
            and len(errors.scales) == (2 if errors.locations else 0)
            and shape.shape == (len(errors.edges) + 1, QUANTILES if errors.locations else 0)
            and bool(np.isfinite(shape).all() and (np.diff(shape, axis=1) > 0).all())
            and bool(np.isfinite(errors.edges).all() and (np.diff(errors.edges) > 0).all())
            and 0 <= law.by_errors <= 1
            and law.actual.shape == IDENTITY.shape
            and law.actual[0] == 0
            and law.actual[-1] == 1
            and bool((np.diff(law.actual) >= 0).all())
            and len({len(column) for column in self.practice}) == 1
            and all(bool(np.isfinite(column).all()) for column in self.practice[:2])
            and self.practice.relation.dtype == np.int32
            and self.practice.kind.dtype == np.int8
        )
        if not sound:
            raise ValueError("the errors or masses of the evidence are damaged")


def learn(
    train: Graph,
    *,
    seed: int = 0,
    kinds: NDArray[np.integer] | None = None,
    backbone: CrossFit | None = None,
    out_of_fold: NDArray[np.float32] | None = None,
    rounds: int | None = None,
    progress: Progress | None = None,
) -> EvidenceModel:
    """Learn from the proper training set alone.

    `kinds` (4,): how many calibration facts there are of each of `KINDS`, which says how queries differ from training
    facts; their confidences stay unseen. `backbone` adds its scores to the features; `out_of_fold` (N, columns) are its
    scores of the training facts. `rounds`: the most rounds of boosting of each part of the law.
    """
    if len(train) < 20:
        raise InputError(
            f"{len(train)} training facts are too few for the evidence method; it needs at least 20"
        )
    if (backbone is None) != (out_of_fold is None):
        raise ValueError("backbone scores need both the models and the scores of the training facts")
    whole = progress or Silent()
    values = Values.of(train.confidence)
    codes = values.code(train.confidence)
    # the frequent values are those of the whole graph, since other values may be more frequent in a part
    top = commonest(codes, len(values), FREQUENT)
    rehearsal = Rehearsal.of(train, kinds, seed)
    asking = Part(whole, 0, PARTS["asking"], len(rehearsal.rows))

    def ask(rows: Ints) -> Features:
        return Evidence.of(rehearsal.rest(train, rows), values, top).features(train[rows])

    tables, slots = [], []
    with two_at_once() as submit:
        for place, answered in enumerate([submit(ask, rows) for rows in rehearsal.rows]):
            features = answered.result()
            tables.append(features.table)
            slots.append(features.slots)
            asking.update(place + 1, f"{place + 1} of {len(rehearsal.rows)} folds asked")
    rows = rehearsal.asked()
    table = np.concatenate(tables)
    del tables, features, answered
    if out_of_fold is not None:
        table = np.concatenate([table, np.asarray(out_of_fold, np.float32)[rows]], axis=1)
    lesson = Lesson(
        table,
        np.concatenate(slots),
        codes[rows].astype(np.int64),
        train.confidence[rows],
        rehearsal.part[rows],
        rehearsal.held(),
        values,
        seed,
        rounds or max(SUGGESTED.rounds, LOCATION.rounds),
    )
    law = lesson.learned(lesson.best_form(), whole)
    practised = np.random.default_rng((seed, 0xD0B7)).permutation(len(rows))
    practised = np.sort(practised[np.argsort(~lesson.held[practised], kind="stable")][:PRACTISED])
    rehearsed = law.distribution(Features(table[practised], lesson.slots[practised]), values)
    practice = Practice(
        rehearsed.width(DOUBT_LEVEL),
        rehearsed.scores(lesson.confidence[practised]),
        train.relation[rows[practised]],
        rehearsal.kinds(train)[practised],
        lesson.held[practised],
    )
    del table, lesson
    whole.update(WORK, "learned")
    return EvidenceModel(Evidence.of(train, values, top), law, practice, backbone, seed=seed)


def learn_with_backbone(
    train: Graph,
    config: TrainConfig,
    *,
    seed: int = 0,
    kinds: NDArray[np.integer] | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> EvidenceModel:
    """Train ten backbones (five folds, two variants), then learn from evidence and their scores."""
    fold = fold_of_rows(len(train), seed)
    (backbone,) = cross_fit(train, shortened(config), [seed], fold, device=device, progress=progress)
    scores = backbone.scores(train, fold)
    return learn(train, seed=seed, kinds=kinds, backbone=backbone, out_of_fold=scores)


@dataclass(frozen=True, eq=False)
class Lesson:
    """Training facts with the features that they have as queries: n rows."""

    table: NDArray[np.float32]
    slots: Ints
    """(n, SLOTS) codes of suggested values."""
    codes: Ints
    """(n,) codes of the confidences."""
    confidence: Floats
    part: NDArray[np.int8]
    held: NDArray[np.bool_]
    """(n,) rows that are not learned from: they stop the boosting and show what the law is worth."""
    values: Values
    seed: int
    rounds: int
    """The most rounds of boosting."""

    def best_form(self) -> Form:
        """The form whose intervals have the best interval score on rows that were not learned from.

        Tried out on some of the rows with a fifth of them left out, several fifths in turn where there are few rows.
        """
        if len(self.table) > FEW_ROWS:
            return FORMS[0]
        order = np.random.default_rng((self.seed, 0xF0)).permutation(len(self.table))[:TRIED_ON]
        few, total = self._rows(np.sort(order)), dict.fromkeys(FORMS, 0.0)
        for turn in range(TURNS if len(order) < TRIED_ON else 1):
            lesson = replace(few, held=few.part % 5 == turn)
            if lesson.held.any() and not lesson.held.all():
                for form in FORMS:
                    law = lesson._law(form, 5 * TRIED["rounds"], TRIED)
                    total[form] += min(score for score, _ in lesson._judged(law)) * lesson.held.sum()
        return min(FORMS, key=lambda form: total[form])

    def learned(self, form: Form, progress: Progress) -> Law:
        """The law of this form, learned from all rows but the held ones."""
        boosting = Part(progress, PARTS["forms"], PARTS["values"], ELSEWHERE.rounds)
        law = self._law(form, 5 * self.rounds, {"rounds": self.rounds}, boosting)
        return min(self._judged(law), key=itemgetter(0))[1] if self.held.any() else law

    def _judged(self, law: Law) -> Iterator[tuple[float, Law]]:
        """The law with each of `BY_ERRORS` and with its actual masses, and its interval score on held rows."""
        held, label = self.held, self.confidence[self.held]
        plain = law.distribution(Features(self.table[held], self.slots[held]), self.values)
        for by_errors in BY_ERRORS[:1] if law.between is None else BY_ERRORS:
            distribution = plain.blended(by_errors) if by_errors else plain
            actual = actual_masses(distribution, label, self.seed)
            score = _interval_score(replace(distribution, actual=actual), label)
            yield score, replace(law, by_errors=by_errors, actual=actual)

    def _rows(self, rows: Ints) -> Lesson:
        return replace(
            self,
            table=self.table[rows],
            slots=self.slots[rows],
            codes=self.codes[rows],
            confidence=self.confidence[rows],
            part=self.part[rows],
            held=self.held[rows],
        )

    def _law(
        self, form: Form, rounds: int, settings: Mapping[str, Any], progress: Progress | None = None
    ) -> Law:
        """The law of this form; settings of the trees for values, and at most so many rounds of those for errors."""
        held, label = self.held, _slot_labels(self.slots, self.codes)
        threads = threads_for(len(self.table))
        first, second = (
            replace(
                trees,
                **{**settings, "rounds": min(settings["rounds"], trees.rounds)},
                seed=self.seed,
                threads=threads,
            )
            for trees in (SUGGESTED, ELSEWHERE)
        )
        slower = 2 if len(self.table) <= FEW_ROWS else 1
        third, fourth = (
            replace(
                trees,
                rounds=slower * min(rounds, trees.rounds),
                learning_rate=trees.learning_rate / slower,
                patience=slower * trees.patience,
                seed=self.seed,
                threads=threads,
            )
            for trees in (LOCATION, SCALE)
        )
        suggests = form.suggested and (label < SLOTS).mean() > form.atom_share
        rest = label == SLOTS if suggests else np.ones(len(label), np.bool_)
        if not (rest & ~held).any():
            rest = np.ones(len(label), np.bool_)
        cells = Cells.of(self.values, self.codes[rest], atom_share=form.atom_share)
        cells = cells if form.coarse else cells.joined()
        atoms, kind = cells.atoms, cells.class_of_value[self.codes]
        between = rest & (kind >= atoms)

        def learned(
            boosting: Boosting, rows: NDArray[np.bool_], label: Ints, total: int, progress: Progress | None
        ) -> Trees:
            fit, stop = rows & ~held, rows & held
            return boosting.learn(
                self.table[fit], label[fit], self.table[stop], label[stop], total, progress=progress
            )

        with two_at_once() as submit:
            elsewhere = submit(learned, second, rest, np.minimum(kind, atoms), atoms + 1, progress)
            everywhere, coarse = np.ones(len(label), np.bool_), cells.classes - atoms
            suggested = submit(learned, first, everywhere, label, SLOTS + 1, None) if suggests else None
            cell = submit(learned, second, between, kind - atoms, coarse, None) if coarse > 1 else None
            fit = between & ~held
            errors = Errors.learn(
                self.table[fit], self.confidence[fit], self.part[fit], (third, fourth), submit
            )
            return Law(
                cells,
                suggested.result() if suggested else None,
                elsewhere.result(),
                cell.result() if cell else None,
                errors,
                BY_ERRORS[0],
                IDENTITY,
            )


def _interval_score(distribution: Distribution, label: Floats) -> float:
    """The mean interval score at `TRIED_LEVELS`."""
    ends = distribution.bounds(np.tile(np.array(TRIED_LEVELS), (len(label), 1)))
    lower, upper = ends[:, 0], ends[:, 1]
    missed = np.maximum(np.maximum(lower - label[:, None], label[:, None] - upper), 0.0)
    return float((upper - lower + 2 / (1 - np.array(TRIED_LEVELS)) * missed).mean())


def _slot_labels(slots: Ints, codes: Ints) -> Ints:
    """The slot of the suggested value that each label equals, SLOTS if there is none: (n,)."""
    hit = (slots == codes[:, None]) & (codes >= 0)[:, None]
    return np.where(hit.any(axis=1), hit.argmax(axis=1), SLOTS).astype(np.int64)


def _with_column(table: NDArray[np.float32], column: Floats) -> NDArray[np.float32]:
    return np.concatenate([table, column[:, None]], axis=1, dtype=np.float32, casting="unsafe")


def _ascending(shape: Floats) -> Floats:
    """The same quantiles, those that are equal a hair apart."""
    return np.asarray(np.maximum.accumulate(shape, axis=1) + 1e-9 * np.arange(shape.shape[1]))


def _restore_trees(name: str, arrays: Mapping[str, NDArray[Any]]) -> tuple[Trees, ...]:
    """The trees `name0`, `name1`, ..., each with one class: a number."""
    restored: list[Trees] = []
    while columns := under(f"{name}{len(restored)}.", arrays):
        restored.append(Trees.restore(columns))
    if any(trees.total != 1 for trees in restored):
        raise ValueError(f"the trees of the {name} predict more than one number")
    return tuple(restored)


def _restore_facts(arrays: Mapping[str, NDArray[Any]], entities: int, relations: int) -> Graph:
    """The stored training facts over a vocabulary of numbers; the run keeps the labels elsewhere."""
    for name, size in (("entities", entities), ("relations", relations)):
        if arrays[name].shape != () or arrays[name].dtype.kind not in "iu" or int(arrays[name]) != size:
            raise ValueError(f"the evidence belongs to another graph, not to one with {size:,} {name}")
    confidence = np.asarray(arrays["confidence"])
    plain = confidence.dtype == np.float64 and confidence.ndim == 1 and len(confidence) > 0
    if not plain or not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError("the evidence's confidences are damaged")
    columns = []
    for name, limit in (("head", entities), ("relation", relations), ("tail", entities)):
        column = np.asarray(arrays[name])
        plain = column.dtype == np.int32 and column.shape == confidence.shape
        if not plain or not ((column >= 0) & (column < limit)).all():
            raise ValueError(f"the evidence's {name} column is damaged")
        columns.append(column)
    head, relation, tail = columns
    symmetric = np.asarray(arrays["symmetric"])
    if symmetric.shape != (relations,) or symmetric.dtype != np.bool_:
        raise ValueError("the evidence's symmetric relations are damaged")
    vocabulary = replace(Vocabulary.numbered(entities, relations), symmetric=symmetric)
    return Graph(head, relation, tail, confidence, vocabulary)


def _joined(confidence: NDArray[np.float64], frequent: NDArray[Any]) -> NDArray[np.float64]:
    """The confidences from which the values of stored evidence come; ValueError if `frequent` is damaged."""
    good = frequent.dtype == np.float64 and frequent.ndim == 1 and len(frequent) <= FREQUENT
    if not good or not ((frequent >= 0) & (frequent <= 1)).all() or len(np.unique(frequent)) < len(frequent):
        raise ValueError("the frequent values of the evidence are damaged")
    return np.concatenate([confidence, frequent])
