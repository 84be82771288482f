"""Files of queries in Arrow batches: with or without confidences, and in little memory."""

from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.worlds import FACTS, LINES, written
from unkgcp.errors import InputError
from unkgcp.graph import query_batches
from unkgcp.tabular import delimited

TRIPLES = [{"head": head, "relation": relation, "tail": tail} for head, relation, tail, _ in FACTS]


class TestQueries:
    @pytest.mark.parametrize("width", [3, 4])
    @pytest.mark.parametrize(
        "header", ["", "head\trelation\ttail\tconfidence\n", "Source\tInteraction\tTarget\tWeight\n"]
    )
    def test_with_or_without_confidences(self, width, header, tmp_path, tiny_blocks):
        lines = [*([header.strip()] if header else []), *LINES]
        content = "\n".join("\t".join(line.split("\t")[:width]) for line in lines)
        batches = list(query_batches(written(tmp_path / "queries.tsv", content)))
        assert pa.Table.from_batches(batches).to_pylist() == TRIPLES
        assert len(batches) > 1

    def test_a_file_of_facts_may_be_asked_about_as_it_is(self, tmp_path):
        path = written(tmp_path / "facts.csv", "Source,kind of link,Target,Confidence\na,r,b,0.5\n")
        assert next(query_batches(path)).to_pylist() == [{"head": "a", "relation": "r", "tail": "b"}]

    def test_the_confidence_is_not_looked_at(self, tmp_path):
        path = written(tmp_path / "queries.tsv", "a\tr\tb\tunknown\n")
        assert sum(len(batch) for batch in query_batches(path)) == 1

    def test_short_labels_are_no_header(self, tmp_path):
        path = written(tmp_path / "queries.tsv", "h\tr\tt\n")
        assert next(query_batches(path)).to_pylist() == [{"head": "h", "relation": "r", "tail": "t"}]

    def test_parquet_without_confidences(self, tmp_path):
        pq.write_table(
            pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"]}), tmp_path / "queries.parquet"
        )
        assert next(query_batches(tmp_path / "queries.parquet")).to_pylist() == [
            {"head": "a", "relation": "r", "tail": "b"}
        ]

    def test_chosen_columns(self, tmp_path):
        path = written(tmp_path / "queries.csv", "x,y,z,v\nb,r,a,1\n")
        batch = next(query_batches(path, columns=("z", "y", "x")))
        assert batch.to_pylist() == [{"head": "a", "relation": "r", "tail": "b"}]

    @pytest.mark.parametrize(
        ("line", "message"),
        [(b"a\tr\t\n", "empty tail"), (b"a\xff\tr\tb\n", "UTF-8"), (b"a\tr\n", "2 columns")],
    )
    def test_bad_queries(self, line, message, tmp_path):
        path = written(tmp_path / "queries.tsv", b"a\tr\tb\n" * 3 + line)
        with pytest.raises(InputError, match=f"line 4 .*{message}"):
            list(query_batches(path))


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    """Ten times the rows: what is held beyond the columns stays within a few blocks."""
    monkeypatch.setattr(delimited, "BLOCK", 1 << 16)
    line = "a label that is rather long, as they are\tr\tanother label of the same kind\t0.5\n"

    def peak(rows: int) -> float:
        path = written(tmp_path / f"{rows}.tsv", line * rows)
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        highest = 0
        for batch in query_batches(path):
            highest = max(highest, pa.total_allocated_bytes() - before + len(batch))
        highest += tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(200_000) < 1.5 * peak(20_000)
