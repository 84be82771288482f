"""What the training graph says about a query, and the conditional distribution of its confidence learned from it."""

from unkgcp.evidence.features import Evidence, Features
from unkgcp.evidence.model import EvidenceModel, learn

__all__ = ["Evidence", "EvidenceModel", "Features", "learn"]
