"""`unkgcp predict`: every form of file in and out, in order, with memory that stays flat."""

from __future__ import annotations

import csv
import gzip
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unkgcp.graph.kinds import KINDS
from unkgcp.run import Predictor

Run = Callable[..., Any]

COLUMNS = ["head", "relation", "tail", "score", "lower", "upper", "status", "kind"]


def answers(text: str, delimiter: str = "\t") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter, quoting=csv.QUOTE_MINIMAL))


@pytest.fixture
def triples(small: Path) -> list[list[str]]:
    with (small / "facts.tsv").open() as file:
        return [line.rstrip("\n").split("\t")[:3] for line in list(file)[1:201]]


@pytest.fixture
def queries(triples: list[list[str]], tmp_path: Path) -> Path:
    rows = [["nobody", *triples[0][1:]], *triples, [triples[0][0], "nothing", triples[0][2]]]
    (tmp_path / "queries.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    return tmp_path / "queries.tsv"


def test_answers_are_those_of_the_predictor(fitted: Path, queries: Path, run_command: Run) -> None:
    outcome = run_command("predict", fitted, queries)
    assert outcome.status == 0
    found = answers(outcome.out)
    assert list(found[0]) == COLUMNS
    rows = [tuple(line.split("\t")) for line in queries.read_text().splitlines()]
    assert [(row["head"], row["relation"], row["tail"]) for row in found] == rows
    expected = Predictor.load(fitted).interval(rows, 0.9)  # type: ignore[arg-type]
    assert [row["status"] for row in found] == expected.status.tolist()
    assert found[0]["status"] == "unknown-entity"
    assert found[-1]["status"] == "unknown-relation"
    assert expected.kind is not None
    assert [row["kind"] for row in found] == [KINDS[code] for code in expected.kind]
    # new entities were among the calibration facts, so that they are answered; new relations were not
    assert found[0]["kind"] == "new entity"
    assert found[0]["score"]
    last = found[-1]
    assert (last["kind"], last["score"], last["lower"], last["upper"]) == ("new relation", "", "0", "1")
    np.testing.assert_array_equal([float(row["lower"]) for row in found], expected.lower.round(9))
    np.testing.assert_array_equal([float(row["upper"]) for row in found], expected.upper.round(9))
    assert all(len(row["lower"]) <= 11 for row in found), "nine decimals, as confidences have"
    np.testing.assert_array_equal(
        np.array([float(row["score"]) for row in found if row["score"]], dtype=np.float32),
        expected.score[~np.isnan(expected.score)],
    )


def test_every_format_gives_the_same_answers(
    fitted: Path, queries: Path, triples: list[list[str]], tmp_path: Path, run_command: Run
) -> None:
    rows = [line.split("\t") for line in queries.read_text().splitlines()]
    text = "head,relation,tail\n" + "".join(",".join(f'"{label}"' for label in row) + "\n" for row in rows)
    (tmp_path / "q.csv").write_text(text)
    (tmp_path / "q.csv.gz").write_bytes(gzip.compress(text.encode()))
    columns = {name: [row[place] for row in rows] for place, name in enumerate(COLUMNS[:3])}
    pq.write_table(pa.table(columns), tmp_path / "q.parquet")
    expected = run_command("predict", fitted, queries).out
    for number, source in enumerate(("q.csv", "q.csv.gz", "q.parquet")):
        target = tmp_path / f"out{number}.tsv"
        assert run_command("predict", fitted, tmp_path / source, "-o", target).status == 0
        assert target.read_text() == expected
    for ending in ("csv", "csv.gz", "tsv.gz", "parquet"):
        assert run_command("predict", fitted, queries, "-o", tmp_path / f"out.{ending}").status == 0
    assert gzip.decompress((tmp_path / "out.tsv.gz").read_bytes()).decode() == expected
    assert answers((tmp_path / "out.csv").read_text(), ",") == answers(expected)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["lower"].to_pylist() == [float(row["lower"]) for row in answers(expected)]
    unanswered = [not row["score"] for row in answers(expected)]
    assert table["score"].is_null().to_pylist() == unanswered
    assert 1 <= sum(unanswered) < 100


def test_pipes(fitted: Path, queries: Path) -> None:
    command = [sys.executable, "-m", "unkgcp", "predict", str(fitted), "-"]
    done = subprocess.run(command, input=queries.read_bytes(), capture_output=True, check=True)
    assert len(answers(done.stdout.decode())) == 202


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(fitted: Path, queries: Path, tmp_path: Path) -> None:
    def peak(copies: int) -> int:
        big = tmp_path / f"big{copies}.tsv"
        big.write_bytes(queries.read_bytes() * copies)
        code = (
            "import resource, sys; from unkgcp.cli import main\n"
            f"try: main(['predict', {str(fitted)!r}, {str(big)!r}, '-o', {str(tmp_path / 'out.tsv')!r}])\n"
            "except SystemExit as e: assert e.code == 0\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
        return int(done.stdout)

    small, large = peak(1000), peak(8000)  # 200,000 and 1,600,000 queries
    with (tmp_path / "out.tsv").open() as file:
        assert sum(1 for _ in file) == 1 + 8000 * 202
    assert large - small < 60_000  # KiB; the longer file and its answers are 200 MB


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere", "queries.tsv"], "nowhere is no run"),
        (["RUN", "nowhere.tsv"], "nowhere.tsv does not exist"),
        (["RUN", "two.tsv"], "two.tsv, line 1"),
        (["RUN", "queries.tsv", "--confidence", "1.5"], "'1.5' is no number from 0 to 1"),
        (["RUN", "queries.tsv", "--confidence", "high"], "'high' is no number from 0 to 1"),
        (["RUN", "queries.tsv", "--confidence", "0.9,0.90"], "there twice"),
        (["RUN", "queries.tsv", "-o", "out.xlsx"], "does not end in .tsv"),
        (["RUN", "bad.tsv", "-o", "out.tsv"], "bad.tsv, line 150"),
    ],
)
def test_bad_input(
    arguments: list[str],
    sentence: str,
    fitted: Path,
    queries: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_command: Run,
) -> None:
    monkeypatch.chdir(queries.parent)
    Path("two.tsv").write_text("a\tb\n")
    lines = queries.read_text().splitlines(keepends=True)
    Path("bad.tsv").write_text("".join([*lines[:149], "only\ttwo\n", *lines[150:]]))
    before = sorted(os.listdir())
    outcome = run_command("predict", *(str(fitted) if part == "RUN" else part for part in arguments))
    assert outcome.status == 2
    assert sentence in outcome.err
    assert outcome.err.splitlines()[-1].startswith("unkgcp: ")
    assert sorted(os.listdir()) == before


def test_completions_and_filters(
    fitted: Path, triples: list[list[str]], tmp_path: Path, run_command: Run
) -> None:
    head, relation, tail = triples[0]
    (tmp_path / "open.tsv").write_text(
        f"{head}\t{relation}\t?\n\t{relation}\t{tail}\nnobody\t{relation}\t?\n"
    )
    found = answers(
        run_command("predict", fitted, tmp_path / "open.tsv", "--top-k", "3", "--exclude-known").out
    )
    assert list(found[0]) == ["query", "rank", *COLUMNS, "presumes_fact"]
    assert [(row["query"], row["rank"]) for row in found] == [
        *(("0", str(rank)) for rank in (1, 2, 3)),
        *(("1", str(rank)) for rank in (1, 2, 3)),
        ("2", "1"),
    ]
    assert (found[-1]["tail"], found[-1]["status"]) == ("", "unknown-entity")
    expected = Predictor.load(fitted).complete(head, relation, k=3, exclude_known=True).to_pandas()
    assert [row["tail"] for row in found[:3]] == expected["tail"].tolist()
    (tmp_path / "left.tsv").write_text(f"{head}\t{relation}\t{found[0]['tail']}\n")
    options = ("--top-k", "3", "--exclude-known", "--exclude", tmp_path / "left.tsv")
    without = answers(run_command("predict", fitted, tmp_path / "open.tsv", *options).out)
    assert [row["tail"] for row in without[:2]] == [row["tail"] for row in found[1:3]]
    kept = answers(
        run_command("predict", fitted, tmp_path / "open.tsv", "--top-k", "3", "--filter", "status != ok").out
    )
    assert [row["head"] for row in kept] == ["nobody"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--filter", "lower >> 1"], "compares nothing"),
        (["--filter", "belief < 0.5"], "asks for 'belief', which this run does not tell"),
        (["--exclude-known"], "need --top-k"),
        (["--exclude", "x.tsv"], "need --top-k"),
        (["--top-k", "0"], "0 is not in the range"),
        (["--top-k", "3"], "query 1 leaves neither head nor tail open"),
    ],
)
def test_completions_that_cannot_be_asked(
    arguments: list[str], sentence: str, fitted: Path, queries: Path, run_command: Run
) -> None:
    outcome = run_command("predict", fitted, queries, *arguments)
    assert outcome.status == 2
    assert sentence in outcome.err


class TestAnswers:
    """`--answers`: the sets of the predictor as columns, both engines' local one, and a sentence for what cannot be."""

    def test_the_sets_of_the_predictor(
        self, fitted: Path, tmp_path: Path, triples: list[list[str]], run_command: Run
    ) -> None:
        head, relation, tail = triples[0]
        (tmp_path / "open.tsv").write_text(
            f"{head}\t{relation}\t?\n?\t{relation}\t{tail}\nnobody\t{relation}\t?\n"
        )
        options = ("--answers", "--confidence", "0.8", "--top-k", "4", "--min-confidence", "0.2")
        found = answers(run_command("predict", fitted, tmp_path / "open.tsv", *options).out)
        assert list(found[0])[:7] == ["query", "rank", "head", "relation", "tail", "share", "size"]
        predictor = Predictor.load(fitted)
        for query, given in (("0", {"head": head}), ("1", {"tail": tail})):
            sets = predictor.answers(relation=relation, **given, confidence=0.8, k=4, min_confidence=0.2)
            rows = [row for row in found if row["query"] == query]
            assert [row["head" if "tail" in given else "tail"] for row in rows] == sets.entities.to_pylist()
            assert {row["size"] for row in rows} == {str(sets.size)}
        assert (found[-1]["status"], found[-1]["size"], found[-1]["tail"]) == ("unknown-entity", "", "")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--answers", "--confidence", "1"), "must lie between 0 and 1, both excluded"),
            (("--answers", "--confidence", "0.8,0.9"), "takes one level"),
            (("--answers", "--filter", "score > 0"), "leave out --rank-by"),
            (("--answers",), "query 1 leaves neither head nor tail open"),
            (("--answers", "--min-confidence", "2"), "is not in the range"),
            (("--min-confidence", "0.5"), "needs --answers"),
        ],
    )
    def test_what_cannot_be_asked(
        self,
        options: tuple[str, ...],
        said: str,
        fitted: Path,
        queries: Path,
        tmp_path: Path,
        run_command: Run,
    ) -> None:
        done = run_command("predict", fitted, queries, "-o", tmp_path / "out.tsv", *options)
        assert done.status == 2
        assert said in done.err
        assert [path.name for path in tmp_path.iterdir()] == [queries.name]


class TestSelect:
    """`--select` and `--after-selection`: columns, pipes, and a sentence for whatever cannot be done."""

    CONDITION = ("--select", "confidence >= 0.7", "--fdr", "0.4")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--select", "confidence >= 0.7", "--fdr", "1.5"), "must lie between 0 and 1"),
            (("--select", "confidence >= 0.7", "--fdr", "0"), "must lie between 0 and 1"),
            (("--select", "confidence >= 0.7", "--fdr", "few"), "must lie between 0 and 1"),
            (("--select", "lower >= 0.7"), "is not understood"),
            (("--select", "confidence >= 0"), "nothing to choose"),
            (("--select", "confidence >= 0.7", "--filter", "score > 0"), "leave out --top-k and --filter"),
            (("--select", "confidence >= 0.7", "--top-k", "3"), "leave out --top-k and --filter"),
            (("--after-selection",), "needs --select or --filter"),
            (("--after-selection", "--filter", "lower >= 0.7"), "depends on the calibration facts itself"),
            (("--select", "confidence >= 0.7", "--fdr", "0.1,0.2", "--after-selection"), "name one"),
            (("--top-k", "3", "--filter", "score > 0", "--after-selection"), "does not go with --top-k"),
        ],
    )
    def test_what_cannot_be_done_is_a_sentence(
        self,
        options: tuple[str, ...],
        said: str,
        fitted: Path,
        queries: Path,
        tmp_path: Path,
        run_command: Run,
    ) -> None:
        done = run_command("predict", fitted, queries, "-o", tmp_path / "out.tsv", *options)
        assert done.status == 2
        assert said in " ".join(done.err.split())
        assert not (tmp_path / "out.tsv").exists()
