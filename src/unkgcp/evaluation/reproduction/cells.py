"""The measured cells of a folder: their files, and what they come to over all seeds.

A cell is stored whole, with a checksum by which a damaged one is recognised. `summary.json`, from which tables, figures
and the report page are made, holds the mean and the spread of every figure over the seeds of a block.
"""

from __future__ import annotations

import fnmatch
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unkgcp._version import __version__
from unkgcp.errors import InputError
from unkgcp.evaluation.reproduction import FORMAT, Say, digest, place
from unkgcp.evaluation.reproduction.cell_figures import KINDS
from unkgcp.evaluation.reproduction.paper_claims import all_checks, published
from unkgcp.files import write_text

Cell = dict[str, Any]
ERRORS = ("positive", "negative", "mixed", "overlap_free")
ARCHIVE = "cells.zip"


def cell_path(folder: Path, name: str) -> Path:
    """The file of a cell, by its name: `paper/cn15k/ukge/seed-0`."""
    return folder / "cells" / f"{name}.json"


def cell_names(folder: Path) -> list[str]:
    """All cells of a folder: those with a file of their own and those in its archive."""
    paths = [path.relative_to(folder).as_posix() for path in folder.glob("cells/*/*/*/seed-*.json")]
    with _archive(folder) as archive:
        packed = [] if archive is None else archive.namelist()
    found = {path for path in [*paths, *packed] if fnmatch.fnmatch(path, "cells/*/*/*/seed-*.json")}
    return sorted(path.removeprefix("cells/").removesuffix(".json") for path in found)


def write_cell(folder: Path, name: str, cell: Mapping[str, Any]) -> None:
    """A measured cell with its checksum."""
    text = json.dumps({**cell, "checksum": checksum(cell)}, allow_nan=False)
    write_text(cell_path(folder, name), text + "\n")


def read_cell(folder: Path, name: str, fingerprint: str | None, say: Say) -> dict[str, Any] | None:
    """What `write_cell` wrote, or None after a sentence about why it is of no use; None alone if absent."""
    path = cell_path(folder, name)
    try:
        content = _content(folder, path)
        if content is None:
            return None
        cell = json.loads(content)
        sound = cell["kind"] == "cell" and cell["checksum"] == checksum(cell)
        current = cell["format"] == FORMAT and fingerprint in (None, cell["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
        sound = current = False
    if not sound:
        say(f"{path} is damaged and is made again")
        return None
    if not current:
        say(f"{path} was made from other data or settings and is made again")
        return None
    found: dict[str, Any] = cell
    return found


def _content(folder: Path, path: Path) -> bytes | None:
    """The cell's own file or, where it has none, its member of the archive; None if it is in neither."""
    if path.exists():
        return path.read_bytes()
    with _archive(folder) as archive:
        member = path.relative_to(folder).as_posix()
        return None if archive is None or member not in archive.namelist() else archive.read(member)


@contextmanager
def _archive(folder: Path) -> Iterator[zipfile.ZipFile | None]:
    """`cells.zip`, which may replace the folder `cells`; None if there is none."""
    path = folder / ARCHIVE
    if not path.exists():
        yield None
        return
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read ({error}); restore it or remove it") from None
    with archive:
        yield archive


def checksum(cell: Mapping[str, Any]) -> str:
    """The checksum of everything else in the cell."""
    rest = {name: value for name, value in cell.items() if name != "checksum"}
    return digest(json.dumps(rest, sort_keys=True).encode())


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, None if there is none."""
    return digest(path.read_bytes()) if path.exists() else None


# The summary: all cells of a folder, aggregated over seeds.


def write_summary(folder: Path, say: Say) -> dict[str, Any]:
    """Read every cell in the folder, aggregate, check, and write summary.json."""
    blocks = [aggregate(cells) for cells in read_blocks(folder, say)]
    summary = {
        "format": FORMAT,
        "version": __version__,
        "title": "Prediction intervals for uncertain knowledge graphs: the paper's experiments",
        "cells": blocks,
        "statistics": {block["data"]: block["statistics"] for block in blocks},
        "paper": published(),
        "scaling": read_json(folder / "scaling.json"),
    }
    summary["checks"] = all_checks(summary)
    write_text(folder / "summary.json", json.dumps(summary, allow_nan=False) + "\n")
    return summary


def read_blocks(folder: Path, say: Say) -> list[list[Cell]]:
    """The cells of each block, in the order of the paper's tables; seeds ascending."""
    blocks: dict[tuple[str, str, str], list[Cell]] = {}
    for name in cell_names(folder):
        cell = read_cell(folder, name, None, say)
        if cell is not None:
            blocks.setdefault((cell["protocol"], cell["data"], cell["model"]), []).append(cell)
    if not blocks:
        raise InputError(f"{folder} has no finished cell; run `unkgcp reproduce -o {folder}` first")
    ordered = sorted(blocks, key=lambda key: place(*key))
    return [sorted(blocks[key], key=lambda cell: int(cell["seed"])) for key in ordered]


def aggregate(cells: Sequence[Cell]) -> dict[str, Any]:
    """Mean and standard deviation over the seeds of one block, which must agree in everything but the seed."""
    first = cells[0]
    if any(cell["levels"] != first["levels"] for cell in cells):
        raise InputError(
            f"cells of {first['protocol']}/{first['data']}/{first['model']} have different levels; "
            "run reproduce again with one --levels"
        )
    # a predictor counts where every seed has it
    names = [name for name in first["predictors"] if all(name in cell["predictors"] for cell in cells)]
    if not names:
        raise InputError(
            f"cells of {first['protocol']}/{first['data']}/{first['model']} have no predictor in common; "
            "run reproduce again with one --predictors"
        )
    parts = list(first["predictors"][names[0]])
    return {
        "protocol": first["protocol"],
        "data": first["data"],
        "model": first["model"],
        "seeds": [cell["seed"] for cell in cells],
        "levels": first["levels"],
        "n": first["n"],
        "statistics": first["statistics"],
        "errors": {
            part: {kind: spread([cell["errors"][part][kind] for cell in cells]) for kind in ("mse", "mae")}
            for part in ERRORS
        },
        "predictors": {
            name: {
                part: {
                    kind: spreads([cell["predictors"][name][part][kind] for cell in cells])
                    for kind in KINDS
                    if all(kind in cell["predictors"][name][part] for cell in cells)
                }
                for part in parts
            }
            for name in names
        },
        "conditionality": _conditionality(cells),
        "calibration_size": _calibration_size(cells),
        "training": {
            "best_epoch": [cell["training"]["best_epoch"] for cell in cells],
            "quantile_best_epoch": [cell["training"]["quantile_best_epoch"] for cell in cells],
            "config": first["training"]["config"],
            "quantile_config": first["training"]["quantile_config"],
        },
        "seconds": {
            stage: sum(cell["seconds"][stage] for cell in cells)
            for stage in ("training", "quantiles", "scoring", "measuring")
        },
        "machine": first["training"]["machine"],
    }


def spread(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean and standard deviation (None for one value) of what is there."""
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "sd": None}
    mean = math.fsum(known) / len(known)
    if len(known) == 1:
        return {"mean": mean, "sd": None}
    return {"mean": mean, "sd": math.sqrt(math.fsum((v - mean) ** 2 for v in known) / (len(known) - 1))}


def spreads(rows: Sequence[Sequence[float | None]]) -> dict[str, list[float | None]]:
    """`spread` for each place of several lists of one length."""
    each = [spread(column) for column in zip(*rows, strict=True)]
    return {"mean": [one["mean"] for one in each], "sd": [one["sd"] for one in each]}


def mean_interval(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean over seeds with its 95 % interval by Student's law; None for the interval of one value."""
    known = [value for value in values if value is not None]
    found = spread(known)
    if found["mean"] is None or found["sd"] is None:
        return {"mean": found["mean"], "low": None, "high": None}
    from scipy.special import stdtrit

    half = float(stdtrit(len(known) - 1, 0.975)) * found["sd"] / math.sqrt(len(known))
    return {"mean": found["mean"], "low": found["mean"] - half, "high": found["mean"] + half}


def _conditionality(cells: Sequence[Cell]) -> dict[str, Any]:
    result: dict[str, Any] = {"level": cells[0]["conditionality"]["level"]}
    for part in ("positive", "negative"):
        each = [cell["conditionality"][part] for cell in cells]
        names = [name for name in each[0]["predictors"] if all(name in one["predictors"] for one in each)]
        result[part] = {
            "edges": _means([one["edges"] for one in each]),
            "count": _sums([one["count"] for one in each]),
            "predictors": {name: _binned([one["predictors"][name] for one in each]) for name in names},
        }
    return result


def _binned(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    widths = spreads([one["width"] for one in each])
    spearman = mean_interval([one["spearman"] for one in each])
    if len(each) == 1:  # one seed has no spread over seeds, but an interval over its facts
        spearman |= {"low": each[0]["spearman_low"], "high": each[0]["spearman_high"]}
    return {
        "width": widths["mean"],
        "width_sd": widths["sd"],
        "covered": _sums([one["covered"] for one in each]),
        "spearman": spearman,
    }


def _calibration_size(cells: Sequence[Cell]) -> dict[str, Any]:
    first = cells[0]["calibration_size"]
    result: dict[str, Any] = {"level": first["level"], "draws": first["draws"]}
    for part in ("positive", "negative"):
        each = [cell["calibration_size"][part] for cell in cells]
        shortest = min(each, key=lambda one: len(one["sizes"]))
        # seeds may have different numbers of negatives with a score, and then different last sizes
        result[part] = {
            "sizes": shortest["sizes"],
            "predictors": {
                name: {
                    kind: combine([one["predictors"][name][kind] for one in each])
                    for kind, combine in _KINDS.items()
                }
                for name in first[part]["predictors"]
            },
        }
    return result


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    return [math.fsum(column) / len(rows) for column in zip(*rows, strict=False)]


def _deviations(rows: Sequence[Sequence[float]]) -> list[float]:
    """The standard deviation over draws within a seed, averaged as a variance over the seeds."""
    return [math.sqrt(math.fsum(v * v for v in column) / len(rows)) for column in zip(*rows, strict=False)]


def _sums(rows: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


_KINDS: dict[str, Callable[[Sequence[Sequence[float]]], list[float]]] = {
    "coverage": _means,
    "coverage_sd": _deviations,
    "sharpness": _means,
    "sharpness_sd": _deviations,
}


def read_json(path: Path) -> Any:
    """The content of a JSON file, None if it is absent or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
