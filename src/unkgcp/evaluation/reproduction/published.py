"""The numbers that the paper prints, to stand beside ours.

The paper prints one UKGE and says that it "primarily" means the logistic variant. Trained side by side, its
intervals (Tables 1 and 3) are those of the rectified variant, its errors (Table 2) those of the logistic one; so
the printed UKGE stands beside both, and each table is judged by the variant that it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

VARIANTS = ("ukge", "ukge-rect")
SHOWN = {"table1": "ukge-rect", "table2": "ukge", "table3": "ukge-rect"}


@cache
def published() -> dict[str, Any]:
    """Tables 1 to 3 and the statistics: `published()["table1"]["cn15k"]["ukge"]["cp"]["sharpness"]`.

    An interval figure is [mean, standard deviation]. The paper has no quantile regression for PASSLEAF.
    """
    import yaml

    text = files("unkgcp.evaluation.reproduction").joinpath("published.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def printed_row(table: dict[str, Any], block: dict[str, Any]) -> dict[str, Any]:
    """The row of a printed table for a block, {} if it has none; both variants of UKGE have the one of UKGE."""
    model = "ukge" if block["model"] in VARIANTS else block["model"]
    found: dict[str, Any] = table.get(block["data"], {}).get(model, {})
    return found


def as_shown(blocks: Sequence[dict[str, Any]], table: str) -> list[dict[str, Any]]:
    """The blocks that a printed table shows: of two variants of UKGE on a data set, one."""
    both = {block["data"] for block in blocks if block["model"] == SHOWN[table]}
    return [
        block
        for block in blocks
        if block["model"] not in VARIANTS or block["model"] == SHOWN[table] or block["data"] not in both
    ]
