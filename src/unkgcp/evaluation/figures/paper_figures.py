"""The paper's figures, from `summary.json` of a reproduction: one a protocol, data set and class of triples."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unkgcp.errors import InputError
from unkgcp.evaluation.figures.charts import (
    Curve,
    ErrorPanel,
    Panel,
    draw_conditionality,
    draw_levels,
    draw_sizes,
)
from unkgcp.evaluation.figures.style import Drawn, design, look, save

SUMMARY, FOLDER = "summary.json", "figures"
METHODS = ("fpi", "qr", "cp", "unkgcp", "evidence")
CLASSES = ("positive", "negative")

Cell = dict[str, Any]


def draw_reproduction(directory: str | os.PathLike[str], names: Collection[str] | None = None) -> list[Path]:
    """Draw every figure that the summary has data for, or some; gives the paths of the files written."""
    directory = Path(directory)
    written: list[Path] = []
    with design():
        for name, draw in drawings(read_summary(directory)):
            if names is None or name in names:
                written += save(draw(), directory / FOLDER / name)
    return written


def figure_names(directory: Path) -> list[str]:
    """The figures that the summary has data for."""
    return [name for name, _ in drawings(read_summary(directory))]


def read_summary(directory: Path) -> dict[str, Any]:
    """The summary of a reproduction, or one sentence about what is wrong with it."""
    path = directory / SUMMARY
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{directory} has no {SUMMARY}; make it with unkgcp reproduce -o {directory}"
        ) from None
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise InputError(
            f"{path} cannot be read ({why}); run unkgcp reproduce -o {directory} again"
        ) from None
    if not isinstance(summary, dict) or not all(summary.get(part) for part in ("cells", "paper", "checks")):
        raise InputError(f"{path} is no summary of a reproduction; run unkgcp reproduce -o {directory} again")
    return summary


def drawings(summary: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Drawn]]]:
    """(name, how to draw it) of every figure, a protocol and a data set at a time."""
    cells = summary["cells"]
    for protocol, data in dict.fromkeys((cell["protocol"], cell["data"]) for cell in cells):
        chosen = [cell for cell in cells if (cell["protocol"], cell["data"]) == (protocol, data)]
        for part in CLASSES:
            for kind, make in (("levels", _levels), ("conditionality", _errors), ("calibration", _sizes)):
                draw = make(chosen, part)
                if draw is not None:
                    yield f"{kind}-{protocol}-{data}-{part}", draw


def _levels(cells: list[Cell], part: str) -> Callable[[], Drawn] | None:
    panels = []
    for cell in cells:
        found = [(method, parts[part]) for method, parts in _chosen(cell["predictors"]) if part in parts]
        columns = [("coverage", "mean"), ("sharpness", "mean"), ("coverage", "sd"), ("sharpness", "sd")]
        curves = {
            method: Curve(cell["levels"], *(numbers(figures[kind][what]) for kind, what in columns))
            for method, figures in found
        }
        if curves:
            panels.append(Panel(look(cell["model"]).name, curves))
    return (lambda: draw_levels(panels)) if panels else None


def _errors(cells: list[Cell], part: str) -> Callable[[], Drawn] | None:
    panels = [
        ErrorPanel(
            look(cell["model"]).name,
            found["edges"],
            found["count"],
            {method: numbers(bins["width"]) for method, bins in _chosen(found["predictors"])},
        )
        for cell in cells
        if (found := (cell.get("conditionality") or {}).get(part)) and _chosen(found["predictors"])
    ]
    return (lambda: draw_conditionality(panels)) if panels else None


def _sizes(cells: list[Cell], part: str) -> Callable[[], Drawn] | None:
    panels, levels = [], []
    for cell in cells:
        about = cell.get("calibration_size") or {}
        if not (found := about.get(part)) or not _chosen(found["predictors"]):
            continue
        levels.append(about["level"])
        curves = {
            method: Curve(
                found["sizes"],
                *(numbers(curve[name]) for name in ("coverage", "sharpness", "coverage_sd", "sharpness_sd")),
            )
            for method, curve in _chosen(found["predictors"])
        }
        panels.append(Panel(look(cell["model"]).name, curves))
    return (lambda: draw_sizes(panels, levels[0])) if panels else None


def _chosen(predictors: dict[str, Any]) -> list[tuple[str, Any]]:
    """The methods that are drawn, in one order everywhere."""
    return [(method, predictors[method]) for method in METHODS if method in predictors]


def numbers(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A list in which null stands for nothing, as floats with NaN; null itself is one NaN."""
    if values is None:
        return np.array(np.nan)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
