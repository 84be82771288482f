"""Soft logic: rules people write, turned into unseen facts with a lower bound on their confidence."""

from __future__ import annotations

from unkgcp.rules.grounding import ground
from unkgcp.rules.language import Rule, RuleAtom, parse, read_rules

__all__ = ["Rule", "RuleAtom", "ground", "parse", "read_rules"]
