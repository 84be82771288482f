"""Everything the service knows of one run, and the questions it answers beside intervals.

What it is: the predictor, the label searches and the facts, put together once when the service starts. What it
is not: it knows nothing of HTTP but the sentences of `Problem`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from unkgcp._version import __version__
from unkgcp.bundle import Predictor
from unkgcp.bundle.answers import LABELS, as_lists
from unkgcp.service.problems import Problem, quoted
from unkgcp.service.settings import Settings
from unkgcp.service.surroundings import Surroundings
from unkgcp.service.typeahead import LabelSearch


class Knowledge:
    """Answers from one run; every method may be called from several threads."""

    def __init__(self, predictor: Predictor, settings: Settings) -> None:
        self.predictor, self._settings = predictor, settings
        vocabulary = predictor.model.vocabulary
        self._labels = {"entities": vocabulary.entities, "relations": vocabulary.relations}
        self._search = {kind: LabelSearch(labels) for kind, labels in self._labels.items()}
        facts = predictor.facts
        self._surroundings = None if facts is None else Surroundings(predictor, facts)

    def about(self) -> dict[str, Any]:
        """What is being served."""
        predictor, method = self.predictor, self.predictor.method
        data = predictor.provenance.get("data", {}).get("name")
        return {
            "version": __version__,
            # a file is called by its name alone: where it lies is nobody's business
            "data": None if data is None else PurePath(str(data)).name,
            "model": predictor.model.config.model,
            "method": method.name,
            "guarantee": predictor.guarantee,
            "calibration_facts": method.size,
            "entities": len(self._labels["entities"]),
            "relations": len(self._labels["relations"]),
            "facts": None if self._surroundings is None else self._surroundings.size,
            "max_triples": self._settings.max_triples,
            "max_k": self._settings.max_k,
        }

    def labels(self, kind: str, prefix: str, limit: int, anywhere: bool) -> dict[str, Any]:
        """Labels of `entities` or `relations` that begin with (or hold) what was typed."""
        found = self._search[kind].find(prefix, limit, anywhere)
        around = self._surroundings
        count = None
        if around is not None:
            count = around.of_entity if kind == "entities" else around.of_relation
        return {
            "labels": [
                {"label": self._labels[kind][i].as_py(), "facts": None if count is None else int(count[i])}
                for i in found.ids.tolist()
            ],
            "more": found.more,
        }

    def complete(
        self,
        head: str | None,
        relation: str,
        tail: str | None,
        *,
        k: int,
        rank_by: str,
        exclude_known: bool,
        levels: Sequence[float],
    ) -> dict[str, Any]:
        """The best tails of (head, relation, ?) or heads of (?, relation, tail), each with its whole answer.

        One level gives plain numbers, several give a list for each completion, which are then ranked by the first.
        """
        h, r, t = self._ids(head, relation, tail)
        if exclude_known and self._surroundings is None:
            raise Problem(404, "this run holds no training facts to exclude; fit it again to have them")
        level = levels[0] if len(levels) == 1 else list(levels)
        found = self.predictor.complete(
            head,
            relation,
            tail,
            k=k,
            confidence=level,
            rank_by=rank_by,
            exclude_known=exclude_known,
        )
        assert found.labels is not None
        labels = {name: found.labels.column(name).to_pylist() for name in LABELS}
        known = {} if self._surroundings is None else self._surroundings.known(h, r, t)
        places = self.predictor.model.vocabulary.entity_ids(labels["tail" if tail is None else "head"])
        columns = {**labels, **as_lists(found), "known": [known.get(place) for place in places.tolist()]}
        notes = [self.predictor.method.caution(level) for level in dict.fromkeys(levels)]
        return {
            "confidence": level,
            "answers": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
            "notes": [note for note in notes if note is not None],
        }

    def evidence(self, head: str, relation: str, tail: str, limit: int) -> dict[str, Any]:
        """The training facts around a query."""
        if self._surroundings is None:
            raise Problem(404, "this run holds no training facts; fit it again to have them")
        return self._surroundings.around(head, relation, tail, limit)

    def example(self) -> list[str]:
        """Labels of a triple that can be asked for, for the OpenAPI document."""
        entities, relations = self._labels["entities"], self._labels["relations"]
        places = ((entities, 0), (relations, 0), (entities, len(entities) - 1))
        return [labels[place].as_py() if len(labels) else "" for labels, place in places]

    def _ids(self, head: str | None, relation: str, tail: str | None) -> tuple[int | None, int, int | None]:
        """Ids of the two labels of a question; a label without a training fact is a `Problem`."""
        model = self.predictor.model
        r = int(model.vocabulary.relation_ids([relation])[0])
        if r < 0 or not model.seen_relations[r]:
            raise Problem(404, f"no training fact has the relation {quoted(relation)}; see /v1/relations")
        entity = tail if head is None else head
        e = int(model.vocabulary.entity_ids([entity or ""])[0])
        if e < 0 or not model.seen_entities[e]:
            raise Problem(404, f"no training fact has the entity {quoted(entity)}; see /v1/entities")
        return (None, r, e) if head is None else (e, r, None)
