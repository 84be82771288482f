"""How good intervals are: metrics over arrays, the evaluation of a run, and its figures as text."""

from __future__ import annotations

from unkgcp.evaluation.assessment import LEVELS, evaluate

__all__ = ["LEVELS", "evaluate"]
