"""Addresses and tokens, and a real process: settings from the environment, reloads without a gap, an end in time."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time

import httpx
import numpy as np
import pytest

import unkgcp
from tests.processes import served
from unkgcp.cli import main
from unkgcp.errors import InputError
from unkgcp.run import calibrate
from unkgcp.run.store import RUN
from unkgcp.service import Settings, create_app
from unkgcp.service.server import LOOPBACK_NAMES, TOKEN_VARIABLE, access, listen


@pytest.fixture(autouse=True)
def no_token_around(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.9.1"])
def test_loopback_needs_no_token_but_the_right_name(host):
    assert access(host, None, False) == (None, LOOPBACK_NAMES | {host})
    named = access(host, None, False, ("Proxy.example",))[1]
    assert named == LOOPBACK_NAMES | {host, "proxy.example"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_an_address_others_can_reach_needs_a_token_or_a_clear_word(host):
    with pytest.raises(InputError, match="UNKGCP_WITHOUT_TOKEN"):
        access(host, None, False)
    assert access(host, None, True) == (None, None)
    assert access(host, " secret\n", False) == (b"secret", None)


@pytest.mark.parametrize("token", ["", "\n", "two words", "two\nlines", "\xfc"])
def test_what_is_no_token_is_refused(token):
    with pytest.raises(InputError, match="the token must be one line"):
        access("127.0.0.1", token, False)


def test_addresses_and_names_that_cannot_be_taken_are_refused():
    for host in ("no.such.host.invalid", "x" * 300):
        with pytest.raises(InputError, match="is no address of this machine"):
            listen(host, 8000)
    with listen("127.0.0.1", 0) as taken, pytest.raises(InputError, match="in use"):
        listen("127.0.0.1", taken.getsockname()[1])


def test_a_body_does_not_wait_until_its_head_is_acknowledged():
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.fixture
def run(good, tmp_path):
    good.save(tmp_path / "run")
    return tmp_path / "run"


def other_run(good, others, run, seed):
    confidence = np.random.default_rng(seed).random(len(others))
    calibrate(good.model, others.with_confidence(confidence)).save(run)


def test_a_service_is_set_by_variables_reloads_keeps_what_it_has_and_ends_in_time(good, others, run, triples):
    asked = [tuple(triple) for triple in triples]
    settings = {"UNKGCP_RUNS": str(run), "UNKGCP_MAX_TRIPLES": "50", "UNKGCP_GRACE": "3"}
    with served("--allowed-host", "x.example", UNKGCP_TOKEN="secret", **settings) as (process, url):
        for host, status in (("x.example", 200), ("y.example", 421)):
            headers = {"Host": host, "Authorization": "Bearer secret"}
            assert httpx.get(f"{url}v1/about", headers=headers).status_code == status
        client = unkgcp.Client(url, token="secret")
        assert client.about["max_triples"] == 50
        lowers = [client.interval(asked).lower.tolist()]
        other_run(good, others, run, 1)
        assert client.reload() == ["run"]
        lowers.append(client.interval(asked).lower.tolist())
        other_run(good, others, run, 2)
        process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 60
        while (now := client.interval(asked).lower.tolist()) in lowers:
            assert time.monotonic() < end
            time.sleep(0.1)
        (run / RUN).write_bytes(b"broken")
        with pytest.raises(InputError, match="409: nothing was reloaded, and what was served still is"):
            client.reload()
        assert client.interval(asked).lower.tolist() == now
        start = time.monotonic()
    assert time.monotonic() - start < 3 + 10  # the grace, and ten seconds for a busy machine
    assert process.returncode in (0, 143)


def test_a_reload_over_http_needs_a_token_and_a_folder(client, good):
    assert client.post("/v1/reload").status_code == 403
    from fastapi.testclient import TestClient

    guarded = TestClient(create_app(good, Settings(token=b"secret")))
    answer = guarded.post("/v1/reload", headers={"Authorization": "Bearer secret"})
    assert (answer.status_code, "not the folder of a run" in answer.json()["detail"]) == (409, True)
    assert (
        'unkgcp_reloads_total{outcome="failed"} 1.0'
        in guarded.get("/metrics", headers={"Authorization": "Bearer secret"}).text
    )


REFUSED = [
    (["--host", "0.0.0.0"], {}, "give a token with --token-file"),
    (["--host", "0.0.0.0"], {"UNKGCP_WITHOUT_TOKEN": "perhaps"}, "must be true or false"),
    (["--token-file", "none"], {}, "'none'"),
    (["--access-log", "none/access.log"], {}, "cannot be written"),
    ([], {"UNKGCP_MAX_BODY": "much"}, "must be a whole number"),
    ([], {"UNKGCP_MAX_TRIPLES": "0"}, "max_triples is 0"),
    ([], {"UNKGCP_ROOT_PATH": "kg"}, "give a path such as /kg"),
    ([], {"UNKGCP_PORT": "x"}, "--port"),
    (["other/run"], {}, "two have the same name"),
]


@pytest.mark.parametrize(("arguments", "variables", "words"), REFUSED)
def test_the_command_refuses_in_one_sentence(run, tmp_path, capsys, monkeypatch, arguments, variables, words):
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        main(["serve", "run", *arguments])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert re.fullmatch(r"unkgcp: [^\n]+\n", printed.err)
    assert words in printed.err


def test_what_is_not_installed_is_said(run, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "unkgcp.service.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit):
        main(["serve", str(run)])
    assert "this needs uvicorn" in capsys.readouterr().err
