"""The benchmark of strangers: its splits hold what they say, and its figures are those of the definitions."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(
    not BENCHMARKS.exists(), reason="the benchmarks are not part of a source distribution"
)


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import zoo

    yield zoo
    for name in ("zoo", "common"):
        sys.modules.pop(name)


def lines(n: int = 3000) -> list[str]:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 60, (n, 2))
    return [f"e{h}\tr{h % 2}\te{t}\t{c:.3f}" for (h, t), c in zip(ids, rng.random(n), strict=True)]


@pytest.mark.parametrize("by", ["rows", "pairs"])
def test_a_split_has_its_shares_and_keeps_its_units_together(zoo, tmp_path: Path, by: str) -> None:
    given = lines()
    zoo.split(given, by, 0, tmp_path / "parts")
    parts = {part: (tmp_path / "parts" / f"{part}.tsv").read_text().splitlines() for part in zoo.PARTS}
    assert sorted(line for part in parts.values() for line in part) == sorted(given)
    if by == "rows":
        assert [len(part) for part in parts.values()] == [2550, 210, 240]
        return
    pairs = [{frozenset(line.split("\t")[:3:2]) for line in part} for part in parts.values()]
    whole = sum(map(len, pairs))
    assert len(set().union(*pairs)) == whole
    assert [len(part) / whole for part in pairs] == pytest.approx([0.85, 0.07, 0.08], abs=1 / whole)


def test_figures_of_intervals_that_are_known(zoo, tmp_path: Path) -> None:
    zoo.split(lines(), "rows", 0, tmp_path / "parts")
    asked, truth = zoo.facts(tmp_path / "parts", "test")
    missed = np.zeros(len(truth))  # a tenth of them is missed by 0.1, all in one relation
    missed[np.flatnonzero(asked[:, 1] == "r0")[:24]] = 0.1
    found = {"lower": truth + missed, "upper": truth + missed + 0.2, "score": truth + 0.3}
    figures = zoo.judged(found, tmp_path / "parts", 0.9)
    assert figures["coverage"] == pytest.approx(0.9)
    assert figures["width"] == pytest.approx(0.2)
    assert figures["interval score"] == pytest.approx(0.2 + 20 * 0.1 * 0.1)
    assert figures["squared error"] == pytest.approx(0.09)
    assert figures["worst slice"] <= 1 - 24 / (asked[:, 1] == "r0").sum()
