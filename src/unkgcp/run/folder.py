"""A run on disk: a handful of files that together are a calibrated predictor, safe to open whoever wrote them.

The format: `config.yaml` (settings), `model.safetensors` (parameters), `vocabulary.parquet`
(labels and which of them have training facts), `calibration.npz`, `metrics.json`, where they are known
`facts.npz` (the training facts, see `unkgcp.graph.known`), and `provenance.json`, which names the format's version
and the size and SHA-256 of all others. Nothing is ever unpickled. What the parts
mean is known to `unkgcp.run.predictor`, which puts them together.

What is checked when: sizes, names, shapes and kinds of everything when a run is read, before memory is asked for;
SHA-256 and that weights are finite numbers then too for files up to 64 MiB. Larger files are mapped, not read, and
checked by `verify`; the training facts are checked when they are first asked for.

>>> write_run("run", parts)                  # doctest: +SKIP
>>> read_run("run").config["method"]         # doctest: +SKIP
'unkgcp'
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.files import check_place, explained, read_npz, umask, write_npz
from unkgcp.graph.known import Columns, KnownFacts, restored
from unkgcp.graph.vocabulary import Vocabulary
from unkgcp.run.safe_files import (
    digest,
    finite,
    read_json,
    read_labels,
    read_weights,
    read_yaml,
    reading,
    size_of,
    write_labels,
)

FORMAT, VERSION = "unkgcp-run", 2
CONFIG, MODEL, VOCABULARY = "config.yaml", "model.safetensors", "vocabulary.parquet"
CALIBRATION, METRICS, PROVENANCE, FACTS = "calibration.npz", "metrics.json", "provenance.json", "facts.npz"
FILES = (CONFIG, MODEL, VOCABULARY, CALIBRATION, METRICS, PROVENANCE)
CHECKPOINT = ".checkpoint"
AT_ONCE = 64 << 20  # bytes up to which a file is hashed when the run is read
MOST = {CONFIG: 1 << 16, METRICS: 16 << 20, PROVENANCE: 16 << 20}

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class RunParts:
    """The content of a run's files.

    tensors: model parameters by name. seen_entities, seen_relations: (entities,), (relations,) bool.
    calibration: plain arrays by name. metrics: what `evaluate` found, empty if nothing was evaluated. facts:
    the training facts, where they are known.
    """

    config: dict[str, Any]
    tensors: Arrays
    vocabulary: Vocabulary
    seen_entities: NDArray[np.bool_]
    seen_relations: NDArray[np.bool_]
    calibration: Arrays
    metrics: dict[str, Any]
    provenance: dict[str, Any]
    facts: KnownFacts | None = None


def check_target(folder: str | os.PathLike[str]) -> None:
    """Refuse to write a run where none can be, or over something else: the target must be new, empty or a run."""
    folder = Path(folder)
    if folder.is_dir():
        names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(".partial-")}
        if names and not names & {PROVENANCE, CHECKPOINT}:
            raise InputError(f"{folder} exists and is not a run of unkgcp; give another folder with -o")
    elif folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} is not a folder; give another name with -o")
    check_place(folder)
    if folder.is_dir():
        check_place(folder / PROVENANCE)


def write_run(folder: str | os.PathLike[str], parts: RunParts) -> None:
    """Write a run whole. A new folder appears at once; in an old one `provenance.json` is replaced last."""
    folder = Path(folder)
    check_target(folder)
    with explained(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
    try:
        _write_parts(stage, parts)
        names = [*(() if parts.facts is None else (FACTS,)), *FILES]
        files = {name: _fingerprint(stage / name) for name in names if name != PROVENANCE}
        about = {"format": FORMAT, "version": VERSION}
        # a run read from disk and written again carries what the older one said of itself
        provenance = {**about, **parts.provenance, **about, "files": files}
        _write_json(stage / PROVENANCE, provenance)
        hidden = umask()
        for name in names:
            with (stage / name).open("rb") as written:
                os.fsync(written.fileno())
            (stage / name).chmod(0o666 & ~hidden)  # some writers make files that only their owner can read
        if folder.is_dir():
            for name in names:
                (stage / name).replace(folder / name)
            if parts.facts is None:
                (folder / FACTS).unlink(missing_ok=True)
        else:
            stage.chmod(0o777 & ~hidden)
            stage.rename(folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _write_parts(stage: Path, parts: RunParts) -> None:
    from safetensors.numpy import save_file

    text = yaml.safe_dump(parts.config, sort_keys=False, allow_unicode=True)
    (stage / CONFIG).write_text(text, encoding="utf-8")
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in parts.tensors.items()}, stage / MODEL)
    write_labels(stage / VOCABULARY, parts.vocabulary, parts.seen_entities, parts.seen_relations)
    write_npz(stage / CALIBRATION, parts.calibration)
    _write_json(stage / METRICS, parts.metrics)
    if parts.facts is not None:
        write_npz(stage / FACTS, parts.facts.arrays())


def read_run(folder: str | os.PathLike[str]) -> RunParts:
    """Read a run and check it; see above for what is checked when. The parameters are mapped into memory."""
    folder = Path(folder)
    provenance = read_provenance(folder)
    files = provenance["files"]
    for name, written in files.items():
        if size_of(folder / name) != written["bytes"]:
            raise _damaged(folder / name)
        if written["bytes"] <= AT_ONCE and name != FACTS:
            _check_digest(folder / name, written)
    with reading(folder / CONFIG) as path:
        config = read_yaml(path, MOST[CONFIG])
    with reading(folder / MODEL) as path:
        tensors = read_weights(path)
        if files[MODEL]["bytes"] <= AT_ONCE:
            _check_finite(tensors)
    with reading(folder / VOCABULARY) as path:
        rows = sum(len(tensor) for tensor in tensors.values())
        vocabulary, seen_entities, seen_relations = read_labels(path, rows)
    with reading(folder / CALIBRATION) as path:
        calibration = read_npz(path)
    with reading(folder / METRICS) as path:
        metrics = read_json(path, MOST[METRICS])
    facts = None
    if FACTS in files:
        facts = KnownFacts(partial(_read_facts, folder / FACTS, files[FACTS], vocabulary))
    return RunParts(
        config, tensors, vocabulary, seen_entities, seen_relations, calibration, metrics, provenance, facts
    )


def verify(folder: str | os.PathLike[str]) -> None:
    """Read every byte of a run, large files too; an InputError says which file is not what was written."""
    folder = Path(folder)
    for name, written in read_provenance(folder)["files"].items():
        _check_digest(folder / name, written)
    with reading(folder / MODEL) as path:
        _check_finite(read_weights(path))


def read_provenance(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """A run's provenance, once it is certain that the folder is a finished run this version can read."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"{folder} is no run: there is no such folder; make one with unkgcp fit DATA -o {folder}"
        )
    path = folder / PROVENANCE
    if not path.exists() and not path.is_symlink():
        if (folder / CHECKPOINT).exists():
            raise InputError(f"{folder} is not finished; continue with unkgcp fit DATA -o {folder} --resume")
        raise InputError(f"{folder} is no run of unkgcp: it has no {PROVENANCE}")
    with reading(path):
        provenance = read_json(path, MOST[PROVENANCE])
        if provenance.get("format") != FORMAT:
            raise ValueError("it is not written by unkgcp")
    if provenance.get("version") != VERSION:
        found = json.dumps(provenance.get("version"))[:20]
        raise InputError(
            f"{path} has format version {found}, this program reads {VERSION}; "
            "fit the run again or use the version of unkgcp that wrote it"
        )
    files = provenance.get("files")
    wanted = set(FILES) - {PROVENANCE}
    if (
        not isinstance(files, dict)
        or set(files) - {FACTS} != wanted
        or not all(map(_is_entry, files.values()))
    ):
        raise InputError(f"{path} is damaged: it does not list the files of a run; fit the run again")
    with reading(path):
        _check_data(provenance.get("data", {}))
        if not isinstance(provenance.get("recalibrated", {}), dict):
            raise ValueError("what it says of calibration is no record")
    return provenance


def _check_data(data: Any) -> None:
    """ValueError unless the record of the data (`unkgcp.run.provenance`) has what it has of the right kind."""
    if not isinstance(data, dict):
        raise ValueError("what it says of the data is no record")
    if "argument" in data and (missing := {"name", "seed", "options", "hashes"} - data.keys()):
        raise ValueError(f"it does not tell the {min(missing)} of the data")
    for name, kind in (("argument", str), ("name", str), ("seed", int), ("options", dict), ("hashes", dict)):
        if name in data and type(data[name]) is not kind:
            raise ValueError(f"the {name} of the data is {json.dumps(data[name])[:40]}")
    if data.get("seed", 0) < 0:
        raise ValueError(f"the seed of the data is {data['seed']}")


def _is_entry(written: Any) -> bool:
    return isinstance(written, dict) and type(written.get("bytes")) is int and "sha256" in written


def _read_facts(path: Path, written: dict[str, Any], vocabulary: Vocabulary) -> Columns:
    _check_digest(path, written)
    with reading(path):
        return restored(read_npz(path), len(vocabulary.entities), len(vocabulary.relations))


def _check_digest(path: Path, written: dict[str, Any]) -> None:
    if size_of(path) != written["bytes"] or digest(path) != written["sha256"]:
        raise _damaged(path)


def _check_finite(tensors: Arrays) -> None:
    for name, tensor in tensors.items():
        if not finite(tensor):
            raise ValueError(f"table {name!r} holds a number that is not finite")


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} is damaged: it is not what was written; fit the run again")


def _fingerprint(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": digest(path)}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
