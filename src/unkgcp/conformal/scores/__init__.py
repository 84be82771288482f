"""Nonconformity scores, one a file, each with its exact inverse."""

from unkgcp.conformal.scores.base import (
    LearnedScore,
    Recipe,
    Score,
    make_score,
    recipe_names,
    register,
    score_names,
    score_parameters,
)
from unkgcp.conformal.scores.entropy import EntropyResidual
from unkgcp.conformal.scores.residual import Residual
from unkgcp.conformal.scores.scaled import ScaledResidual
from unkgcp.conformal.scores.shortest import Shortest

__all__ = [
    "EntropyResidual",
    "LearnedScore",
    "Recipe",
    "Residual",
    "ScaledResidual",
    "Score",
    "Shortest",
    "make_score",
    "recipe_names",
    "register",
    "score_names",
    "score_parameters",
]
