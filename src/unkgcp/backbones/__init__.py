"""Scoring models: each is a formula over parameter tables, found by name."""

from unkgcp.backbones.backbone import (
    REGISTRY,
    Backbone,
    Table,
    get,
    score_against_all,
    score_ids,
    score_triples,
)

__all__ = ["REGISTRY", "Backbone", "Table", "get", "score_against_all", "score_ids", "score_triples"]
