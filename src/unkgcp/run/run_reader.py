"""A run folder, read once and without trusting whoever wrote it.

A run is a handful of files that together are a calibrated predictor: `config.yaml` (settings), `model.safetensors`
(parameters, unless there is no model), `vocabulary.parquet` (labels, and which of them have training facts),
`calibration.npz`, `metrics.json`, `facts.npz` (the training facts, where they are known), and `provenance.json`, which
lists the size and SHA-256 of all others. `unkgcp.run.predictor` knows what they mean and puts them together.

Everything is checked before anything is answered from it. Each file must be a plain one, no larger than it may be, and
of the SHA-256 in the list; it is opened once, read whole and used from memory. So a predictor is of one run, whatever
happens to the folder while it is read or later. Nothing is ever unpickled. Settings are YAML that is a tree of plain
values. Labels are not compressed, so that a small file cannot ask for much memory, and are read as a dictionary, so
that one long label repeated a million times is noticed before memory is used for it.

>>> read_run("run").config["method"]         # doctest: +SKIP
'unkgcp'
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.files import arrays_of, check_here, parse_yaml
from unkgcp.run.provenance import CALIBRATION, CONFIG, FACTS, METRICS, MODEL, PROVENANCE, VOCABULARY, checked

if TYPE_CHECKING:
    from unkgcp.graph.facts import Vocabulary
    from unkgcp.graph.known_facts import KnownFacts

CHECKPOINT = ".checkpoint"
INCOMING = ".incoming"
"""The folder inside a run's own from which a new run moves to its place, see `unkgcp.run.run_writer`."""
ATTEMPTS = 100  # at reading a run that others replace meanwhile
MOST = {CONFIG: 1 << 16, METRICS: 16 << 20, PROVENANCE: 16 << 20}  # bytes that these files may have
KINDS = ("entity", "relation")
_TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([("kind", _TEXT), ("label", _TEXT), ("seen", pa.bool_())])
HEADER = 1 << 20  # bytes of the header of weights, far more than the names and shapes of some tables need
BLOCK = 1 << 18  # numbers that stay in the processor's cache while they are hashed and checked
LARGEST = 1 << 48  # rows, columns or bytes of a table
LINE = 64  # bytes of a line of the processor's cache
Arrays = dict[str, NDArray[Any]]
Mask = NDArray[np.bool_]
Weights = dict[str, NDArray[np.float32]]


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
    seen_entities: Mask
    seen_relations: Mask
    calibration: Arrays
    metrics: dict[str, Any]
    provenance: dict[str, Any]
    facts: KnownFacts | None = None


def read_run(folder: str | os.PathLike[str]) -> RunParts:
    """Read a run, all of whose files are what its list says. One that is replaced meanwhile is read again."""
    folder = Path(folder)
    for _ in range(ATTEMPTS):
        found = _read_list(folder)
        try:
            with reading(folder / PROVENANCE):
                provenance = checked(values_in(found[0]), folder / PROVENANCE)
            return _read_parts(folder, provenance)
        except InputError:
            if _read_list(folder) == found:
                raise
    raise InputError(f"{folder} is replaced faster than it can be read; try again when nobody writes to it")


def _read_parts(folder: Path, provenance: dict[str, Any]) -> RunParts:
    files, contents, path = provenance["files"], {}, folder
    try:
        with ThreadPoolExecutor(1, "unkgcp-weights") as pool:  # the largest file, while the others are read
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
    from unkgcp.graph.known_facts import KnownFacts, unpacked

    vocabulary, facts = Vocabulary(*labels), None
    if FACTS in files:
        sizes = len(vocabulary.entities), len(vocabulary.relations)
        facts = KnownFacts(partial(unpacked, contents[FACTS], *sizes, partial(damage, folder / FACTS)))
    return RunParts(
        config, tensors, vocabulary, seen_entities, seen_relations, calibration, metrics, provenance, facts
    )


def _verified(folder: Path, name: str, written: dict[str, Any]) -> bytes:
    """All of a file, which must be what the list says."""
    with _listed(folder, name, written) as file:
        found = read_bytes(file, MOST.get(name))
    return found if hashlib.sha256(found).hexdigest() == written["sha256"] else _refuse(folder / name)


def _verified_weights(folder: Path, written: dict[str, Any]) -> Weights:
    """The model's tables of finite numbers, from a file that must be what the list says."""
    with reading(folder / MODEL), _listed(folder, MODEL, written) as file:
        tables, sha256 = read_weights(file)
        if sha256 != written["sha256"]:
            _refuse(folder / MODEL)
        for name, table in tables.items():
            flat = table.reshape(-1)
            for start in range(0, len(flat), BLOCK):
                part = flat[start : start + BLOCK]
                # NaN and infinity show in the largest or the smallest number
                if not (np.isfinite(part.max()) and np.isfinite(part.min())):
                    raise ValueError(f"table {name!r} holds a number that is not finite")
    return tables


@contextmanager
def _listed(folder: Path, name: str, written: dict[str, Any]) -> Iterator[BufferedReader]:
    """A file of the run, opened; it must have the size that the list says."""
    with open_plain(*places(folder, name)) as file:
        if os.fstat(file.fileno()).st_size != written["bytes"]:
            _refuse(folder / name)
        yield file


def _refuse(path: Path) -> NoReturn:
    raise InputError(f"{path} is damaged: it is not what was written; fit the run again")


def check_run(folder: str | os.PathLike[str]) -> None:
    """InputError unless the folder is a finished run, as far as its names tell."""
    _read_list(Path(folder))


def _read_list(folder: Path) -> tuple[bytes, int, int]:
    """The list of the files, its inode and its time, once it is certain that the folder is a finished run.

    The inode and the time tell a list from an equal one that came later: the same run may have been written twice, with
    another one between.
    """
    if not folder.is_dir():
        check_here(
            folder, "runs are read from this machine; download the folder, and give the path that it has here"
        )
        raise InputError(
            f"{folder} is no run: there is no such folder; make one with unkgcp fit DATA -o {folder}"
        )
    if not any(path.exists() or path.is_symlink() for path in places(folder, PROVENANCE)):
        if (folder / CHECKPOINT).exists():
            raise InputError(f"{folder} is not finished; continue with unkgcp fit DATA -o {folder} --resume")
        raise InputError(f"{folder} is no run of unkgcp: it has no {PROVENANCE}")
    with reading(folder / PROVENANCE), open_plain(*places(folder, PROVENANCE)) as file:
        about = os.fstat(file.fileno())
        return read_bytes(file, MOST[PROVENANCE]), about.st_ino, about.st_mtime_ns


# Any file


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Any error inside becomes one sentence about the file at `path`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise damage(path, error) from error


def damage(path: Path, error: Exception) -> Exception:
    """The error to raise for an error that came while `path` was read."""
    if isinstance(error, MemoryError):
        return MemoryError(f"there is too little memory for {path}: free some, or use a machine with more")
    why = " ".join(str(error).split())[:200] or type(error).__name__
    return InputError(f"{path} is damaged or foreign ({why}); fit the run again")


def places(folder: Path, name: str) -> tuple[Path, Path]:
    """Where a file of a run may be, in the order in which to look."""
    return folder / INCOMING / name, folder / name


@contextmanager
def open_plain(*places: Path) -> Iterator[BufferedReader]:
    """The file at the first of these places that has one; it must be a plain file and no link."""
    # without waiting for a writer if it is a pipe
    flags = (
        os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    for path in places:
        try:
            if path.is_symlink():
                raise InputError(f"{path} is a link; a run holds its files itself, so copy the file there")
            handle = os.open(path, flags)
            break
        except FileNotFoundError:
            continue
        except PermissionError:
            raise InputError(f"{path} may not be read: change its permissions") from None
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); fit the run again") from None
    else:
        raise InputError(f"{places[-1]} is missing, so the run is not whole; fit the run again")
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InputError(f"{path} is not a plain file, so this is no run; fit the run again")
        yield file


def read_bytes(file: BufferedReader, most: int | None = None) -> bytes:
    """All of an open file; a ValueError if it is larger than it may be."""
    size = os.fstat(file.fileno()).st_size
    if most is not None and size > most:
        raise ValueError(f"it has {size:,} bytes, more than the {most:,} it may have")
    return file.read(size)


def settings_in(content: bytes) -> dict[str, Any]:
    """Settings by name, from YAML; a ValueError if it holds anything else."""
    found = parse_yaml(content.decode("utf-8"))
    if not isinstance(found, dict) or set(map(type, found)) - {str}:
        raise ValueError("it holds no settings")
    return found


def values_in(content: bytes) -> dict[str, Any]:
    """Values by name, from JSON; a ValueError if it holds anything else."""
    found = json.loads(content.decode("utf-8"))
    if not isinstance(found, dict):
        raise ValueError("it holds no names with values")
    return found


# Labels


def labels_in(content: bytes) -> tuple[pa.StringArray, pa.StringArray, Mask, Mask]:
    """Entities, relations, and which of them have training facts; ValueError if something is wrong."""
    source = pa.BufferReader(pa.py_buffer(content))
    with pq.ParquetFile(source, read_dictionary=["kind", "label"]) as parquet:
        rows = _check(parquet, len(content))
        table = parquet.read(use_threads=False)
    if table.num_columns != len(SCHEMA) or len(table) != rows or table["seen"].null_count:
        raise ValueError("its columns are not of one length")
    entity = np.concatenate([_entities(chunk) for chunk in table["kind"].chunks])
    n = int(entity.sum())
    if not entity[:n].all():
        raise ValueError("it is not a list of entities followed by relations")
    coded = table["label"].unify_dictionaries().combine_chunks()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    labels = _spelt(coded, len(content))
    for part in (coded.slice(0, n), coded.slice(n)):
        places = np.frombuffer(part.indices.buffers()[1], np.int32)[part.offset : part.offset + len(part)]
        if len(part) and np.bincount(places).max() > 1:
            raise ValueError("a label stands twice in a vocabulary, so it has no one id")
    seen = pa.concat_arrays(table["seen"].chunks).cast(pa.uint8())
    known = np.frombuffer(seen.buffers()[1], np.uint8, rows).astype(np.bool_)
    return labels[:n], labels[n:], known[:n], known[n:]


def _check(parquet: pq.ParquetFile, most: int) -> int:
    """How many labels there are in a file of `most` bytes, once it is certain that reading them is safe."""
    about = parquet.metadata
    if not parquet.schema_arrow.equals(SCHEMA):
        raise ValueError("its columns are not kind, label and seen")
    if not 0 < about.num_rows <= most:  # labels are all different, so each takes a byte or more
        raise ValueError(f"it has {about.num_rows:,} labels in {most:,} bytes")
    if about.num_row_groups > 1 + about.num_rows // 1000:
        raise ValueError("it is cut into too many pieces")
    chunks = product(range(about.num_row_groups), range(about.num_columns))
    if any(about.row_group(row).column(place).compression != "UNCOMPRESSED" for row, place in chunks):
        raise ValueError("it is compressed")
    return int(about.num_rows)


def _entities(kinds: pa.DictionaryArray) -> Mask:
    """Which rows are entities; all others must be relations."""
    names = kinds.dictionary.to_pylist() if len(kinds.dictionary) <= len(KINDS) else []
    if kinds.null_count or not names or not set(names) <= set(KINDS):
        raise ValueError("it is not a list of entities followed by relations")
    places = np.frombuffer(kinds.indices.buffers()[1], np.int32)[kinds.offset : kinds.offset + len(kinds)]
    return np.array([name == KINDS[0] for name in names])[places]


def _spelt(labels: pa.DictionaryArray, most: int) -> pa.StringArray:
    """The labels as plain strings. They are all different, so they cannot need more bytes than the file has."""
    if labels.null_count or labels.dictionary.null_count:
        raise ValueError("a label is missing")
    lengths = pc.binary_length(labels.dictionary).take(labels.indices)
    if (pc.sum(lengths).as_py() or 0) > most:
        raise ValueError("its labels say the same many times over")
    labels.dictionary.validate(full=True)
    return labels.cast(pa.string())


# Model parameters


def read_weights(file: BufferedReader) -> tuple[Weights, str]:
    """Tables by name, in memory and read-only, and the SHA-256 of all that was read.

    ValueError if the file is not what it says. It is read straight into the tables and hashed piece by piece, so that
    tables of a gigabyte are never held twice.
    """
    size = os.fstat(file.fileno()).st_size
    begin = file.read(8)
    length = int.from_bytes(begin, "little")
    if size < 8 or not 2 <= length <= min(HEADER, size - 8):
        raise ValueError("its header has no sensible length")
    text = file.read(length)
    header = json.loads(text.decode("utf-8"))
    if not isinstance(header, dict):
        raise ValueError("its header names no tables")
    header.pop("__metadata__", None)
    places = sorted((_place(name, entry), name, entry) for name, entry in header.items())
    end = 0
    for (start, stop), name, _ in places:
        if start != end or stop < start:
            raise ValueError(f"table {name!r} does not begin where the one before it ends")
        end = stop
    if 8 + length + end != size:
        raise ValueError(f"its tables need {8 + length + end:,} bytes and it has {size:,}")
    sha = hashlib.sha256(begin + text)
    # the largest table begins a line of the processor's cache
    largest = max(((stop - start, start) for (start, stop), _, _ in places), default=(0, 0))[1]
    room = np.empty((end + LINE) // 4, "<f4")
    shift = -(room.ctypes.data + largest) % LINE // 4
    numbers = room[shift : shift + end // 4]
    for first in range(0, len(numbers), BLOCK):
        piece = numbers[first : first + BLOCK]
        # filled before the file is read into it: the system then gives large pages, which is faster
        piece.fill(0)
        part = piece.data.cast("B")
        if file.readinto(part) != len(part):
            raise ValueError("it ends too early")
        sha.update(part)
    numbers.flags.writeable = False
    tables = {
        name: numbers[start // 4 : stop // 4].reshape(entry["shape"]) for (start, stop), name, entry in places
    }
    return tables, sha.hexdigest()


def _place(name: str, entry: Any) -> tuple[int, int]:
    """Where a table begins and ends behind the header; its shape must have as many numbers."""
    if not isinstance(entry, dict) or entry.get("dtype") != "F32":
        raise ValueError(f"table {name!r} does not hold 32-bit floats")
    (rows, columns), (start, stop) = (_pair(name, entry.get(key)) for key in ("shape", "data_offsets"))
    if stop - start != 4 * rows * columns or start % 4:
        raise ValueError(f"table {name!r} is not as large as its shape says")
    return start, stop


def _pair(name: str, pair: Any) -> tuple[int, int]:
    sensible = isinstance(pair, list) and len(pair) == 2
    if not sensible or not all(type(number) is int and 0 <= number < LARGEST for number in pair):
        raise ValueError(f"table {name!r} has no sensible shape or place")
    return pair[0], pair[1]
