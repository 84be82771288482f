"""Downloads against a local server that truncates, corrupts, stalls and answers errors."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from unkgcp.errors import InputError
from unkgcp.graph import datasets, fetching
from unkgcp.graph.fetching import FetchError, Patience, blob_id, fetch

CONTENT = {
    "train.tsv": b"".join(b"a%d\tr\tb\t0.5\r\n" % i for i in range(20_000)),
    "val.tsv": b"a\tr\tb\t0.25\n",
}
PATIENT = Patience(timeout=60, attempts=3, pause=0.01)
QUICK = Patience(timeout=0.4, attempts=3, pause=0.01)  # for servers that are silent on purpose


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Server:
    """Serves CONTENT under /<name>/<file>; `trouble(handler, body)` may answer in its place."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.trouble: Callable[[BaseHTTPRequestHandler, bytes], bool] = lambda *_: False
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                body = CONTENT.get(self.path.rsplit("/", 1)[1])
                if body is None:
                    self.send_error(404)
                    return
                if server.trouble(self, body):
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/mirror/"

    @property
    def of_train(self) -> list[str]:
        return [path for path in self.requests if path.endswith("/train.tsv")]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    official = {file: git_blob(body) for file, body in CONTENT.items()}
    monkeypatch.setattr(fetching, "OFFICIAL", {"tiny": official})
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def once(trouble: Callable[[BaseHTTPRequestHandler, bytes], None]):
    """Trouble with the first request only."""
    seen = []

    def first(handler: BaseHTTPRequestHandler, body: bytes) -> bool:
        if seen:
            return False
        seen.append(True)
        trouble(handler, body)
        return True

    return first


def answering(
    change: Callable[[bytes], bytes], announced: bool = True, wait: float = 0.0
) -> Callable[[BaseHTTPRequestHandler, bytes], None]:
    """Another content, perhaps without its length, and then silence."""

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(200)
        if announced:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(change(body))
        handler.wfile.flush()
        time.sleep(wait)

    return answer


truncate = answering(lambda body: body[: len(body) // 3])
corrupt = answering(lambda body: body[:100] + b"?" + body[101:])
stall = answering(lambda body: body[: len(body) // 3], wait=2 * QUICK.timeout)
unannounced = answering(lambda body: body[:1000], announced=False)  # only the content tells what is missing


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_files_come_and_a_second_call_only_verifies(server, tmp_path):
    folder = fetch("tiny", url=server.url, data_dir=tmp_path, patience=PATIENT)
    assert folder == tmp_path / "tiny"
    assert files(folder) == CONTENT
    assert server.requests == ["/mirror/tiny/train.tsv", "/mirror/tiny/val.tsv"]
    assert fetch("tiny", url=server.url, data_dir=tmp_path, patience=PATIENT) == folder
    assert len(server.requests) == 2


def test_the_default_place_is_the_cache(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path / "elsewhere"))
    assert fetch("tiny", url=server.url, patience=PATIENT) == tmp_path / "cache" / "unkgcp" / "tiny"


def silent(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    time.sleep(2 * QUICK.timeout)


def busy(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_error(503)


@pytest.mark.parametrize("trouble", [truncate, corrupt, silent, stall, unannounced, busy])
def test_trouble_once_is_cured_by_another_attempt(trouble, server, tmp_path):
    server.trouble = once(trouble)
    assert files(fetch("tiny", url=server.url, data_dir=tmp_path, patience=QUICK)) == CONTENT
    assert len(server.of_train) > 1


@pytest.mark.parametrize(
    ("trouble", "sentence", "attempts"),
    [
        (truncate, "not all of the published file", 3),
        (corrupt, git_blob(CONTENT["train.tsv"]), 3),
        (silent, "nothing came for 0.4 seconds", 3),
        (busy, "in 3 attempts: the server answered 503", 3),
        (lambda handler, _: handler.send_error(404), "404", 1),  # a missing file is not asked for again
    ],
)
def test_trouble_for_good_is_one_sentence_and_leaves_nothing(trouble, sentence, attempts, server, tmp_path):
    server.trouble = lambda handler, body: trouble(handler, body) is None
    with pytest.raises(FetchError) as error:
        fetch("tiny", url=server.url, data_dir=tmp_path, patience=QUICK)
    assert sentence in str(error.value)
    assert server.url + "tiny/train.tsv" in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    assert len(server.requests) == attempts


def test_an_endless_answer_is_cut_off(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "LARGEST", 100_000)
    with pytest.raises(FetchError, match="not all of the published file"):
        fetch("tiny", url=server.url, data_dir=tmp_path, patience=PATIENT)
    assert sum(map(len, files(tmp_path).values())) == 0


def test_somebodys_own_file_is_never_replaced(server, tmp_path):
    own = tmp_path / "tiny" / "val.tsv"
    own.parent.mkdir()
    own.write_bytes(b"mine")
    with pytest.raises(InputError, match=r"val\.tsv is there but is not the official file"):
        fetch("tiny", url=server.url, data_dir=tmp_path, patience=PATIENT)
    assert files(tmp_path) == {"val.tsv": b"mine"}
    assert server.requests == []


def test_no_server_no_name_no_address(server, tmp_path):
    with pytest.raises(FetchError, match="connection broke"):
        fetch("tiny", url="http://127.0.0.1:9", data_dir=tmp_path, patience=Patience(1, 2, 0))
    with pytest.raises(InputError, match="the names are tiny"):
        fetch("cn15", data_dir=tmp_path)
    with pytest.raises(InputError, match="no http or https address"):
        fetch("tiny", url="file:///etc", data_dir=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        fetch("tiny", url=server.url, data_dir=tmp_path / "file")


def test_progress_names_the_files_and_ends_at_their_number(server, tmp_path):
    class Log:
        def __init__(self) -> None:
            self.lines: list[tuple[float, str]] = []

        def update(self, done: float, text: str = "") -> None:
            self.lines.append((done, text))

    log = Log()
    fetch("tiny", url=server.url, data_dir=tmp_path, patience=PATIENT, progress=log)
    done = [share for share, _ in log.lines]
    assert done == sorted(done)
    assert done[-1] == len(CONTENT)
    assert (0, "train.tsv") in log.lines


def test_blob_ids_are_those_of_git():
    assert blob_id(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert blob_id(b"hello world\n") == "3b18e512dba79e4c8300dd08aeb37f8e728b8dad"


def test_official_addresses_and_ids_are_well_formed():
    assert set(fetching.OFFICIAL) == {"cn15k", "nl27k", "ppi5k"}
    ids = [blob for files in fetching.OFFICIAL.values() for blob in files.values()]
    assert len(set(ids)) == len(ids) == 17
    assert all(len(blob) == 40 and int(blob, 16) for blob in ids)
