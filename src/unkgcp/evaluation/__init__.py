"""How good intervals are: metrics over arrays, the judgement of a run, reports, and the monitor of its promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unkgcp.evaluation.assessment import LEVELS, evaluate

__all__ = ["LEVELS", "evaluate"]


def __getattr__(name: str) -> Any:
    """Imported when they are asked for: the monitor and the metrics need neither."""
    if name not in __all__:
        raise AttributeError(f"module 'unkgcp.evaluation' has no attribute {name!r}")
    from unkgcp.evaluation import assessment

    return getattr(assessment, name)
