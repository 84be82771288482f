"""Facts with confidences: vocabulary, reading and writing, splitting, named data sets, the demo graph.

Names are imported on first use, so that a part of this room can be had without the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unkgcp.lazy import lazy

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset, load_dataset, read
    from unkgcp.graph.description import describe
    from unkgcp.graph.fact_files import read_parts, write
    from unkgcp.graph.facts import Graph, Splits, Vocabulary, concatenate, hold_out, split, triple_keys
    from unkgcp.tabular.columns import Scale
    from unkgcp.tabular.query_files import query_batches

__getattr__, __dir__ = lazy(
    __name__,
    {
        "graph.datasets": ("Dataset", "load_dataset", "read"),
        "graph.description": ("describe",),
        "graph.fact_files": ("read_parts", "write"),
        "graph.facts": ("Graph", "Splits", "Vocabulary", "concatenate", "hold_out", "split", "triple_keys"),
        "tabular.columns": ("Scale",),
        "tabular.query_files": ("query_batches",),
    },
)

__all__ = [
    "Dataset",
    "Graph",
    "Scale",
    "Splits",
    "Vocabulary",
    "concatenate",
    "describe",
    "hold_out",
    "load_dataset",
    "query_batches",
    "read",
    "read_parts",
    "split",
    "triple_keys",
    "write",
]
