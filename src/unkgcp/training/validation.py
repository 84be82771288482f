"""The error by which training stops: (mean squared error on facts + the same on corrupted facts) / 2."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unkgcp.backbones import Backbone
from unkgcp.graph import Graph, hold_out
from unkgcp.graph.negatives import corrupt
from unkgcp.training.data import Member, Triples
from unkgcp.training.lookup import Lookup
from unkgcp.training.terms import pinball

CELLS = 1 << 25  # floats of looked-up rows at once


def hold_out_known(facts: Graph, fraction: float, seed: int = 0) -> tuple[Graph, Graph]:
    """(rest, held out): a random slice whose entities and relations all keep at least one fact in the rest.

    A plain random slice would take the only fact of many rare entities; the model would never see them, and test
    facts about them would be predicted from nothing. The choice looks at training facts alone.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(facts))
    kept = np.zeros(len(facts), dtype=bool)
    sides = np.concatenate([facts.head[order], facts.tail[order]])
    first_of_entity = np.unique(sides, return_index=True)[1] % len(facts)
    first_of_relation = np.unique(facts.relation[order], return_index=True)[1]
    kept[order[first_of_entity]] = kept[order[first_of_relation]] = True
    candidates = order[~kept[order]]
    held = candidates[: max(1, round(fraction * len(facts)))]
    if len(held) == 0:
        return hold_out(facts, max(fraction, 1 / len(facts)), seed)
    mask = np.zeros(len(facts), dtype=bool)
    mask[held] = True
    return facts[~mask], facts[mask]


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
