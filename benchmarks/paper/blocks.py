"""The measured cells of a folder, by block: what every figure comes to over the seeds.

Cells lie in cells/ or, in fewer bytes, in cells.zip; a file of its own goes before the archive.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.paper.cells import LEVEL, METHODS
from benchmarks.paper.intervals import Floats

PROTOCOLS = ("paper", "strict")
DATA = {"cn15k": "CN15k", "ppi5k": "PPI5k", "nl27k": "NL27k"}
MODELS = {"ukge": "UKGE", "ukge-rect": "UKGE rect", "passleaf": "PASSLEAF", "beurre": "BEUrRE"}
PREDICTORS = dict(zip(METHODS, ("FPI", "QR", "CP", "UnKGCP"), strict=True))


class Mean(NamedTuple):
    """Mean and standard deviation over seeds; NaN where there is nothing, sd also for one seed."""

    mean: float
    sd: float

    def text(self, digits: int = 3) -> str:
        if np.isnan(self.mean):
            return "-"
        return f"{self.mean:.{digits}f}" + ("" if np.isnan(self.sd) else f" ({self.sd:.{digits}f})")


@dataclass(frozen=True)
class Block:
    """One model on one data set under one protocol: the cells of all its seeds."""

    protocol: str
    data: str
    model: str
    cells: list[dict[str, Any]]

    @property
    def name(self) -> str:
        return f"{self.data} {self.model}"

    @property
    def titles(self) -> tuple[str, str]:
        """Data set and model as the paper writes them."""
        return DATA.get(self.data, self.data), MODELS.get(self.model, self.model)

    def has(self, *path: str) -> bool:
        """Whether every cell has something there."""
        return all(_at(cell, path) is not None for cell in self.cells)

    def values(self, *path: str) -> Floats:
        """A figure of every cell: (seeds, ...), NaN where it is None; lists of different lengths lose their ends."""
        found = [_at(cell, path) for cell in self.cells]
        if isinstance(found[0], list):
            shortest = min(map(len, found))
            found = [row[:shortest] for row in found]
        return np.array(found, np.float64)

    def mean(self, *path: str) -> Mean:
        return mean_over_seeds(self.values(*path))

    def figure(self, method: str, part: str, kind: str, level: float = LEVEL) -> Mean:
        """A figure of intervals at a level; NaN where it was not measured."""
        path = ("predictors", method, part, kind)
        if not self.has(*path) or level not in self.cells[0]["levels"]:
            return Mean(np.nan, np.nan)
        return mean_over_seeds(self.values(*path)[:, self.cells[0]["levels"].index(level)])

    def curves(self, part: str) -> Iterator[tuple[str, dict[str, Floats]]]:
        """Each method's figures over the number of calibration facts, means of seeds; spreads as mean variances."""
        for method in self.methods("calibration_size", part, "predictors"):
            path = ("calibration_size", part, "predictors", method)
            found = {kind: self.values(*path, kind) for kind in ("coverage", "sharpness")}
            spread = {
                f"{kind}_sd": np.sqrt((self.values(*path, f"{kind}_sd") ** 2).mean(0)) for kind in found
            }
            yield method, {**{kind: rows.mean(0) for kind, rows in found.items()}, **spread}

    def sizes(self, part: str) -> list[int]:
        return min((cell["calibration_size"][part]["sizes"] for cell in self.cells), key=len)

    def methods(self, *path: str) -> list[str]:
        """The methods that every cell has there, in the paper's order."""
        return [method for method in METHODS if self.has(*path, method)]

    def correlation(self, method: str) -> tuple[float, float, float]:
        """Rank correlation of width and error: mean over seeds with its 95 % interval by Student's law."""
        path = ("conditionality", "positive", "predictors", method)
        values = self.values(*path, "spearman")
        mean, sd = mean_over_seeds(values)
        known = int((~np.isnan(values)).sum())
        if known == 1:  # one seed has no spread over seeds, but an interval over its facts
            low, high = (float(self.values(*path, f"spearman_{end}")[0]) for end in ("low", "high"))
            return mean, low, high
        half = stats.t.ppf(0.975, known - 1) * sd / np.sqrt(known)
        return mean, float(mean - half), float(mean + half)


def _at(cell: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        cell = cell.get(key) if isinstance(cell, dict) else None
    return cell


def mean_over_seeds(values: Floats) -> Mean:
    known = values[~np.isnan(values)]
    return Mean(
        float(known.mean()) if len(known) else np.nan, float(known.std(ddof=1)) if len(known) > 1 else np.nan
    )


def read_blocks(folder: Path) -> list[Block]:
    """The blocks of a folder, in the order of the paper's tables, others after them."""
    cells: dict[str, Any] = {}
    if (folder / "cells.zip").exists():
        with zipfile.ZipFile(folder / "cells.zip") as archive:
            names = [name for name in archive.namelist() if name.endswith(".json")]
            cells = {name: json.loads(archive.read(name)) for name in names}
    for path in folder.glob("cells/*/*/*/seed-*.json"):
        cells[path.relative_to(folder).as_posix()] = json.loads(path.read_text(encoding="utf-8"))
    if not cells:
        raise SystemExit(f"{folder} has no finished cell; run python -m benchmarks.paper -o {folder} first")
    grouped: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for cell in cells.values():
        grouped.setdefault((cell["protocol"], cell["data"], cell["model"]), []).append(cell)
    orders = PROTOCOLS, list(DATA), list(MODELS)

    def place(key: tuple[str, str, str]) -> list[tuple[int, str]]:
        return [
            (order.index(name) if name in order else len(order), name)
            for order, name in zip(orders, key, strict=True)
        ]

    return [
        Block(*key, sorted(grouped[key], key=lambda cell: int(cell["seed"])))
        for key in sorted(grouped, key=place)
    ]
