"""The documents agree with the repository: links and file names exist, guides are short, and an example runs."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.test_public_names import resolve
from unkgcp.methods.intervals import Intervals

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]
PAGES += [*sorted(DOCS.rglob("*.md")), *TUTORIALS]
GUIDES = sorted(DOCS.glob("*.md"))
MAP = DOCS / "architecture.md"
OWN = DOCS / "own-models.md"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^()\s]+)\)")
SOURCE_PATH = re.compile(r"(?<![\w/.])(?:src|tests|benchmarks)/[\w./-]+\w")
BENCHMARK = re.compile(r"`make bench-([a-z-]+)`")


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
    return name == "commands" or bool(getattr(import_module(name), "__all__", ()))


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


def test_the_doors_in_the_map_of_the_rooms_open() -> None:
    for door, names in re.findall(r"`(unkgcp\.\w+)`: ((?:`\w+`(?:, )?)+)", prose(MAP)):
        for name in re.findall(r"`(\w+)`", names):
            resolve(f"{door}.{name}")
    for room, file, name in re.findall(r"`(\w+)/(\w+)\.py` \(`([\w.]+)`", prose(MAP)):
        resolve(f"unkgcp.{room}.{file}.{name}")


def test_documented_columns_of_answers_are_written() -> None:
    table = (
        (DOCS / "predicting.md").read_text(encoding="utf-8").partition("| column |")[2].partition("\n\n")[0]
    )
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])}
    assert {"score", "value", "selected"} <= named <= {*Intervals.__dataclass_fields__, "status", "promise"}


def test_the_example_of_a_model_of_your_own_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = next(
        text for language, text in FENCE.findall(OWN.read_text(encoding="utf-8")) if language == "python"
    )
    exec(compile(code, OWN.name, "exec"), {})
    assert 0.88 < float(capsys.readouterr().out) < 0.99


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_can_be_read(page: Path) -> None:
    """At most 900 words, 90 in a paragraph or an entry of a list, 3 figures in a sentence; first what one gets."""
    text = prose(page)
    assert len(page.read_text(encoding="utf-8").split()) <= (500 if page.stem == "billion" else 900)
    pieces = re.split(r"\n\s*\n|\n(?=\s*- |\d\. |\|)", text)
    assert [piece for piece in pieces if len(piece.split()) > 90 and piece[0] != "|"] == []
    plain = re.sub(r"^(?: {4}|\||#|\d+\. ).*$|`[^`]*`|\]\([^)]*\)", "", text, flags=re.M)
    sentences = re.split(r"(?<=[.!?])[\s*]+|\n\s*\n|\n\s*- ", plain)
    assert [each for each in sentences if len(re.findall(r"(?<![\w.,])\d[\d,.]*", each)) > 3] == []
    if page.stem not in ("index", "architecture", "billion"):
        assert "You get" in " ".join(text.split()[:160])
