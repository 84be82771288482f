"""Facts with confidences: vocabulary, reading and writing, splitting, named data sets, the demo graph.

Names are imported on first use, so that a part of this room can be had without the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset, load, load_dataset
    from unkgcp.graph.description import Description, describe
    from unkgcp.graph.fact_files import read, read_parts, write
    from unkgcp.graph.facts import Graph, Splits, Vocabulary, concatenate, hold_out, split, triple_keys
    from unkgcp.graph.objects import graph_from
    from unkgcp.tabular.columns import Scale
    from unkgcp.tabular.query_files import query_batches

_WHERE = {
    "graph.datasets": ("Dataset", "load", "load_dataset"),
    "graph.describing": ("Description", "describe"),
    "graph.fact_files": ("read", "read_parts", "write"),
    "graph.facts": ("Graph", "Splits", "Vocabulary", "concatenate", "hold_out", "split", "triple_keys"),
    "graph.objects": ("graph_from",),
    "tabular.columns": ("Scale",),
    "tabular.query_files": ("query_batches",),
}

__all__ = [
    "Dataset",
    "Description",
    "Graph",
    "Scale",
    "Splits",
    "Vocabulary",
    "concatenate",
    "describe",
    "graph_from",
    "hold_out",
    "load",
    "load_dataset",
    "query_batches",
    "read",
    "read_parts",
    "split",
    "triple_keys",
    "write",
]


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(f"unkgcp.{module}"), name)
    raise AttributeError(f"module 'unkgcp.graph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
