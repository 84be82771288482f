"""What the training graph says about a query, and the conditional distribution of its confidence learned from it."""

from unkgcp.evidence.features import Evidence, Features

__all__ = ["Evidence", "Features"]
