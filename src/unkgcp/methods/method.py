"""What all interval methods over triples share: how they are calibrated, asked and stored, and which queries are known.

This is the border between a scoring model (any object with `score`) and interval methods. What kind a query is of, and
what is said of entities and relations without a training fact, is dealt with here, once, for all methods: a method that
tells kinds apart answers a query where it has calibration facts of the same kind, others answer known queries alone;
all else gets the whole range and no score. Of the calibration facts that arrive together (`IntervalPredictor.units`)
one sets thresholds. Ids come in, numbers go out, and torch is never imported.

>>> predictor = create("cp").calibrate(model, calibration_facts)                       # doctest: +SKIP
>>> predictor.interval(Triples(head, relation, tail), confidence=[0.8, 0.9]).lower     # doctest: +SKIP
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import Confidence, ExactLevels, exact_levels
from unkgcp.conformal.scores import EntropyResidual
from unkgcp.conformal.units import one_row_per_unit
from unkgcp.errors import InputError
from unkgcp.files import Field, check_fields, under
from unkgcp.graph.facts import (
    Graph,
    HasTriples,
    Triples,
    Vocabulary,
    concatenate,
    contained,
    in_vocabulary,
    pair_keys,
)
from unkgcp.graph.kinds import KINDS, KNOWN_PAIR, NEW_ENTITY, Kinds, known_ids
from unkgcp.graph.known_facts import RANKED, WAITING, KnownFacts, facts_to_arrays
from unkgcp.loops import run_chunks
from unkgcp.methods.intervals import Floats, Intervals, Levels

if TYPE_CHECKING:
    from unkgcp.conformal.selection import Range, Wrong
    from unkgcp.evidence import EvidenceModel
    from unkgcp.evidence.nonfacts import FactLikeness


class Scorer(Protocol):
    """A trained model as interval methods see it."""

    @property
    def seen_entities(self) -> NDArray[np.bool_]:
        """Which entity ids have at least one training fact: (entities,)."""

    @property
    def seen_relations(self) -> NDArray[np.bool_]:
        """Which relation ids have at least one training fact: (relations,)."""

    def score(
        self, head: NDArray[np.integer], relation: NDArray[np.integer], tail: NDArray[np.integer]
    ) -> NDArray[np.floating]:
        """Predicted confidence of known triples, in [0, 1]: (n,)."""


@runtime_checkable
class TrainedScorer(Scorer, Protocol):
    """A model that also knows its vocabulary and, perhaps, its training facts."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def facts(self) -> KnownFacts | None:
        """Its training facts, None if it does not know them."""


Number = TypeVar("Number", int, float)
NOT_KEPT = "the run does not hold its calibration facts; calibrate it again with unkgcp fit --from RUN"
ABOUT = (Field("size", np.integer), Field("kind_counts", np.int64, (len(KINDS),), 0))
"""What every calibration stores of itself."""


def numbered(models: Mapping[str, Any], kind: str, number: Callable[[str], Number]) -> dict[Number, Any]:
    """The models with names like `kind/number`, by their number, upwards."""
    by_number = {
        number(name.split("/")[1]): model for name, model in models.items() if name.startswith(f"{kind}/")
    }
    return dict(sorted(by_number.items()))


def status_codes(model: Scorer, triples: HasTriples) -> NDArray[np.int8]:
    """Position in `STATUSES` of each triple: (n,). Unknown entities are reported first."""
    _, unknown_entity, unknown_relation = np.arange(3, dtype=np.int8)
    code = np.empty(len(triples.head), np.int8)

    def work(start: int, stop: int) -> None:
        head, relation, tail = some_rows(triples, slice(start, stop))
        entity = known_ids(model.seen_entities, head) & known_ids(model.seen_entities, tail)
        known = known_ids(model.seen_relations, relation)
        code[start:stop] = unknown_entity * ~entity + unknown_relation * (entity & ~known)

    run_chunks(len(code), work)
    return code


def some_rows(triples: HasTriples, rows: NDArray[np.intp] | slice) -> Triples:
    """The triples in these rows."""
    return Triples(triples.head[rows], triples.relation[rows], triples.tail[rows])


def training_facts(model: Scorer) -> Graph | None:
    """The facts that a model was trained on, None if it does not know them."""
    if isinstance(model, TrainedScorer) and model.facts is not None:
        return model.facts.graph(model.vocabulary)
    return None


def stored_facts(
    model: Scorer, arrays: Mapping[str, NDArray[Any]], prefixes: Sequence[str]
) -> list[Graph | None]:
    """The sets of facts that `facts_to_arrays` stored, in the ids of a model; ValueError if one is damaged.

    None for a missing set, and for all if the model has no vocabulary.
    """
    vocabulary = model.vocabulary if isinstance(model, TrainedScorer) else None
    graphs: list[Graph | None] = []
    for prefix in prefixes:
        columns = under(prefix, arrays)
        size = len(model.seen_entities), len(model.seen_relations)
        stored = KnownFacts.stored(columns, *size) if columns else None
        graphs.append(None if stored is None or vocabulary is None else stored.graph(vocabulary))
    return graphs


def entropy_bits(score: Floats) -> Floats:
    """The entropy of scores in bits, from nearly 0 for a sure one to 1 for 0.5: (n,)."""
    bits: Floats = EntropyResidual().prepare(score) / np.log(2)
    return np.minimum(bits, 1.0)


def _drawn(facts: Graph, count: int) -> tuple[Graph, Graph]:
    """`count` of the facts, drawn at random and without a look at any of them, and the facts that are left."""
    drawn = np.zeros(len(facts), bool)
    drawn[np.random.default_rng(0xCA1B).permutation(len(facts))[:count]] = True
    return facts[drawn], facts[~drawn]


class IntervalPredictor(ABC):
    """An interval method: calibrated once on facts, then asked at any level.

    A subclass states its guarantee and its assumption in its docstring and in `guarantee`, and implements
    `_calibrate`, `_ends`, `arrays` and `_restore`. Intervals must lie in [0, 1] and grow with the level. NaN as both
    ends is an empty interval.
    """

    name: str
    guarantee: str
    needs: tuple[str, ...] = ()
    """What must be learned for it beside the model: `quantiles`, a model of `length`, `members` or `evidence`."""
    asks_model: bool = True
    """Whether it asks the model for scores; a run may do without a model where it does not."""
    own_answers: bool = False
    """Whether scores or ends depend on more than the score of the model, so that only `interval` gives them."""
    for_open_world: bool = False
    """Whether its promise also holds for queries that are no facts."""
    ranks_scores: bool = False
    """Whether the k-th smallest score of calibration facts makes an interval."""
    order_free: bool = True
    """Whether the order of the calibration facts is of no consequence."""
    max_calibration_facts: int | None = None
    """The most calibration facts that set its thresholds, where asking takes long; of more facts, so many are drawn."""

    by_kind: bool = False
    """Whether queries are compared with calibration facts of their own kind alone (`unkgcp.graph.kinds`)."""
    takes_groups: bool = False
    """Whether there can be groups within kinds (`unkgcp.methods.partitions`)."""

    model: Scorer
    size: int
    """Number of calibration facts used."""
    kind_counts: NDArray[np.int64]
    """(kinds,) how many of them are of each kind."""
    _trained: tuple[Scorer, Kinds, Floats] | None = None
    partitions: tuple[Any, ...] = ()
    """The ways to put triples into groups (`unkgcp.methods.partitions`) with a threshold each; none if there is one."""
    evidence: EvidenceModel | None = None
    """What was learned from the training graph, for a method that answers from it."""
    nonfact_kinds: tuple[str, ...] = ()
    """The kinds of triples that are no facts for which its promise also holds."""
    ranked: Graph | None = None
    """The calibration facts that set its thresholds, in any order; None if they train its models, too."""
    waiting: Graph | None = None
    """Facts held out of training that set no threshold: no training fact is about their entities or relation yet, or
    they were left out on purpose. An update of the run uses them again."""

    def calibrate(self, model: Scorer, facts: Graph) -> Self:
        """Learn what this method needs from calibration facts, none of which the model was trained on."""
        self.model = model
        # a label that the vocabulary lacks has the id -1, under which its fact cannot be kept
        usable = in_vocabulary(facts) & (self.tells_kinds | (status_codes(model, facts) == 0))
        waiting = facts[~usable & in_vocabulary(facts)]
        facts = facts[usable]
        if self.tells_kinds:
            drawn = one_row_per_unit(self.units(facts), seed=0x0417)
            rest = np.delete(np.arange(len(facts)), drawn)
            waiting, facts = concatenate([waiting, facts[rest]]), facts[drawn]
        if self.max_calibration_facts is not None and len(facts) > self.max_calibration_facts:
            facts, left = _drawn(facts, self.max_calibration_facts)
            waiting = concatenate([waiting, left])
        if not len(facts):
            raise InputError(
                "no calibration fact has its entities and its relation in the training facts; "
                "calibrate with facts about known entities"
            )
        self.size = len(facts)
        self.ranked, self.waiting = facts, waiting
        self.kind_counts = np.bincount(self.kinds(facts), minlength=len(KINDS))
        self._calibrate(self._model_scores(facts) if self.asks_model else np.full(len(facts), np.nan), facts)
        return self

    @property
    def tells_kinds(self) -> bool:
        """Whether it compares queries with calibration facts of their own kind; it must know the training facts."""
        # quicker than to ask whether it is a `TrainedScorer`, which small questions would wait for
        return self.by_kind and hasattr(self.model, "facts") and self.model.facts is not None

    def kinds(self, triples: HasTriples) -> NDArray[np.int8]:
        """Position in `KINDS` of each triple, (n,); 0 for all where kinds are not told apart."""
        if not self.tells_kinds:
            return np.zeros(len(triples.head), np.int8)
        return self._of_training()[0].codes(triples)

    def _of_training(self) -> tuple[Kinds, Floats]:
        """What tells the kinds of queries, and the mean confidence of the training facts of each relation, last that of
        all, (relations + 1,): worked out once, since it takes as long as there are facts."""
        if self._trained is None or self._trained[0] is not self.model:
            train = training_facts(self.model)
            assert train is not None
            count = np.bincount(train.relation, minlength=train.n_relations)
            total = np.bincount(train.relation, train.confidence, train.n_relations)
            mean = np.append(np.where(count > 0, total / np.maximum(count, 1), np.nan), np.nan)
            typical = np.where(np.isnan(mean), train.confidence.mean(), mean)
            self._trained = self.model, Kinds.of(train, train.n_entities, train.n_relations), typical
        return self._trained[1:]

    def units(self, facts: Graph) -> NDArray[np.int64]:
        """Which facts came together, as equal rows: (n, 2), the sort of the unit and its number; -1 for one alone.

        Facts of an entity without a training fact, facts of a pair without one, and repeats of a triple without one
        are held out together, whatever the rule by which a graph was split; other rows came alone.
        """
        kind, known, train = self.kinds(facts), self._of_training()[0], training_facts(self.model)
        assert train is not None
        new = np.where(known.seen_entities[facts.head], facts.tail, facts.head)
        pair, alone = pair_keys(facts, len(self.model.seen_entities)), np.arange(len(facts))
        repeated = ~contained(facts.keys, np.sort(train.keys))
        cases = [kind == NEW_ENTITY, kind != KNOWN_PAIR, repeated]
        number = np.select(cases, [new, pair, facts.keys], alone)
        return np.stack([np.select(cases, [0, 1, 2], -1), number], axis=1)

    def models(self) -> dict[str, Scorer]:
        """Every model that it asks, by the name under which a run stores it."""
        return {"model": self.model}

    @classmethod
    def made_of(cls, models: Mapping[str, Scorer]) -> dict[str, Any]:
        """The arguments of the class that are models, found among those of a run by their names."""
        return {}

    def with_models(self, models: Mapping[str, Scorer]) -> Self:
        """The same method over other copies of its models, which come under the names that `models` gives them."""
        again = copy(self)
        vars(again).update(self.made_of(models), model=models["model"])
        return again

    @property
    def one_threshold(self) -> bool:
        """Whether one threshold, the k-th smallest calibration score, makes all intervals: hits then have a law."""
        return not self.partitions and self.ranks_scores

    def interval(self, triples: HasTriples, confidence: Levels = 0.9) -> Intervals:
        """Score and interval of each triple at one level or at several."""
        levels, single = confidence if isinstance(confidence, ExactLevels) else exact_levels(confidence)
        code = status_codes(self.model, triples)
        kind = self.kinds(triples) if self.tells_kinds else None
        answered = code == 0 if kind is None else self.kind_counts[kind] > 0
        score, ends, more = self._answers(triples, answered, levels)
        more["basis"], more["kind"] = self._basis(triples), kind
        if single:
            return Intervals(score, ends[:, 0, 0], ends[:, 1, 0], code, float(levels[0]), **more)
        return Intervals(score, ends[:, 0], ends[:, 1], code, [float(level) for level in levels], **more)

    def _answers(
        self, triples: HasTriples, answered: NDArray[np.bool_], levels: list[Fraction]
    ) -> tuple[NDArray[np.float32], Floats, dict[str, Any]]:
        """Scores (n,) and ends (n, 2, levels) of triples, some of which are answered (n,), and further columns of
        `Intervals`, by name."""
        n = len(triples.head)
        rows = slice(n) if answered.all() else np.flatnonzero(answered)
        queries = some_rows(triples, rows)
        predictions = self._model_scores(queries, known=not self.tells_kinds)
        answers = predictions.astype(np.float32), self._ends(predictions, queries, levels)
        if isinstance(rows, slice):
            return *answers, {}
        score = np.full(n, np.nan, dtype=np.float32)
        # the columns are used one by one, so each is laid out in one piece
        ends = np.empty((len(levels), 2, n)).transpose(2, 1, 0)
        ends[:, 0], ends[:, 1] = 0.0, 1.0
        score[rows], ends[rows] = answers
        return score, ends, {}

    @property
    def within(self) -> str:
        """The groups of facts in each of which the promise holds, as words that follow it; empty if there are none."""
        return ""

    def caution(self, confidence: Confidence) -> str | None:
        """A sentence where this level is answered in a way that a user should know of, else None."""
        return None

    def doubt(self, triples: HasTriples, score: Floats | None = None) -> Floats:
        """How unsure the method itself is of each known triple, from 0 to 1, without any label: (n,).

        Facts are sorted by it to see whether the promise holds for the doubtful ones too. By default it is the
        entropy of the score in bits. score: (n,), what the model says of the triples, where that is known already.
        """
        return entropy_bits(self._model_scores(triples) if score is None else score)

    def _model_scores(self, triples: HasTriples, known: bool = False) -> Floats:
        """What the model says of triples (n,); of unknown ones what training facts of their relation say on average.

        known: whether none of them is unknown.
        """
        answerable = np.ones(0, np.bool_) if known else status_codes(self.model, triples) == 0
        if answerable.all():
            return np.asarray(self.model.score(triples.head, triples.relation, triples.tail), np.float64)
        score = np.empty(len(answerable))
        rows = np.flatnonzero(answerable)
        score[rows] = self.model.score(*some_rows(triples, rows))
        typical, relation = self._of_training()[1], triples.relation[~answerable]
        score[~answerable] = typical[np.where((relation < 0) | (relation >= len(typical)), -1, relation)]
        return score

    def nonconformity(self, triples: HasTriples, truth: Floats) -> Floats | None:
        """How strange each label is beside what this method predicts for a known triple: (n,).

        It is the score that calibration facts were ranked by, negative where the label lies below the prediction if
        the method keeps that apart. truth: (n,), or (n, 2) for confidences that are intervals. None for a method that
        ranks nothing.
        """
        return None

    def floor_scores(self, triples: HasTriples, truth: Floats) -> Floats | None:
        """Scores of labels by which a floor under all thresholds is ranked: (n,); None for a method without a floor."""
        return None

    def passing(self, triples: HasTriples, condition: Range) -> Floats:
        """A score of each known triple that is larger where its confidence likelier fulfils a condition: (n,).

        It must not depend on calibration facts. By default it is how far inside the range the model's score lies.
        """
        return condition.distance(self._model_scores(triples))

    def calibration_facts(self) -> Graph:
        """The facts that set its thresholds, in any order; InputError where they were not kept."""
        if self.ranked is None:
            raise InputError(NOT_KEPT)
        return self.ranked

    def held_out(self) -> Graph:
        """All facts that were held out of training, also those that set no threshold."""
        if self.ranked is None or self.waiting is None:
            raise InputError(NOT_KEPT)
        return concatenate([self.ranked, self.waiting])

    def wrong_nonfacts(self, condition: Range) -> dict[str, Wrong]:
        """For each kind of triples that are no facts what a candidate of that kind is compared with; see `OpenWorld`.

        Empty for a method that takes every candidate for a fact, and where the confidence 0 fulfils the condition.
        """
        return {}

    def likeness_over(self, evidence: EvidenceModel) -> FactLikeness | None:
        """What tells facts from others, applied to another evidence model; None unless that was learned."""
        return None

    def among(self, facts: Graph) -> Self:
        """The same method calibrated anew with some of its calibration facts.

        They must have been picked without a look at their order or, but for the swap that
        `unkgcp.conformal.selection` does, at their confidences.
        """
        self.check_subsets()
        if not len(facts):
            raise InputError(
                "no calibration fact would have been chosen like that, so nothing is known of the intervals of what "
                "is; choose more, or leave out --after-selection"
            )
        return copy(self).calibrate(self.model, facts)

    def check_subsets(self) -> None:
        """InputError unless it can be calibrated anew with some of its facts."""
        if not self.order_free or "length" in self.needs:
            raise InputError(
                f"intervals after a selection are not offered for the method {self.name}, whose calibration cannot be "
                "cut down to the facts that are chosen; choose cp, unkgcp or evidence"
            )

    def threshold_sizes(self, triples: HasTriples, doubt: Floats | None = None) -> NDArray[np.int64] | None:
        """How many calibration facts set the threshold of each known triple: (n,); None if no threshold is set by rank.

        It says how far the coverage of such triples may lie below the level by chance alone. doubt: (n,), what
        `doubt` says of the triples, where that is known already.
        """
        return np.full(len(triples.head), self.size) if self.one_threshold else None

    def restore(self, model: Scorer, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The calibrated predictor again, from what `arrays` gave; ValueError if they do not fit."""
        rest = dict(arrays)
        about = {field.name: rest.pop(field.name) for field in ABOUT if field.name in rest}
        check_fields(about, ABOUT)
        self.model, self.size, self.kind_counts = model, int(about["size"]), about["kind_counts"]
        self.ranked, self.waiting = stored_facts(model, arrays, (RANKED, WAITING))
        if self.ranked is not None and len(self.ranked.head) != self.size:
            raise ValueError("the calibration facts are not as many as there were")
        self._restore({name: array for name, array in rest.items() if not name.startswith((RANKED, WAITING))})
        return self

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything calibration learned, as plain numeric arrays."""
        return {
            "size": np.array(self.size, dtype=np.int64),
            "kind_counts": self.kind_counts.astype(np.int64),
            **self._arrays(),
            **facts_to_arrays({RANKED: self.ranked, WAITING: self.waiting}),
        }

    def options(self) -> dict[str, Any]:
        """Settings with which `create` makes the same uncalibrated predictor; plain YAML values."""
        return {}

    def nonfact_arrays(self) -> dict[str, NDArray[Any]]:
        """What a second calibration, on triples that are no facts, learned; empty for asserted facts."""
        return {}

    @abstractmethod
    def _calibrate(self, score: Floats, facts: Graph) -> None:
        """score: (l,) of the facts, all known; NaN if `asks_model` is not set."""

    @abstractmethod
    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        """Lower and upper ends of known triples: (n, 2, levels), inside [0, 1]."""

    def _basis(self, triples: HasTriples) -> NDArray[np.int8] | None:
        """Whose calibration facts answer each triple: (n,); None unless the method promises per relation."""
        return None

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]: ...

    @abstractmethod
    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None: ...
