"""What is in a run on disk, and a run as a stranger might have written it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from unkgcp.files import read_container, write_container
from unkgcp.run import Predictor
from unkgcp.run.store import FORMAT, RUN

FILES = {RUN, "config.yaml", "metrics.json", "README.txt"}


def rewritten(run: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> Path:
    """The run after `change(arrays, about)`, with a digest that fits."""
    arrays, about, _ = read_container(run / RUN, FORMAT, "")
    change(arrays, about)
    write_container(run / RUN, FORMAT, arrays, about)
    return run


def same_run(one: Path, other: Path, part: str = "") -> None:
    """Two runs have the same configuration and the same arrays, or those of one part."""
    (arrays, about, _), (others, about_other, _) = (
        read_container(run / RUN, FORMAT, "") for run in (one, other)
    )
    names = {name for name in arrays if name.startswith(part)}
    assert names
    assert names == {name for name in others if name.startswith(part)}
    for name in names:
        np.testing.assert_array_equal(arrays[name], others[name], strict=True)
    if not part:
        assert about["config"] == about_other["config"]
        assert about["metrics"] == about_other["metrics"]


def which(run: Path, pair: list[Predictor]) -> int:
    """Which of two predictors a run is; model and calibration must say the same."""
    loaded = Predictor.load(run)
    by_model = [(loaded.model.tables["entity"] == one.model.tables["entity"]).all() for one in pair]
    assert by_model == [loaded.method.size == one.method.size for one in pair]
    return by_model.index(True)
