"""BEUrRE: entities are Gumbel boxes; the score is the share of the tail's box that the head's box covers.

M(q) = E Vol(H_r(Box_h) and T_r(Box_t)) / E Vol(T_r(Box_t)).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from unkgcp.backbones.backbone import Backbone, ParameterTable, Rows, normal, uniform

EULER_GAMMA = 0.5772156649015329
BETA = 0.01
# exp(40)^2 is still finite in single precision, and no box of a trained model comes near
LARGEST_LOG_SIDE = 40.0


class Box(NamedTuple):
    """An axis-parallel box: lower corner and side lengths, each (..., d)."""

    low: Tensor
    side: Tensor


class BEUrRE(Backbone):
    """Gumbel boxes with a separate affine map for heads and for tails in each relation."""

    name = "beurre"

    def tables(self, dimension: int) -> dict[str, ParameterTable]:
        return {
            "low": ParameterTable("entity", dimension, uniform(1e-4, 0.01)),
            "log_side": ParameterTable("entity", dimension, uniform(-0.1, -0.001)),
            "head_shift": ParameterTable("relation", dimension, normal(0.0, 1e-4)),
            "head_scale": ParameterTable("relation", dimension, normal(1.0, 0.2)),
            "tail_shift": ParameterTable("relation", dimension, normal(0.0, 1e-4)),
            "tail_scale": ParameterTable("relation", dimension, normal(1.0, 0.2)),
        }

    def value(self, head: Rows, relation: Rows, tail: Rows, model: Rows) -> Tensor:
        return contained(head_box(head, relation), tail_box(tail, relation))


def entity_box(entity: Rows) -> Box:
    return Box(entity["low"], torch.exp(entity["log_side"].clamp_max(LARGEST_LOG_SIDE)))


def transformed(box: Box, shift: Tensor, scale: Tensor) -> Box:
    return Box(box.low + shift, box.side * torch.relu(scale))


def head_box(head: Rows, relation: Rows) -> Box:
    """H_r(Box_h)."""
    return transformed(entity_box(head), relation["head_shift"], relation["head_scale"])


def tail_box(tail: Rows, relation: Rows) -> Box:
    """T_r(Box_t)."""
    return transformed(entity_box(tail), relation["tail_shift"], relation["tail_scale"])


def intersection_side(first: Box, second: Box) -> Tensor:
    """Side of the Gumbel intersection; negative where the boxes are apart.

    beta logsumexp(x / beta, y / beta) = max(x, y) + beta log(1 + exp(-|x - y| / beta)): never below the hard
    maximum and free of overflow.
    """
    low = torch.maximum(first.low, second.low) + _smoothing(first.low - second.low)
    first_high, second_high = first.low + first.side, second.low + second.side
    high = torch.minimum(first_high, second_high) - _smoothing(first_high - second_high)
    return high - low


def _smoothing(difference: Tensor) -> Tensor:
    return BETA * torch.log1p(torch.exp(-difference.abs() / BETA))


def log_volume(side: Tensor) -> Tensor:
    """Logarithm of the expected volume of a Gumbel box: sum_i log softplus(side_i - 2 gamma beta)."""
    tiny = torch.finfo(side.dtype).tiny
    return torch.log(softplus(side - 2 * EULER_GAMMA * BETA).clamp_min(tiny)).sum(-1)


def contained(inner: Box, outer: Box) -> Tensor:
    """Share of `outer` covered by `inner`, in [0, 1]."""
    shared = log_volume(intersection_side(inner, outer))
    return torch.exp((shared - log_volume(outer.side)).clamp_max(0.0))
