"""The monitor over a predictor: streams, kinds, relations; one test over many calls and over updates."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worlds import random_model, scored_facts, small_model
from unkgcp.errors import InputError
from unkgcp.evaluation.monitor import Monitor, describe, monitor_text, order_caution, sparkline, watch
from unkgcp.graph import Graph, concatenate
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


@pytest.fixture(scope="module")
def cp(model: Model, calibration: Graph) -> Predictor:
    return calibrate(model, calibration, "cp")


def text(monitor: Monitor, **more: Any) -> str:
    return monitor_text(
        {"state": None, **json.loads(json.dumps(describe(monitor))), **more}, monitor.all.path
    )


def test_one_by_one_is_the_same_as_at_once(predictor: Predictor, model: Model) -> None:
    facts = scored_facts(model, 120, np.random.default_rng(2))
    at_once, one_by_one = Monitor(predictor).update(facts, facts.confidence), Monitor(predictor)
    for row in range(len(facts)):
        one_by_one.update(facts[row : row + 1], facts.confidence[row : row + 1])
    np.testing.assert_allclose(at_once.all.path, one_by_one.all.path, rtol=1e-9)
    for label, stream in at_once.relations.items():
        np.testing.assert_allclose(stream.path, one_by_one.relations[label].path, rtol=1e-9)
    assert at_once.coverage == one_by_one.coverage


def test_coverage_is_that_of_the_intervals(predictor: Predictor, model: Model) -> None:
    facts = scored_facts(model, 200, np.random.default_rng(3))
    monitor = Monitor(predictor, confidence=0.8).update(facts, facts.confidence)
    answer = predictor.interval(facts, 0.8)
    inside = (answer.lower <= facts.confidence) & (facts.confidence <= answer.upper)
    assert monitor.coverage == inside.mean()
    assert monitor.hits_of[:2].tolist() == [int(inside[facts.relation == code].sum()) for code in range(2)]
    if predictor.method.name == "fpi":
        assert monitor.coverage_p_value is None, "no law holds where nothing is promised"
    else:
        assert monitor.coverage_p_value is not None


def test_finds_a_change_and_names_the_relation(predictor: Predictor, model: Model) -> None:
    rng = np.random.default_rng(4)
    same, changed = scored_facts(model, 300, rng), scored_facts(model, 600, rng)
    monitor = Monitor(predictor)
    assert not monitor.update(same, same.confidence).broken
    monitor.update(changed, np.where(changed.relation == 1, 1 - changed.confidence, changed.confidence))
    assert "r1" in monitor.alarms
    assert "r0" not in monitor.alarms
    assert "ALARM" in text(monitor)
    assert text(monitor).splitlines()[-2].startswith("alarm: ")


def test_facts_that_the_run_cannot_judge_are_counted_and_left_out(predictor: Predictor) -> None:
    labels = [("e1", "r0", "e2"), ("nobody", "r0", "e2"), ("e1", "r2", "e2"), ("e39", "r0", "e1")]
    monitor = Monitor(predictor).update(labels, [0.5] * 4)
    assert monitor.facts == 1
    assert monitor.left_out == {"known pair": 0, "new pair": 0, "new entity": 2, "new relation": 1}
    assert "2 about a new entity, 1 about a new relation" in text(monitor)
    nothing = Monitor(predictor).update([("nobody", "r0", "e2")], [0.5])
    assert not nothing.broken
    assert "nothing to compare" in text(nothing)


@pytest.mark.parametrize(
    ("coverage", "p_value", "words"),
    [(0.97, 0.99, "above the level"), (0.8, 1e-9, "probability 1e-09 at most"), (0.8, None, "no law says")],
)
def test_coverage_in_words(cp: Predictor, coverage: float, p_value: float | None, words: str) -> None:
    facts = scored_facts(small_model(), 50, np.random.default_rng(3))
    monitor = Monitor(cp).update(facts, facts.confidence)
    figures = {"confidence": 0.9, "facts": 50, "covered": 40, "coverage": coverage, "p_value": p_value}
    shown = text(monitor, coverage=figures)
    assert words in shown
    assert ("is a sign of its own" in shown) == (p_value == 1e-9), "a low p-value is not passed over"


def test_bad_confidences_are_refused(cp: Predictor) -> None:
    monitor = Monitor(cp)
    for bad in ([0.5, 0.5], [1.5], [float("nan")], [[0.6, 0.4]]):
        with pytest.raises(ValueError, match="confidence"):
            monitor.update([("e1", "r0", "e2")], bad)
    assert monitor.facts == 0


def test_a_sorted_file_is_noticed(model: Model) -> None:
    facts = scored_facts(model, 300, np.random.default_rng(5))
    assert order_caution(facts) is None
    assert "sorted by relation, which" in str(order_caution(facts[np.argsort(facts.relation)]))
    assert order_caution(facts[:1]) is None
    assert sparkline(np.array([-3.0, 0.0, 9.0]), 5.0) == "▁▁█"
    assert sparkline(np.empty(0), 5.0) == ""


# One test over many calls.


@pytest.mark.parametrize("change", [1.0, 6.0])
def test_calls_are_one_test(predictor: Predictor, tmp_path: Path, change: float) -> None:
    """Labels are full of ties, so that this fails too if every call breaks them with the same numbers."""
    facts = scored_facts(small_model(), 240, np.random.default_rng(2), power=change)
    facts = facts[np.unique(facts.keys, return_index=True)[1]]  # a fact that came before is not counted again
    at_once = Monitor(predictor)
    at_once.spend(1 / 2)
    at_once.update(facts, facts.confidence)
    for start, stop in ((0, 1), (1, 50), (50, 51), (51, 200), (200, 240)):
        last, kept = watch(predictor, facts[start:stop], tmp_path / "watch.json")
    assert (kept["calls"], kept["begun"], last.facts) == (5, 1, len(facts))
    assert at_once.broken == (change > 1)
    assert last.alarms == at_once.alarms
    assert last.all.alarm_at == at_once.all.alarm_at
    np.testing.assert_allclose(last.all.path, at_once.all.path, atol=1e-4)
    for label, stream in at_once.relations.items():
        ours = last.relations[label].martingale.log_largest
        np.testing.assert_allclose(ours, stream.martingale.log_largest, rtol=1e-9)
    again, kept = watch(predictor, facts[51:200], tmp_path / "watch.json")
    assert (kept["calls"], kept["new"], again.facts) == (5, 0, len(facts))


def test_callers_at_once_lose_nothing(cp: Predictor, tmp_path: Path) -> None:
    facts = scored_facts(small_model(), 80, np.random.default_rng(2))
    facts = facts[np.unique(facts.keys, return_index=True)[1]]
    with ThreadPoolExecutor(4) as threads:
        parts = [facts[start::4] for start in range(4)]
        found = list(threads.map(lambda part: watch(cp, part, tmp_path / "watch.json")[1]["calls"], parts))
    assert sorted(found) == [1, 2, 3, 4]
    assert watch(cp, facts[:0], tmp_path / "watch.json")[0].facts == len(facts)


def test_other_tests_are_refused(cp: Predictor, tmp_path: Path) -> None:
    path, facts = tmp_path / "watch.json", scored_facts(small_model(), 60, np.random.default_rng(6))
    settings = {"confidence": 0.9, "false_alarm": 0.01, "seed": 0, "by_relation": True}
    watch(cp, facts, path, **settings)
    for name, value in (("confidence", 0.8), ("false_alarm", 0.05), ("seed", 1), ("by_relation", False)):
        with pytest.raises(InputError, match=f"begun with {name} .*, not"):
            watch(cp, facts, path, **{**settings, name: value})
    with pytest.raises(InputError, match="belongs to another run"):
        watch(calibrate(small_model(), facts, "cp"), facts, path, **settings)


def test_damage_is_noticed(cp: Predictor, tmp_path: Path) -> None:
    path, facts = tmp_path / "watch.json", scored_facts(small_model(), 30, np.random.default_rng(6))
    watch(cp, facts, path)
    whole = path.read_bytes()
    capital = whole.replace(b'"log_capital": ', b'"log_capital": 1', 1)
    for damaged in (whole[:-30], b"", b"[" * 100_000, b"NaN", b"my notes", b"\xff\xfe\x00", b"[]", capital):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"watch\.json is damaged or foreign"):
            watch(cp, facts, path)
        assert path.read_bytes() == damaged


# Updates.


def updated(held: list[Graph], updates: int) -> Predictor:
    """The run after so many updates: another model, which saw none of the facts held out."""
    found = calibrate(
        random_model(held[0].vocabulary, dimension=4, unseen=(1, 1), seed=updates), concatenate(held), "cp"
    )
    found.provenance["updates"] = [{}] * updates
    return found


def test_a_test_goes_on_over_an_update_that_holds_its_facts_out(tmp_path: Path) -> None:
    path, facts = tmp_path / "watch.json", scored_facts(small_model(), 260, np.random.default_rng(7))
    facts = facts[np.sort(np.unique(facts.keys, return_index=True)[1])]
    held = [facts[:100]]
    for week in range(1, 4):
        held.append(facts[60 + 40 * week : 100 + 40 * week])
        monitor, kept = watch(updated(held, week), held[-1], path)
        assert (kept["calls"], kept["begun"], kept["calibrating"]) == (week, 1, True)
        assert monitor.facts == 40 * week
        assert "set the thresholds themselves" in monitor_text(
            {"state": kept, **describe(monitor, kept)}, monitor.all.path
        )
        bags = sum(len(bag.scores) for bag in monitor.all.bags.values())
        assert bags == 100 + 40 * week, "every fact is in the bag once"


def test_it_begins_anew_where_counted_facts_are_gone(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(7), tmp_path / "watch.json"
    first, second = scored_facts(small_model(), 100, rng), scored_facts(small_model(), 40, rng)
    strange = scored_facts(small_model(), 100, rng, power=9.0)
    before, kept = watch(updated([first], 0), strange, path)
    assert before.broken
    after, kept = watch(updated([first[:60]], 1), second, path)  # 40 calibration facts were dropped
    assert (kept["begun"], after.facts) == (2, 40)
    assert after.all.log_alarm == pytest.approx(before.all.log_alarm + np.log(6 / 2))
    assert "It has begun 2 times" in monitor_text({"state": kept, **describe(after, kept)}, after.all.path)
