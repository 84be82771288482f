"""The files of a run, read once and without trusting whoever wrote them.

Every file must be a plain one, no larger than it may be, and of the SHA-256 that the run's list says; it is opened
once, read whole and used from memory, so that whatever becomes of it on disk later changes nothing. Settings are YAML
that is a tree of plain values. Model parameters are safetensors. Labels are a Parquet file with the columns kind
(entity, then relation), label and seen. It is not compressed, so that a small file cannot ask for much memory, and
labels are read as a dictionary, so that one long label said a million times is noticed before it is spelt out. Arrays
are read by `unkgcp.files.arrays_of`.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.files import parse_yaml

if TYPE_CHECKING:
    from unkgcp.graph.facts import Vocabulary

Mask = NDArray[np.bool_]
Weights = dict[str, NDArray[np.float32]]

KINDS = ("entity", "relation")
SCHEMA = pa.schema([("kind", pa.string()), ("label", pa.string()), ("seen", pa.bool_())])
HEADER = 1 << 20  # bytes of the header of weights, far more than the names and shapes of some tables need
BLOCK = 1 << 18  # numbers that stay in the processor's cache while they are hashed and looked at
LARGEST = 1 << 48
LINE = 64  # bytes of a line of the processor's cache
INCOMING = ".incoming"
"""The folder inside a run's own from which a new run moves to its place, see `unkgcp.run.replacing`."""

# Any file


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong inside while reading `path` becomes one sentence; only what is wrong with it is damage."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise damage(path, error) from error


def damage(path: Path, error: Exception) -> Exception:
    """The sentence for what went wrong while `path` was read."""
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
    handle, path = _open_first(places)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InputError(f"{path} is not a plain file, so this is no run; fit the run again")
        yield file


def _open_first(places: tuple[Path, ...]) -> tuple[int, Path]:
    # without waiting for what a pipe might bring one day
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    for path in places:
        try:
            if path.is_symlink():
                raise InputError(f"{path} is a link; a run holds its files itself, so copy the file there")
            return os.open(path, flags | getattr(os, "O_BINARY", 0)), path
        except FileNotFoundError:
            continue
        except PermissionError:
            raise InputError(f"{path} may not be read: change its permissions") from None
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); fit the run again") from None
    raise InputError(f"{places[-1]} is missing, so the run is not whole; fit the run again")


def read_bytes(file: BufferedReader, most: int | None = None) -> bytes:
    """All of an open file; a ValueError if it is larger than it may be."""
    size = os.fstat(file.fileno()).st_size
    if most is not None and size > most:
        raise ValueError(f"it has {size:,} bytes, more than the {most:,} it may have")
    return file.read(size)


def digest(path: Path) -> str:
    """SHA-256 of the file, in hexadecimal."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def settings_in(content: bytes) -> dict[str, Any]:
    """Settings by name; a ValueError if it holds anything else."""
    found = parse_yaml(content.decode("utf-8"))
    if not isinstance(found, dict) or set(map(type, found)) - {str}:
        raise ValueError("it holds no settings")
    return found


def values_in(content: bytes) -> dict[str, Any]:
    """Values by name from JSON; a ValueError if it holds anything else."""
    found = json.loads(content.decode("utf-8"))
    if not isinstance(found, dict):
        raise ValueError("it holds no names with values")
    return found


# Labels


def write_labels(path: Path, vocabulary: Vocabulary, seen_entities: Mask, seen_relations: Mask) -> None:
    """Write the labels, and which of them have training facts."""
    entities, relations = vocabulary.entities, vocabulary.relations
    kind = np.repeat(np.arange(2, dtype=np.int8), [len(entities), len(relations)])
    table = pa.table(
        {
            "kind": pa.DictionaryArray.from_arrays(kind, pa.array(KINDS)),
            "label": pa.concat_arrays([entities, relations]),
            "seen": pa.array(np.concatenate([seen_entities, seen_relations])),
        }
    )
    # one row group: each has a dictionary of its own. A dictionary of labels that are all different gains nothing
    pq.write_table(
        table,
        path,
        compression="none",
        use_dictionary=["kind"],
        row_group_size=max(1, len(table)),
        store_schema=False,
    )


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
    """How many labels there are in so many bytes, once it is certain that reading them is safe."""
    about = parquet.metadata
    if not parquet.schema_arrow.remove_metadata().equals(_read_schema(), check_metadata=False):
        raise ValueError("its columns are not kind, label and seen")
    if not 0 < about.num_rows <= most:  # labels are all different, so each takes a byte or more
        raise ValueError(f"it has {about.num_rows:,} labels in {most:,} bytes")
    if about.num_row_groups > 1 + about.num_rows // 1000:
        raise ValueError("it is cut into too many pieces")
    groups = [about.row_group(place) for place in range(about.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    if any(chunk.compression != "UNCOMPRESSED" for chunk in chunks):
        raise ValueError("it is compressed")
    return int(about.num_rows)


def _read_schema() -> pa.Schema:
    text = pa.dictionary(pa.int32(), pa.string())
    return SCHEMA.set(0, pa.field("kind", text)).set(1, pa.field("label", text))


def _entities(kinds: pa.DictionaryArray) -> Mask:
    """Which rows are entities; all others must be relations."""
    names = kinds.dictionary.to_pylist() if len(kinds.dictionary) <= len(KINDS) else []
    if kinds.null_count or not names or not set(names) <= set(KINDS):
        raise ValueError("it is not a list of entities followed by relations")
    places = np.frombuffer(kinds.indices.buffers()[1], np.int32)[kinds.offset : kinds.offset + len(kinds)]
    return np.array([name == KINDS[0] for name in names])[places]


def _spelt(labels: pa.DictionaryArray, most: int) -> pa.StringArray:
    """The labels one by one; all different, they cannot need more bytes than the file has."""
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

    ValueError if the file is not what it says. It is read straight to its place and hashed piece by piece on the way:
    tables of a gigabyte are not to be held twice.
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
    largest = max(((stop - start, start) for (start, stop), _, _ in places), default=(0, 0))[1]
    numbers = _room(end // 4, largest)
    for first in range(0, len(numbers), BLOCK):
        piece = numbers[first : first + BLOCK]
        # written to before it is read into: the system hands over large pages then, and small ones, slowly, to a file
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


def _room(count: int, place: int) -> NDArray[np.float32]:
    """Memory for so many numbers, so that the byte at `place` begins a line of the processor's cache."""
    whole = np.empty(count + LINE // 4, "<f4")
    first = -(whole.ctypes.data + place) % LINE // 4
    return whole[first : first + count]


def _place(name: str, entry: Any) -> tuple[int, int]:
    """Where a table begins and ends behind the header; its shape must say the same."""
    if not isinstance(entry, dict) or entry.get("dtype") != "F32":
        raise ValueError(f"table {name!r} does not hold 32-bit floats")
    shape, place = _pair(name, entry.get("shape")), _pair(name, entry.get("data_offsets"))
    if place[1] - place[0] != 4 * shape[0] * shape[1] or place[0] % 4:
        raise ValueError(f"table {name!r} is not as large as its shape says")
    return place


def _pair(name: str, numbers: Any) -> tuple[int, int]:
    if (
        isinstance(numbers, list)
        and len(numbers) == 2
        and all(type(n) is int and 0 <= n < LARGEST for n in numbers)
    ):
        return numbers[0], numbers[1]
    raise ValueError(f"table {name!r} has no sensible shape or place")


def finite(table: NDArray[np.float32]) -> bool:
    """Whether no number is infinite or none at all; looks at a megabyte at a time."""
    flat = table.reshape(-1)
    # the largest and the smallest number carry NaN and infinity out
    parts = (flat[start : start + BLOCK] for start in range(0, len(flat), BLOCK))
    return all(bool(np.isfinite(part.max()) and np.isfinite(part.min())) for part in parts)
