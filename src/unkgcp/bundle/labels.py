"""The labels of a run, as a Parquet file that can be read without trusting it.

What it is: `vocabulary.parquet` with columns kind (entity, then relation), label and seen. It is not compressed, so
that a small file cannot ask for much memory, and labels are read as a dictionary, so that one long label said a
million times is noticed before it is spelt out. What it is not: the vocabulary (`unkgcp.graph.Vocabulary`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unkgcp.bundle.opening import opened
from unkgcp.graph import Vocabulary

Mask = NDArray[np.bool_]

KINDS = ("entity", "relation")
SCHEMA = pa.schema([("kind", pa.string()), ("label", pa.string()), ("seen", pa.bool_())])


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


def read_labels(path: Path, most: int) -> tuple[Vocabulary, Mask, Mask]:
    """The labels, at most so many as the model has rows for; ValueError if something is wrong."""
    with opened(path) as file, pq.ParquetFile(file, read_dictionary=["kind", "label"]) as parquet:
        rows = _check(parquet, most)
        size = path.stat().st_size
        table = parquet.read(use_threads=False)
    if table.num_columns != len(SCHEMA) or len(table) != rows or table["seen"].null_count:
        raise ValueError("its columns are not of one length")
    entity = np.concatenate([_entities(chunk) for chunk in table["kind"].chunks])
    n = int(entity.sum())
    if not entity[:n].all():
        raise ValueError("it is not a list of entities followed by relations")
    coded = table["label"].unify_dictionaries().combine_chunks()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    labels = _spelt(coded, size)
    for part in (coded.slice(0, n), coded.slice(n)):
        places = np.frombuffer(part.indices.buffers()[1], np.int32)[part.offset : part.offset + len(part)]
        if len(part) and np.bincount(places).max() > 1:
            raise ValueError("a label stands twice in a vocabulary, so it has no one id")
    seen = pa.concat_arrays(table["seen"].chunks).cast(pa.uint8())
    known = np.frombuffer(seen.buffers()[1], np.uint8, rows).astype(np.bool_)
    vocabulary = Vocabulary(labels[:n], labels[n:])
    return vocabulary, known[:n], known[n:]


def _check(parquet: pq.ParquetFile, most: int) -> int:
    """How many labels there are, once it is certain that reading them is safe."""
    about = parquet.metadata
    if not parquet.schema_arrow.remove_metadata().equals(_read_schema(), check_metadata=False):
        raise ValueError("its columns are not kind, label and seen")
    if not 0 < about.num_rows <= most:
        raise ValueError(f"it has {about.num_rows:,} labels and the model rows for {most:,}")
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
