"""Facts with confidences: vocabulary, reading and writing, splitting, named data sets, the demo graph.

Names are imported on first use, so that a part of this room can be had without the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset, load, load_dataset
    from unkgcp.graph.describing import Description, describe
    from unkgcp.graph.facts import Graph, Splits, concatenate, hold_out, split, triple_keys
    from unkgcp.graph.query_files import query_batches
    from unkgcp.graph.reading import read, read_parts
    from unkgcp.graph.vocabulary import Vocabulary
    from unkgcp.graph.writing import write
    from unkgcp.tabular.scaling import Scale

_WHERE = {
    "Dataset": "datasets",
    "Description": "describing",
    "Graph": "facts",
    "Scale": "scaling",
    "Splits": "facts",
    "Vocabulary": "vocabulary",
    "concatenate": "facts",
    "describe": "describing",
    "hold_out": "facts",
    "load": "datasets",
    "load_dataset": "datasets",
    "query_batches": "query_files",
    "read": "reading",
    "read_parts": "reading",
    "split": "facts",
    "triple_keys": "facts",
    "write": "writing",
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
    if name not in _WHERE:
        raise AttributeError(f"module 'unkgcp.graph' has no attribute {name!r}")
    room = "unkgcp.tabular" if name == "Scale" else "unkgcp.graph"
    return getattr(import_module(f"{room}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
