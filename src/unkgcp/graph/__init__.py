"""Facts with confidences: vocabulary, reading and writing, splitting, named data sets, the demo graph."""

from __future__ import annotations

from unkgcp.graph.datasets import Dataset, load, load_dataset
from unkgcp.graph.describing import Description, describe
from unkgcp.graph.facts import Graph, Splits, concatenate, hold_out, split, triple_keys
from unkgcp.graph.reading import open_batches, read, read_parts
from unkgcp.graph.vocabulary import Vocabulary
from unkgcp.graph.writing import write
from unkgcp.tabular.scaling import Scale

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
