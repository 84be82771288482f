"""Facts with confidences: vocabulary, reading and writing, splitting, named data sets, the demo graph."""

from unkgcp.graph.datasets import Dataset, load, load_dataset
from unkgcp.graph.describing import Description, describe
from unkgcp.graph.facts import Graph, concatenate, triple_keys
from unkgcp.graph.reading import open_batches, read, read_parts
from unkgcp.graph.scaling import Scale
from unkgcp.graph.splitting import Splits, hold_out, split
from unkgcp.graph.vocabulary import Vocabulary
from unkgcp.graph.writing import write

__all__ = [
    "Dataset",
    "Description",
    "Graph",
    "Scale",
    "Splits",
    "Vocabulary",
    "concatenate",
    "describe",
    "hold_out",
    "load",
    "load_dataset",
    "open_batches",
    "read",
    "read_parts",
    "split",
    "triple_keys",
    "write",
]
