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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for a module: playwright keeps an event loop running, which others' tests must not find."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine; install the package chromium to run the browser tests")
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
        page.on("requestfailed", lambda request: _note_failure(visit, request))
        page.on("console", lambda message: _note(visit, message))
        page.on("pageerror", lambda error: visit.problems.append(f"error: {error}"))
        page.goto(address)
        return visit

    yield open_page
    for context in contexts:
        context.close()


def _note_failure(visit: Visit, request: Any) -> None:
    """A request that came to nothing, unless the page itself took it back because more was typed meanwhile."""
    if request.failure != "net::ERR_ABORTED":
        visit.problems.append(f"failed: {request.url} ({request.failure})")


def _note(visit: Visit, message: Any) -> None:
    if message.type in ("error", "warning"):
        visit.problems.append(f"{message.type}: {message.text}")
