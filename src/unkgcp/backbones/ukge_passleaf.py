"""UKGE and PASSLEAF: a logistic function of DistMult's raw score, or a line cut to [0, 1].

The raw score of (h, r, t) is dot(h o r, t) and also dot(h, r o t). One against many is then a matrix product, and no
product of all three rows is ever stored.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unkgcp.backbones.backbone import Backbone, ParameterTable, Rows, constant, truncated_normal

START_DEVIATION = 0.3  # of the numbers in vectors before training


class Bilinear(Backbone):
    """Logistic of a bilinear raw score s: sigmoid(w s + b), with learned scalars w and b (f_logi of the paper)."""

    def tables(self, dimension: int) -> dict[str, ParameterTable]:
        return {
            "entity": ParameterTable("entity", dimension, truncated_normal(START_DEVIATION)),
            "relation": ParameterTable("relation", dimension, truncated_normal(START_DEVIATION)),
            "w": ParameterTable("model", 1, constant(0.0)),
            "b": ParameterTable("model", 1, constant(0.0)),
        }

    def linear(self, head: Rows, relation: Rows, tail: Rows, model: Rows) -> Tensor:
        """w s + b."""
        h, r, t = head["entity"], relation["relation"], tail["entity"]
        raw = dot(h, r * t) if h.dim() > 1 and h.shape[-2] > t.shape[-2] else dot(h * r, t)
        return model["w"][..., 0] * raw + model["b"][..., 0]

    def value(self, head: Rows, relation: Rows, tail: Rows, model: Rows) -> Tensor:
        return torch.sigmoid(self.linear(head, relation, tail, model))


class UKGE(Bilinear):
    """UKGE_logi: sigmoid(w (h o t)^T r + b)."""

    name = "ukge"


class UKGERect(Bilinear):
    """UKGE_rect: w (h o t)^T r + b, cut to [0, 1] at prediction only, so that gradients never vanish."""

    name = "ukge-rect"

    def value(self, head: Rows, relation: Rows, tail: Rows, model: Rows) -> Tensor:
        return self.linear(head, relation, tail, model)


class Passleaf(Bilinear):
    """PASSLEAF with the DistMult scorer: UKGE_logi's formula; the difference is in how it is trained."""

    name = "passleaf"


def dot(left: Tensor, right: Tensor) -> Tensor:
    """Dot products of broadcasting rows (..., d): a matrix product where one side is one against many."""
    if left.dim() > 1 and left.dim() == right.dim() and left.shape[-2] != right.shape[-2]:
        if left.shape[-2] == 1:
            return (right @ left.transpose(-1, -2)).squeeze(-1)
        if right.shape[-2] == 1:
            return (left @ right.transpose(-1, -2)).squeeze(-1)
    return (left * right).sum(-1)
