"""A run on disk: six files that together are a calibrated predictor, safe to open whoever wrote them.

What it is: the format. `config.yaml` (settings), `model.safetensors` (parameters), `vocabulary.parquet`
(labels and which of them have training facts), `calibration.npz`, `metrics.json`, and `provenance.json`,
which names the format's version and the size and SHA-256 of the five others. Nothing is ever unpickled.
What it is not: it does not know what the parts mean; `unkgcp.bundle.predictor` puts them together.

>>> write_run("run", parts)                  # doctest: +SKIP
>>> read_run("run").config["method"]         # doctest: +SKIP
'unkgcp'
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from unkgcp.bundle.arrays import read_npz, write_npz
from unkgcp.errors import InputError
from unkgcp.graph import Vocabulary

FORMAT, VERSION = "unkgcp-run", 1
CONFIG, MODEL, VOCABULARY = "config.yaml", "model.safetensors", "vocabulary.parquet"
CALIBRATION, METRICS, PROVENANCE = "calibration.npz", "metrics.json", "provenance.json"
FILES = (CONFIG, MODEL, VOCABULARY, CALIBRATION, METRICS, PROVENANCE)
CHECKPOINT = ".checkpoint"

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class RunParts:
    """The content of a run's files.

    tensors: model parameters by name. seen_entities, seen_relations: (entities,), (relations,) bool.
    calibration: plain arrays by name. metrics: what `evaluate` found, empty if nothing was evaluated.
    """

    config: dict[str, Any]
    tensors: Arrays
    vocabulary: Vocabulary
    seen_entities: NDArray[np.bool_]
    seen_relations: NDArray[np.bool_]
    calibration: Arrays
    metrics: dict[str, Any]
    provenance: dict[str, Any]


def check_target(folder: str | os.PathLike[str]) -> None:
    """Refuse to write a run over something else: the target must be new, empty or a run."""
    folder = Path(folder)
    if folder.is_dir():
        names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(".partial-")}
        if names and not names & {PROVENANCE, CHECKPOINT}:
            raise InputError(f"{folder} exists and is not a run of unkgcp; give another folder with -o")
    elif folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} is not a folder; give another name with -o")


def write_run(folder: str | os.PathLike[str], parts: RunParts) -> None:
    """Write a run whole. A new folder appears at once; in an old one `provenance.json` is replaced last."""
    folder = Path(folder)
    check_target(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
    try:
        _write_parts(stage, parts)
        files = {name: _fingerprint(stage / name) for name in FILES if name != PROVENANCE}
        about = {"format": FORMAT, "version": VERSION}
        # a run read from disk and written again carries what the older one said of itself
        provenance = {**about, **parts.provenance, **about, "files": files}
        _write_json(stage / PROVENANCE, provenance)
        umask = os.umask(0)
        os.umask(umask)
        for name in FILES:
            with (stage / name).open("rb") as written:
                os.fsync(written.fileno())
            (stage / name).chmod(0o666 & ~umask)  # some writers make files that only their owner can read
        if folder.is_dir():
            for name in FILES:
                (stage / name).replace(folder / name)
        else:
            stage.chmod(0o777 & ~umask)
            stage.rename(folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _write_parts(stage: Path, parts: RunParts) -> None:
    from safetensors.numpy import save_file

    text = yaml.safe_dump(parts.config, sort_keys=False, allow_unicode=True)
    (stage / CONFIG).write_text(text, encoding="utf-8")
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in parts.tensors.items()}, stage / MODEL)
    entities, relations = parts.vocabulary.entities, parts.vocabulary.relations
    vocabulary = pa.table(
        {
            "kind": pa.array(["entity"] * len(entities) + ["relation"] * len(relations)).dictionary_encode(),
            "label": pa.concat_arrays([entities, relations]),
            "seen": pa.array(np.concatenate([parts.seen_entities, parts.seen_relations])),
        }
    )
    pq.write_table(vocabulary, stage / VOCABULARY, compression="zstd")
    write_npz(stage / CALIBRATION, parts.calibration)
    _write_json(stage / METRICS, parts.metrics)


def read_run(folder: str | os.PathLike[str]) -> RunParts:
    """Read a run and check it: format, version, integrity of every file, and that sizes agree."""
    from safetensors.numpy import load_file

    folder = Path(folder)
    provenance = read_provenance(folder)
    for name, written in provenance["files"].items():
        if _fingerprint(folder / name) != written:
            raise InputError(f"{folder / name} is damaged: it is not what was written; fit the run again")
    with _reading(folder / CONFIG) as path:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it holds no settings")
    with _reading(folder / MODEL) as path:
        tensors: Arrays = load_file(path)
        if any(tensor.dtype != np.float32 for tensor in tensors.values()):
            raise ValueError("its parameters are not 32-bit floats")
    with _reading(folder / VOCABULARY) as path:
        vocabulary, seen_entities, seen_relations = _read_vocabulary(path)
    with _reading(folder / CALIBRATION) as path:
        calibration = read_npz(path)
    with _reading(folder / METRICS) as path:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(metrics, dict):
            raise ValueError("it holds no figures")
    return RunParts(
        config, tensors, vocabulary, seen_entities, seen_relations, calibration, metrics, provenance
    )


def read_provenance(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """A run's provenance, once it is certain that the folder is a finished run this version can read."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"{folder} is no run: there is no such folder; make one with unkgcp fit DATA -o {folder}"
        )
    path = folder / PROVENANCE
    if not path.is_file():
        if (folder / CHECKPOINT).exists():
            raise InputError(f"{folder} is not finished; continue with unkgcp fit DATA -o {folder} --resume")
        raise InputError(f"{folder} is no run of unkgcp: it has no {PROVENANCE}")
    with _reading(path):
        provenance = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(provenance, dict) or provenance.get("format") != FORMAT:
            raise ValueError("it is not written by unkgcp")
    if provenance.get("version") != VERSION:
        raise InputError(
            f"{path} has format version {provenance.get('version')}, this program reads {VERSION}; "
            "fit the run again or use the version of unkgcp that wrote it"
        )
    files = provenance.get("files")
    if not isinstance(files, dict) or set(files) != set(FILES) - {PROVENANCE}:
        raise InputError(f"{path} is damaged: it does not list the files of a run; fit the run again")
    return provenance


def _read_vocabulary(path: Path) -> tuple[Vocabulary, NDArray[np.bool_], NDArray[np.bool_]]:
    table = pq.read_table(path, columns=["kind", "label", "seen"])
    entity = np.asarray(pc.equal(table["kind"].cast(pa.string()), "entity"), dtype=np.bool_)
    label = pa.concat_arrays(table["label"].cast(pa.string()).chunks)
    seen = np.asarray(table["seen"], dtype=np.bool_)
    n = int(entity.sum())
    if label.null_count or not entity[:n].all():
        raise ValueError("it is not a list of entities followed by relations")
    return Vocabulary(label[:n], label[n:]), seen[:n], seen[n:]


@contextmanager
def _reading(path: Path) -> Iterator[Path]:
    """Whatever goes wrong inside while reading `path` becomes one sentence."""
    try:
        yield path
    except InputError:
        raise
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} is damaged or foreign ({why}); fit the run again") from error


def _fingerprint(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return {"bytes": os.fstat(file.fileno()).st_size, "sha256": digest}
    except FileNotFoundError:
        raise InputError(f"{path} is missing, so the run is not whole; fit the run again") from None


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
