"""Files answered in overlapping threads: in order, whole or not at all, the same bytes whatever the batches are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.processes import until_writing
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.predict import stream
from unkgcp.predict.filter import parse
from unkgcp.predict.stream import PredictRequest, answer_file, in_order
from unkgcp.run import Predictor, calibrate
from unkgcp.run.answer_sets import SetRequest
from unkgcp.training import Model

NAMES = ["head", "relation", "tail"]


@pytest.fixture(scope="module")
def predictor(make_model: Callable[..., Model], make_facts: Callable[..., Graph]) -> Predictor:
    return calibrate(make_model(), make_facts(200))


@pytest.fixture(scope="module")
def table(make_facts: Callable[..., Graph]) -> pa.Table:
    whole = make_facts(5000, seed=4).table().select(NAMES).combine_chunks()
    head = whole["head"].to_pylist()
    head[7] = "nobody"
    head = ["line" if label == "Zoë\n" else label for label in head]  # cannot be written as TSV
    tail = ["line" if label == "Zoë\n" else label for label in whole["tail"].to_pylist()]
    return pa.table({"head": head, "relation": whole["relation"], "tail": tail})


class TestInOrder:
    def test_in_order_although_some_take_longer(self) -> None:
        def work(number: int) -> int:
            time.sleep(0.01 * (number % 3 == 0))
            return -number

        assert list(in_order(iter(range(50)), work, threads=4)) == [-number for number in range(50)]

    @pytest.mark.parametrize("where", ["items", "work"])
    def test_errors_come_where_their_item_would(self, where: str) -> None:
        def items() -> Iterator[int]:
            for number in range(10):
                if where == "items" and number == 5:
                    raise InputError("here")
                yield number

        def work(number: int) -> int:
            if where == "work" and number == 5:
                raise InputError("here")
            return number

        seen = []
        with pytest.raises(InputError, match="here"):
            seen.extend(in_order(items(), work))
        answers = in_order(items(), work)
        assert [next(answers) for _ in range(5)] == list(range(5))
        answers.close()


def test_the_answers_of_a_file_are_those_of_python(
    predictor: Predictor, table: pa.Table, tmp_path: Path
) -> None:
    expected = predictor.interval(table, [0.5, 0.9]).to_arrow()
    for rows in (5, len(table)):  # without threads and with them
        pq.write_table(table.slice(0, rows), tmp_path / "q.parquet", row_group_size=1700)
        target = str(tmp_path / "a.parquet")
        assert answer_file(predictor, str(tmp_path / "q.parquet"), target, PredictRequest([0.5, 0.9])) == rows
        found = pq.read_table(target)
        assert found.schema.types[:3] == [pa.string()] * 3  # dictionaries are a matter of the file alone
        for name in ("head", "lower_50", "upper_90"):
            told = expected[name].slice(0, rows).to_pylist()
            assert found[name].to_pylist() == [round(v, 9) if isinstance(v, float) else v for v in told]


def test_no_rows(predictor: Predictor, table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table.slice(0, 0), tmp_path / "q.parquet")
    assert answer_file(predictor, str(tmp_path / "q.parquet"), str(tmp_path / "a.parquet")) == 0
    assert pq.read_schema(tmp_path / "a.parquet").names[:3] == NAMES


@pytest.mark.parametrize(("line", "place"), [("entity 1\tr1\t?", "tail"), ("?\tr1\tentity 1", "head")])
def test_an_open_place_says_which_option_is_missing(
    line: str, place: str, predictor: Predictor, tmp_path: Path
) -> None:
    path = tmp_path / "q.tsv"
    path.write_text(f"entity 2\tr1\tentity 3\n{line}\n")
    with pytest.raises(InputError, match=rf"q.tsv: query 2 leaves its {place} open .*--top-k 10 .*--answers"):
        answer_file(predictor, str(path), str(tmp_path / "a.tsv"))
    assert not (tmp_path / "a.tsv").exists()


def test_filters_and_completions_of_files(predictor: Predictor, table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "q.parquet")
    keep = parse("upper < 0.9 and status == ok", [0.5])
    answer_file(
        predictor, str(tmp_path / "q.parquet"), str(tmp_path / "a.parquet"), PredictRequest(0.5, keep=keep)
    )
    found, whole = pq.read_table(tmp_path / "a.parquet"), predictor.interval(table, 0.5)
    rows = np.flatnonzero((whole.upper < 0.9) & (whole.code == 0))
    assert 0 < len(rows) < len(table)
    np.testing.assert_array_equal(found["upper"].to_numpy(), whole.upper[rows].round(9))
    text = tmp_path / "open.tsv"
    text.write_text("entity 1\tr1\t?\n\tr1\tentity 2\nentity 3\tr0\t\n")
    assert (
        answer_file(predictor, str(text), str(tmp_path / "c.tsv"), PredictRequest(completion={"k": 2})) == 3
    )
    lines = [line.split("\t") for line in (tmp_path / "c.tsv").read_text().splitlines()]
    assert lines[0][:5] == ["query", "rank", *NAMES]
    assert [line[:2] for line in lines[1:]] == [[str(q), str(k)] for q in range(3) for k in (1, 2)]
    text.write_text("entity 1\tr1\tentity 2\n")
    with pytest.raises(InputError, match=r"open\.tsv: query 1 leaves neither head nor tail open"):
        answer_file(predictor, str(text), str(tmp_path / "d.tsv"), PredictRequest(completion={"k": 2}))
    assert not (tmp_path / "d.tsv").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_nothing_half_written(
    how: signal.Signals, predictor: Predictor, tmp_path: Path
) -> None:
    predictor.save(tmp_path / "run")
    target = tmp_path / "out" / "answers.parquet"
    target.parent.mkdir()
    target.write_text("from before")
    command = [sys.executable, "-m", "unkgcp", "predict", str(tmp_path / "run"), "-", "-o", str(target)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdin is not None
    # the pipe stays open: the program has answered something and waits for more when it is interrupted
    running.stdin.write(b"entity 1\tr1\tentity 2\n" * 300_000)
    running.stdin.flush()
    until_writing(running, target.parent)
    running.send_signal(how)
    running.wait(60)
    running.stdin.close()
    assert running.stderr is not None
    assert b"Traceback" not in running.stderr.read()
    running.stderr.close()
    assert target.read_text() == "from before"
    left = [path for path in os.listdir(target.parent) if path != target.name]
    if how == signal.SIGKILL:
        assert all(path.startswith(".partial-") for path in left)
        assert running.returncode == -signal.SIGKILL
    else:
        assert left == []
        assert running.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]  # type: ignore[index]


def test_questions_for_answer_sets_come_in_pieces(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set may be all entities, so that a whole batch of questions may have too many answers to hold at once."""
    monkeypatch.setattr(stream, "MAX_ROWS", 200)
    (tmp_path / "q.tsv").write_text("entity 1\tr1\t?\n" * 60)
    pieces = list(PredictRequest(sets=SetRequest.of(0.8)).batches(predictor, str(tmp_path / "q.tsv")))
    assert sum(map(len, pieces)) == 60
    assert max(map(len, pieces)) * predictor.model.seen_entities.sum() <= 200


CARRIED = {
    "score": ["a", "b", "c"],
    "head": None,
    "relation": ["r1"] * 3,
    "note": ["x", "", "y z"],
    "tail": None,
}


ASKED = (
    PredictRequest(),
    PredictRequest(completion={"k": 2}),
    PredictRequest(keep=parse("score >= 0.4", [0.9])),
)


@pytest.mark.parametrize("form", ["q.tsv", "q.csv", "q.parquet"])
@pytest.mark.parametrize("request_of", ASKED)
def test_further_columns_follow_their_query(
    request_of: PredictRequest, form: str, predictor: Predictor, tmp_path: Path
) -> None:
    ends = [f"entity {place}" for place in (1, 2, 3)]
    table = pa.table({**CARRIED, "head": ends, "tail": ["?"] * 3 if request_of.completion else ends[::-1]})
    if form == "q.parquet":
        pq.write_table(table, tmp_path / form)
    else:
        rows = [table.column_names, *zip(*table.to_pydict().values(), strict=True)]
        between = "\t" if form == "q.tsv" else ","
        (tmp_path / form).write_text("".join(between.join(row) + "\n" for row in rows))
    source, target = str(tmp_path / form), str(tmp_path / "answers.parquet")
    answer_file(predictor, source, target, request_of)
    plain = pq.read_table(target)
    answer_file(predictor, source, target, request_of, carries=True)
    found = pq.read_table(target)
    assert found.select(plain.column_names).equals(plain)
    assert found.column_names == [*plain.column_names, "input_score", "note"]
    notes = dict(zip(ends, zip(CARRIED["score"], CARRIED["note"], strict=True), strict=True))  # type: ignore[arg-type]
    for row in found.to_pylist():
        assert (row["input_score"], row["note"]) == notes[row["head"]]


def test_few_queries_load_no_heavy_library(run: Path, tmp_path: Path) -> None:
    """Loading pandas or SciPy takes longer than answering."""
    (tmp_path / "few.tsv").write_text("entity 1\tr1\t?\tnote\n?\tr1\tentity 2\tother\n")
    code = (
        "import sys; from unkgcp.cli import cli; cli(sys.argv[1:], standalone_mode=False); "
        "assert not {'pandas', 'scipy', 'torch', 'lightgbm', 'matplotlib'} & set(sys.modules)"
    )
    command = [
        "predict",
        str(run),
        str(tmp_path / "few.tsv"),
        "-o",
        str(tmp_path / "out.tsv"),
        "--top-k",
        "2",
    ]
    subprocess.run([sys.executable, "-c", code, *command], check=True)
    assert (tmp_path / "out.tsv").exists()
