"""A model of one's own in the place of one that is trained here: anything that scores triples.

What it is: `external_model` makes a `Model` of an object with `score(head, relation, tail)` over ids, or of a function
of labels, and checks the scores at every call. What it is not: a place where such a model is kept. A run keeps its
calibration, the labels and some scores, by which the model is recognised when it is given again.

>>> external_model(lambda head, relation, tail: [0.5] * len(head), vocabulary)              # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.errors import InputError
from unkgcp.files import Field, check_fields
from unkgcp.graph.facts import Graph, HasTriples, Triples, Vocabulary, in_vocabulary
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.training.config import GIVEN, TrainConfig
from unkgcp.training.model import Model, seen

AT_ONCE = 1 << 16  # triples in one call of the model
SAMPLE = 256  # calibration facts whose scores are kept
APART = 1e-4  # scores of the same triple may differ by so much: models round otherwise in other batches
ROUNDING = 1e-6  # scores may lie outside [0, 1] by so much
FIELDS = (
    Field("head", np.integer, ("facts",), 0, "entities"),
    Field("relation", np.integer, ("facts",), 0, "relations"),
    Field("tail", np.integer, ("facts",), 0, "entities"),
    Field("score", np.floating, ("facts",)),
)
"""The sample that a run keeps."""
COLUMNS = tuple(field.name for field in FIELDS)


@runtime_checkable
class Scores(Protocol):
    """What a model of one's own has to have: scores in [0, 1] of triples given by ids, (n,) each."""

    def score(self, head: Any, relation: Any, tail: Any) -> Any: ...


OwnModel = Scores | Callable[..., Any]


@dataclass(frozen=True, eq=False)
class GivenModel(Model):
    """A model of one's own, with the labels it knows.

    `scorer` scores ids. `sample` holds some triples with the scores they had at calibration, one array for each of
    COLUMNS.
    """

    scorer: Callable[..., Any] | None = field(default=None, repr=False)
    name: str = "a model of your own"
    sample: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False)

    @property
    def called(self) -> str:
        return self.name

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        """Scores of triples given by ids (n,), in calls of a bounded size: (n,) float32 in [0, 1]."""
        ids = [np.ascontiguousarray(column, np.int64) for column in (head, relation, tail)]
        out = np.empty(len(ids[0]), np.float32)
        for start in range(0, len(out), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
            out[rows] = self._checked(*(column[rows] for column in ids))
        return out

    def _checked(self, head: NDArray[Any], relation: NDArray[Any], tail: NDArray[Any]) -> NDArray[Any]:
        if self.scorer is None:
            raise InputError(
                f"this run does not keep its model ({self.name}): give it again when you load the run"
            )
        try:
            scores = np.asarray(self.scorer(head, relation, tail), np.float64)
        except (TypeError, ValueError) as error:
            why = " ".join(str(error).split())[:200]
            raise InputError(
                f"{self.name} gives no array of numbers for {len(head):,} triples ({why})"
            ) from error
        if scores.shape != head.shape:
            raise InputError(
                f"{self.name} gives an array of shape {scores.shape} for {len(head):,} triples; "
                "it must give one score a triple"
            )
        wrong = ~((scores >= -ROUNDING) & (scores <= 1 + ROUNDING))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            entities, relations = self.vocabulary.entities, self.vocabulary.relations
            labels = entities[int(head[row])], relations[int(relation[row])], entities[int(tail[row])]
            what = " ".join(label.as_py() for label in labels)
            remedy = "" if np.isnan(scores[row]) else "; map its scores to [0, 1] first, by a rising function"
            raise InputError(
                f"{self.name} gives {what} the score {scores[row]:g}, not a number in [0, 1]{remedy}"
            )
        return np.clip(scores, 0.0, 1.0)

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"name": self.name}

    def arrays(self) -> dict[str, dict[str, NDArray[Any]]]:
        return super().arrays() | {"given": self.sample}

    def tried(self, facts: HasTriples) -> GivenModel:
        """The same with the scores of some known facts, asked twice; InputError if the answers differ."""
        if self.sample:
            return self
        rows = np.flatnonzero(in_vocabulary(facts))
        rows = rows[np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows)), dtype=np.intp)]
        triples = Triples(facts.head[rows], facts.relation[rows], facts.tail[rows])
        sample = dict(zip(COLUMNS, (*triples, self.score(*triples)), strict=True))
        again = replace(self, sample=sample)
        if (difference := again._difference(slice(None, None, -1))) is not None:
            raise InputError(
                f"{self.name} gives one triple the score {difference[0]:g} and then {difference[1]:g}; "
                "a score must depend on the triple alone: switch off dropout and other chance"
            )
        return again

    def same_as(self, folder: str) -> GivenModel:
        """Itself; InputError unless it scores the sample as the model did that a run was calibrated with."""
        if (difference := self._difference(slice(None))) is not None:
            raise InputError(
                f"this is not the model that {folder} was calibrated with: a triple has the score {difference[1]:g} "
                f"and had {difference[0]:g}; give that one, or calibrate again"
            )
        return self

    def _difference(self, order: slice) -> tuple[float, float] | None:
        """The scores that are farthest apart, before and now, if that is too far."""
        *triples, before = (self.sample[name][order] for name in COLUMNS)
        now = self.score(*triples)
        if not len(now) or (apart := np.abs(now - before)).max() <= APART:
            return None
        row = int(apart.argmax())
        return float(before[row]), float(now[row])


def external_model(
    model: OwnModel,
    vocabulary: Vocabulary,
    training: Graph | None = None,
    *,
    name: str | None = None,
) -> GivenModel:
    """A model of one's own as a `Model`.

    model: an object with `score(head, relation, tail)`, called with the ids of the vocabulary, or a function, called
    with the labels: it takes three arrays (n,) and returns one score in [0, 1] for each triple. `training` are the
    facts it learned from, if they are at hand: entities and relations without a fact are then unknown, and calibration
    facts are looked for among them. Without `training` every label of the vocabulary counts as known.
    """
    called = name or str(getattr(model, "__name__", type(model).__name__))
    if isinstance(model, Model) and model.vocabulary != vocabulary:
        raise InputError(f"{model.called} has other labels, or the same in another order")
    if isinstance(model, Scores):
        scorer: Callable[..., Any] = model.score
    elif callable(model):
        scorer = _by_labels(model, vocabulary)
    else:
        raise InputError(
            f"{called} is no model: give an object with score(head, relation, tail), or a function of labels"
        )
    seen_ids = np.ones(len(vocabulary.entities), bool), np.ones(len(vocabulary.relations), bool)
    facts = None
    if training is not None:
        usable = training.over(vocabulary)
        usable = usable[in_vocabulary(usable)]
        if not len(usable):
            raise InputError(
                f"none of the training facts has its labels among those of {called}; give its own"
            )
        seen_ids, facts = seen(usable), KnownFacts.of(usable)
    return GivenModel(
        {}, vocabulary, TrainConfig(GIVEN), 0, *seen_ids, facts=facts, scorer=scorer, name=called
    )


def restored_given(
    config: Mapping[str, Any],
    tensors: Mapping[str, NDArray[np.float32]],
    vocabulary: Vocabulary,
    seen: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    sample: dict[str, NDArray[Any]],
) -> dict[str, Model]:
    """The model of a run that does not keep it, like `model.restored_models`; ValueError if the sample is damaged."""
    if tensors:
        raise ValueError(f"there are tables of {min(tensors)!r}, although its model is not kept")
    check_fields(sample, FIELDS, entities=len(vocabulary.entities), relations=len(vocabulary.relations))
    training, name = TrainConfig.from_dict(config["training"]), str(config["name"])[:200]
    seed = int(config["seed"])
    return {"model": GivenModel({}, vocabulary, training, seed, *seen, name=name, sample=sample)}


def _by_labels(function: Callable[..., Any], vocabulary: Vocabulary) -> Callable[..., Any]:
    entities = vocabulary.entities.to_numpy(zero_copy_only=False)
    relations = vocabulary.relations.to_numpy(zero_copy_only=False)
    return lambda head, relation, tail: function(entities[head], relations[relation], entities[tail])
