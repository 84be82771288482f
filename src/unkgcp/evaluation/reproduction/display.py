"""How things are called in tables, and how a figure is found in a summary."""

from __future__ import annotations

from typing import Any

Block = dict[str, Any]
LEVEL = 0.9
NAMES = {
    "cn15k": "CN15k",
    "ppi5k": "PPI5k",
    "nl27k": "NL27k",
    "ukge": "UKGE",
    "ukge-rect": "UKGE rect",
    "passleaf": "PASSLEAF",
    "beurre": "BEUrRE",
    "fpi": "FPI",
    "qr": "QR",
    "cp": "CP",
    "unkgcp": "UnKGCP",
    "unkgcp-plain": "UnKGCP, plain entropy",
}
METHODS = ("fpi", "qr", "cp", "unkgcp")


def name(key: str) -> str:
    """How a data set, model or predictor is called in print."""
    return NAMES.get(key, key)


def at_level(block: Block, method: str, part: str, kind: str) -> dict[str, Any] | None:
    """Mean and standard deviation at the 90 % level; None where there is no such predictor or level."""
    if method not in block["predictors"] or LEVEL not in block["levels"]:
        return None
    found, place = block["predictors"][method][part][kind], block["levels"].index(LEVEL)
    return {"mean": found["mean"][place], "sd": found["sd"][place]}


def is_valid(coverage: float | None) -> bool:
    """The paper's rule: coverage, printed with two decimals, reaches the level."""
    return coverage is not None and round(coverage, 2) >= LEVEL
