"""Figures: the same bytes for the same data, text as text, one design; bins are the paper's."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.reports import HOSTILE, summary, write_summary
from unkgcp.errors import InputError
from unkgcp.evaluation.charts import (
    Curve,
    ErrorPanel,
    Panel,
    draw_conditionality,
    draw_levels,
    draw_slices,
)
from unkgcp.evaluation.figure_design import (
    COLOURS,
    INTERVAL_METHODS,
    METHODS,
    MODELS,
    design,
    inline,
    save,
    to_svg,
)
from unkgcp.evaluation.metrics import error_bins, width_by_bin
from unkgcp.evaluation.reproduction.reproduction_page import draw_reproduction, drawings

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


def drawn() -> str:
    curves = {
        name: Curve([0.8, 0.9], [0.8, 0.9], [0.3, 0.4], [0.01, 0.02], None) for name in ("cp", "unkgcp")
    }
    with design():
        return to_svg(draw_levels([Panel("UKGE", curves, [[0.7, 0.8], [0.9, 0.95]])]))


def test_text_is_text_and_bytes_are_the_same() -> None:
    svg = drawn()
    assert {"UKGE", "CP", "UnKGCP", "mean width", "coverage", "80", "90", "level asked for"} <= set(
        texts(svg)
    )
    assert svg == drawn()
    assert "<dc:date>" not in svg


def test_numbers_are_those_that_are_drawn() -> None:
    curves = {
        "cp": Curve([0.8, 0.9], [0.81, 0.9], [0.3, 0.4], [0.01, 0.02], None),
        "best": Curve([0.8, 0.9], None, [0.1, np.nan]),
    }
    with design():
        found = draw_levels([Panel("UKGE", curves, [[0.7, 0.8], [0.9, 0.95]])]).csv()
        alone = draw_slices(["a,b", 'say "c"'], [3, 4], [0.5, 1.0], 0.9).csv()
    assert found.splitlines() == [
        "panel,method,level,mean_width,coverage,coverage_sd",
        "UKGE,cp,0.8,0.3,0.81,0.01",
        "UKGE,cp,0.9,0.4,0.9,0.02",
        "UKGE,best,0.8,0.1,,",
        "UKGE,best,0.9,,,",
        "UKGE,chance from,0.8,,0.7,",
        "UKGE,chance from,0.9,,0.8,",
        "UKGE,chance to,0.8,,0.9,",
        "UKGE,chance to,0.9,,0.95,",
    ]
    assert alone.splitlines() == ["slice,facts,coverage", '"a,b",3,0.5', '"say ""c""",4,1.0']


def test_files_are_the_same_bytes(tmp_path: Path) -> None:
    write_summary(tmp_path, models=("ukge",))
    with design():
        name, draw = next(iter(drawings(summary(models=("ukge",)))))
        first = [path.read_bytes() for path in save(draw(), tmp_path / "a" / name)]
        second = [path.read_bytes() for path in save(draw(), tmp_path / "b" / name)]
    assert first == second
    assert first[0].startswith(b"<?xml")
    assert first[1].startswith(b"\x89PNG")


def test_every_figure_of_a_reproduction_is_written(tmp_path: Path) -> None:
    written = draw_reproduction(write_summary(tmp_path, models=("ukge",)))
    kinds, parts = ("levels", "conditionality", "calibration"), ("positive", "negative")
    expected = {f"{kind}-paper-cn15k-{part}" for kind in kinds for part in parts}
    assert {path.stem for path in written} == expected
    assert all(path.stat().st_size > 5000 for path in written)
    assert len(written) == 2 * len(expected)
    svg = (tmp_path / "figures" / "levels-paper-cn15k-positive.svg").read_text()
    assert {"UKGE", "FPI", "QR", "CP", "UnKGCP"} <= set(texts(svg))
    assert not list(tmp_path.rglob(".partial-*"))


def test_a_plain_entropy_is_never_drawn(tmp_path: Path) -> None:
    with design():
        svg = to_svg(dict(drawings(summary(models=("ukge",))))["levels-paper-cn15k-positive"]())
    assert not any("plain" in text for text in texts(svg))


@pytest.mark.parametrize("content", [None, "{", "[]", '{"cells": 3}'])
def test_a_folder_without_a_summary_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(InputError, match="unkgcp reproduce"):
        draw_reproduction(tmp_path)


@pytest.mark.parametrize("error", [np.zeros(0), np.zeros(3), np.array([0.2])])
def test_bins_of_hardly_any_errors(error: np.ndarray) -> None:
    edges, member = error_bins(error)
    count = np.bincount(member, minlength=30)
    assert count.sum() == len(error)
    panel = ErrorPanel("", edges, count, {"cp": width_by_bin(member, error, error >= 0)[0]})
    with design():
        assert texts(to_svg(draw_conditionality([panel])))


def test_hostile_names_are_drawn_as_they_are() -> None:
    n = np.arange(len(HOSTILE)) + 5
    with design():
        svg = to_svg(draw_slices(HOSTILE, n, np.full(len(HOSTILE), 0.9), 0.9, [(0.8, 1.0)] * len(HOSTILE)))
    assert ET.fromstring(svg) is not None
    assert not re.search(r"<(script|img)\b", svg)
    inlined = inline(svg, "slices", 'said "so" & <so>')
    page = ET.fromstring(inlined)
    shown = ["".join(node.itertext()) for node in page.iter("text")]
    assert "$\\frac{1}{" in shown
    assert HOSTILE[4] in shown, "text between tags must stay as it is"
    assert "東京 & «Zürich»" in shown
    assert page.get("aria-label") == 'said "so" & <so>'


def test_inlined_figures_have_their_own_ids_and_load_nothing() -> None:
    first, second = (inline(drawn(), name, "") for name in ("a", "b"))
    ids = [re.findall(r' id="([^"]+)"', figure) for figure in (first, second)]
    assert ids[0]
    assert not set(ids[0]) & set(ids[1])
    for figure, own in zip((first, second), ids, strict=True):
        used = set(re.findall(r'href="#([^"]+)"', figure)) | set(re.findall(r"url\(#([^)]+)\)", figure))
        assert used
        assert used <= set(own)
        assert "http" not in figure
        assert not re.search(r"#[0-9a-f]{6}", figure), "every colour is the page's"


def test_series_differ_in_more_than_colour() -> None:
    for looks in (METHODS, INTERVAL_METHODS, MODELS):
        assert len({look.colour for look in looks.values()}) == len(looks)
        assert len({look.marker for look in looks.values()}) == len(looks)
        assert {look.colour for look in looks.values()} <= set(COLOURS.values())


def test_colours_are_told_apart_by_colour_blind_readers() -> None:
    """Every pair of methods stays apart as deuteranopes and protanopes see it (Viénot's projection)."""
    from_rgb = np.array(
        [[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]]
    )
    projections = {
        "protan": np.array([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]]),
        "deutan": np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]]),
    }
    rgb = np.array([[int(look.colour[i : i + 2], 16) for i in (1, 3, 5)] for look in METHODS.values()])
    for project in projections.values():
        seen = (np.linalg.inv(from_rgb) @ project @ from_rgb @ (rgb.T / 255) ** 2.2).T
        seen = np.clip(seen, 0, 1) ** (1 / 2.2) * 255
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + np.eye(len(seen)) * 1e9
        assert apart.min() > 30


def test_without_the_drawing_library_one_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'unkgcp\[plot\]'"):
        draw_reproduction(write_summary(tmp_path))
