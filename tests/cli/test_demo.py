"""`unkgcp demo`: the whole way, here with a training of seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unkgcp.cli.demo import report_on
from unkgcp.evaluation import demonstration
from unkgcp.graph import demo_graph
from unkgcp.graph.demo_graph import generate
from unkgcp.run import Predictor
from unkgcp.training import TrainConfig, config_for

NAMES = ("evidence", "fpi", "cp", "unkgcp")


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixth of the demo graph, and a training of seconds; `make test-wheel` runs it on all of the graph."""
    world = generate()
    graph = world.graph
    common = np.argsort(-np.bincount(np.concatenate([graph.head, graph.tail])))[:600]
    part = graph[np.isin(graph.head, common) & np.isin(graph.tail, common)][::2]  # no entity is unknown to it
    monkeypatch.setattr(demo_graph, "generate", lambda: world._replace(graph=part))

    def config(model: str, data: str) -> TrainConfig:
        return replace(config_for(model, data), dimension=8, epochs=4, negatives=1, validate_every=2)

    monkeypatch.setattr(demonstration, "config_for", config)


@pytest.mark.usefixtures("_quick")
def test_demo(tmp_path: Path, run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[dict[str, Any]] = []
    usual = demonstration.comparison
    monkeypatch.setattr(demonstration, "comparison", lambda *of: kept.append(usual(*of)) or kept[0])
    outcome = run_command("demo", "-o", tmp_path / "run")
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert max(map(len, lines[:-2])) <= 80
    rows = {name: line[14:].split() for line in lines for name in NAMES if line.startswith(f"{name} ")}
    (best,) = (line.split()[2:] for line in lines if line.startswith("best possible "))
    for _, _, score in rows.values():
        assert float(best[2]) < float(score), "nobody beats the oracle"
        assert float(rows["evidence"][2]) <= float(score)
    drawn = [line for line in lines if line.endswith("|")]
    assert len(drawn) == demonstration.EXAMPLES
    assert all("[" in line or "●" in line or "x" in line for line in drawn)
    assert f"unkgcp evaluate {tmp_path / 'run'}" in outcome.out
    assert Predictor.load(tmp_path / "run").method.name == "evidence", (
        "intervals of the best method are drawn and kept"
    )
    assert str(tmp_path / "run" / "report.html") in outcome.out
    assert run_command("evaluate", tmp_path / "run").status == 0

    (figures,) = kept
    place = figures["levels"].index(demonstration.MAIN)
    for name in NAMES:
        of = figures["methods"][name]
        shown = [f"{of[figure][place]:.3f}" for figure in ("coverage", "sharpness", "interval_score")]
        assert shown == rows[name]
    del figures["methods"]["evidence"]
    assert "evidence is left out: it needs LightGBM" in demonstration.comparison_text(figures)
    for name in ("fpi", "cp", "unkgcp"):
        del figures["methods"][name]
    without = demonstration.comparison_text(figures)
    assert "the paper's methods are left out: they need torch (pip install torch numba)" in without
    assert "UKGE" not in without


def test_without_the_drawing_library_the_demo_only_notes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = report_on("some-run")
    assert said.startswith("There is no report")
    assert "pip install matplotlib" in said
    assert "unkgcp report some-run" in said
