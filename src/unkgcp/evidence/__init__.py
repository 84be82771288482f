"""Features of a query from the training graph, and the distribution of its confidence learned from them."""

from __future__ import annotations

from unkgcp.evidence.evidence_model import EvidenceModel, learn
from unkgcp.evidence.features import Evidence, Features

__all__ = ["Evidence", "EvidenceModel", "Features", "learn"]
