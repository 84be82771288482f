"""Bad input: one sentence that names file, place and remedy, for whatever is wrong with a file."""

from __future__ import annotations

import gzip
import io
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unkgcp.errors import InputError
from unkgcp.graph import query_batches, read
from unkgcp.tabular import delimited

GOOD = b"a\tlikes\tb\t0.5\nb\tlikes\tc\t0.25\n"
NOISE = np.random.default_rng(0).integers(256, size=5000, dtype=np.uint8).tobytes()


def parquet(**columns: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def parquet_with_names(*names: str) -> bytes:
    sink = io.BytesIO()
    columns = [pa.array([0.5] if name == "confidence" else ["a"]) for name in names]
    pq.write_table(pa.table(columns, names=list(names)), sink, store_schema=False)
    return sink.getvalue()


def parquet_of(confidence: list[float | None], head: list[str | None] | None = None) -> bytes:
    n = len(confidence)
    columns = {"head": head or ["a"] * n, "relation": ["r"] * n, "tail": ["b"] * n}
    labels = {name: pa.array(column, pa.string()) for name, column in columns.items()}
    return parquet(**labels, confidence=pa.array(confidence, pa.float64()))


# name of the file, its content, what the sentence must say
CASES = {
    "empty": ("facts.tsv", b"", ["is empty"]),
    "only line ends": ("facts.tsv", b"\n\r\n\n", ["is empty"]),
    "empty gzip": ("facts.tsv.gz", gzip.compress(b""), ["is empty"]),
    "header only": ("facts.tsv", b"head\trelation\ttail\tconfidence\n", ["holds no facts"]),
    "too few columns": ("facts.tsv", GOOD + b"a\tlikes\tb\n", ["line 3 ", "3 columns, expected 4"]),
    "too many columns": ("facts.tsv", GOOD + b"a\tlikes\tb\t0.5\t1\n", ["line 3 ", "5 columns, expected 4"]),
    "no confidence column": ("facts.tsv", b"a\tlikes\tb\n", ["line 1 ", "3 columns, expected 4"]),
    "columns nobody named": ("facts.tsv", b"a\tlikes\tb\t0.5\t1\n", ["line 1 ", "5 columns", "--columns"]),
    "a line of another format": ("facts.tsv", GOOD + b"a,likes,b,0.5\n", ["line 3 ", "1 column, expected 4"]),
    "text for a confidence": ("facts.tsv", GOOD + b"a\tlikes\tb\thigh\n", ["line 3 ", "'high'", "no number"]),
    "a decimal comma": ("facts.tsv", GOOD + b"a\tlikes\tb\t0,5\n", ["line 3 ", "'0,5'"]),
    "a percentage": ("facts.tsv", GOOD + b"a\tlikes\tb\t50%\n", ["line 3 ", "'50%'"]),
    "no confidence": ("facts.tsv", GOOD + b"a\tlikes\tb\t\n", ["line 3 ", "no confidence"]),
    "NaN": ("facts.tsv", GOOD + b"a\tlikes\tb\tNaN\n", ["line 3 ", "no confidence ('NaN')"]),
    "infinity": ("facts.tsv", GOOD + b"a\tlikes\tb\tinf\n", ["line 3 ", "inf"]),
    "above 1": ("facts.tsv", GOOD + b"a\tlikes\tb\t1.5\n", ["line 3 ", "1.5", "--confidence-scale"]),
    "below 0": ("facts.tsv", GOOD + b"a\tlikes\tb\t-0.5\n", ["line 3 ", "-0.5", "--confidence-scale"]),
    "a header that is none": ("facts.tsv", b"a\tlikes\tb\tmuch\n" + GOOD, ["line 1 ", "'much'", "setting header"]),
    "empty head": ("facts.tsv", GOOD + b"\tlikes\tb\t0.5\n", ["line 3 ", "empty head"]),
    "empty relation": ("facts.tsv", GOOD + b"a\t\tb\t0.5\n", ["line 3 ", "empty relation"]),
    "empty tail": ("facts.tsv", GOOD + b"a\tlikes\t\t0.5\n", ["line 3 ", "empty tail"]),
    "Windows-1252": ("facts.tsv", GOOD + "café\tlikes\tb\t0.5\n".encode("cp1252"), ["line 3 ", "UTF-8"]),
    "Windows-1252 at once": ("facts.tsv", "café\tlikes\tb\t0.5\n".encode("cp1252"), ["line 1 ", "UTF-8"]),
    "UTF-16": ("facts.tsv", GOOD.decode().encode("utf-16"), ["UTF-16", "UTF-8"]),
    "a fault before the bytes": ("facts.tsv", GOOD + b"a\tlikes\tb\t7\nc\xff\tlikes\tb\t0.5\n", ["line 3 ", "7"]),
    "NUL bytes at the start": ("facts.tsv", b"a\0\tlikes\tb\t0.5\n", ["binary"]),
    "NUL bytes late": ("facts.tsv", GOOD * 50_000 + b"a\0\tlikes\tb\t0.5\n", ["line 100001 ", "NUL"]),
    "random bytes": ("facts.tsv", NOISE, ["binary"]),
    "random bytes without NUL": ("facts.tsv", NOISE.replace(b"\0", b"\1"), ["binary"]),
    "a program": ("facts.tsv", b"\x7fELF\2\1\1\0" + NOISE, ["binary"]),
    "a spreadsheet": ("facts.csv", b"PK\x03\x04" + NOISE, ["zip archive or a spreadsheet", "CSV"]),
    "a damaged bzip2 file": ("facts.tsv.bz2", b"BZh91AY" + NOISE, ["damaged or incomplete bzip2"]),
    "half a gzip": ("facts.tsv.gz", gzip.compress(NOISE)[:2500], ["gzip"]),
    "a gzip without its end": ("facts.tsv.gz", gzip.compress(GOOD * 10_000)[:-9], ["gzip"]),
    "a gzip with a wrong checksum": ("facts.tsv.gz", gzip.compress(GOOD)[:-8] + bytes(8), ["gzip", "CRC"]),
    "a gzip with something behind it": ("facts.tsv.gz", gzip.compress(GOOD) + b"behind", ["gzip"]),
    "a fault within a gzip": ("facts.tsv.gz", gzip.compress(GOOD + b"a\n"), ["line 3 "]),
    "commas under .tsv": ("facts.tsv", b"a,likes,b,0.5\n", ["commas", "--format csv"]),
    "tabs under .csv": ("facts.csv", GOOD, ["tabs", "--format tsv"]),
    "spaces under .tsv": ("facts.tsv", b"a likes b 0.5\n", ["neither tabs nor commas", "--format"]),
    "semicolons": ("facts.csv", b"a;likes;b;0.5\n", ["neither tabs nor commas"]),
    "JSON": ("facts.txt", b'{"head": "a"}\n', ["neither tabs nor commas"]),
    "tabs and commas": ("facts.txt", b"a, or b\tlikes\tc\t0.5\n", ["both tabs and commas", "--format"]),
    "a name twice in the header": ("facts.csv", b"head,head,tail,score\na,r,b,1\n", ["line 1 ", "'head'", "--columns"]),
    "two names for one thing": ("facts.csv", b"head,rel,tail,score,weight\na,r,b,1,1\n", ["confidence", "--columns"]),
    "a header without relation": ("facts.csv", b"id,head,tail,score\n1,a,b,1\n", ["relation", "--columns"]),
    "an open quotation": ("facts.csv", b'a,r,b,0.5\n"a,r,b,0.5\nc,r,d,0.5\n', ["line 2 ", "quotation"]),
    "a mark within a field": ("facts.csv", b'a,r,b,0.5\n5" pipe,r,b,0.5\n', ["line 2 ", "quotation"]),
    "text behind a quotation": ("facts.csv", b'a,r,b,0.5\n"5" pipe,r,b,0.5\n', ["line 2 ", "quotation"]),
    "a fault before a quotation": ("facts.csv", b'a,r,b,5\n"5" pipe,r,b,0.5\n', ["line 1 ", "5, outside"]),
    "Parquet without relation": ("facts.parquet", parquet(head=["a"], tail=["b"], score=[1]), ["relation", "--col"]),
    "Parquet with a null label": ("facts.parquet", parquet_of([0.5, 0.5], ["a", None]), ["row 2 ", "empty head"]),
    "Parquet with an empty label": ("facts.parquet", parquet_of([0.5, 0.5], ["a", ""]), ["row 2 ", "empty head"]),
    "Parquet with a NUL byte": ("facts.parquet", parquet_of([0.5, 0.5], ["a", "b\0"]), ["row 2 ", "NUL"]),
    "Parquet with a null confidence": ("facts.parquet", parquet_of([0.5, None]), ["row 2 ", "no confidence"]),
    "Parquet above 1": ("facts.parquet", parquet_of([0.5, 0.5, 2.0]), ["row 3 ", "2, outside", "--confidence-scale"]),
    "Parquet with text for confidence": (
        "facts.parquet",
        parquet(head=["a"], relation=["r"], tail=["b"], confidence=["0.5"]),
        ["confidence", "numbers"],
    ),
    "Parquet with lists for labels": (
        "facts.parquet",
        parquet(head=[["a"]], relation=["r"], tail=["b"], confidence=[0.5]),
        ["head", "text or integers"],
    ),
    "Parquet with a column twice": (
        "facts.parquet",
        parquet_with_names("head", "relation", "tail", "tail", "confidence"),
        ["two columns called 'tail'", "renamed"],
    ),
    "Parquet with a name that is not UTF-8": (
        "facts.parquet",
        parquet_with_names("head", "relation", "tail", "confidence", "WXYZ").replace(b"WXYZ", b"\xff\xfeYZ"),
        ["column whose name is not valid UTF-8", "renamed"],
    ),
    "Parquet without rows": ("facts.parquet", parquet_of([]), ["holds no facts"]),
    "half a Parquet": ("facts.parquet", parquet_of([0.5] * 1000)[:500], ["damaged Parquet"]),
    "Parquet in name only": ("facts.parquet", GOOD, ["not a Parquet file"]),
    "Parquet around noise": ("facts.parquet", b"PAR1" + NOISE + b"PAR1", ["damaged Parquet"]),
    "half a packed Parquet": ("facts.parquet.gz", gzip.compress(parquet_of([0.5] * 99))[:-30], ["gzip"]),
}  # fmt: skip


def is_one_sentence(error: pytest.ExceptionInfo[InputError], path: Path) -> str:
    sentence = str(error.value)
    assert sentence.startswith(str(path)), "names the file first"
    assert "\n" not in sentence
    assert len(sentence) < 400
    return sentence


@pytest.mark.parametrize("case", CASES)
def test_one_sentence(case, tmp_path):
    name, content, expected = CASES[case]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read(path)
    sentence = is_one_sentence(error, path)
    for part in expected:
        assert part in sentence
    assert [file.name for file in tmp_path.iterdir()] == [name], "nothing is left behind"


# long files are slow in tiny blocks
PIPED = [
    case for case, (name, content, _) in CASES.items() if name == "facts.tsv" and len(content) <= 1 << 20
]


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("case", PIPED)
def test_the_same_from_a_pipe_in_tiny_blocks(case, threads, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 100)
    if threads:
        monkeypatch.setattr(delimited, "SAMPLE", 0)
    _, content, expected = CASES[case]
    with pytest.raises(InputError) as error:
        read(io.BytesIO(content), format="tsv")
    for part in expected:
        if "--format" not in part and "commas" not in part:
            assert part in str(error.value)


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match="no such file") as error:
        read(tmp_path / "facts.tsv")
    is_one_sentence(error, tmp_path / "facts.tsv")


def test_a_folder(tmp_path):
    with pytest.raises(InputError, match="holds no train file"):
        read(tmp_path)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="these tests run as root, who may read every file"
)
def test_a_file_one_may_not_read(tmp_path):
    path = tmp_path / "facts.tsv"
    path.write_bytes(GOOD)
    path.chmod(0)
    with pytest.raises(InputError, match="may not be read"):
        read(path)


PIECES = [b"a", b"\t", b",", b"\n", b"\r", b'"', b"0.5", b"2", b"\xff", b"\0"]


@settings(max_examples=150, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=200),
        st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join),
    ),
    name=st.sampled_from(["facts.tsv", "facts.csv", "facts.parquet", "facts", "facts.tsv.gz"]),
    reader=st.sampled_from([read, lambda path: list(query_batches(path))]),
)
def test_whatever_it_is_it_is_read_or_refused(content, name, reader, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(content)
    with suppress(InputError):
        reader(path)
