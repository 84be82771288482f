"""PASSLEAF with RotatE: a relation rotates the head in the complex plane; the score falls with the distance
left.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unkgcp.backbones.base import Backbone, Rows, Table, constant, truncated_normal, uniform


class PassleafRotatE(Backbone):
    """sigmoid(w s + b) with s = -mean_i |h_i r_i - t_i|, |r_i| = 1.

    The first half of an entity row is real, the second imaginary; a relation row holds the angles. The mean
    rather than the sum of the distances keeps s of the same order in every dimension.
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
