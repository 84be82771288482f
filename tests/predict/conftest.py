"""A small run on disk, queries for it, and what the local engine answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unkgcp.graph import Graph, Vocabulary
from unkgcp.predict.stream import answer_file
from unkgcp.run import Predictor, calibrate
from unkgcp.training import Model

LEVELS = [0.8, 0.95]
ROWS = 120_000


@pytest.fixture(scope="session")
def run(
    make_model: Callable[..., Model],
    make_facts: Callable[..., Graph],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("engines") / "run"
    calibrate(make_model(), make_facts(300), "unkgcp").save(folder)
    return folder


@pytest.fixture(scope="session")
def table(vocabulary: Vocabulary) -> pa.Table:
    """Queries, some of them about labels that nobody has seen."""
    rng = np.random.default_rng(5)
    entities = pa.concat_arrays([vocabulary.entities, pa.array(["nobody", "niemand"])])
    relations = pa.concat_arrays([vocabulary.relations, pa.array(["no such relation"])])
    columns = {
        "head": entities.take(rng.integers(0, len(entities), ROWS)),
        "relation": relations.take(rng.integers(0, len(relations), ROWS)),
        "tail": entities.take(rng.integers(0, len(entities), ROWS)),
    }
    return pa.table(columns)


@pytest.fixture(scope="session")
def queries(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file; its row groups fit neither the parts nor the batches."""
    path = tmp_path_factory.mktemp("queries") / "queries.parquet"
    pq.write_table(table, path, row_group_size=37_000)
    return path


@pytest.fixture(scope="session")
def local(run: Path, queries: Path, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """The answers of the local engine."""
    target = tmp_path_factory.mktemp("local") / "answers.parquet"
    assert answer_file(Predictor.load(run), str(queries), str(target), LEVELS) == ROWS
    return pq.read_table(target)


def same_bytes(found: pa.Table, expected: pa.Table) -> None:
    """Assert that two tables have the same columns, buffer by buffer."""
    assert found.schema.names == expected.schema.names
    assert found.schema.types == expected.schema.types
    assert found.num_rows == expected.num_rows
    for name in expected.schema.names:
        one, other = (pa.concat_arrays(each[name].chunks) for each in (found, expected))
        # what lies in the values of a null is nobody's business, and not in the file
        pairs = (
            [(one, other)]
            if not one.null_count
            else [(one.is_null(), other.is_null()), (one.drop_null(), other.drop_null())]
        )
        for ours, theirs in pairs:
            assert len(ours) == len(theirs), name
            for buffer, another in zip(ours.buffers(), theirs.buffers(), strict=True):
                assert (buffer is None) == (another is None), name
                assert buffer is None or buffer.equals(another), name
