"""Scoring models: each is a formula over parameter tables, found here by name.

To add one: subclass `Backbone` in a file of its own and add it to the tuple below; the contract test in
`tests/backbones` then runs on it.
"""

from __future__ import annotations

import difflib

from unkgcp.backbones.backbone import Backbone, Table, score_triples
from unkgcp.backbones.beurre import BEUrRE
from unkgcp.backbones.ukge_passleaf import UKGE, Passleaf, PassleafComplEx, PassleafRotatE, UKGERect
from unkgcp.errors import InputError

REGISTRY: dict[str, Backbone] = {
    backbone.name: backbone
    for backbone in (UKGE(), UKGERect(), Passleaf(), PassleafComplEx(), PassleafRotatE(), BEUrRE())
}


def get(name: str) -> Backbone:
    """The backbone called `name`."""
    if name not in REGISTRY:
        near = difflib.get_close_matches(name, REGISTRY, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(REGISTRY)}"
        raise InputError(f"there is no model {name!r}; {hint}")
    return REGISTRY[name]


__all__ = ["REGISTRY", "Backbone", "Table", "get", "score_triples"]
