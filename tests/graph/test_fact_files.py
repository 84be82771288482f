"""Reading: every way a plain file of facts may come, and the order that reading promises."""

from __future__ import annotations

import gzip
import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import FACTS, LINES, facts_of, written
from unkgcp.errors import InputError
from unkgcp.graph import Vocabulary, read, read_parts
from unkgcp.tabular import delimited
from unkgcp.tabular.columns import Scale

ROWS = st.tuples(
    st.text("ab", min_size=1, max_size=9),
    st.sampled_from("rst"),
    st.text("abc", min_size=1, max_size=9),
    st.integers(0, 1000),
)


LABELS = [
    "NA",
    "null",
    "NaN",
    "1",
    "1.0",
    "01",
    "-0",
    "1e5",
    "true",
    " x ",
    '"',
    '"quoted"',
    "'",
    "\\",
    "#",
    "a,b",
]
LABELS += ["é", "日本", "0x1"]
NUMBERS = [
    "0.1",
    "0.30000000000000004",
    "1e-300",
    "4.9e-324",
    "0.9999999999999998",
    ".5",
    "1.",
    "+0.25",
    "0",
    "-0.0",
]
NUMBERS += [" 0.75 "]
HEADER = "head\trelation\ttail\tconfidence\n"
AS_CSV = "\n".join(LINES).replace("\t", ",")
ONE = [("a", "r", "b", 0.5)]
STRANGE = "x,y,z,v\na,r,b,0.5\n"
SHUFFLED = "c,x,b,a,y\n0.5,r,b,a,9\n"
NELL = "Entity\tRelation\tValue\tProbability\tOther\na\tr\tb\t0.5\t0.25\n"
MISSING = "a\tr\tb\t0.5\nc\tr\tb\t\nd\tr\tb\tNaN\ne\tr\tb\t0.25\n"

READ = {
    "lines": ("f.tsv", "\n".join(LINES) + "\n", {}, FACTS),
    "no end of the last line": ("f.tsv", "\n".join(LINES), {}, FACTS),
    "ends of DOS": ("f.tsv", "\r\n".join(LINES) + "\r\n", {}, FACTS),
    "ends of old Macs": ("f.tsv", "\r".join(LINES) + "\r", {}, FACTS),
    "a byte order mark": ("f.tsv", "\ufeff" + "\n".join(LINES), {}, FACTS),
    "empty lines": ("f.tsv", "\n\n" + "\n\n".join(LINES) + "\n\n\n", {}, FACTS),
    "empty lines of DOS": ("f.tsv", "\r\n" + "\r\n\r\n".join(LINES), {}, FACTS),
    "a header": ("f.tsv", HEADER + "\n".join(LINES), {}, FACTS),
    "all of these": ("f.tsv", "\ufeff\n" + HEADER + "\n" + "\n".join(LINES), {}, FACTS),
    "labels": (
        "f.tsv",
        "".join(f"{x}\tr\t{x}\t0.5\n" for x in LABELS),
        {},
        [(x, "r", x, 0.5) for x in LABELS],
    ),
    "numbers": (
        "f.tsv",
        "".join(f"a\tr\tb\t{text}\n" for text in NUMBERS),
        {},
        [("a", "r", "b", round(float(text), 9)) for text in NUMBERS],
    ),
    "quotation marks of CSV": (
        "f.csv",
        '"a, or b",r,"line\nend",0.5\n"say ""x""",r,plain,"0.25"\n',
        {},
        [("a, or b", "r", "line\nend", 0.5), ('say "x"', "r", "plain", 0.25)],
    ),
    "quotation marks of TSV": ("f.tsv", '"a\tr\tb"\t0.5\n', {}, [('"a', "r", 'b"', 0.5)]),
    "usual names": ("f.csv", "head,relation,tail,confidence\n" + AS_CSV, {}, FACTS),
    "other names": ("f.csv", "Subject,Predicate,Object,Weight\n" + AS_CSV, {}, FACTS),
    "letters": ("f.csv", "h,r,t,w\n" + AS_CSV, {}, FACTS),
    "a comment": ("f.csv", "#head,rel,tail,score\n" + AS_CSV, {}, FACTS),
    "quoted names": ("f.csv", '"head","relation","tail","confidence"\n' + AS_CSV, {}, FACTS),
    "another order": ("f.csv", "id,weight,object,subject,predicate\n1,0.5,b,a,r\n", {}, ONE),
    "a source beside a head": (
        "f.csv",
        "source,head,relation,tail,score,confidence\nx,a,r,b,9,0.5\n",
        {},
        ONE,
    ),
    "a fact is no header": ("f.tsv", "head\trelation\ttail\t0.5\n", {}, [("head", "relation", "tail", 0.5)]),
    "a strange header": ("f.csv", STRANGE, {"header": True}, ONE),
    "columns by name": ("f.csv", SHUFFLED, {"columns": ("a", "x", "b", "c")}, ONE),
    "columns by position": ("f.csv", SHUFFLED, {"columns": (3, 1, 2, 0), "header": True}, ONE),
    "columns by both": ("f.csv", SHUFFLED, {"columns": ("a", 1, 2, "c")}, ONE),
    "columns without header": ("f.csv", "0.5,r,b,a,9\n", {"columns": (3, 1, 2, 0)}, ONE),
    "a known format": ("f.tsv", NELL, {}, ONE),
    "chosen columns override it": (
        "f.tsv",
        NELL,
        {"columns": ("Value", "Relation", "Entity", "Other")},
        [("b", "r", "a", 0.25)],
    ),
    "skipped": ("f.tsv", MISSING, {"skip_missing": True}, [("a", "r", "b", 0.5), ("e", "r", "b", 0.25)]),
}
REFUSED = {
    "a strange header": (STRANGE, {}, r"line 1 .*setting header"),
    "a header that is none": (
        AS_CSV.splitlines()[0].replace("0.5", "x") + "\n",
        {"header": False},
        "line 1 ",
    ),
    "two heads": ("source,subject,relation,tail,confidence\nx,a,r,b,0.5\n", {}, "may both be the head"),
    "no such name": (SHUFFLED, {"columns": ("a", "x", "b", "nothing")}, "no column 'nothing'"),
    "one column twice": (SHUFFLED, {"columns": ("a", "x", "a", "c")}, "same column"),
    "no such position": (SHUFFLED, {"columns": (0, 1, 2, 7)}, "fewer than were chosen"),
    "too few": (SHUFFLED, {"columns": (0, 1, 2)}, "expected 4"),
    "names without header": (SHUFFLED, {"columns": ("a", "x", "b", "c"), "header": False}, "setting header"),
    "missing": (MISSING.replace("\t", ","), {}, "line 2 has no confidence"),
    "wrong, not missing": (
        (MISSING + "f\tr\tb\thigh\n").replace("\t", ","),
        {"skip_missing": True},
        r"line 5 .*'high'",
    ),
}


@pytest.mark.parametrize("case", READ)
def test_read(case, tmp_path):
    name, content, options, expected = READ[case]
    for packed in ("", ".gz"):
        graph = read(written(tmp_path / (name + packed), content), **options)
        assert facts_of(graph) == expected
    assert graph.vocabulary.entities.to_pylist() == list(
        dict.fromkeys(x for h, _, t, _ in expected for x in (h, t))
    )


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    content, options, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        read(written(tmp_path / "f.csv", content), **options)


class TestLines:
    def test_a_long_line_is_a_line(self, tmp_path, tiny_blocks):
        label = "x" * 60_000
        content = f"a\tr\tb\t0.5\n{label}\tr\tb\t0.5\nc\tr\t{label}\t0.5\n"
        assert [len(fact[0]) for fact in facts_of(read(written(tmp_path / "facts.tsv", content)))] == [
            1,
            60_000,
            1,
        ]
        first = f"{label}\tr\tb\t0.5\n"
        assert len(read(written(tmp_path / "first.tsv", first))) == 1


class TestBlocks:
    """Where the file is cut must not show."""

    @settings(max_examples=60, deadline=None)
    @given(
        rows=st.lists(ROWS, min_size=1, max_size=60),
        block=st.integers(1, 200),
        end=st.sampled_from(["\n", "\r\n", "\n\n"]),
        packed=st.booleans(),
    )
    def test_tsv(self, rows, block, end, packed, tmp_path_factory):
        content = "".join(f"{h}\t{r}\t{t}\t{c / 1000}{end}" for h, r, t, c in rows).encode()
        path = written(
            tmp_path_factory.mktemp("x") / "facts.tsv", gzip.compress(content) if packed else content
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(delimited, "BLOCK", block)
            found = read(path)
        assert facts_of(found) == [(h, r, t, c / 1000) for h, r, t, c in rows]
        seen = dict.fromkeys(label for h, _, t, _ in rows for label in (h, t))
        assert found.vocabulary.entities.to_pylist() == list(seen)
        assert found.vocabulary.relations.to_pylist() == list(dict.fromkeys(r for _, r, _, _ in rows))

    @settings(max_examples=60, deadline=None)
    @given(
        labels=st.lists(st.text('a",\n\r ', min_size=1, max_size=6), min_size=1, max_size=40),
        block=st.integers(1, 100),
    )
    def test_csv_with_line_ends_in_quotations(self, labels, block, tmp_path_factory):
        quoted = ('"' + label.replace('"', '""') + '"' for label in labels)
        content = "".join(f"{label},r,b,0.5\n" for label in quoted)
        path = written(tmp_path_factory.mktemp("x") / "facts.csv", content)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(delimited, "BLOCK", block)
            assert [fact[0] for fact in facts_of(read(path))] == labels

    def test_a_last_block_of_empty_lines(self, tmp_path, tiny_blocks):
        content = "a\tr\tb\t0.5\n" * 5 + "\n" * 200 + "c\tr\td\t0.5\n" + "\n" * 200
        assert len(read(written(tmp_path / "facts.tsv", content))) == 6
        assert len(read(written(tmp_path / "facts.csv", content.replace("\t", ",")))) == 6

    def test_line_numbers_count_every_line(self, tmp_path, tiny_blocks):
        good = "a\tr\tb\t0.5\n"
        for before in (0, 1, 7, 100):
            for blank in ("", "\n\n"):
                content = good * before + blank + "a\tr\tb\tbad\n" + good * 20
                path = written(tmp_path / "facts.tsv", content)
                with pytest.raises(InputError, match=rf"facts.tsv, line {before + len(blank) + 1} "):
                    read(path)

    def test_line_numbers_count_lines_within_quotations(self, tmp_path, tiny_blocks):
        content = '"a\nb",r,c,0.5\n' * 20 + "x,r,c,2\n"
        with pytest.raises(InputError, match="line 41 "):
            read(written(tmp_path / "facts.csv", content))


class TestParquet:
    @pytest.mark.parametrize(
        "label", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
    )
    @pytest.mark.parametrize("number", [pa.float64(), pa.float32(), pa.decimal128(5, 3)])
    def test_types(self, label, number, tmp_path):
        values = [Decimal("0.5"), Decimal("0.25")] if pa.types.is_decimal(number) else [0.5, 0.25]
        table = pa.table(
            {
                "confidence": pa.array(values, number),
                "tail": pa.array(["b", "a"]).cast(label),
                "head": pa.array(["a", "b"]).cast(label),
                "relation": pa.array(["r", "s"]).cast(label),
            }
        )
        pq.write_table(table, tmp_path / "facts.parquet")
        assert facts_of(read(tmp_path / "facts.parquet")) == [("a", "r", "b", 0.5), ("b", "s", "a", 0.25)]

    def test_integers_are_labels_and_nulls_are_missing(self, tmp_path):
        table = pa.table(
            {"head": [7, 8, 9], "relation": [0] * 3, "tail": [8, 7, 7], "confidence": [1, 0, None]}
        )
        pq.write_table(table, tmp_path / "facts.parquet")
        found = facts_of(read(tmp_path / "facts.parquet", skip_missing=True))
        assert found == [("7", "0", "8", 1.0), ("8", "0", "7", 0.0)]

    def test_many_row_groups_and_chosen_columns(self, tmp_path):
        n = 150_000
        table = pa.table(
            {"w": np.arange(n) / n, "x": [f"e{i % 1000}" for i in range(n)], "k": ["r"] * n, "y": ["e1"] * n}
        )
        pq.write_table(table, tmp_path / "facts.parquet", row_group_size=10_000)
        graph = read(tmp_path / "facts.parquet", columns=("x", "k", "y", "w"))
        assert len(graph) == n
        assert graph.n_entities == 1000
        assert np.array_equal(graph.confidence, np.round(np.arange(n) / n, 9))

    def test_by_content_whatever_the_name(self, tmp_path):
        pq.write_table(
            pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"], "confidence": [0.5]}),
            tmp_path / "facts",
        )
        assert len(read(tmp_path / "facts")) == 1


class TestVocabulary:
    def test_given_labels_keep_their_ids(self, tmp_path):
        vocabulary = Vocabulary.of(["z", "b"], ["likes"])
        graph = read(written(tmp_path / "facts.tsv", "\n".join(LINES)), vocabulary=vocabulary)
        assert graph.vocabulary.entities.to_pylist() == ["z", "b", "a", "c"]
        assert graph.vocabulary.relations.to_pylist() == ["likes", "knows"]
        assert facts_of(graph) == FACTS
        again = read(tmp_path / "facts.tsv", vocabulary=graph.vocabulary)
        assert again.vocabulary is graph.vocabulary

    def test_parts_share_one(self, tmp_path):
        paths = {
            "train": written(tmp_path / "1.tsv", LINES[0]),
            "test": written(tmp_path / "2.csv", "x,likes,a,0.5\n"),
        }
        parts = read_parts(paths)
        assert list(parts) == ["train", "test"]
        assert parts["train"].vocabulary is parts["test"].vocabulary
        assert parts["test"].vocabulary.entities.to_pylist() == ["a", "b", "x"]
        assert facts_of(parts["test"]) == [("x", "likes", "a", 0.5)]

    def test_parts_are_scaled_as_one(self, tmp_path):
        paths = {
            "a": written(tmp_path / "1.tsv", "a\tr\tb\t0\na\tr\tb\t5\n"),
            "b": written(tmp_path / "2.tsv", "a\tr\tb\t10\n"),
        }
        parts = read_parts(paths, scale=Scale("minmax"))
        assert parts["a"].confidence.tolist() == [0, 0.5]
        assert parts["b"].confidence.tolist() == [1]

    def test_threads_do_not_change_ids(self, tmp_path, monkeypatch):
        rng = np.random.default_rng(0)
        rows = rng.integers(3000, size=(20_000, 2))
        path = written(
            tmp_path / "facts.tsv",
            "".join(f"entity number {h}\tr\tentity number {t}\t0.5\n" for h, t in rows),
        )
        seen = list(dict.fromkeys(f"entity number {label}" for row in rows for label in row))
        monkeypatch.setattr(delimited, "SAMPLE", 0)  # in threads, whatever the size
        for block in (1000, 10_000, 1 << 20):
            monkeypatch.setattr(delimited, "BLOCK", block)
            assert read(path).vocabulary.entities.to_pylist() == seen


class TestStreams:
    def test_standard_input(self, monkeypatch):
        class Input:
            buffer = io.BytesIO("\n".join(LINES).encode())

        monkeypatch.setattr("sys.stdin", Input)
        assert facts_of(read("-")) == FACTS
        assert not Input.buffer.closed

    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    def test_an_open_stream(self, pack):
        assert facts_of(read(io.BytesIO(pack("\n".join(LINES).encode())))) == FACTS
        sink = io.BytesIO()
        pq.write_table(pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"], "confidence": [0.5]}), sink)
        assert facts_of(read(io.BytesIO(pack(sink.getvalue())))) == ONE
        with pytest.raises(InputError, match="standard input, line 2 "):
            read(io.BytesIO(pack(b"a\tr\tb\t0.5\na\tr\tb\t7\n")))
