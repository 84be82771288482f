"""Which method answers where confidences are intervals, and the model of their length.

What it is: the few decisions that fitting takes differently for such facts. What it is not: a method
(`unkgcp.conformal.predictors.valued`) or a trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unkgcp.conformal.predictors import IntervalPredictor, predictor_class
from unkgcp.errors import InputError
from unkgcp.graph import Graph

if TYPE_CHECKING:
    from unkgcp.training import TrainConfig

JOINT = "joint"
# what a user asks for -> how errors of the middle are measured
NORMALISED = {"unkgcp": True, "cp": False}


def method_for(method: str, facts: Graph, config: TrainConfig | None = None) -> tuple[str, dict[str, Any]]:
    """The method, with its options, that answers what was asked for on such facts.

    Where confidences are intervals, `unkgcp` and `cp` stand for one joint threshold of both ends, with and without
    the entropy as a unit; methods for plain numbers are refused there, and those for intervals elsewhere. `config` is
    that of the models to be trained, if any.
    """
    needs_length = predictor_class(method).needs_length
    if facts.ends is None:
        if needs_length:
            raise InputError(
                f"method {method!r} is for confidences that are intervals, with columns lower and upper; "
                "choose another, unkgcp for instance"
            )
        return method, {}
    if config is not None and config.uses_pool:
        raise InputError("lengths of confidences do not go with passleaf's pseudo-labels; use ukge or beurre")
    if method in NORMALISED:
        return JOINT, {"normalised": NORMALISED[method]}
    if not needs_length:
        raise InputError(
            f"method {method!r} predicts one number, but these confidences are intervals: "
            "use unkgcp, cp, joint or mean-length"
        )
    return method, {"normalised": True}


def length_for(method: str, trained: IntervalPredictor) -> dict[str, Any]:
    """The model of lengths that a run's method has, for another method that needs one."""
    if not predictor_class(method).needs_length:
        return {}
    length = getattr(trained, "length", None)
    if length is None:
        raise InputError(
            "the run has no model of lengths: fit it on facts with columns lower and upper, not with --from"
        )
    return {"length": length}
