"""A run on disk: a handful of files that together are a calibrated predictor, safe to open whoever wrote them.

The format: `config.yaml` (settings), `model.safetensors` (parameters), `vocabulary.parquet`
(labels and which of them have training facts), `calibration.npz`, `metrics.json`, where they are known
`facts.npz` (the training facts, see `unkgcp.graph.known`), and `provenance.json`, which names the format's version
and the size and SHA-256 of all others. A run without a model has no parameters, and lists no file of them. Nothing is
ever unpickled. What the parts mean is known to `unkgcp.run.predictor`, which puts them together and refuses a run whose
settings name a model that it has not, or the other way round.

All of it is checked before anything is answered from it: each file is opened once, must have the size and the SHA-256
in the list, and is used from memory. So a predictor is of one run, whatever happens to the folder while it is read or
later. The training facts are hashed with the rest, and taken apart when they are first asked for. How one run takes the
place of another is in `unkgcp.run.replacing`.

>>> write_run("run", parts)                  # doctest: +SKIP
>>> read_run("run").config["method"]         # doctest: +SKIP
'unkgcp'
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.files import (
    arrays_of,
    check_here,
    check_place,
    completed,
    explained,
    umask,
    write_npz,
)
from unkgcp.run.replacing import NOT_ALWAYS, STAGE, replace_files, settle, writing
from unkgcp.run.safe_files import (
    INCOMING,
    Weights,
    damage,
    digest,
    finite,
    labels_in,
    open_plain,
    places,
    read_bytes,
    read_weights,
    reading,
    settings_in,
    values_in,
    write_labels,
)

if TYPE_CHECKING:
    from unkgcp.graph.facts import Vocabulary
    from unkgcp.graph.known import KnownFacts

FORMAT, VERSION = "unkgcp-run", 2
CONFIG, MODEL, VOCABULARY = "config.yaml", "model.safetensors", "vocabulary.parquet"
CALIBRATION, METRICS, PROVENANCE, FACTS = "calibration.npz", "metrics.json", "provenance.json", "facts.npz"
FILES = (CONFIG, MODEL, VOCABULARY, CALIBRATION, METRICS, PROVENANCE)
CHECKPOINT = ".checkpoint"
ATTEMPTS = 100  # at reading a run that others replace meanwhile
DOWNLOAD = "runs are read from this machine; download the folder, and give the path that it has here"
MOST = {CONFIG: 1 << 16, METRICS: 16 << 20, PROVENANCE: 16 << 20}

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class RunParts:
    """The content of a run's files.

    tensors: model parameters by name, none if there is no model. seen_entities, seen_relations: (entities,),
    (relations,) bool. calibration: plain arrays by name. metrics: what `evaluate` found, empty if nothing was
    evaluated. facts: the training facts, where they are known.
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
    check_here(folder, "a run is written on this machine; give a folder here, and copy it from there")
    folder = Path(folder)
    if folder.is_dir():
        names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(".partial-")}
        if names and not names & {PROVENANCE, CHECKPOINT, INCOMING}:
            raise InputError(f"{folder} exists and is not a run of unkgcp; give another folder with -o")
    elif folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} is not a folder; give another name with -o")
    check_place(folder)
    if folder.is_dir():
        check_place(folder / PROVENANCE, STAGE)


def write_run(folder: str | os.PathLike[str], parts: RunParts) -> None:
    """Write a run whole, in one step; one that is there is replaced, and its readers see the old one or the new one.

    InputError while another program writes to the folder.
    """
    folder = Path(folder)
    check_target(folder)
    with writing(folder):
        settle(folder)
        stage = folder / f"{STAGE}{os.urandom(8).hex()}"
        try:
            with explained(folder):
                stage.mkdir(mode=0o700)
            files = _write_parts(stage, folder, parts)
            about = {"format": FORMAT, "version": VERSION}
            # a run read from disk and written again carries what the older one said of itself
            provenance = {**about, **parts.provenance, **about, "files": files}
            with completed(stage / PROVENANCE, folder / PROVENANCE):
                _write_json(stage / PROVENANCE, provenance)
            stage.chmod(0o777 & ~umask())  # while its files move, others read them there
            replace_files(folder, stage)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def _write_parts(stage: Path, folder: Path, parts: RunParts) -> dict[str, dict[str, Any]]:
    """Write all files but the list of them; returns the size and the SHA-256 of each."""
    text = yaml.safe_dump(parts.config, sort_keys=False, allow_unicode=True)
    seen = (parts.seen_entities, parts.seen_relations)
    writers: dict[str, Callable[[Path], Any]] = {
        CONFIG: lambda path: path.write_text(text, encoding="utf-8"),
        VOCABULARY: lambda path: write_labels(path, parts.vocabulary, *seen),
        CALIBRATION: lambda path: write_npz(path, parts.calibration),
        METRICS: lambda path: _write_json(path, parts.metrics),
    }
    if parts.tensors:
        writers[MODEL] = lambda path: _write_weights(path, parts.tensors)
    if (facts := parts.facts) is not None:
        writers[FACTS] = lambda path: write_npz(path, facts.arrays())
    files = {}
    for name, write in writers.items():
        with completed(stage / name, folder / name):
            write(stage / name)
        files[name] = {"bytes": (stage / name).stat().st_size, "sha256": digest(stage / name)}
    return files


def _write_weights(path: Path, tensors: Arrays) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        # it tells the number of the system's error only in its text
        if found := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
        raise


def read_run(folder: str | os.PathLike[str]) -> RunParts:
    """Read a run, all of whose files are what its list says. One that is replaced meanwhile is read again."""
    folder = Path(folder)
    for _ in range(ATTEMPTS):
        found = _read_list(folder)
        try:
            return _read_parts(folder, _checked_list(folder, found.content))
        except InputError:
            if _read_list(folder) == found:
                raise
    raise InputError(f"{folder} is replaced faster than it can be read; try again when nobody writes to it")


def _read_parts(folder: Path, provenance: dict[str, Any]) -> RunParts:
    files, contents, path = provenance["files"], {}, folder
    try:
        with ThreadPoolExecutor(1, "unkgcp-weights") as pool:
            # the largest file, while the others are read
            weights = pool.submit(_verified_weights, folder, files[MODEL]) if MODEL in files else None
            for name in files.keys() - {MODEL}:
                path = folder / name
                contents[name] = _verified(folder, name, files[name])
            path = folder / VOCABULARY
            *labels, seen_entities, seen_relations = labels_in(contents[VOCABULARY])
            path = folder / METRICS
            metrics = values_in(contents[METRICS])
            path = folder / MODEL
            tensors = {} if weights is None else weights.result()
        path = folder / CONFIG
        config = settings_in(contents[CONFIG])
        path = folder / CALIBRATION
        calibration = arrays_of(contents[CALIBRATION])
    except InputError:
        raise
    except Exception as error:
        raise damage(path, error) from error
    from unkgcp.graph.facts import Vocabulary
    from unkgcp.graph.known import KnownFacts, unpacked

    vocabulary, facts = Vocabulary(*labels), None
    if FACTS in files:
        sizes = len(vocabulary.entities), len(vocabulary.relations)
        facts = KnownFacts(partial(unpacked, contents[FACTS], *sizes, partial(damage, folder / FACTS)))
    return RunParts(
        config, tensors, vocabulary, seen_entities, seen_relations, calibration, metrics, provenance, facts
    )


def _verified(folder: Path, name: str, written: dict[str, Any]) -> bytes:
    """All of a file, which must be what the list says."""
    with open_plain(*places(folder, name)) as file:
        if os.fstat(file.fileno()).st_size != written["bytes"]:
            raise _damaged(folder / name)
        found = read_bytes(file, MOST.get(name))
    if hashlib.sha256(found).hexdigest() != written["sha256"]:
        raise _damaged(folder / name)
    return found


def _verified_weights(folder: Path, written: dict[str, Any]) -> Weights:
    """The model's tables of finite numbers, from a file that must be what the list says."""
    path = folder / MODEL
    with reading(path), open_plain(*places(folder, MODEL)) as file:
        if os.fstat(file.fileno()).st_size != written["bytes"]:
            raise _damaged(path)
        tables, sha256 = read_weights(file)
        if sha256 != written["sha256"]:
            raise _damaged(path)
        for name, table in tables.items():
            if not finite(table):
                raise ValueError(f"table {name!r} holds a number that is not finite")
    return tables


def check_run(folder: str | os.PathLike[str]) -> None:
    """InputError unless the folder is a finished run, as far as its names tell."""
    _read_list(Path(folder))


class List(NamedTuple):
    """`provenance.json` as it was found. Its place on the disk and its time tell a list from an equal one that has come
    since: the same run may have been written twice, with another one between.
    """

    content: bytes
    inode: int
    time: int


def _read_list(folder: Path) -> List:
    """The list of the files, once it is certain that the folder is a finished run."""
    if not folder.is_dir():
        check_here(folder, DOWNLOAD)
        raise InputError(
            f"{folder} is no run: there is no such folder; make one with unkgcp fit DATA -o {folder}"
        )
    if not any(path.exists() or path.is_symlink() for path in places(folder, PROVENANCE)):
        if (folder / CHECKPOINT).exists():
            raise InputError(f"{folder} is not finished; continue with unkgcp fit DATA -o {folder} --resume")
        raise InputError(f"{folder} is no run of unkgcp: it has no {PROVENANCE}")
    with reading(folder / PROVENANCE), open_plain(*places(folder, PROVENANCE)) as file:
        about = os.fstat(file.fileno())
        return List(read_bytes(file, MOST[PROVENANCE]), about.st_ino, about.st_mtime_ns)


def _checked_list(folder: Path, content: bytes) -> dict[str, Any]:
    """What `provenance.json` says, once it is certain that this version can read the run."""
    path = folder / PROVENANCE
    with reading(path):
        provenance = values_in(content)
        if provenance.get("format") != FORMAT:
            raise ValueError("it is not written by unkgcp")
    if provenance.get("version") != VERSION:
        found = json.dumps(provenance.get("version"))[:20]
        raise InputError(
            f"{path} has format version {found}, this program reads {VERSION}; "
            "fit the run again or use the version of unkgcp that wrote it"
        )
    files = provenance.get("files")
    wanted = set(FILES) - {PROVENANCE, *NOT_ALWAYS}
    if (
        not isinstance(files, dict)
        or set(files) - set(NOT_ALWAYS) != wanted
        or not all(map(_is_entry, files.values()))
    ):
        raise InputError(f"{path} is damaged: it does not list the files of a run; fit the run again")
    with reading(path):
        _check_data(provenance.get("data", {}))
        if not isinstance(provenance.get("recalibrated", {}), dict):
            raise ValueError("what it says of calibration is no record")
        _check_updates(provenance)
    return provenance


def _check_updates(provenance: dict[str, Any]) -> None:
    """ValueError unless the history of updates (`unkgcp.run.growing`), if there is one, is a list of records."""
    updates, rate = provenance.get("updates", []), provenance.get("held_out_rate", 0.5)
    if not isinstance(updates, list) or not all(isinstance(record, dict) for record in updates):
        raise ValueError("what it says of updates are no records")
    if type(rate) is not float or not 0 < rate < 1:
        raise ValueError("the share of facts that it holds out is no number between 0 and 1")


def _check_data(data: Any) -> None:
    """ValueError unless the record of the data (`unkgcp.run.provenance`) has what it has of the right kind."""
    if not isinstance(data, dict):
        raise ValueError("what it says of the data is no record")
    if "argument" in data and (missing := {"name", "seed", "options", "hashes"} - data.keys()):
        raise ValueError(f"it does not tell the {min(missing)} of the data")
    for name, kind in (("argument", str), ("name", str), ("seed", int), ("options", dict), ("hashes", dict)):
        if name in data and type(data[name]) is not kind:
            raise ValueError(f"the {name} of the data is {json.dumps(data[name])[:40]}")
    prefixes = data.get("options", {}).get("prefixes")
    if prefixes is not None and not (
        isinstance(prefixes, dict) and set(map(type, [*prefixes, *prefixes.values()])) <= {str}
    ):
        raise ValueError(f"the prefixes of the data are {json.dumps(prefixes)[:40]}")
    if data.get("seed", 0) < 0:
        raise ValueError(f"the seed of the data is {data['seed']}")


def _is_entry(written: Any) -> bool:
    return isinstance(written, dict) and type(written.get("bytes")) is int and "sha256" in written


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} is damaged: it is not what was written; fit the run again")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
