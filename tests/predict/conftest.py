"""A small run on disk, queries for it, and what the local engine answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unkgcp.graph import Graph, Vocabulary
from unkgcp.predict.stream import PredictRequest, answer_file
from unkgcp.run import Predictor, calibrate
from unkgcp.training import Model

LEVELS = [0.8, 0.95]
ROWS = 12_000


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
    pq.write_table(table, path, row_group_size=3_700)
    return path


@pytest.fixture(scope="session")
def local(run: Path, queries: Path, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """The answers of the local engine."""
    target = tmp_path_factory.mktemp("local") / "answers.parquet"
    assert answer_file(Predictor.load(run), str(queries), str(target), PredictRequest(LEVELS)) == ROWS
    return pq.read_table(target)
