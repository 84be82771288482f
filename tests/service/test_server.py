"""A real process on a real port: addresses, tokens, slow and broken connections."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

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


# the first argument is the run, the second the settings, the third how many seconds the request SEVEN takes
START = """
import json, sys, time
from unkgcp.service import Settings, batching
from unkgcp.service.server import Address, serve
settings, slow, answer = Settings(**json.loads(sys.argv[2])), float(sys.argv[3]), batching.answer

def slowly(predictor, triples, levels):
    if (triples.head == -1).all():
        time.sleep(slow * len(triples.head) / 7)
    return answer(predictor, triples, levels)

batching.answer = slowly
serve(sys.argv[1], Address("127.0.0.1", 0), settings, lambda url: print(url, flush=True))
"""
SEVEN = {"triples": [["nobody", "knows", "nobody"]] * 7}


@contextmanager
def serving(run, slow=0.0, **settings):
    """A service with these settings: its process and its address."""
    command = [sys.executable, "-c", START, str(run), json.dumps(settings), str(slow)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        assert address, process.stderr.read()
        httpx.get(f"{address}health", timeout=30)
        yield process, address
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=30)
        assert complaints == ""
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def service(run):
    """A service that waits 0.3 s for a body and 1.3 s for a request; its address."""
    with serving(run, body_seconds=0.3, max_body=100_000) as (_, address):
        yield address


def place(address: str) -> tuple[str, int]:
    host, port = re.match(r"http://([\d.]+):(\d+)/", address).groups()
    return host, int(port)


def dropped(address: str) -> dict[str, int]:
    """How many clients were dropped, by reason."""
    text = httpx.get(f"{address}metrics", timeout=30).text
    found = re.findall(r'^unkgcp_dropped_connections_total\{why="(\w+)"\} (\d+)$', text, re.M)
    return {why: int(count) for why, count in found}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_stop_the_command_says_nothing(run, how):
    command = [sys.executable, "-m", "unkgcp", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = process.stdout.readline().split()[-1]
    httpx.get(f"{address}health", timeout=30)
    process.send_signal(how)
    _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (143, "")


def raw(address: str, sent: bytes, seconds: float = 5.0) -> bytes:
    """What a connection gets back for these bytes, until it is closed or nothing more comes."""
    received = b""
    with socket.create_connection(place(address), timeout=seconds) as connection:
        connection.sendall(sent)
        try:
            while part := connection.recv(65536):
                received += part
        except (TimeoutError, ConnectionResetError):
            pass
    return received


HEAD = b"POST /v1/intervals HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_slow_body_gets_its_sentence(service):
    answer = raw(service, HEAD + b"Content-Length: 50\r\n\r\n{", seconds=60)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within 0.3 seconds" in answer


def test_an_oversized_body_gets_its_sentence(service):
    big = b'{"triples": [' + b" " * 3_000_000 + b"]}"
    answer = httpx.post(f"{service}v1/intervals", content=big, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    declared = raw(service, HEAD + b"Content-Length: 99999999999\r\n\r\n", seconds=60)
    assert declared.startswith(b"HTTP/1.1 413")
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b" " * 65536 + b"\r\n"
    assert raw(service, chunked + b"10000\r\n" + b" " * 65536 + b"\r\n", 60).startswith(b"HTTP/1.1 413")


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
    if answer.startswith(b"HTTP/1.1 4"):
        assert set(json.loads(answer.partition(b"\r\n\r\n")[2])) == {"error"}
    assert httpx.get(f"{service}health").status_code == 200


def test_a_request_that_never_arrives_is_hung_up_on_and_counted(service):
    before = dropped(service)["slow"]
    start = time.monotonic()
    assert raw(service, b"GET / HTTP/1.1\r\nHost: local", seconds=60) == b""
    assert time.monotonic() - start > 1
    assert raw(service, HEAD + b"Content-Length: 50\r\n\r\n{", seconds=60).startswith(b"HTTP/1.1 408")
    assert dropped(service)["slow"] == before + 2


def ask_without_reading(address: str, triples: int) -> socket.socket:
    """A client that asks for much and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(place(address))
    body = json.dumps(
        {"triples": [["a", "b", "c"]] * triples, "confidence": [0.1 + i / 40 for i in range(20)]}
    ).encode()
    client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return client


def until(found, seconds=60.0):
    """Wait for something to become true; it is asked for ten times a second."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.1)


def test_a_client_that_does_not_read_its_answer_is_dropped_and_counted(run):
    with serving(run, read_seconds=0.5) as (_, address), ask_without_reading(address, 10_000):
        until(lambda: dropped(address)["unread"] == 1)


def test_clients_that_do_not_read_cannot_fill_the_memory(run):
    """Two answers of nearly two megabytes where two may wait: the first is dropped long before its time."""
    with serving(run, read_seconds=600, max_held=2 << 20) as (_, address):
        clients = [ask_without_reading(address, 10_000) for _ in range(2)]
        until(lambda: dropped(address)["unread"] >= 1)
        for client in clients:
            client.close()


def test_bodies_of_all_clients_together_are_bounded(run):
    with serving(run, max_held=100_000) as (_, address):
        with socket.create_connection(place(address)) as client:
            client.sendall(HEAD + b"Content-Length: 99999\r\n\r\n" + b" " * 90_000)
            answers = []

            def refused():
                headers = {"Content-Type": "application/json"}
                answers.append(
                    httpx.post(f"{address}v1/intervals", content=b" " * 20_000, headers=headers, timeout=60)
                )
                return answers[-1].status_code == 429

            until(refused)
            assert set(answers[-1].json()) == {"error"}
        until(
            lambda: httpx.post(f"{address}v1/intervals", json={"triples": []}, timeout=30).status_code == 200
        )


def test_half_open_clients_make_room_for_others(run):
    """Twice as many as there may be, half of them in the middle of a body: whoever has a request is answered."""
    with serving(run, max_connections=20, body_seconds=600) as (_, address):
        halves = (b"GET /health HTTP/1.1\r\nHost: loc", HEAD + b"Content-Length: 50\r\n\r\n{")
        clients = [socket.create_connection(place(address)) for _ in range(40)]
        for i, client in enumerate(clients):
            client.sendall(halves[i % 2])
        assert httpx.get(f"{address}health", timeout=30).status_code == 200
        assert dropped(address)["crowded"] >= 20
        for client in clients:
            client.close()


def test_too_many_clients_with_requests_are_refused_in_a_sentence(run):
    """The third is refused and the two before it are answered. If the third came first, they try again."""
    with serving(run, slow=3.0, max_connections=2) as (_, address), ThreadPoolExecutor(2) as threads:

        def ask():
            return httpx.post(f"{address}v1/intervals", json=SEVEN, timeout=60).status_code

        def third_is_refused():
            busy = [threads.submit(ask) for _ in range(2)]
            time.sleep(0.5)  # so that both are nearly always there first
            third = httpx.get(f"{address}health", timeout=60)
            answered = [one.result() for one in busy]
            if third.status_code == 503:
                assert third.json() == {"error": "too many connections are open; try again later"}
                assert answered == [200, 200]
            return third.status_code == 503

        until(third_is_refused)


def test_told_to_stop_it_answers_what_is_on_its_way(run):
    """A call that takes longer than any fixed grace of a few seconds, and one of which half has arrived."""
    with serving(run, slow=6.0, answer_seconds=20) as (process, address), ThreadPoolExecutor(1) as threads:
        busy = threads.submit(httpx.post, f"{address}v1/intervals", json=SEVEN, timeout=60)
        with socket.create_connection(place(address), timeout=30) as half:
            half.sendall(HEAD + b"Content-Length: 15\r\n\r\n{")
            until(lambda: "unkgcp_requests_in_flight 3\n" in httpx.get(f"{address}metrics", timeout=60).text)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            half.sendall(b'"triples": []}')
            assert half.recv(65536).startswith(b"HTTP/1.1 200")
        assert busy.result().status_code == 200


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
        _, complaints = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.fullmatch(r"\S+ unkgcp: stopped\n", complaints), "with the time, in a log"


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
