"""UKGE and PASSLEAF: a logistic function of the raw score of DistMult, ComplEx or RotatE, or a line cut to [0, 1].

DistMult and ComplEx are bilinear: the raw score of (h, r, t) is dot(query(h, r), t) and also dot(h, query'(r, t)).
One against many is then a matrix product, and no product of all three rows is ever stored. RotatE measures a distance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unkgcp.backbones.backbone import Backbone, Rows, Table, constant, truncated_normal, uniform


class Bilinear(Backbone):
    """Logistic of a bilinear raw score s: sigmoid(w s + b), with learned scalars w and b (f_logi of the paper)."""

    def tables(self, dimension: int) -> dict[str, Table]:
        return {
            "entity": Table("entity", dimension, truncated_normal(0.3)),
            "relation": Table("relation", dimension, truncated_normal(0.3)),
            "w": Table("model", 1, constant(0.0)),
            "b": Table("model", 1, constant(0.0)),
        }

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        """The vector whose dot product with the tail is the raw score."""
        return head * relation

    def head_query(self, relation: Tensor, tail: Tensor) -> Tensor:
        """The vector whose dot product with the head is the raw score."""
        return relation * tail

    def linear(self, head: Rows, relation: Rows, tail: Rows, model: Rows) -> Tensor:
        """w s + b."""
        h, r, t = head["entity"], relation["relation"], tail["entity"]
        if h.dim() > 1 and h.shape[-2] > t.shape[-2]:
            raw = dot(h, self.head_query(r, t))
        else:
            raw = dot(self.tail_query(h, r), t)
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


class PassleafComplEx(Bilinear):
    """PASSLEAF with ComplEx: s = Re(<h, r, conj(t)>); the first half of a row is real, the second imaginary."""

    name = "passleaf-complex"

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        a, b = head.chunk(2, -1)
        c, d = relation.chunk(2, -1)
        return torch.cat([a * c - b * d, a * d + b * c], -1)

    def head_query(self, relation: Tensor, tail: Tensor) -> Tensor:
        c, d = relation.chunk(2, -1)
        e, f = tail.chunk(2, -1)
        return torch.cat([c * e + d * f, c * f - d * e], -1)


def dot(left: Tensor, right: Tensor) -> Tensor:
    """Dot products of broadcasting rows (..., d): a matrix product where one side is one against many."""
    if left.dim() > 1 and left.dim() == right.dim() and left.shape[-2] != right.shape[-2]:
        if left.shape[-2] == 1:
            return (right @ left.transpose(-1, -2)).squeeze(-1)
        if right.shape[-2] == 1:
            return (left @ right.transpose(-1, -2)).squeeze(-1)
    return (left * right).sum(-1)


class PassleafRotatE(Backbone):
    """PASSLEAF with RotatE: sigmoid(w s + b) with s = -mean_i |h_i r_i - t_i|, |r_i| = 1.

    A relation rotates the head in the complex plane, and the score falls with the distance left to the tail. The
    first half of an entity row is real, the second imaginary; a relation row holds the angles. The mean rather than
    the sum of the distances keeps s of the same order in every dimension.
    """

    name = "passleaf-rotate"

    def tables(self, dimension: int) -> dict[str, Table]:
        return {
            "entity": Table("entity", dimension, truncated_normal(0.3)),
            "angle": Table("relation", dimension // 2, uniform(-math.pi, math.pi)),
            "w": Table("model", 1, constant(1.0)),
            "b": Table("model", 1, constant(0.0)),
        }

    def value(self, head: Rows, relation: Rows, tail: Rows, model: Rows) -> Tensor:
        a, b = head["entity"].chunk(2, -1)
        e, f = tail["entity"].chunk(2, -1)
        c, d = torch.cos(relation["angle"]), torch.sin(relation["angle"])
        real, imaginary = a * c - b * d - e, a * d + b * c - f
        # the square root has no gradient at 0; 1e-12 is far below any distance that matters
        raw = -torch.sqrt(real * real + imaginary * imaginary + 1e-12).mean(-1)
        return torch.sigmoid(model["w"][..., 0] * raw + model["b"][..., 0])
