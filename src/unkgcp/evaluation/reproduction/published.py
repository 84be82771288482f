"""The numbers that the paper prints, to stand beside ours."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def published() -> dict[str, Any]:
    """Tables 1 to 3 and the statistics: `published()["table1"]["cn15k"]["ukge"]["cp"]["sharpness"]`.

    An interval figure is [mean, standard deviation]. The paper has no quantile regression for PASSLEAF.
    """
    import yaml

    text = files("unkgcp.evaluation.reproduction").joinpath("published.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found
