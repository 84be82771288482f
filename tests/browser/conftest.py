"""A real browser for the pages the program makes: Debian's Chromium, headless, driven by playwright.

What it is: `open_page`, which opens an address or a file in a fresh, isolated tab and writes down everything
the page asked for and complained about. Tests are skipped, with the reason, where there is no Chromium or no
playwright.

    def test_page(open_page):
        visit = open_page(path_or_url, width=390, scheme="dark")
        assert visit.problems == [] and visit.outside == []
        visit.page.locator("h1").inner_text()
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.processes import serving
from tests.worlds import random_graph, random_ids, random_model, vocabulary
from unkgcp.graph import Graph, Vocabulary
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run import Predictor, calibrate

Opener = Callable[..., "Visit"]


@dataclass
class Visit:
    """A page that was opened and what happened: `requests` (addresses), `problems` (console, errors)."""

    page: Any
    address: str
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def outside(self) -> list[str]:
        """Requests for anything but the page's own origin (for a file: anything but the file itself)."""
        if self.address.startswith("file:"):
            return [request for request in self.requests if request != self.address]
        scheme, host = self.address.split("/", 3)[0], self.address.split("/", 3)[2]
        return [request for request in self.requests if not request.startswith(f"{scheme}//{host}/")]


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine; install the package chromium to run the browser tests")
    return found


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """One Chromium for a module: playwright keeps an event loop running, which others' tests must not find."""
    import playwright.sync_api as playwright

    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opener]:
    """Opens an address or a file in a new tab of its own context; all of them are closed at the end."""
    contexts = []

    def open_page(
        target: str | Path, *, width: int = 1280, height: int = 900, scheme: str = "light", **options: Any
    ) -> Visit:
        address = target.resolve().as_uri() if isinstance(target, Path) else target
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, **options
        )
        contexts.append(context)
        page = context.new_page()
        visit = Visit(page, address)
        page.on("request", lambda request: visit.requests.append(request.url))
        note = visit.problems.append
        # a request that the page itself took back, because more was typed meanwhile, is no problem
        page.on(
            "requestfailed",
            lambda one: one.failure == "net::ERR_ABORTED" or note(f"{one.url}: {one.failure}"),
        )
        page.on("console", lambda one: one.type in ("error", "warning") and note(f"{one.type}: {one.text}"))
        page.on("pageerror", lambda error: note(f"error: {error}"))
        page.goto(address)
        return visit

    yield open_page
    for context in contexts:
        context.close()


# The run that tests of the explorer ask, and a service over it.

ENTITIES, RELATIONS = 60, 3
SCRIPT, LINES = "<img src=x onerror=alert(1)><script>alert(2)</script>", "Zoë\nof two lines"
LONG, RIGHT_TO_LEFT = "a-very-long-label" * 12, "\u05e9\u05dc\u05d5\u05dd (12) \u05e2\u05d5\u05dc\u05dd"


@pytest.fixture(scope="session")
def predictor() -> Predictor:
    """A small run with unfriendly labels."""
    rng = np.random.default_rng(0)
    labels = [SCRIPT, LINES, RIGHT_TO_LEFT, *(f"Entity {i:02d}" for i in range(3, ENTITIES - 1)), LONG]
    vocabulary = Vocabulary.of(labels, ["likes", "knows", "meets"])
    ids = random_ids(500, ENTITIES, RELATIONS, rng)
    facts = Graph(*ids, rng.random(500).round(3), vocabulary)
    model = random_model(vocabulary)
    # labels near the predictions: the intervals are then neither empty nor the whole range
    near = np.clip(model.score(*ids) + rng.normal(0, 0.08, 500), 0, 1)
    return calibrate(replace(model, facts=KnownFacts.of(facts[:300])), facts.with_confidence(near))


@contextmanager
def behind_nginx(service: str, folder: Path) -> Iterator[str]:
    """The address of the proxy that `deploy/nginx.conf` describes, on a free port, in front of a service at /kg."""
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if nginx is None:
        pytest.skip("nginx is not installed")
    files = f"-keyout {folder}/key.pem -out {folder}/certificate.pem"
    openssl = f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 1 {files}"
    subprocess.run(openssl.split(), check=True, capture_output=True)
    ports = [str(free_port()) for _ in range(2)]
    text = (Path(__file__).parents[2] / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    places = {" /tmp/": f" {folder}/", "/etc/nginx/tls": str(folder), "8080": ports[0], "8443": ports[1]}
    places |= {"unkgcp:8000": service.removeprefix("http://"), "graphs.example.org": "localhost"}
    for name, own in places.items():
        assert name in text
        text = text.replace(name, own)
    (folder / "nginx.conf").write_text(text)
    command = [nginx, "-c", str(folder / "nginx.conf"), "-g", "daemon off;", "-e", str(folder / "error.log")]
    with subprocess.Popen(command) as process:
        try:
            until_listening(int(ports[1]), process)
            yield f"https://localhost:{ports[1]}"
        finally:
            process.terminate()


def until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a program that was just started takes connections."""
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, "it ended"
        assert time.monotonic() < deadline
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
            return
        except OSError:
            time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def address(chromium: str, predictor: Predictor) -> Iterator[str]:
    """A service over the run, for all tests of pages."""
    with serving(predictor) as url:
        yield url


@pytest.fixture(scope="session")
def doubtful_predictor(predictor: Predictor, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """A run from disk, in which confidences are mostly one of two values, and nothing tells which."""
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    vocabulary, rng = predictor.model.vocabulary, np.random.default_rng(1)
    train, calibration = (
        Graph(
            *random_ids(n, ENTITIES, RELATIONS, rng),
            rng.choice([0.4375, 1.0, 0.7], n, p=[0.5, 0.4, 0.1]),
            vocabulary,
        )
        for n in (800, 200)
    )
    run = tmp_path_factory.mktemp("doubtful") / "run"
    calibrate(replace(predictor.model, facts=KnownFacts.of(train)), calibration, "evidence").save(run)
    return Predictor.load(run)


@pytest.fixture(scope="session")
def several(chromium: str, predictor: Predictor, doubtful_predictor: Predictor) -> Iterator[str]:
    """A service over three runs: "doubtful", which answers from evidence, "run", and "single" with one relation."""
    words = vocabulary(20, 1)
    single = calibrate(random_model(words), random_graph(50, words), "cp")
    with serving({"doubtful": doubtful_predictor, "run": predictor, "single": single}) as url:
        yield url
