"""How good intervals are: metrics over arrays, the judgement of a run, reports, and the monitor of its promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unkgcp.lazy import lazy

if TYPE_CHECKING:
    from unkgcp.evaluation.assessment import LEVELS, evaluate

__all__ = ["LEVELS", "evaluate"]

# imported when they are asked for: the monitor and the metrics need neither
__getattr__, __dir__ = lazy(__name__, {"evaluation.assessment": ("LEVELS", "evaluate")})
