"""Facts with confidences: vocabulary, reading and writing, splitting, named data sets, the demo graph."""

from unkgcp.graph.facts import Graph, concatenate, triple_keys
from unkgcp.graph.splitting import Splits, hold_out, split
from unkgcp.graph.vocabulary import Vocabulary

__all__ = ["Graph", "Splits", "Vocabulary", "concatenate", "hold_out", "split", "triple_keys"]
