"""The documents agree with the repository: links and file names exist, guides are short, and an example runs."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]
PAGES += [*sorted(DOCS.rglob("*.md")), *TUTORIALS]
MAP = DOCS / "architecture.md"
OWN = DOCS / "own-models.md"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^()\s]+)\)")
SOURCE_PATH = re.compile(r"(?<![\w/.])(?:src|tests|benchmarks)/[\w./-]+\w")
BENCHMARK = re.compile(r"`make bench-([a-z-]+)`")
ROOM_PATH = re.compile(r"`([a-z]+/[\w/]+\.(?:py|yaml))`")
DOTTED = re.compile(r"`(unkgcp(?:\.\w+)+)`")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors that code hosts give to headings: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(page), re.M)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue  # an address outside the repository
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if is_made(target):
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


def is_made(target: Path) -> bool:
    """Whether `make docs` makes this page: the commands, and one for each room with public names."""
    name = target.name.removesuffix(".md")
    if target.parent != DOCS / "reference":
        return False
    return name == "commands" or bool(getattr(resolve(name), "__all__", ()))


def resolve(name: str) -> Any:
    """The object that a dotted name of the package names; modules are imported on the way."""
    found: Any = import_module("unkgcp")
    whole = "unkgcp"
    for part in name.split(".")[1:]:
        whole += f".{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            found = import_module(whole)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_source_paths_exist(page: Path) -> None:
    assert broken_links(page) == []
    named = set(SOURCE_PATH.findall(page.read_text(encoding="utf-8")))
    named |= {f"benchmarks/{name.replace('-', '_')}.py" for name in BENCHMARK.findall(prose(page))}
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `new` house, at last\n[a](other.md) [b](#a-new-house-at-last) [c](#nowhere) [d](https://x.y)\n"
    )
    assert broken_links(page) == ["other.md", "#nowhere"]


@pytest.mark.parametrize("page", [MAP, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_files_and_names_in_architecture_and_contributing_exist(page: Path) -> None:
    text = prose(page)
    package = ROOT / "src" / "unkgcp"
    assert [
        path for path in ROOM_PATH.findall(text) if not any((at / path).exists() for at in (package, ROOT))
    ] == []
    for name in DOTTED.findall(text):
        resolve(name)
    for door, names in re.findall(r"`(unkgcp\.\w+)`: ((?:`\w+`(?:, )?)+)", text):
        for name in re.findall(r"`(\w+)`", names):
            resolve(f"{door}.{name}")


def test_the_example_of_a_model_of_your_own_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = next(
        text for language, text in FENCE.findall(OWN.read_text(encoding="utf-8")) if language == "python"
    )
    exec(compile(code, OWN.name, "exec"), {})
    assert 0.88 < float(capsys.readouterr().out) < 0.99


def test_guides_are_short() -> None:
    """A guide has at most 900 words, and a paragraph or an entry of a list at most 90."""
    for page in sorted(DOCS.glob("*.md")):
        assert len(page.read_text(encoding="utf-8").split()) <= 900, page.name
        pieces = re.split(r"\n\s*\n|\n(?=\s*- |\d\. |\|)", prose(page))
        assert [piece for piece in pieces if len(piece.split()) > 90 and piece[0] != "|"] == [], page.name
