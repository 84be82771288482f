"""Nonconformity scores, one a file, each with its exact inverse."""

from unkgcp.conformal.scores.base import Score, make_score, register, score_names, score_parameters
from unkgcp.conformal.scores.entropy import EntropyResidual
from unkgcp.conformal.scores.residual import Residual
from unkgcp.conformal.scores.scaled import ScaledResidual

__all__ = [
    "EntropyResidual",
    "Residual",
    "ScaledResidual",
    "Score",
    "make_score",
    "register",
    "score_names",
    "score_parameters",
]
