"""Where named data sets lie: `data_dir`, then $UNKGCP_DATA, then the user's cache folder.

It only knows folders; what is in them is `unkgcp.graph.datasets`' business.

>>> find("ppi5k", data_dir="data")
PosixPath('data/ppi5k')
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "UNKGCP_DATA"


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/unkgcp, or ~/.cache/unkgcp."""
    # the specification asks to ignore a relative path there
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "unkgcp"


def search_folders(data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders that are looked into, in this order."""
    given = [] if data_dir is None else [Path(data_dir)]
    variable = os.environ.get(VARIABLE, "")
    return [*given, *([Path(variable)] if variable else []), cache_folder()]


def find(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """The first folder of that name, with something called `train` inside, that lies in one of them."""
    for folder in search_folders(data_dir):
        if any((folder / name).glob("train.*")):
            return folder / name
    return None
