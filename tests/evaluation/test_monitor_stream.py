"""The monitor over a predictor: streams, relations, unknown facts, methods without ranks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.worlds import scored_facts, small_model
from unkgcp.errors import InputError
from unkgcp.evaluation.monitor import Monitor
from unkgcp.evaluation.monitor.monitor_findings import describe, monitor_text, order_caution, sparkline
from unkgcp.graph import Graph
from unkgcp.run import Predictor, calibrate
from unkgcp.training import Model


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model()


@pytest.fixture(scope="module")
def calibration(model: Model) -> Graph:
    return scored_facts(model, 400, np.random.default_rng(1))


@pytest.fixture(scope="module", params=["unkgcp", "cp", "fpi"])
def predictor(request: pytest.FixtureRequest, model: Model, calibration: Graph) -> Predictor:
    return calibrate(model, calibration, request.param)


def watch(predictor: Predictor, calibration: Graph, **options: object) -> Monitor:
    own = None if predictor.method.one_threshold else calibration
    return Monitor(predictor, calibration=own, **options)  # type: ignore[arg-type]


def test_one_by_one_is_the_same_as_at_once(predictor: Predictor, calibration: Graph, model: Model) -> None:
    facts = scored_facts(model, 120, np.random.default_rng(2))
    at_once, one_by_one = watch(predictor, calibration), watch(predictor, calibration)
    at_once.update(facts, facts.confidence)
    for row in range(len(facts)):
        one_by_one.update(facts[row : row + 1], facts.confidence[row : row + 1])
    np.testing.assert_allclose(at_once.all.path, one_by_one.all.path, rtol=1e-9)
    for code, stream in at_once.relations.items():
        np.testing.assert_allclose(stream.path, one_by_one.relations[code].path, rtol=1e-9)
    assert at_once.look() == pytest.approx(one_by_one.look()) or at_once.look().facts == 120
    assert at_once.hits == one_by_one.hits


def test_coverage_is_that_of_the_intervals(predictor: Predictor, calibration: Graph, model: Model) -> None:
    facts = scored_facts(model, 200, np.random.default_rng(3))
    monitor = watch(predictor, calibration, confidence=0.8)
    look = monitor.update(facts, facts.confidence)
    answer = predictor.interval(facts, 0.8)
    inside = (answer.lower <= facts.confidence) & (facts.confidence <= answer.upper)
    assert look.coverage == inside.mean()
    for code in range(2):
        rows = facts.relation == code
        assert (monitor.facts_of[code], monitor.hits_of[code]) == (rows.sum(), inside[rows].sum())
    assert 0 <= monitor.coverage_p_value <= 1


def test_finds_a_change_and_names_the_relation(
    predictor: Predictor, calibration: Graph, model: Model
) -> None:
    rng = np.random.default_rng(4)
    monitor = watch(predictor, calibration)
    same = scored_facts(model, 300, rng)
    assert not monitor.update(same, same.confidence).broken
    changed = scored_facts(model, 600, rng)
    other = np.where(changed.relation == 1, 1 - changed.confidence, changed.confidence)
    look = monitor.update(changed, other)
    assert look.broken
    assert "r1" in look.alarms
    assert "r0" not in look.alarms
    found = describe(monitor)
    assert found["verdict"] == "alarm"
    text = monitor_text(json.loads(json.dumps(found)), monitor.all.path)
    assert "ALARM" in text
    assert text.splitlines()[-2].startswith("alarm: ")


def test_unknown_facts_are_counted_and_left_out(predictor: Predictor, calibration: Graph) -> None:
    labels = [
        ("e1", "r0", "e2"),
        ("nobody", "r0", "e2"),
        ("e1", "r2", "e2"),
        ("e39", "r0", "e1"),
        ("e1", "?", "e2"),
    ]
    monitor = watch(predictor, calibration)
    look = monitor.update(labels, [0.5] * 5)
    assert (look.facts, look.unknown) == (1, 4)
    assert monitor.unknown == {"unknown-entity": 2, "unknown-relation": 2}
    assert "2 unknown-entity, 2 unknown-relation" in monitor_text(describe(monitor), monitor.all.path)


def test_nothing_to_compare(predictor: Predictor, calibration: Graph) -> None:
    monitor = watch(predictor, calibration)
    assert not monitor.update([("nobody", "r0", "e2")], [0.5]).broken
    assert "nothing to compare" in monitor_text(describe(monitor), monitor.all.path)


def test_rates_are_shared_out(model: Model, calibration: Graph) -> None:
    predictor = calibrate(model, calibration, "cp")
    both = Monitor(predictor, false_alarm=0.02)
    assert both.all.log_alarm == pytest.approx(np.log(100))
    assert [stream.log_alarm for stream in both.relations.values()] == pytest.approx([np.log(200)] * 2)
    together = Monitor(predictor, false_alarm=0.02, by_relation=False)
    assert together.all.log_alarm == pytest.approx(np.log(50))
    assert together.relations == {}
    for monitor in (both, together):
        monitor.update(calibration, calibration.confidence)
    said = [monitor_text(describe(monitor), monitor.all.path) for monitor in (both, together)]
    assert ["adjusted p" in text for text in said] == [True, False], "what is not watched is not tabulated"


def test_bad_requests_are_refused(model: Model, calibration: Graph) -> None:
    predictor = calibrate(model, calibration, "cp")
    for options in ({"false_alarm": 0.0}, {"false_alarm": 1.0}, {"confidence": 1.0}):
        with pytest.raises(InputError, match="must lie between"):
            Monitor(predictor, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="keeps no scores"):
        Monitor(calibrate(model, calibration, "fpi"))
    monitor = Monitor(predictor)
    for bad in ([0.5, 0.5], [1.5], [float("nan")], [[0.6, 0.4]]):
        with pytest.raises(ValueError, match="confidence"):
            monitor.update([("e1", "r0", "e2")], bad)
    assert monitor.facts == 0


def test_a_sorted_file_is_noticed(model: Model) -> None:
    facts = scored_facts(model, 300, np.random.default_rng(5))
    assert order_caution(facts) is None
    assert "sorted by relation;" in str(order_caution(facts[np.argsort(facts.relation)])).replace(
        ", which", ";"
    )
    assert order_caution(facts[:1]) is None


def test_sparkline() -> None:
    assert sparkline(np.empty(0), 5.0) == ""
    assert sparkline(np.array([-3.0, 0.0, 9.0]), 5.0) == "▁▁█"
    assert len(sparkline(np.zeros(1000), 5.0)) == 60
