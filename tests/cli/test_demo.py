"""`unkgcp demo`: the whole way, here with a training of seconds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unkgcp.evaluation import demonstration
from unkgcp.graph import demo_graph
from unkgcp.graph.demo_graph import generate
from unkgcp.run import Predictor, calibrate
from unkgcp.training import TrainConfig, config_for, train

NAMES = ("fpi", "qr", "cp", "unkgcp", "shortest", "evidence")


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
    monkeypatch.setattr(demonstration, "QUANTILE_EPOCHS", 1)


@pytest.mark.usefixtures("_quick")
def test_demo(tmp_path: Path, run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[dict[str, Any]] = []
    usual = demonstration.comparison
    monkeypatch.setattr(demonstration, "comparison", lambda *of: compared.append(usual(*of)) or compared[0])
    outcome = run_command("demo", "-o", tmp_path / "run")
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    found = [line.split() for line in lines if line.startswith(NAMES)]
    rows, close = ({row[0]: row for row in part} for part in (found[: len(NAMES)], found[len(NAMES) :]))
    assert list(rows) == list(close) == list(NAMES)
    for name in NAMES:  # coverage and width at 90 % stand in both tables
        assert close[name][1:3] == rows[name][5:7]
        assert len(close[name]) == 6
        assert float(close[name][5]) <= float(close[name][4]), "no tenth is worse than the worst one"
    assert float(close["evidence"][3]) < min(float(close[name][3]) for name in NAMES[:-1])
    (band,) = (line.split()[2:] for line in lines if line.startswith("chance allows"))
    for name in ("cp", "unkgcp"):
        for coverage, allowed in zip(rows[name][1::2], band, strict=True):
            low, high = map(float, allowed.split("-"))
            assert low <= float(coverage) <= high
    best, least = (line.split()[2:] for line in lines if line.startswith("best possible"))
    assert all(float(width) < float(ours) for width, ours in zip(best, rows["cp"][2::2], strict=True))
    assert least[1] == best[2]
    assert all(float(least[2]) < float(close[name][3]) for name in NAMES), "nobody beats the oracle"
    drawn = [line for line in lines if line.endswith("|")]
    assert len(drawn) == demonstration.EXAMPLES
    assert all("[" in line or "●" in line or "x" in line for line in drawn)
    assert f"unkgcp evaluate {tmp_path / 'run'}" in outcome.out
    assert Predictor.load(tmp_path / "run").method.name == "unkgcp"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert str(tmp_path / "run" / "report.html") in outcome.out
    assert all(f"<strong>{name}</strong>" in page for name in ("FPI", "QR", "CP", "UnKGCP", "shortest"))
    assert "best possible" in page
    for name in ("cp", "unkgcp", "qr"):  # the page and the terminal say the same
        assert all(
            f"<td>{figure}</td>" in page for figure in (*rows[name][1:], close[name][3], close[name][5])
        )
    assert run_command("evaluate", tmp_path / "run").status == 0

    def again(self: demonstration.Demonstration, report: object) -> Iterator[str]:
        self.figures = compared[0]
        yield "all that"

    monkeypatch.setattr(demonstration.Demonstration, "run", again)
    found = json.loads(run_command("demo", "--json").out)  # the figures behind the text, and nothing else
    assert list(found["methods"]) == list(NAMES)
    for name, of in found["methods"].items():
        shown = [
            f"{figure:.3f}" for pair in zip(of["coverage"], of["sharpness"], strict=True) for figure in pair
        ]
        assert shown == rows[name][1:]
        assert f"{of['interval_score']:.3f}" == close[name][3]


def test_without_lightgbm_the_demo_leaves_evidence_out() -> None:
    graph, oracle = generate()
    splits = graph.split(calibration=0.07, test=0.08, seed=0)
    config = replace(config_for("ukge", "demo"), dimension=4, epochs=1, validate_every=1)
    trained = train(splits.train, config=config)
    predictor = calibrate(trained, splits.calibration, "cp")
    said = demonstration.comparison_text(demonstration.comparison({"cp": predictor}, splits.test, oracle))
    assert demonstration.NO_EVIDENCE in said


def test_without_the_drawing_library_the_demo_only_notes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from unkgcp.cli.demo import report_on

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = report_on("some-run")
    assert said.startswith("There is no report")
    assert "pip install 'unkgcp[plot]'" in said
    assert "unkgcp report some-run" in said


def test_the_folder_is_checked_before_the_work(tmp_path: Path, run_command: Callable[..., Any]) -> None:
    (tmp_path / "precious").write_text("")
    outcome = run_command("demo", "-o", tmp_path)
    assert outcome.status == 2
    assert "is not a run of unkgcp" in outcome.err
    assert outcome.out == ""
