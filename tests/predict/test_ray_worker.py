"""What a worker does, without a cluster: it answers parts, repeats them, and tells what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.predict.conftest import LEVELS, ROWS, same_bytes
from unkgcp.predict.filter import parse
from unkgcp.predict.parts import ANSWERS, ATTEMPTS, Part, part_name, plan, staged
from unkgcp.predict.ray_worker import LIMIT, Answerer, Work
from unkgcp.predict.stream import answer_file
from unkgcp.run import Predictor


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    with staged(str(tmp_path / "answers")) as folder:
        yield folder


def outcomes(answerer: Answerer, parts: list[Part]) -> list[dict[str, Any]]:
    return [answerer(part._asdict()) for part in parts]


def test_parts_together_are_the_local_answers(run: Path, queries: Path, local: pa.Table, stage: Path) -> None:
    parts = plan([str(queries)], 25_000)
    assert len(parts) > 5
    answerer = Answerer(Work(str(run), str(stage), LEVELS, {}))
    found = outcomes(answerer, parts[3:]) + outcomes(answerer, parts[:3])
    assert [outcome["error"] for outcome in found] == [""] * len(parts)
    assert sum(outcome["rows"] for outcome in found) == local.num_rows
    same_bytes(
        pa.concat_tables(pq.read_table(stage / ANSWERS / part_name(i)) for i in range(len(parts))), local
    )


def test_filters_and_completions_are_the_local_ones(
    run: Path, table: pa.Table, queries: Path, tmp_path: Path
) -> None:
    """Every part knows which rows of the whole input it answers."""
    predictor = Predictor.load(run)
    open_ended = table.slice(0, 60).set_column(2, "tail", pa.array(["?"] * 60))
    pq.write_table(open_ended, tmp_path / "open.parquet", row_group_size=13)
    options = {"k": 3, "rank_by": "lower", "exclude_known": False}
    condition = "width < 0.7 and lower > 0.01"
    keep = parse(condition, [0.9])
    local = str(tmp_path / "local.parquet")
    for source, completion, rows in ((queries, None, 25_000), (tmp_path / "open.parquet", options, 20)):
        answer_file(predictor, str(source), local, 0.9, completion=completion, keep=keep)
        expected = pq.read_table(local)
        assert 0 < expected.num_rows < (ROWS if completion is None else 180)
        parts = plan([str(source)], rows)
        assert len(parts) > 3
        with staged(str(tmp_path / "answers")) as own:
            answerer = Answerer(Work(str(run), str(own), 0.9, {}, completion, condition))
            assert not any(outcome["error"] for outcome in outcomes(answerer, parts))
            found = [pq.read_table(own / ANSWERS / part_name(part.number)) for part in parts]
        same_bytes(pa.concat_tables(found), expected)


@pytest.mark.parametrize("rows", [0, 5])
def test_nothing_asked_and_nothing_kept_are_tables_too(
    rows: int, run: Path, table: pa.Table, stage: Path, tmp_path: Path
) -> None:
    source, local = tmp_path / "few.parquet", tmp_path / "local.parquet"
    pq.write_table(table.slice(0, rows), source)
    answer_file(Predictor.load(run), str(source), str(local), 0.9, keep=parse("width < 0", [0.9]))
    answerer = Answerer(Work(str(run), str(stage), 0.9, {}, condition="width < 0"))
    assert [outcome["error"] for outcome in outcomes(answerer, plan([str(source)]))] == [""]
    found = pq.read_table(stage / ANSWERS / part_name(0))
    assert found.schema == pq.read_table(local).schema
    assert found.num_rows == 0
    assert found.schema.names == ["head", "relation", "tail", "score", "lower", "upper", "status"]


def test_a_folder_is_one_file_for_the_local_engine(run: Path, table: pa.Table, tmp_path: Path) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    pq.write_table(table.slice(0, 700), folder / "a.parquet")
    pq.write_table(table.slice(700, 300), folder / "b.parquet")
    pq.write_table(table.slice(0, 1000), tmp_path / "one.parquet")
    predictor = Predictor.load(run)
    assert answer_file(predictor, str(folder), str(tmp_path / "1.parquet")) == 1000
    assert answer_file(predictor, str(tmp_path / "one.parquet"), str(tmp_path / "2.parquet")) == 1000
    same_bytes(pq.read_table(tmp_path / "1.parquet"), pq.read_table(tmp_path / "2.parquet"))


def test_a_finished_part_is_not_computed_again(run: Path, queries: Path, stage: Path) -> None:
    part = plan([str(queries)], 1000)[0]
    answerer = Answerer(Work(str(run), str(stage), 0.9, {}))
    outcomes(answerer, [part])
    written = (stage / ANSWERS / part_name(0)).stat().st_mtime_ns
    assert outcomes(answerer, [part])[0]["attempts"] == 1
    assert (stage / ANSWERS / part_name(0)).stat().st_mtime_ns == written


def test_a_part_that_kills_its_workers_is_given_up(run: Path, queries: Path, stage: Path) -> None:
    for attempt in range(LIMIT):
        (stage / ATTEMPTS / f"0-{attempt}").write_text("1 here")
    outcome = Answerer(Work(str(run), str(stage), 0.9, {}))(plan([str(queries)])[0]._asdict())
    assert not outcome["bad_input"]
    assert "died 5 times over rows 1 to 120000 of" in outcome["error"]


def test_errors_are_sentences(run: Path, queries: Path, stage: Path, tmp_path: Path) -> None:
    def error(**changed: Any) -> str:
        work = {"run": str(run), "stage": str(stage), "confidence": 0.9, "reading": {}, **changed}
        outcome = Answerer(Work(**work))(plan([str(queries)], 1000)[1]._asdict())
        assert outcome["bad_input"]
        assert "\n" not in outcome["error"]
        return str(outcome["error"])

    assert "nowhere is no run" in error(run=str(tmp_path / "nowhere"))
    assert "on a shared file system" in error(stage=str(tmp_path / "nowhere"))
    assert "this program is 0.0.0: install the same version" in error(version="0.0.0")
    assert "'subject'" in error(reading={"columns": ["subject", "relation", "tail"]})
    assert not list((stage / ANSWERS).iterdir())
