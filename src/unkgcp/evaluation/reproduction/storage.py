"""Stored work: score files (.npz) and measured cells (.json), written whole and recognised when damaged.

What it is: the border to the disk. A score file is a zip with a checksum a member, a cell carries a checksum
of its own text; both carry the fingerprint of the settings they were made with. What is damaged or belongs to
other settings is named in one sentence and made again. No pickle.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.evaluation.reproduction.settings import FORMAT, digest
from unkgcp.files import atomic_path, write_text

Arrays = dict[str, NDArray[Any]]
Say = Callable[[str], None]


def write_scores(path: Path, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
    """Arrays and what they are; `about` must hold the fingerprint."""
    members: dict[str, Any] = dict(arrays)
    members["about"] = np.frombuffer(json.dumps(dict(about), sort_keys=True).encode(), dtype=np.uint8)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **members)


def read_scores(path: Path, fingerprint: str | None, say: Say) -> tuple[Arrays, dict[str, Any]] | None:
    """What `write_scores` wrote, or None after a sentence about why it is of no use; None alone if absent."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        about: dict[str, Any] = json.loads(arrays.pop("about").tobytes())
        found = about["fingerprint"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        say(f"{path} is damaged and is made again")
        return None
    if fingerprint is not None and found != fingerprint:
        say(f"{path} was made from other data or settings and is made again")
        return None
    return arrays, about


def write_cell(path: Path, cell: Mapping[str, Any]) -> None:
    """A measured cell with its checksum."""
    write_text(path, json.dumps({**cell, "checksum": checksum(cell)}, allow_nan=False) + "\n")


def read_cell(path: Path, fingerprint: str | None, say: Say) -> dict[str, Any] | None:
    """What `write_cell` wrote, or None after a sentence about why it is of no use; None alone if absent."""
    if not path.exists():
        return None
    try:
        cell = json.loads(path.read_text(encoding="utf-8"))
        sound = cell["kind"] == "cell" and cell["checksum"] == checksum(cell)
        current = cell["format"] == FORMAT and fingerprint in (None, cell["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):
        sound = current = False
    if not sound:
        say(f"{path} is damaged and is made again")
        return None
    if not current:
        say(f"{path} was made from other data or settings and is made again")
        return None
    found: dict[str, Any] = cell
    return found


def checksum(cell: Mapping[str, Any]) -> str:
    """Of everything in the cell but the checksum."""
    rest = {name: value for name, value in cell.items() if name != "checksum"}
    return digest(json.dumps(rest, sort_keys=True).encode())


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, None if there is none."""
    return digest(path.read_bytes()) if path.exists() else None
