"""Tables of a stranger's predictions: read in batches, answered with intervals, written in the same order."""

from unkgcp.conformal.tables.answering import conformalize

__all__ = ["conformalize"]
