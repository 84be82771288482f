"""A trained model with a calibrated interval method: what users ask, save and load.

`unkgcp.calibrate` and `unkgcp.run.fit` make a `Predictor`. It trains nothing and has no interval method of its own; it
joins a model, a method and the labels of the vocabulary.

>>> predictor = calibrate(model, splits.calibration, method="unkgcp")                  # doctest: +SKIP
>>> predictor.interval([("h", "r", "t")], confidence=0.9).upper                        # doctest: +SKIP
>>> predictor.save("run"); Predictor.load("run")                                       # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Vocabulary, concatenate, contained, in_vocabulary
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run.store import arrays_of, load, save

if TYPE_CHECKING:
    from unkgcp.conformal.ranks import Confidence
    from unkgcp.graph.objects import Queries
    from unkgcp.methods.intervals import Intervals, Levels
    from unkgcp.methods.method import IntervalPredictor
    from unkgcp.run.answer_sets import AnswerSet, AnswerSets
    from unkgcp.training.given_model import OwnModel
    from unkgcp.training.model import Model

NOT_STRICT = "not strict, because the calibration facts also chose the model (the paper's protocol)"
MAX_ANSWER_SETS = 8
"""Calibrations of answer sets that are kept; a service may be asked for any least confidence."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A calibrated predictor.

    `negative` is the same method calibrated on corrupted facts. It serves only to repeat the paper's
    tables, which presume that a query is known to be no fact; predictions never use it. `quantiles` are the
    models that quantile regression needs; they stay with the predictor whatever its method is. `aside` are the facts of
    the data that neither taught nor calibrated (validation and test facts), which `known` has too. `digest` is that of
    the file it was loaded from, `folder` where that is.
    """

    model: Model
    method: IntervalPredictor
    negative: IntervalPredictor | None = None
    quantiles: Mapping[float, Model] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    aside: KnownFacts | None = field(default=None, repr=False)
    folder: Path | None = field(default=None, repr=False)
    digest: str | None = field(default=None, repr=False)
    _answer_sets: dict[tuple[float, str], AnswerSets] = field(default_factory=dict, init=False, repr=False)

    def __repr__(self) -> str:
        words = self.model.vocabulary
        sizes = f"{len(words.entities):,} entities, {len(words.relations):,} relations"
        return f"Predictor({self.method.name!r}, {self.method.size:,} calibration facts, {sizes})"

    def interval(self, queries: Queries, confidence: Levels = 0.9) -> Intervals:
        """Score and interval of each query, in order.

        Queries are label triples, a table (Arrow, pandas, polars) with columns head, relation and tail, a graph, or
        ids. An unknown entity or relation gives the whole range [0, 1], no score, and says so in `status`.
        """
        from unkgcp.graph.objects import as_queries, labels_of
        from unkgcp.run.answers import answer

        queries = as_queries(queries)
        return replace(answer(self, queries, confidence), labels=labels_of(queries, self.model.vocabulary))

    def select(
        self,
        queries: Queries,
        condition: str,
        fdr: Confidence | Iterable[Confidence] = 0.1,
        confidence: Levels = 0.9,
        *,
        after_selection: bool = False,
    ) -> Intervals:
        """Choose the queries that fulfil a condition (`confidence >= 0.7`), with few wrong ones among them.

        The answers of `interval`, with a `p_value` for each query and whether it is `selected`. The expected share of
        wrong ones among the selected is at most `fdr`, over calibration facts and queries together, for queries that
        are exchangeable with the calibration facts (in the open world: or with the non-facts of a calibrated kind).
        Nothing is promised for a part of them that is picked afterwards. Unknown queries are never selected. With
        `after_selection` only the selected are answered, with intervals that hold for those that are selected.
        """
        from unkgcp.graph.objects import as_queries, labels_of
        from unkgcp.methods.method import some_rows
        from unkgcp.run.chooser import Choice, Chooser

        converted = as_queries(queries)
        chooser = Chooser(self, Choice.of(condition, fdr, after_selection))
        triples, labels = chooser.triples(converted), labels_of(converted, self.model.vocabulary)
        places = chooser.places(triples)
        cuts = chooser.cuts(chooser.reference.count(places))
        if after_selection:
            rows = np.flatnonzero(places >= cuts[0].chosen)
            triples, places = some_rows(triples, rows), places[rows]
            labels = None if labels is None else labels.take(rows)
        return replace(chooser.answering(cuts, confidence)(triples, places), labels=labels)

    def complete(
        self,
        head: str | None = None,
        relation: str = "",
        tail: str | None = None,
        *,
        k: int = 10,
        confidence: Levels = 0.9,
        rank_by: str = "score",
        exclude_known: bool = False,
        exclude: Queries | None = None,
    ) -> Intervals:
        """The best k entities for (head, relation, ?) or (?, relation, tail), best first, each with its interval.

        `rank_by` is `score` or `lower`, the lower end (of the first level if there are several); ties go by score, then
        by the order of the vocabulary. An evidence run ranks by the expected confidence of a triple that may be no fact
        instead of the score, which is about facts, and by the lower end times the probability that it is one; training
        facts come first. `exclude_known` leaves out all facts that the run knows, the held-out ones too, and `exclude`
        any triples, given as for `interval`. For an unknown question the answer is one row with nothing in
        the open place, the whole range, and a status that says why.
        """
        from unkgcp.run.completion import complete, excluded  # few ask for completions
        from unkgcp.run.questions import one_question

        question = one_question(head, relation, tail)
        facts = excluded(self, exclude_known, [] if exclude is None else [exclude])
        return complete(self, question, k, confidence, rank_by, facts)[1]

    def answers(
        self,
        head: str | None = None,
        relation: str = "",
        tail: str | None = None,
        *,
        confidence: Confidence = 0.9,
        k: int | None = None,
        min_confidence: float = 0.0,
        per: str = "relation",
    ) -> AnswerSet:
        """A set of entities that contains the open place of (head, relation, ?) or (?, relation, tail), best first.

        For a new fact that is exchangeable with the calibration facts, is no training fact, and has a confidence of at
        least `min_confidence`, the set contains it with at least the probability `confidence`, within its relation or
        group of small ones (`per` "none": on average over all of them). At most `k` of the set are listed; `size` is
        that of all of it. The first question waits for a calibration. See `unkgcp.run.answer_sets`.
        """
        from unkgcp.run.answer_sets import SetRequest, answers_of  # few ask for them

        request = SetRequest.of(confidence, k, min_confidence, per)
        return answers_of(self.answer_sets(min_confidence, per), head, relation, tail, request)

    def answer_sets(self, min_confidence: float = 0.0, per: str = "relation") -> AnswerSets:
        """Answer sets for batches of questions; what they calibrate is kept for later ones."""
        from unkgcp.run.answer_sets import AnswerSets

        kept, settings = self._answer_sets, (float(min_confidence), per)
        while settings not in kept and len(kept) >= MAX_ANSWER_SETS:
            kept.pop(next(iter(kept)), None)
        caution = NOT_STRICT if self.provenance.get("protocol") == "paper" else None
        return kept.setdefault(settings, AnswerSets(self, *settings, caution))

    def update(self, facts: Graph, **options: Any) -> Predictor:
        """The run with new facts in it, calibrated anew; see `unkgcp.update`. This one stays as it is."""
        updates = import_module("unkgcp.run.updates")  # it imports this file
        return cast("Predictor", updates.update(self, facts, **options))

    def evaluate(self, data: Any, *levels: Any, **options: Any) -> dict[str, Any]:
        """How good its intervals are on a graph of test facts or a data set; see `unkgcp.evaluate`."""
        return dict(import_module("unkgcp.evaluation").evaluate(self, data, *levels, **options))

    def plot(self, queries: Queries, confidence: Levels = (0.8, 0.9, 0.95), *, ax: Any = None) -> Any:
        """Draw the interval of each query at one level or several, nested, with the prediction as a dot.

        Returns matplotlib's axes; `ax` draws into those of a figure of your own.
        """
        from unkgcp.methods.intervals import draw

        return draw(self.interval(queries, confidence), ax)

    def save(self, folder: str | os.PathLike[str], *, replaces: str | None = None) -> None:
        """Write the run folder in one step; an existing run is replaced, anything else is refused.

        Whoever reads meanwhile gets the old run or the new one. With `replaces`, a digest, it is refused if the run
        that is there has another one.
        """
        about = {
            "config": {
                "method": self.method.name,
                "options": self.method.options(),
                **self.model.settings(),
            },
            "provenance": {**self.provenance, "seed": self.model.seed},
            "metrics": self.metrics,
        }
        save(folder, arrays_of(self.models(), self.method, self.negative, self.aside), about, replaces)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: OwnModel | None = None) -> Predictor:
        """Read a run folder, safe whoever wrote it; a damaged or foreign one is an `InputError`.

        What is done to the folder later does not change the predictor. A run of a model of your own does not keep it:
        give it again as `model`, and it is compared with the one that was calibrated.
        """
        predictor = cls(**load(folder))
        if model is None and predictor.model.config.model != "given":
            return predictor
        return predictor._with_own(model)

    def _with_own(self, model: OwnModel | None) -> Predictor:
        """The same predictor with a model of one's own, which a run does not keep.

        InputError if the run keeps its model, or if none is given although the method asks it for scores.
        """
        from unkgcp.training.given_model import GivenModel, external_model

        kept = self.model
        if not isinstance(kept, GivenModel):
            raise InputError(f"{self.folder} keeps its model: leave out the one that you give")
        if model is None:
            if not self.method.asks_model:
                return self
            raise InputError(
                f"{self.folder} is calibrated for a model of your own ({kept.name}), which a run does not keep: "
                f"give it again, in Python with Predictor.load({str(self.folder)!r}, model=...)"
            )
        again = replace(kept, scorer=external_model(model, kept.vocabulary).scorer).same_as(str(self.folder))
        return self.with_models({**self.models(), "model": again})

    def models(self) -> dict[str, Model]:
        """Every model it is made of, by the name under which a run stores it."""
        models = {"model": self.model, **{_quantile(tau): model for tau, model in self.quantiles.items()}}
        return models | cast("dict[str, Model]", self.method.models())

    def with_models(self, models: Mapping[str, Model]) -> Predictor:
        """The same over other copies of its models, which come under the names that `models` gives them."""
        return replace(
            self,
            model=models["model"],
            method=self.method.with_models(models),
            negative=None if self.negative is None else self.negative.with_models(models),
            quantiles={tau: models[_quantile(tau)] for tau in self.quantiles},
        )

    @property
    def guarantee(self) -> str:
        """What this run promises: what its method does, less what the way it was fitted takes away."""
        promise = self.method.guarantee
        if self.method.within:
            promise += f", {self.method.within}"
        return promise if promise.startswith("none") else self.as_fitted(promise)

    def as_fitted(self, promise: str) -> str:
        """A promise that holds for a model chosen without the calibration facts, as this run can make it."""
        if self.provenance.get("protocol") != "paper":
            return promise
        return f"{NOT_STRICT}; with a model chosen without them: {promise}"

    @property
    def facts(self) -> KnownFacts | None:
        """The training facts, if the model knows them."""
        return self.model.facts

    @cached_property
    def known(self) -> KnownFacts:
        """All facts of the data it was made from, the held-out ones too."""
        return KnownFacts.of(concatenate([*self._used(), *_graphs(self.model.vocabulary, self.aside)]))

    def remembering(self, *facts: Graph) -> Predictor:
        """The same, which also knows these facts of its data; nothing is answered from them."""
        vocabulary = self.model.vocabulary
        graphs = [graph.over(vocabulary) for graph in facts]
        graphs = [replace(graph[in_vocabulary(graph)], ends=None) for graph in graphs]
        joined = concatenate([*_graphs(vocabulary, self.aside), *graphs])
        used = np.sort(np.concatenate([graph.keys for graph in self._used()]))
        _, first = np.unique(joined.keys, return_index=True)
        joined = joined[np.sort(first[~contained(joined.keys[first], used)])]
        return replace(self, aside=KnownFacts.of(joined) if len(joined) else None)

    def _used(self) -> list[Graph]:
        """Training facts, those that early stopping looked at, and those held out for calibration."""
        vocabulary = self.model.vocabulary
        used = _graphs(vocabulary, self.model.facts, self.model.stopping)
        if "members" in self.method.needs:  # CV+ calibrates on the facts it is trained on
            return used
        return [*used, replace(self.method.held_out(), vocabulary=vocabulary, ends=None)]


def _graphs(vocabulary: Vocabulary, *stored: KnownFacts | None) -> list[Graph]:
    return [facts.graph(vocabulary) for facts in stored if facts is not None]


def _quantile(tau: float) -> str:
    from unkgcp.training.model import QUANTILE

    return f"{QUANTILE}{tau!r}"
