"""What a worker does, without a cluster: it answers parts, repeats them, and tells what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.bundle.engines.conftest import LEVELS, same_bytes

from unkgcp.bundle.engines.delivery import ANSWERS, ATTEMPTS, staged
from unkgcp.bundle.engines.parts import Part, part_name, plan
from unkgcp.bundle.engines.worker import LIMIT, PLAN, Answerer


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    with staged(str(tmp_path / "answers")) as folder:
        yield folder


def asked(parts: list[Part]) -> pa.Table:
    return pa.Table.from_pylist([part._asdict() for part in parts], PLAN)


def test_parts_together_are_the_local_answers(run: Path, queries: Path, local: pa.Table, stage: Path) -> None:
    parts = plan([str(queries)], 25_000)
    assert len(parts) > 5
    answerer = Answerer(str(run), str(stage), LEVELS, {})
    outcomes = answerer(asked(parts[3:])).to_pylist() + answerer(asked(parts[:3])).to_pylist()
    assert [outcome["error"] for outcome in outcomes] == [None] * len(parts)
    assert sum(outcome["rows"] for outcome in outcomes) == local.num_rows
    same_bytes(
        pa.concat_tables(pq.read_table(stage / ANSWERS / part_name(i)) for i in range(len(parts))), local
    )


def test_a_finished_part_is_not_computed_again(run: Path, queries: Path, stage: Path) -> None:
    part = plan([str(queries)], 1000)[0]
    answerer = Answerer(str(run), str(stage), 0.9, {})
    answerer(asked([part]))
    written = (stage / ANSWERS / part_name(0)).stat().st_mtime_ns
    assert answerer(asked([part]))["attempts"].to_pylist() == [1]
    assert (stage / ANSWERS / part_name(0)).stat().st_mtime_ns == written


def test_a_part_that_kills_its_workers_is_given_up(run: Path, queries: Path, stage: Path) -> None:
    for attempt in range(LIMIT):
        (stage / ATTEMPTS / f"0-{attempt}").write_text("1 here")
    outcome = Answerer(str(run), str(stage), 0.9, {})(asked(plan([str(queries)])[:1])).to_pylist()[0]
    assert not outcome["bad_input"]
    assert "died 5 times over rows 1 to 120000 of" in outcome["error"]


def test_errors_are_sentences(run: Path, queries: Path, stage: Path, tmp_path: Path) -> None:
    def error(**changed: Any) -> str:
        work = {"run": str(run), "stage": str(stage), "confidence": 0.9, "reading": {}, **changed}
        outcome = Answerer(**work)(asked(plan([str(queries)], 1000)[1:2])).to_pylist()[0]
        assert outcome["bad_input"]
        assert "\n" not in outcome["error"]
        return str(outcome["error"])

    assert "nowhere is no run" in error(run=str(tmp_path / "nowhere"))
    assert "on a shared file system" in error(stage=str(tmp_path / "nowhere"))
    assert "this program is 0.0.0: install the same version" in error(version="0.0.0")
    assert "'subject'" in error(reading={"columns": ["subject", "relation", "tail"]})
    assert not list((stage / ANSWERS).iterdir())
