"""A monitor that goes on from its state is the monitor that never stopped; other files and other tests are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worlds import scored_facts, small_model
from unkgcp.errors import InputError
from unkgcp.evaluation.monitor import Monitor, monitor_state
from unkgcp.evaluation.monitor.monitor_findings import describe
from unkgcp.evaluation.monitor.monitor_state import Call, counted, resume, save
from unkgcp.graph import Graph, concatenate
from unkgcp.run import Predictor, calibrate


@pytest.fixture(scope="module")
def calibration() -> Graph:
    return scored_facts(small_model(), 300, np.random.default_rng(1))


@pytest.fixture(scope="module", params=["cp", "unkgcp", "fpi"])
def predictor(
    request: pytest.FixtureRequest, calibration: Graph, tmp_path_factory: pytest.TempPathFactory
) -> Predictor:
    folder = tmp_path_factory.mktemp("run") / request.param
    calibrate(small_model(), calibration, request.param).save(folder)
    return Predictor.load(folder)


@pytest.fixture(scope="module")
def cp(calibration: Graph, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder = tmp_path_factory.mktemp("run") / "one"
    calibrate(small_model(), calibration, "cp").save(folder)
    return Predictor.load(folder)


def new(predictor: Predictor, calibration: Graph, **options: Any) -> Monitor:
    own = None if predictor.method.one_threshold else calibration
    return Monitor(predictor, calibration=own, **options)


def sit(monitor: Monitor, path: Path, facts: Graph) -> None:
    """One call: go on from the file, take the facts in, keep the state."""
    calls = resume(monitor, path)
    monitor.update(facts, facts.confidence)
    save(monitor, path, [*calls, Call.of(facts)])


@pytest.mark.parametrize("change", [1.0, 6.0])
def test_sittings_are_one_test(
    predictor: Predictor, calibration: Graph, tmp_path: Path, change: float
) -> None:
    """Labels are full of ties, so that this fails too if every sitting breaks them with the same numbers."""
    facts = scored_facts(small_model(), 240, np.random.default_rng(2), power=change)
    at_once = new(predictor, calibration)
    at_once.update(facts, facts.confidence)
    path = tmp_path / "watch.json"
    for start in (0, 1, 50, 51, 200):
        stop = {0: 1, 1: 50, 50: 51, 51: 200, 200: 240}[start]
        last = new(predictor, calibration)
        sit(last, path, facts[start:stop])
    assert last.look().facts == 240
    assert at_once.broken == (change > 1)
    np.testing.assert_allclose(last.all.martingale.log_capital, at_once.all.martingale.log_capital, rtol=1e-9)
    np.testing.assert_allclose(last.all.path, at_once.all.path, atol=1e-4)
    ours, theirs = describe(last), describe(at_once)
    for name in ("verdict", "alarms", "facts", "unknown", "coverage"):
        assert ours[name] == theirs[name], name
    assert ours["martingale"]["alarm_at"] == theirs["martingale"]["alarm_at"]
    for mine, other in zip(ours["relations"]["rows"], theirs["relations"]["rows"], strict=True):
        for exact in ("relation", "alarm_at"):
            assert mine.pop(exact) == other.pop(exact)
        assert mine == pytest.approx(other, rel=1e-9)


def test_unknown_facts_are_counted_over_the_sittings(cp: Predictor, tmp_path: Path) -> None:
    path = tmp_path / "watch.json"
    for expected in (2, 4):
        monitor = Monitor(cp)
        calls = resume(monitor, path)
        monitor.update([("nobody", "r0", "e2"), ("e1", "?", "e2"), ("e1", "r0", "e2")], [0.5] * 3)
        save(monitor, path, calls)
        assert monitor.look().unknown == expected


def test_an_alarm_stays(cp: Predictor, tmp_path: Path) -> None:
    path, rng = tmp_path / "watch.json", np.random.default_rng(4)
    strange = scored_facts(small_model(), 100, rng, power=9.0)
    sit(Monitor(cp), path, strange)
    monitor = Monitor(cp)
    sit(monitor, path, scored_facts(small_model(), 20, rng))
    assert monitor.broken
    assert monitor.all.alarm_at is not None
    assert monitor.all.alarm_at <= 100


def test_the_same_facts_are_noticed(cp: Predictor) -> None:
    rng = np.random.default_rng(5)
    first, second = scored_facts(small_model(), 30, rng), scored_facts(small_model(), 40, rng)
    calls = [Call.of(first), Call.of(second)]
    assert counted(calls, scored_facts(small_model(), 40, rng), "x.tsv") is None
    assert counted(calls, second, "x.tsv") == 2
    assert counted(calls, first[rng.permutation(30)], "x.tsv") == 1
    other = first.with_confidence(1 - first.confidence)
    assert counted(calls, other, "x.tsv") is None
    with pytest.raises(InputError, match=r"first 40 facts of x\.tsv are those of call 2"):
        counted(calls, concatenate([second, first]), "x.tsv")
    with pytest.raises(InputError, match=r"first 30 facts of x\.tsv are those of call 1"):
        counted(calls, concatenate([first, second]), "x.tsv")
    assert counted([Call.of(first[:3])], first, "x.tsv") is None  # so few may be chance


def test_other_tests_are_refused(cp: Predictor, tmp_path: Path) -> None:
    path = tmp_path / "watch.json"
    facts = scored_facts(small_model(), 30, np.random.default_rng(6))
    sit(Monitor(cp), path, facts)
    for options, words in (
        ({"confidence": 0.8}, r"begun with --confidence 0\.9, not 0\.8"),
        ({"false_alarm": 0.05}, "--false-alarm"),
        ({"seed": 1}, "--seed 0, not 1"),
        ({"by_relation": False}, "--by-relation"),
    ):
        with pytest.raises(InputError, match=words):
            resume(Monitor(cp, **options), path)  # type: ignore[arg-type]
    calibrate(small_model(), facts, "cp").save(tmp_path / "other")
    with pytest.raises(InputError, match="belongs to another run"):
        resume(Monitor(Predictor.load(tmp_path / "other")), path)
    with pytest.raises(InputError, match="for a run on disk"):
        save(Monitor(calibrate(small_model(), facts, "cp")), path, [])


def _deep(found: dict[str, Any], *keys: Any, value: Any) -> dict[str, Any]:
    inner = found["state"]
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return found


Spoil = Callable[[dict[str, Any]], Any]
CAPITAL = ("all", "martingale")
SPOILED: dict[str, Spoil] = {
    "no object": lambda found: [],
    "another format": lambda found: {**found, "format": "x"},
    "no settings": lambda found: {**found, "settings": 7},
    "no calls": lambda found: {**found, "calls": [7]},
    "no state": lambda found: {**found, "state": None},
    "a score less": lambda found: _deep(found, "scores", value=found["state"]["scores"][1:]),
    "a score that is text": lambda found: _deep(found, "scores", 0, value="x"),
    "a score beyond floats": lambda found: _deep(found, "scores", 0, value=10**400),
    "an unknown relation": lambda found: _deep(found, "relations", 0, value=99),
    "a relation beyond 32 bits": lambda found: _deep(found, "relations", 0, value=2**40),
    "other relations": lambda found: _deep(found, "by_relation", value={}),
    "a smaller capital": lambda found: _deep(found, *CAPITAL, "log_capital", value=-50.0),
    "another size": lambda found: _deep(found, *CAPITAL, "size", value=3),
    "shares that do not sum to 1": lambda found: _deep(found, *CAPITAL, "portfolio", 0, value=0.9),
    "fewer densities": lambda found: _deep(found, *CAPITAL, "portfolio", value=[1.0]),
    "an alarm without cause": lambda found: _deep(found, "all", "alarm_at", value=3),
    "unknown facts": lambda found: _deep(found, "unknown", value={"unknown-entity": -1}),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_spoiled_state_is_refused(what: str, cp: Predictor, tmp_path: Path) -> None:
    """Each change is refused even where its sum was made right again."""

    path = tmp_path / "watch.json"
    sit(Monitor(cp), path, scored_facts(small_model(), 30, np.random.default_rng(6)))
    found = json.loads(path.read_text())
    del found["checksum"]
    spoiled = SPOILED[what](found)
    if isinstance(spoiled, dict):
        spoiled["checksum"] = monitor_state._checksum(spoiled)
    path.write_text(json.dumps(spoiled))
    with pytest.raises(InputError, match=r"watch\.json is damaged or no state of a monitor") as caught:
        resume(Monitor(cp), path)
    assert "\n" not in str(caught.value)


def test_damage_is_noticed(cp: Predictor, tmp_path: Path) -> None:
    path = tmp_path / "watch.json"
    sit(Monitor(cp), path, scored_facts(small_model(), 30, np.random.default_rng(6)))
    whole = path.read_text()
    score = json.loads(whole)["state"]["scores"][0]
    for damaged in (whole[:-30], "", "[" * 100_000, "NaN", whole.replace(repr(score), repr(score + 0.01), 1)):
        path.write_text(damaged)
        with pytest.raises(InputError, match="is damaged or no state"):
            resume(Monitor(cp), path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is damaged or no state"):
        resume(Monitor(cp), path)
    path.write_text(whole.replace('"version": 1', '"version": 2'))
    with pytest.raises(InputError, match="has version 2, this program reads 1"):
        resume(Monitor(cp), path)
