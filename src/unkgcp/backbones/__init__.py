"""Scoring models: each is a formula over parameter tables, found here by name.

To add one: subclass `Backbone` in a file of its own and add it to the table below; the contract test in
`tests/backbones` then runs on it.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib import import_module

from unkgcp.backbones.backbone import Backbone, Table, score_triples
from unkgcp.errors import InputError

# name -> (module here, class); a module is imported when one of its backbones is first asked for
REGISTRY = {
    "ukge": ("ukge_passleaf", "UKGE"),
    "ukge-rect": ("ukge_passleaf", "UKGERect"),
    "passleaf": ("ukge_passleaf", "Passleaf"),
    "passleaf-complex": ("ukge_passleaf", "PassleafComplEx"),
    "passleaf-rotate": ("ukge_passleaf", "PassleafRotatE"),
    "beurre": ("beurre", "BEUrRE"),
}


@cache
def get(name: str) -> Backbone:
    """The backbone called `name`."""
    if name not in REGISTRY:
        near = difflib.get_close_matches(name, REGISTRY, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(REGISTRY)}"
        raise InputError(f"there is no model {name!r}; {hint}")
    module, kind = REGISTRY[name]
    backbone: Backbone = getattr(import_module(f"unkgcp.backbones.{module}"), kind)()
    return backbone


__all__ = ["REGISTRY", "Backbone", "Table", "get", "score_triples"]
