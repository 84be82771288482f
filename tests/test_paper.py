"""`make paper`: the kept tables come out of the kept cells, cells agree with the definitions, new models have rows."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("benchmarks.paper", reason="the benchmarks are not part of a source distribution")

from benchmarks.paper import cells, claims, tables
from benchmarks.paper.__main__ import main
from benchmarks.paper.blocks import Block, read_blocks
from benchmarks.paper.intervals import Method, answer, size_curve

KEPT = Path(__file__).parents[1] / "docs" / "reproduction"


@pytest.fixture(scope="module")
def kept() -> list[Block]:
    return read_blocks(KEPT)


def test_the_kept_tables_come_from_the_kept_cells(kept: list[Block]) -> None:
    checks = claims.all_checks(kept, json.loads((KEPT / "scaling.json").read_text()))
    made = {f"{table.name}.md": table.markdown() for table in tables.make_tables(kept, checks)}
    shown = {path.name: path.read_text() for path in (KEPT / "tables").glob("*.md")}
    assert {"table1.md", "table2.md", "table3.md"} <= set(shown)
    assert {name: made[name] for name in shown} == shown
    assert len(made) == 18


def scored(n: int = 400) -> dict[str, object]:
    """Scores of four parts around invented labels, the first test score unknown."""
    rng = np.random.default_rng(0)
    names = ("calibration", "calibration_negatives", "test", "negatives")
    truth = {name: np.zeros(n) if "negatives" in name else rng.random(n) for name in names}
    scores = {name: np.clip(label + rng.normal(0, 0.2, n), 0.01, 0.99) for name, label in truth.items()}
    scores["test"][0] = np.nan
    taus = (0.025, 0.05, 0.075, 0.1, 0.9, 0.925, 0.95, 0.975)
    quantiles = {tau: {part: scores[part] + tau - 0.5 for part in ("test", "negatives")} for tau in taus}
    return {
        "scores": scores, "truth": truth, "quantiles": quantiles, "free": rng.random(n) < 0.8,
        "statistics": dict.fromkeys(("entities", "relations", "train", "calibration", "test"), n),
        "training": {"best_epoch": 5, "machine": "a machine"},
        "seconds": dict.fromkeys(("training", "quantiles", "scoring"), 1.0),
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paper")
    about = {"protocol": "paper", "data": "cn15k", "model": "mine:Model", "seed": 0, "fingerprint": "x"}
    cells.measure(folder / "cells/paper/cn15k/mine.Model/seed-0.json", about, scored(), cells.METHODS)
    return folder


@pytest.mark.parametrize("part", ["positive", "negative", "combined_positive"])
def test_a_cell_agrees_with_the_definitions(folder: Path, part: str) -> None:
    (block,) = read_blocks(folder)
    given = scored()
    (m, c), asked, _ = cells.asked_of(given, part)
    known, truth = ~np.isnan(asked), given["truth"][cells.JUDGED[part][1]]
    for name, mapped in (("cp", None), ("unkgcp-plain", 0.0), ("unkgcp", 0.5)):
        unit, wide = np.ones_like(m), np.ones_like(asked)
        if mapped is not None:
            p, q = ((1 - mapped) * column + mapped for column in (m, asked))
            unit, wide = (-x * np.log(x) - (1 - x) * np.log(1 - x) for x in (p, q))
        threshold = np.sort(np.abs(m - c) / unit)[math.ceil(9 * (len(m) + 1) / 10) - 1]
        inside = np.where(known, np.abs(asked - truth) / wide <= threshold, True)
        ends = np.clip([asked - threshold * wide, asked + threshold * wide], 0, 1)
        width = np.where(known, ends[1] - ends[0], 1)
        assert block.figure(name, part, "coverage").mean == pytest.approx(inside.mean(), abs=1e-12)
        assert block.figure(name, part, "sharpness").mean == pytest.approx(width.mean(), abs=1e-9)


def test_quantiles_that_cross_change_places_and_intervals_are_nested() -> None:
    base = np.array([0.5, 0.6])
    quantiles = {0.05: base - 0.3, 0.1: base + 0.1, 0.9: base - 0.1, 0.95: base + 0.05}
    ends, doubt = answer(Method("qr"), (base, base), base, quantiles, [0.8, 0.9])
    assert (ends[:, 1] - ends[:, 0]) == pytest.approx(np.tile([0.2, 0.4], (2, 1)))
    assert doubt == pytest.approx([0.4, 0.4])


def test_all_calibration_facts_give_the_figures_of_the_cell(folder: Path) -> None:
    (block,) = read_blocks(folder)
    assert block.sizes("positive") == [10, 20, 40, 80, 160, 320, 400]
    for method, curve in block.curves("positive"):
        for kind in ("coverage", "sharpness"):
            assert curve[kind][-1] == pytest.approx(block.figure(method, "positive", kind).mean, abs=1e-9)


def test_subsets_cover_on_average() -> None:
    """Coverage of random subsets of size 10 at 90 % averages 10/11: four standard errors are allowed."""
    m, y = np.random.default_rng(3).random((2, 4000))
    found = size_curve(Method("cp"), (m[:2000], y[:2000]), (m[2000:], y[2000:]), 1, 0.9, 400)
    assert found["coverage"][0] == pytest.approx(10 / 11, abs=4 * found["coverage_sd"][0] / 20)


def test_a_model_from_outside_has_a_row_everywhere(folder: Path) -> None:
    main(["--tables-only", "-o", str(folder)])
    rows = (folder / "tables" / "table1.md").read_text()
    assert "| CN15k | mine:Model | UnKGCP |" in rows
    page = (folder / "report.html").read_text()
    assert "mine:Model" in page
    assert page.count("<svg ") == 6


def test_a_check_fails_when_its_claim_is_false(kept: list[Block]) -> None:
    blocks = [block for block in kept if block.protocol == "paper"]
    assert claims.validity(blocks).holds
    assert claims.monotonicity(blocks).holds
    cell = json.loads(json.dumps(blocks[0].cells[0]))
    cell["predictors"]["cp"]["positive"]["coverage"][2] = 0.88
    wrong = [replace(blocks[0], cells=[cell])]
    assert claims.validity(wrong).result.endswith("not: cn15k ukge cp (0.8800)")
    cell["predictors"]["cp"]["positive"]["coverage"][3] = 0.5
    assert claims.monotonicity(wrong).holds is False
    cell["predictors"]["cp"]["positive"]["sharpness"][2] = 0.2
    assert claims.sharper_than_cp(wrong).holds is False
    assert "ukge cp (-0.680)" in claims.sharpness_as_published(wrong).result
    cell["errors"]["positive"]["mae"] = 0.5
    assert claims.errors_as_published(wrong).holds is False


def test_the_size_that_is_enough() -> None:
    sizes = [10, 20, 40, 80, 100]
    curve = {"coverage": [0.95, 0.92, 0.905, 0.9, 0.9], "sharpness": [0.6, 0.5, 0.5, 0.5, 0.5]}
    curve["coverage_sd"] = [0.05, 0.03, 0.009, 0.005, 0.0]
    assert claims.enough(sizes, curve) == 40
    assert claims.enough(sizes, {**curve, "coverage_sd": [0.05, 0.03, 0.02, 0.005, 0.0]}) == 80
    # close by chance at a small size, then far again: it does not count
    assert claims.enough(sizes, {**curve, "sharpness": [0.5, 0.5, 0.5, 0.6, 0.5]}) == 100


@pytest.mark.slow
def test_the_same_call_again_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-o", str(tmp_path), "--data", "demo", "--models", "passleaf", "--seeds", "1"]
    small = '{"epochs": 1, "dimension": 4, "negatives": 1}'
    arguments += ["--device", "cpu", "--protocol", "strict", "--settings", small]
    main(arguments)
    assert "training 1 of 1" in capsys.readouterr().out
    main(arguments)
    assert "training" not in capsys.readouterr().out
    path = tmp_path / "cells/strict/demo/passleaf/seed-0.json"
    path.write_text(path.read_text()[:100])
    shutil.rmtree(tmp_path / "tables")
    main(arguments)
    assert "training 1 of 1" in capsys.readouterr().out
    assert (tmp_path / "tables" / "table1.md").exists()
