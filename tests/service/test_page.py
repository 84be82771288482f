"""The explorer's sources, without a browser: colours that can be read in both themes, and every file it needs."""

from __future__ import annotations

import re
from itertools import product

import pytest

from unkgcp.service.app import FILES

CSS = FILES["/explorer.css"].read_text(encoding="utf-8")
COLOURS = {
    name: pair
    for name, *pair in re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", CSS)
}
# WCAG 2.2, AA: 4.5 for text, 3 for the edges of controls and for marks
TEXT = [
    *product(("ink", "soft", "accent", "known", "warn"), ("paper", "card")),
    ("ink", "grid"),
    ("soft", "grid"),
    ("card", "accent"),
    ("warn", "warn-paper"),
]
MARKS = [
    *product(("edge", "strong", "score", "known"), ("paper", "card")),
    ("score", "strong"),
    ("score", "range"),
]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("theme", "place"), [("light", 0), ("dark", 1)])
@pytest.mark.parametrize(("pairs", "least"), [(TEXT, 4.5), (MARKS, 3.0)])
def test_colours_can_be_told_apart(
    theme: str, place: int, pairs: list[tuple[str, str]], least: float
) -> None:
    ratios = {pair: contrast(*(COLOURS[name][place] for name in pair)) for pair in pairs}
    assert {pair: round(ratio, 2) for pair, ratio in ratios.items() if ratio < least} == {}


def test_colours_are_named_in_one_place() -> None:
    """A colour written elsewhere would be the same in both themes."""
    rules = CSS.partition(":root[data-theme=light]")[2]
    assert re.findall(r"#[0-9a-f]{3,8}\b", rules) == []


def test_every_file_that_the_page_needs_is_served_beside_it() -> None:
    """By relative addresses, so that a proxy may show the page under any path."""
    sources = {path: file.read_text(encoding="utf-8") for path, file in FILES.items()}
    needed = set(re.findall(r'(?:href|src)="([/\w.-]+\.\w+)"', sources["/"]))
    for path, text in sources.items():
        if path.endswith(".js"):
            needed |= set(re.findall(r'from "\./([\w.]+)"', text))
    assert {f"/{name}" for name in needed - {"openapi.json"}} == set(sources) - {"/"}
    assert [name for name in needed if name.startswith("/")] == []
