"""A real process on a real port: addresses, tokens, slow and broken connections."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from unkgcp.cli import main
from unkgcp.errors import InputError
from unkgcp.service.server import LOOPBACK_NAMES, TOKEN_VARIABLE, Address, access, listen, read_token


@pytest.fixture(autouse=True)
def no_token_around(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.9.1"])
def test_loopback_needs_no_token_but_the_right_name(host):
    token, hosts = access(Address(host, 8000), None, False)
    assert token is None
    assert hosts == LOOPBACK_NAMES | {host}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_an_address_others_can_reach_needs_a_token_or_a_clear_word(host, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="--without-token"):
        access(Address(host, 8000), None, False)
    assert access(Address(host, 8000), None, True) == (None, None)
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert access(Address(host, 8000), str(file), False) == (b"secret", None)
    monkeypatch.setenv(TOKEN_VARIABLE, "other")
    assert access(Address(host, 8000), None, False) == (b"other", None)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"two\nlines", b"\xc3\xbc"])
def test_a_file_without_a_token_is_refused(tmp_path, content):
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(InputError, match="holds no token"):
        read_token(str(file))


def test_a_missing_token_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")  # does not stand in for the file that was named
    with pytest.raises(InputError, match="cannot be read"):
        read_token(str(tmp_path / "none"))


def test_a_strange_host_or_port_is_refused():
    for address in (
        Address("no.such.host.invalid", 8000),
        Address("127.0.0.1", 70_000),
        Address("x" * 300, 1),
    ):
        with pytest.raises(InputError):
            listen(address)
    for port in (-1, 65536):
        with pytest.raises(InputError, match=f"--port {port} is no port"):
            access(Address("127.0.0.1", port), None, False)


def test_a_port_in_use_is_refused():
    with listen(Address("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="in use"):
        listen(Address("127.0.0.1", taken.getsockname()[1]))


@pytest.fixture(scope="module")
def run(predictor, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "run"
    predictor.save(folder)
    return folder


START = """
from unkgcp.service import Settings
from unkgcp.service.server import Address, serve
import sys
settings = Settings(body_seconds=0.3, max_body=100_000)
serve(sys.argv[1], Address("127.0.0.1", 0), settings, lambda url: print(url, flush=True))
"""


@pytest.fixture(scope="module")
def service(run):
    """A service that waits 0.3 s for a body and 1.3 s for a request; its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    address = process.stdout.readline().strip()
    assert address, process.stderr.read()
    httpx.get(f"{address}health", timeout=30)
    yield address
    process.send_signal(signal.SIGTERM)
    _, complaints = process.communicate(timeout=20)
    assert complaints == ""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_stop_the_command_says_nothing(run, how):
    command = [sys.executable, "-m", "unkgcp", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = process.stdout.readline().split()[-1]
    httpx.get(f"{address}health", timeout=30)
    process.send_signal(how)
    _, complaints = process.communicate(timeout=20)
    assert (process.returncode, complaints) == (143, "")


def raw(address: str, sent: bytes, seconds: float = 5.0) -> bytes:
    """What a connection gets back for these bytes, until it is closed or nothing more comes."""
    host, port = re.match(r"http://([\d.]+):(\d+)/", address).groups()
    received = b""
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(sent)
        try:
            while part := connection.recv(65536):
                received += part
        except (TimeoutError, ConnectionResetError):
            pass
    return received


HEAD = b"POST /v1/intervals HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_slow_body_gets_its_sentence(service):
    answer = raw(service, HEAD + b"Content-Length: 50\r\n\r\n{", seconds=3)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within 0.3 seconds" in answer


def test_an_oversized_body_gets_its_sentence(service):
    big = b'{"triples": [' + b" " * 3_000_000 + b"]}"
    answer = httpx.post(f"{service}v1/intervals", content=big, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    declared = raw(service, HEAD + b"Content-Length: 99999999999\r\n\r\n", seconds=2)
    assert declared.startswith(b"HTTP/1.1 413")
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b" " * 65536 + b"\r\n"
    assert raw(service, chunked + b"10000\r\n" + b" " * 65536 + b"\r\n", 2).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=range(9),
)
def test_what_is_no_http_harms_nothing(service, sent):
    answer = raw(service, sent, seconds=1)
    assert answer == b"" or re.match(rb"HTTP/1.1 [24]\d\d ", answer)
    assert httpx.get(f"{service}health").status_code == 200


def test_a_request_that_never_arrives_is_hung_up_on(service):
    start = time.monotonic()
    assert raw(service, b"GET / HTTP/1.1\r\nHost: local", seconds=60) == b""
    assert time.monotonic() - start > 1


def test_the_command_refuses_in_one_sentence(tmp_path, run, capsys):
    with listen(Address("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments in (
            [str(tmp_path / "none"), "--port", "0"],
            [str(run), "--host", "0.0.0.0"],
            [str(run), "--port", port],
            [str(run), "--token-file", str(tmp_path / "none")],
        ):
            with pytest.raises(SystemExit) as ended:
                main(["serve", *arguments])
            printed = capsys.readouterr()
            assert (ended.value.code, printed.out) == (2, "")
            assert re.fullmatch(r"unkgcp: [^\n]+\n", printed.err)


def test_the_command_serves_and_stops(run):
    command = [sys.executable, "-m", "unkgcp", "serve", str(run), "--port", "0"]
    environment = {**os.environ, TOKEN_VARIABLE: "secret"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        address = process.stdout.readline().split()[-1]
        assert httpx.get(f"{address}v1/about", timeout=30).status_code == 401
        headers = {"Authorization": "Bearer secret"}
        assert httpx.get(f"{address}v1/about", headers=headers).json()["model"] == "ukge"
        assert "server" not in httpx.get(f"{address}health").headers
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=20)
    assert process.returncode == 0
    assert complaints == "unkgcp: stopped\n"


def test_without_the_extra_the_remedy_is_named(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit) as ended:
        main(["serve", str(run)])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "unkgcp: the service needs uvicorn: pip install 'unkgcp[serve]'\n"


def test_nothing_is_written_to_the_run(run, service):
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert httpx.get(f"{service}v1/about").status_code == 200
    httpx.post(f"{service}v1/intervals", json={"triples": [["a", "b", "c"]]})
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before
