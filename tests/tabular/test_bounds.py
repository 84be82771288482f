"""What comes in has bounds: labels, lines, files that unfold, streams that never end; what is said of it is one line
without secrets."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.worlds import facts_of, written
from unkgcp.errors import InputError, public
from unkgcp.files import check_here
from unkgcp.graph import load_dataset, query_batches, read
from unkgcp.run.provenance import describe
from unkgcp.tabular import source

GOOD = "a\tr\tb\t0.5\n"
LABEL = "x" * 70_000


def parquet(path: Path, rows: int, head: list[str], **options: object) -> Path:
    """Many rows with one of these heads each."""
    heads = pa.DictionaryArray.from_arrays(pa.array(np.arange(rows) % len(head), pa.int32()), pa.array(head))
    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["r"]))
    table = pa.table({"head": heads, "relation": one, "tail": one, "confidence": np.full(rows, 0.5)})
    pq.write_table(table, path, compression="zstd", store_schema=False, **options)
    return path


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("f.tsv", GOOD + f"a\tr\t{LABEL}\t0.5\n", "f.tsv, line 2 has a tail of more than 64 KiB"),
        ("f.csv", f"a,r,b,0.5\na,{LABEL},b,0.5\n", "f.csv, line 2 has a relation of more than 64 KiB"),
        ("f.tsv", GOOD + "x" * (17 << 20), "f.tsv has a line of more than 16 MiB"),
        ("f.csv", '"' + "a,r,b,0.5\n" * 1_800_000, "f.csv, line 1 has a quotation mark that"),
        (
            "f.csv",
            'a,r,b,0.5\n"' + "a,r,b,0.5\n" * 1_800_000,
            "a quotation that is never closed of more than 16 MiB",
        ),
        ("f.tsv", GOOD.encode() + b"a\tr\t\xed\xa0\x80\t0.5\n", "f.tsv, line 2 is not valid UTF-8"),
        ("two\nlines.tsv", "a\tr\tb\t7\n", "two lines.tsv, line 1 has the confidence 7"),
    ],
)
def test_what_is_too_much_or_no_text(name, content, sentence, tmp_path):
    start = time.process_time()
    with pytest.raises(InputError) as error:
        read(written(tmp_path / name, content))
    assert sentence in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert time.process_time() - start < 10


def test_an_open_quotation_is_found_in_linear_time(tmp_path):
    """Four times the lines take four times as long, not sixteen times."""
    seconds = []
    for size in (1 << 17, 1 << 19):
        path = written(tmp_path / "f.csv", '"' + "a,r,b,0.5\n" * (size // 10))
        start = time.process_time()
        with pytest.raises(InputError, match="line 1 has a quotation mark"):
            read(path)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 8 * seconds[0] + 0.5


@pytest.mark.parametrize(
    ("rows", "head", "sentence"),
    [
        (30_000, ["x" * 60_000], "unfolds to more than 256 MiB"),  # 1.8 GB of text in some kilobytes
        (20_000_000, ["a"], "unfolds to more than 256 MiB"),  # many rows in no bytes
        (10, [LABEL], "row 1 has a head of more than 64 KiB"),
    ],
)
def test_a_parquet_file_that_unfolds(rows, head, sentence, tmp_path):
    path = parquet(tmp_path / "f.parquet", rows, head)
    before = pa.total_allocated_bytes()
    for reader in (read, lambda path: list(query_batches(path))):
        with pytest.raises(InputError) as error:
            reader(path)
        assert sentence in str(error.value)
        assert "damaged" not in str(error.value)
    assert pa.total_allocated_bytes() - before < 64 << 20


def test_a_large_file_of_few_labels_is_read(tmp_path):
    graph = read(parquet(tmp_path / "f.parquet", 1_000_000, ["a", "b"]))
    assert (len(graph), graph.n_entities) == (1_000_000, 3)


def test_labels_that_a_file_writes_out_are_read_as_text(tmp_path):
    labels = [f"entity {number:06}" for number in range(50_000)]
    long = [f"{number:05}" * 100 for number in range(300)] * 100  # many places in a long dictionary, not text
    for name, heads, is_text in (("many", labels, True), ("long", long, False)):
        table = pa.table({"head": heads, "relation": ["r"] * len(heads), "tail": heads[::-1]})
        path = tmp_path / f"{name}.parquet"
        pq.write_table(table, path, dictionary_pagesize_limit=1 << (10 if is_text else 20))
        batches = list(query_batches(path))
        assert pa.Table.from_batches(batches)["head"].to_pylist() == heads
        assert pa.types.is_string(batches[0]["head"].type) == is_text
        assert pa.types.is_dictionary(batches[0]["relation"].type)


@pytest.mark.parametrize("drip", [b"", b"x"])
def test_a_pipe_that_brings_nothing_more(drip, monkeypatch):
    monkeypatch.setattr(source, "SILENCE", 0.5)
    reading, writing = os.pipe()
    stop = threading.Event()

    def write() -> None:
        os.write(writing, GOOD.encode())
        while not stop.wait(0.1):
            os.write(writing, drip)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with (
            os.fdopen(reading, "rb") as pipe,
            pytest.raises(InputError, match="no end of a line for"),
        ):
            read(pipe)
    finally:
        stop.set()
        thread.join()
        os.close(writing)


@pytest.mark.parametrize(
    ("numbers", "remedy"),
    [
        ([150, 999], "--confidence-scale 0,1000"),
        ([0.5, 1.5], "--confidence-scale 0,1000"),
        ([2, 5000], "with --confidence-scale minmax or log"),
        ([-0.5, 3], "with --confidence-scale minmax or log"),
    ],
)
def test_scores_up_to_a_thousand(numbers, remedy, tmp_path):
    lines = "".join(f"a\tr\tb\t{number}\n" for number in numbers)
    pq.write_table(
        pa.table([["a"] * 2] * 3 + [[*map(float, numbers)]], ["h", "r", "t", "w"]), tmp_path / "f.parquet"
    )
    for path in (written(tmp_path / "f.tsv", lines), tmp_path / "f.parquet"):
        with pytest.raises(InputError) as error:
            read(path)
        assert remedy in str(error.value)


SECRET = "memory://user:hunter2@bucket/facts.tsv?X-Amz-Signature=hunter2#hunter2"


def test_addresses_are_shown_and_stored_without_secrets(tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    assert public(SECRET) == "memory://bucket/facts.tsv"
    assert public("/tmp/a?b#c@d.tsv") == "/tmp/a?b#c@d.tsv"
    with pytest.raises(InputError, match=r"memory://bucket/facts\.tsv is an address"):
        check_here(Path(SECRET), "give a path")
    for address in (
        SECRET,
        "https://user:hunter2@127.0.0.1:9/facts.tsv?key=hunter2",
        "typo://hunter2@x/y?hunter2",
    ):
        with pytest.raises(InputError) as error:
            read(address)
        assert "hunter2" not in str(error.value)
    fsspec.filesystem("memory").pipe_file(SECRET.partition("://")[2], (GOOD * 30).encode())
    dataset = load_dataset(SECRET)
    assert len(dataset.graph) == 30
    assert "hunter2" not in json.dumps(describe(SECRET, dataset, 0, {}))
    with pytest.raises(InputError) as error:
        load_dataset(SECRET, test=0.999)
    assert "hunter2" not in str(error.value)
    fsspec.filesystem("memory").rm("/", recursive=True)


@pytest.mark.parametrize("pack", ["bz2", "lzma", "zstd", "gzip"])
def test_packed_files(pack, tmp_path):
    lines = (GOOD * 300_000).encode()
    if pack == "zstd":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(lines)
        packed = sink.getvalue().to_pybytes()
    else:
        packed = __import__(pack).compress(lines)
    assert len(read(io.BytesIO(packed))) == 300_000
    assert facts_of(read(written(tmp_path / f"f.tsv.{pack}", packed)))[0] == ("a", "r", "b", 0.5)


def test_a_named_pipe_is_read_once(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    thread = threading.Thread(target=path.write_bytes, args=(GOOD.encode(),))
    thread.start()
    assert facts_of(read(path)) == [("a", "r", "b", 0.5)]
    thread.join()
