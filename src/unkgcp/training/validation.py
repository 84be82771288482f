"""The error by which training stops: (mean squared error on facts + the same on corrupted facts) / 2."""

from __future__ import annotations

import torch
from torch import Tensor

from unkgcp.backbones import Backbone
from unkgcp.graph import Graph
from unkgcp.graph.negatives import corrupt
from unkgcp.training.data import Member, Triples
from unkgcp.training.lookup import Lookup
from unkgcp.training.terms import pinball

CELLS = 1 << 25  # floats of looked-up rows at once


class Validator:
    """Scores validation facts with every member; lower is better.

    Quantile models are judged by their pinball loss on the facts alone, like their training.
    """

    def __init__(
        self, validation: Graph, known: Graph, backbone: Backbone, members: list[Member], device: torch.device
    ) -> None:
        self.backbone, self.members, self.device = backbone, members, device
        self.facts = Triples.of(validation, device)
        self.quantiles = members[0].quantile is not None
        negatives = validation[:0] if self.quantiles else corrupt(validation, known, seed=0, per_fact=2)
        self.negatives = Triples.of(negatives, device)

    def __call__(self, tables: dict[str, Tensor]) -> Tensor:
        """Validation error a member: (members,)."""
        with torch.no_grad():
            if self.quantiles:
                error = pinball(self.members, self.device)
                return error(self._scores(tables, self.facts), self.facts.target[None]).mean(1)
            parts = [self.facts, self.negatives] if len(self.negatives) else [self.facts]
            errors = [(self._scores(tables, part) - part.target[None]).square().mean(1) for part in parts]
            return torch.stack(errors).mean(0)

    def _scores(self, tables: dict[str, Tensor], triples: Triples) -> Tensor:
        lookup = Lookup(self.backbone, tables, tables)
        members = len(self.members)
        chunk = max(1, CELLS // (members * max(table.shape[-1] for table in tables.values())))
        scores = []
        for begin in range(0, len(triples), chunk):
            part = slice(begin, begin + chunk)
            head, relation, tail = (
                column[part].expand(members, -1) for column in (triples.head, triples.relation, triples.tail)
            )
            value = self.backbone.value(
                lookup.rows("entity", head),
                lookup.rows("relation", relation),
                lookup.rows("entity", tail),
                lookup.model(2),
            )
            scores.append(self.backbone.squash(value))
        return torch.cat(scores, 1)
