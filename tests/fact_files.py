"""A few facts as lines of a file, and what a file turned into."""

from __future__ import annotations

import gzip
from pathlib import Path

from unkgcp.graph import Graph

Fact = tuple[str, str, str, float]

FACTS: list[Fact] = [
    ("a", "likes", "b", 0.5),
    ("b", "knows", "a", 0.25),
    ("a", "likes", "b", 1.0),
    ("c", "likes", "c", 0.0),
]
LINES = [f"{head}\t{relation}\t{tail}\t{confidence}" for head, relation, tail, confidence in FACTS]


def facts(graph: Graph) -> list[Fact]:
    columns = graph.table().to_pydict().values()
    return list(zip(*columns, strict=True))


def written(path: Path, content: str | bytes) -> Path:
    """Bytes as they are; text is packed where the name ends in .gz."""
    if isinstance(content, str):
        content = gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode()
    path.write_bytes(content)
    return path
