"""What the training graph says about a query, and the conditional distribution of its confidence learned from it."""

from __future__ import annotations

from unkgcp.evidence.evidence_model import EvidenceModel, learn
from unkgcp.evidence.features import Evidence, Features

__all__ = ["Evidence", "EvidenceModel", "Features", "learn"]
