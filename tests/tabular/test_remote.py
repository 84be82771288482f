"""Files elsewhere: read from a server on this machine, written to fsspec's memory; what goes wrong is one sentence, and
nothing half-written stays."""

from __future__ import annotations

import gzip
import io
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.worlds import FACTS, facts_of, graph_of, random_model
from unkgcp.cli import main
from unkgcp.errors import InputError
from unkgcp.graph import read, write
from unkgcp.run import calibrate
from unkgcp.tabular.source import is_remote
from unkgcp.tabular.writer import check_output, open_output

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

LINES = "".join(f"{h}\t{r}\t{t}\t{c}\n" for h, r, t, c in FACTS).encode()
LONG = b"".join(b"e%d\tr\tb\t0.5\n" % i for i in range(200_000))


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(graph_of(FACTS).table(), sink)
    return sink.getvalue()


FILES = {
    "/facts.tsv": LINES,
    "/facts.tsv.gz": gzip.compress(LINES),
    "/facts.parquet": parquet(),
    "/cut.tsv": LONG,
}


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET(body=False)

    def do_GET(self, body: bool = True) -> None:
        if self.path not in FILES:
            self.send_response(403 if self.path == "/secret.tsv" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = FILES[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body and self.path == "/cut.tsv":
            self.wfile.write(content[: len(content) * 3 // 4])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif body:
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as found:
        found.daemon_threads = True
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


@pytest.fixture
def memory() -> Iterator[object]:
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


@pytest.mark.parametrize("name", ["facts.tsv", "facts.tsv.gz", "facts.parquet"])
def test_the_same_facts_as_from_here(name, server):
    assert facts_of(read(f"{server}/{name}")) == FACTS


SENTENCES = {
    "/denied-403/none.tsv": "/denied-403/none.tsv does not exist",  # names of files are not what went wrong
    "/none.tsv": "/none.tsv does not exist",
    "/secret.tsv": "/secret.tsv may not be read (403",
    "/cut.tsv": "/cut.tsv broke off after ",
}


@pytest.mark.parametrize("path", SENTENCES)
def test_one_sentence(path, server, tmp_path):
    with pytest.raises(InputError) as error:
        read(f"{server}{path}")
    assert SENTENCES[path] in str(error.value)
    assert "\n" not in str(error.value)


def test_no_server():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(InputError, match="cannot be read"):
            read(f"http://127.0.0.1:{free.getsockname()[1]}/facts.tsv")


def test_addresses_without_a_driver(monkeypatch):
    unknown = {"class": "no_such_driver.System", "err": "Install nosuchfs to access it"}
    monkeypatch.setitem(sys.modules["fsspec.registry"].known_implementations, "nosuch", unknown)
    with pytest.raises(
        InputError, match=r"cannot be read \(Install nosuchfs to access it\): install that driver"
    ):
        read("nosuch://bucket/facts.tsv")
    with pytest.raises(InputError, match=r"Protocol not known.*: check its address"):
        read("typo://bucket/facts.tsv")


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ImportError, match=r"pip install fsspec aiohttp"):
        read("s3://bucket/facts.tsv")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ImportError, match=r"needs aiohttp.*pip install fsspec aiohttp"):
        read("https://127.0.0.1/facts.tsv")


# writing


@pytest.mark.parametrize("ending", ["tsv.gz", "parquet"])
def test_what_is_written_elsewhere_is_read_back(ending, memory):
    write(graph_of(FACTS), f"memory://folder/facts.{ending}")
    assert facts_of(read(f"memory://folder/facts.{ending}")) == FACTS
    assert memory.find("/") == [f"/folder/facts.{ending}"]


def test_queries_and_answers_elsewhere(memory, server, tmp_path):
    model = random_model(graph_of(FACTS).vocabulary)
    calibrate(model, graph_of(FACTS)).save(tmp_path / "run")
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(tmp_path / "run"), f"{server}/facts.tsv", "-o", "memory://answers.parquet"])
    assert ended.value.code == 0
    assert facts_of(read("memory://answers.parquet"))[0][:3] == FACTS[0][:3]


def test_nothing_half_written_stays(memory, monkeypatch):
    memory.pipe_file("/answers.tsv", b"of before")
    batch = graph_of(FACTS).table().combine_chunks().to_batches()[0]
    bad = batch.set_column(0, "head", pa.array(["a\tb"] * len(batch)))
    with (
        pytest.raises(InputError, match="cannot be written as TSV"),
        open_output("memory://answers.tsv") as put,
    ):
        any(map(put, [batch, bad]))
    assert memory.find("/") == ["/answers.tsv"]

    def full(*arguments: object, **options: object) -> None:
        raise OSError("no more room")

    monkeypatch.setattr(type(memory), "mv", full)
    with (
        pytest.raises(InputError, match=r"memory://answers.tsv cannot be written \(no more room\)"),
        open_output("memory://answers.tsv") as put,
    ):
        put(batch)
    assert memory.find("/") == ["/answers.tsv"]
    assert memory.cat_file("/answers.tsv") == b"of before"


def test_targets_that_cannot_be_are_refused_before_work(memory, monkeypatch):
    with pytest.raises(InputError, match="https is for reading"):
        check_output("https://example.org/answers.tsv")
    with pytest.raises(InputError, match="does not end in"):
        check_output("memory://answers.xlsx")
    memory.makedirs("/folder.tsv")
    with pytest.raises(InputError, match="is a folder"):
        check_output("memory://folder.tsv")
    check_output("memory://answers.tsv")
    assert memory.find("/") == []

    def denied(*arguments: object, **options: object) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(type(memory), "pipe_file", denied)
    with pytest.raises(InputError, match=r"may not be written \(Access Denied\): check your rights"):
        check_output("memory://answers.tsv")


def test_what_is_an_address():
    assert is_remote("hf://datasets/a/b.tsv")
    for here in ("facts.tsv", "/a//b", "C:\\facts.tsv", Path("s3:/x"), "-", io.BytesIO()):
        assert not is_remote(here)
