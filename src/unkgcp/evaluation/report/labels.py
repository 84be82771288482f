"""Labels for people: the names behind ids, where a data set brings them along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset


def readable_relations(dataset: Dataset, ids: Sequence[int]) -> list[str]:
    """Labels of relations, with their names where labels are mere ids."""
    names = {} if dataset.names is None else dataset.names.relations
    labels = dataset.splits.test.vocabulary.relations
    return [_named(labels[int(number)].as_py(), names) for number in ids]


def readable_entities(dataset: Dataset, ids: Sequence[int]) -> list[str]:
    """Labels of entities, with their names where labels are mere ids."""
    names = {} if dataset.names is None else dataset.names.entities
    labels = dataset.splits.test.vocabulary.entities
    return [_named(labels[int(number)].as_py(), names) for number in ids]


def _named(label: str, names: Mapping[str, str]) -> str:
    name = names.get(label)
    return label if name is None or name == label else f"{name} ({label})"
