"""Figures: the same bytes for the same data, text as text, hostile names as they are, nothing loaded."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

from tests.evaluation.reports import HOSTILE
from unkgcp.evaluation.charts import draw_levels, draw_slices
from unkgcp.evaluation.figure_design import design, image, inline

SVG = "{http://www.w3.org/2000/svg}"


def levels(bands: list[tuple[float, float]] | None = None) -> Any:
    return draw_levels([0.8, 0.9], [0.81, 0.9], [0.3, 0.4], [0.5, 0.6], bands)


def test_text_is_text_and_bytes_are_the_same() -> None:
    with design():
        (svg, png), again = (
            [image(levels([(0.7, 0.9), (0.8, 0.95)]), kind) for kind in ("svg", "png")] for _ in "ab"
        )
    shown = {"".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")}
    assert {
        "mean width",
        "coverage",
        "80",
        "90",
        "level asked for",
        "chance allows",
        "knowing nothing",
    } <= shown
    assert [svg, png] == again
    assert b"<dc:date>" not in svg
    assert png.startswith(b"\x89PNG")


def test_hostile_names_are_drawn_as_they_are() -> None:
    n = len(HOSTILE)
    with design():
        drawing = draw_slices(HOSTILE, [5] * n, [0.9] * n, 0.9, [(0.8, 1.0)] * n)
        svg = image(drawing, "svg").decode()
    assert not re.search(r"<(script|img)\b", svg)
    page = ET.fromstring(inline(svg, "slices", 'said "so" & <so>'))
    shown = ["".join(node.itertext()) for node in page.iter("text")]
    assert "$\\frac{1}{" in shown
    assert HOSTILE[4] in shown, "text between tags must stay as it is"
    assert "東京 & «Zürich»" in shown
    assert page.get("aria-label") == 'said "so" & <so>'


def test_inlined_figures_have_their_own_ids_and_load_nothing() -> None:
    with design():
        svg = image(levels(), "svg").decode()
    figures = [inline(svg, name, "") for name in ("a", "b")]
    ids = [set(re.findall(r' id="([^"]+)"', figure)) for figure in figures]
    assert ids[0]
    assert not ids[0] & ids[1]
    for figure, own in zip(figures, ids, strict=True):
        used = set(re.findall(r'href="#([^"]+)"', figure)) | set(re.findall(r"url\(#([^)]+)\)", figure))
        assert used
        assert used <= own
        assert "http" not in figure
        assert not re.search(r"#[0-9a-f]{6}", figure), "every colour is the page's"
