"""Folders with data: which of them holds a named data set, and which file in it is which part.

Named data sets are looked for under `data_dir`, then $UNKGCP_DATA, then the user's cache.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

from unkgcp.errors import InputError

BENCHMARKS = ("cn15k", "nl27k", "ppi5k")
NAMES = (*BENCHMARKS, "demo")

VARIABLE = "UNKGCP_DATA"

STEMS = {
    "train": ("train",),
    "calibration": ("val", "valid", "validation", "calibration"),
    "test": ("test",),
    "negatives": ("test_with_neg", "negatives"),
    "softlogic": ("softlogic",),
}
NEEDED = ("train", "calibration", "test")
ENDINGS = tuple(f".{kind}{gzip}" for kind in ("tsv", "csv", "txt", "parquet") for gzip in ("", ".gz"))


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


def parts(folder: Path, remedy: str = "") -> dict[str, Path]:
    """The file of every part that is there; the needed ones must be, and no part may be there twice."""
    found: dict[str, Path] = {}
    for part, stems in STEMS.items():
        paths = [folder / f"{stem}{ending}" for stem in stems for ending in ENDINGS]
        paths = [path for path in paths if path.is_file()]
        if len(paths) > 1:
            listed = " and ".join(path.name for path in paths)
            raise InputError(
                f"{folder} holds {listed}, and only one of them can be its {part} part; move the others"
            )
        if paths:
            found[part] = paths[0]
        elif part in NEEDED:
            names = " or ".join(STEMS[part][:1] if part != "calibration" else ("val", "valid", "calibration"))
            raise InputError(
                f"{folder} holds no {names} file ({', '.join(ENDINGS[::2])}, plain or .gz); "
                + (remedy or "a data folder needs train, val and test, or give one file to have it split")
            )
    return found


# The names behind ids, which some data sets bring along as tables.

TABLES = ("entity_id.csv", "relation_id.csv")


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """The name behind every id."""

    entities: dict[str, str]
    relations: dict[str, str]


def read_names(folder: Path) -> Names | None:
    """The tables of a folder, if both are there."""
    entities, relations = (folder / table for table in TABLES)
    if not (entities.is_file() and relations.is_file()):
        return None
    return Names(_table(entities), _table(relations))


def _table(path: Path) -> dict[str, str]:
    """A CSV with a header line and two columns, id and name."""
    try:
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(column_names=["id", "name"], skip_rows=1),
            convert_options=csv.ConvertOptions(column_types={"id": pa.string(), "name": pa.string()}),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise InputError(f"{path} is no table of ids and names ({error}); it needs two columns") from None
    return dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))
