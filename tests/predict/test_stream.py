"""Files answered in overlapping threads: in order, whole or not at all, the same bytes whatever the batches are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.processes import until_writing
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.predict import stream
from unkgcp.predict.filter import parse
from unkgcp.predict.parts import deliver, plan, staged
from unkgcp.predict.ray_worker import Answerer, Work
from unkgcp.predict.stream import AHEAD, answer_file, in_order
from unkgcp.run import Predictor, calibrate
from unkgcp.run.answer_sets import AnswerSets, Asked
from unkgcp.run.answers import answer_batch
from unkgcp.tabular import parquet
from unkgcp.tabular.query_files import count_queries, query_batches
from unkgcp.tabular.writer import ROW_GROUP, gathered
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

    def test_never_far_ahead(self) -> None:
        drawn: list[int] = []

        def items() -> Iterator[int]:
            for number in range(100):
                drawn.append(number)
                yield number

        answers = in_order(items(), lambda number: number, threads=2)
        for number in range(10):
            assert next(answers) == number
            time.sleep(0.002)
            assert len(drawn) <= number + AHEAD + 3
        answers.close()
        assert len(drawn) < 30

    def test_work_goes_on_while_the_result_before_is_made_use_of(self) -> None:
        done: list[int] = []
        answers = in_order(iter(range(50)), lambda number: done.append(number) or number, threads=1)
        assert next(answers) == 0
        deadline = time.monotonic() + 30
        while len(done) < AHEAD and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(done) >= AHEAD
        answers.close()

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


class TestParquet:
    def write(self, table: pa.Table, path: Path, **options: object) -> str:
        pq.write_table(table, path, **options)
        return str(path)

    def rows(self, path: str, **options: bool) -> list[dict[str, str]]:
        return [row for batch in query_batches(path, **options) for row in batch.to_pylist()]

    def test_every_way_to_keep_labels(
        self, table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = table.to_pylist()
        coded = pa.table([table[name].dictionary_encode() for name in NAMES], names=NAMES)
        large = table.cast(pa.schema([(name, pa.large_string()) for name in NAMES]))
        monkeypatch.setattr(parquet, "QUERIES", 700)
        for number, (what, options) in enumerate(
            [
                (table, {}),
                (table, {"use_dictionary": False}),
                (table, {"row_group_size": 999}),
                (table, {"dictionary_pagesize_limit": 50, "data_page_size": 100}),
                (coded, {"row_group_size": 1234}),
                (large, {}),
            ]
        ):
            path = self.write(what, tmp_path / f"{number}.parquet", **options)
            assert self.rows(path) == expected
            monkeypatch.setattr(parquet, "GROUP", 800)
            assert self.rows(path) == expected
            monkeypatch.setattr(parquet, "GROUP", 1 << 21)
            assert count_queries(path) == len(table)

    def test_integers_are_labels(self, tmp_path: Path) -> None:
        path = self.write(pa.table({name: [1, 20] for name in NAMES}), tmp_path / "q.parquet")
        assert self.rows(path) == [dict.fromkeys(NAMES, label) for label in ("1", "20")]

    def test_dictionaries_are_kept(self, table: pa.Table, tmp_path: Path) -> None:
        path = self.write(table, tmp_path / "q.parquet")
        assert all(pa.types.is_dictionary(column.type) for column in next(query_batches(path)).columns)

    @pytest.mark.parametrize("coded", [False, True])
    @pytest.mark.parametrize(
        ("bad", "sentence"),
        [
            ("", "row 3001 has an empty tail"),
            (None, "row 3001 has an empty tail"),
            ("a\0b", "NUL byte in its tail"),
        ],
    )
    def test_bad_labels_are_named_by_row(
        self, table: pa.Table, tmp_path: Path, bad: str | None, sentence: str, coded: bool
    ) -> None:
        tail = table["tail"].to_pylist()
        tail[3000] = bad
        broken = table.set_column(2, "tail", pa.array(tail, pa.string()))
        path = self.write(broken, tmp_path / "q.parquet", use_dictionary=coded, row_group_size=700)
        with pytest.raises(InputError, match=sentence):
            self.rows(path)

    def test_open_places(self, tmp_path: Path) -> None:
        rows = [("a", "r", ""), (None, "r", "b"), ("?", "r", "b")]
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        for coded in (False, True):
            path = self.write(pa.table(columns, names=NAMES), tmp_path / "q.parquet", use_dictionary=coded)
            found = [tuple(row.values()) for row in self.rows(path, open_places=True)]
            assert found == [("a", "r", "?"), ("?", "r", "b"), ("?", "r", "b")]

    def test_no_rows(self, predictor: Predictor, table: pa.Table, tmp_path: Path) -> None:
        path = self.write(table.slice(0, 0), tmp_path / "q.parquet")
        assert answer_file(predictor, path, str(tmp_path / "a.parquet")) == 0
        assert pq.read_table(tmp_path / "a.parquet").num_rows == 0
        assert pq.read_schema(tmp_path / "a.parquet").names[:4] == [*NAMES, "score"]


def test_the_same_answers_whatever_the_batches(
    predictor: Predictor, table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = pa.Table.from_batches(
        [answer_batch(predictor, table.combine_chunks().to_batches()[0], [0.5, 0.9])]
    )
    expected = expected.set_column(expected.num_columns - 1, "status", expected["status"].cast(pa.string()))
    for number, size in enumerate((100, 1 << 17)):
        monkeypatch.setattr(parquet, "QUERIES", size)
        pq.write_table(table, tmp_path / "q.parquet", row_group_size=1700)
        target = str(tmp_path / f"{number}.parquet")
        assert answer_file(predictor, str(tmp_path / "q.parquet"), target, [0.5, 0.9]) == len(table)
        found = pq.read_table(target)
        assert found.schema.types[:3] == [pa.string()] * 3  # dictionaries are a matter of the file alone
        assert found.equals(expected)
        assert pq.ParquetFile(target).num_row_groups == 1


def test_dictionaries_that_differ_become_one() -> None:
    pieces = [pa.array(labels).dictionary_encode() for labels in (["a", "b"], ["b", "c", "b"], ["a"])]
    batches = [pa.record_batch([piece, pa.array(range(len(piece)))], names=["x", "y"]) for piece in pieces]
    whole = gathered(batches)
    assert whole["x"].to_pylist() == ["a", "b", "b", "c", "b", "a"]
    assert whole["x"].num_chunks == 1
    assert whole["y"].to_pylist() == [0, 1, 0, 1, 2, 0]
    assert ROW_GROUP == 1 << 20


@pytest.mark.parametrize("small", [1 << 30, 0])
def test_filters_and_completions_of_files(
    predictor: Predictor, table: pa.Table, tmp_path: Path, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SMALL", small)
    pq.write_table(table, tmp_path / "q.parquet")
    keep = parse("upper < 0.9 and status == ok", [0.5])
    answer_file(predictor, str(tmp_path / "q.parquet"), str(tmp_path / "a.parquet"), 0.5, keep=keep)
    found, whole = pq.read_table(tmp_path / "a.parquet"), predictor.interval(table, 0.5)
    rows = np.flatnonzero((whole.upper < 0.9) & (whole.code == 0))
    assert 0 < len(rows) < len(table)
    np.testing.assert_array_equal(found["upper"].to_numpy(), whole.upper[rows])
    text = tmp_path / "open.tsv"
    text.write_text("entity 1\tr1\t?\n\tr1\tentity 2\nentity 3\tr0\t\n")
    assert answer_file(predictor, str(text), str(tmp_path / "c.tsv"), completion={"k": 2}) == 3
    lines = [line.split("\t") for line in (tmp_path / "c.tsv").read_text().splitlines()]
    assert lines[0][:5] == ["query", "rank", *NAMES]
    assert [line[:2] for line in lines[1:]] == [[str(q), str(k)] for q in range(3) for k in (1, 2)]
    text.write_text("entity 1\tr1\tentity 2\n")
    with pytest.raises(InputError, match=r"open\.tsv: query 1 leaves neither head nor tail open"):
        answer_file(predictor, str(text), str(tmp_path / "d.tsv"), completion={"k": 2})
    assert not (tmp_path / "d.tsv").exists()


def test_small_files_are_answered_without_threads_and_large_ones_with(
    predictor: Predictor, table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "QUERIES", 700)
    pq.write_table(table, tmp_path / "q.parquet")
    size = (tmp_path / "q.parquet").stat().st_size
    used, found = [], []

    def noted(*given: object) -> Iterator[object]:
        used.append(stream.SMALL)
        return in_order(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(stream, "in_order", noted)
    for small in (size - 1, size):
        monkeypatch.setattr(stream, "SMALL", small)
        assert answer_file(predictor, str(tmp_path / "q.parquet"), str(tmp_path / "a.tsv")) == len(table)
        found.append((tmp_path / "a.tsv").read_bytes())
    assert used == [size - 1]
    assert found[0] == found[1]


@pytest.mark.parametrize("ending", ["parquet", "tsv"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_nothing_half_written(
    how: signal.Signals, ending: str, predictor: Predictor, tmp_path: Path
) -> None:
    predictor.save(tmp_path / "run")
    target = tmp_path / "out" / f"answers.{ending}"
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


def test_answer_sets_come_in_pieces_and_the_same_from_a_worker(
    make_model: Callable[..., Model],
    make_facts: Callable[..., Graph],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A set may be all entities, so that a whole batch of questions may have too many answers to hold at once."""
    model = replace(make_model(), facts=KnownFacts.of(make_facts(300)))
    calibrate(model, make_facts(200, seed=1)).save(tmp_path / "run")
    predictor, asked = Predictor.load(tmp_path / "run"), Asked.of(0.8)
    heads = pa.array([f"entity {place % 38}" for place in range(60)])
    columns = [heads, pa.array(["r1"] * 60), pa.nulls(60, pa.string())]
    questions = tmp_path / "questions.parquet"
    pq.write_table(pa.table(columns, names=["head", "relation", "tail"]), questions)
    whole = predictor.answer_sets().answer(pa.record_batch(columns, ["head", "relation", "tail"]), asked)
    monkeypatch.setattr(stream, "MOST_ROWS", 200)
    sizes, original = [], AnswerSets.answer

    def counted(sets: AnswerSets, batch: pa.RecordBatch, asked: Asked, first: int = 0) -> pa.RecordBatch:
        sizes.append(len(batch))
        return original(sets, batch, asked, first)

    monkeypatch.setattr(AnswerSets, "answer", counted)
    target = str(tmp_path / "local.parquet")
    answer_file(predictor, str(questions), target, sets=asked)
    assert max(sizes) == 200 // 40
    found = pq.read_table(target)
    assert found.to_pylist() == pa.table(whole).to_pylist()
    target = str(tmp_path / "worker.parquet")
    with staged(target) as stage:
        (part,) = plan([str(questions)])
        done = Answerer(Work(str(tmp_path / "run"), str(stage), 0.8, {}, sets=asked))(part._asdict())
        assert done["error"] == ""
        deliver(stage, 1, target)
    assert pq.read_table(target).to_pylist() == found.to_pylist()
