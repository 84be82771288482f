"""How good intervals are: metrics over arrays, the evaluation of a run, and its figures as text."""

from unkgcp.evaluation.evaluate import LEVELS, evaluate

__all__ = ["LEVELS", "evaluate"]
