"""New facts join a run: which part they go to, what stays, what is restored, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unkgcp
from tests.worlds import graph_of, mirrored_graph, random_graph, random_model, vocabulary
from unkgcp.errors import InputError
from unkgcp.evaluation import evaluate
from unkgcp.evidence import learn
from unkgcp.graph import Graph
from unkgcp.graph.datasets import Dataset
from unkgcp.graph.facts import concatenate
from unkgcp.graph.kinds import NEW_ENTITY, count_kinds
from unkgcp.methods import create
from unkgcp.methods.evidence_method import EvidenceIntervals
from unkgcp.run import Predictor, calibrate, updates
from unkgcp.run.updates import check, divide, reason_to_learn
from unkgcp.training import Model, TrainConfig, train
from unkgcp.training.model import NoModel

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")


def once(graph: Graph) -> Graph:
    """Each triple in one row."""
    return graph[np.sort(np.unique(graph.keys, return_index=True)[1])]


@pytest.fixture(scope="module")
def splits() -> unkgcp.Splits:
    return once(mirrored_graph(1500, 3)).split(calibration=0.2, test=0.2)


@pytest.fixture(scope="module")
def run(splits: unkgcp.Splits) -> Predictor:
    """Evidence without a model; tests must not change it."""
    evidence = learn(splits.train, rounds=20)
    return calibrate(NoModel.of(splits.train), splits.calibration, "evidence", evidence=evidence)


@pytest.fixture(autouse=True)
def _calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weeks here are unlike what was before; that alone is to change nothing."""
    monkeypatch.setattr(updates, "reason_to_learn", lambda *given: None)


def week(n: int = 200, seed: int = 9) -> Graph:
    """Facts with entities, a relation and confidences that the runs here have not."""
    rng = np.random.default_rng(seed)
    head, tail = rng.integers(40, 80, n), rng.integers(60, 90, n)
    relation = rng.integers(2, 5, n)
    rows = zip(head.tolist(), relation.tolist(), tail.tolist(), rng.random(n).round(3).tolist(), strict=True)
    return once(graph_of([(f"e{h}", f"r{r}", f"e{t}", c) for h, r, t, c in rows]))


def same_answers(one: Predictor, other: Predictor, queries: Graph) -> None:
    before, after = (each.interval(queries, [0.5, 0.9]) for each in (one, other))
    for column in ("score", "lower", "upper", "code"):
        np.testing.assert_array_equal(getattr(after, column), getattr(before, column))


def test_an_updated_run_is_restored_exactly_and_updated_again(run: Predictor, tmp_path: Path) -> None:
    facts = week()
    again = unkgcp.update(run, facts, seed=3)
    assert again.provenance["updates"][0]["learned_again"] is None
    again.save(tmp_path / "run")
    loaded = unkgcp.Predictor.load(tmp_path / "run")
    same_answers(again, loaded, facts)
    known = loaded.interval(facts).code == 0
    assert known.mean() > 0.9, "new entities and relations are known once they have training facts"
    assert (run.interval(facts).code == 0).mean() < 0.6
    for one in (again, loaded):
        assert one.complete(head="e70", relation="r4", k=3).labels is not None
    first, second = (one.complete(head="e70", relation="r4", k=5) for one in (again, loaded))
    np.testing.assert_array_equal(first.score, second.score)
    # the trees are those of before, over a graph that has grown
    before, after = run.method.evidence, loaded.method.evidence
    assert before is not None
    assert after is not None
    for name, array in before.law.elsewhere.arrays().items():
        np.testing.assert_array_equal(after.law.elsewhere.arrays()[name], array)
    np.testing.assert_array_equal(after.evidence.frequent, before.evidence.frequent)
    twice = unkgcp.update(loaded, week(seed=10))
    assert [record["seed"] for record in twice.provenance["updates"]] == [3, 0]
    held, taught = len(run.method.held_out()), len(before.evidence.train)
    assert {record["held_out_rate"] for record in twice.provenance["updates"]} == {held / (held + taught)}


def test_every_fact_has_one_part_and_old_ones_stay_in_theirs(run: Predictor, splits: unkgcp.Splits) -> None:
    facts = week(400)
    division = divide(run, facts, seed=1)
    counts = division.counts()
    assert counts["new"] == len(facts) == counts["to_training"] + counts["to_calibration"]
    assert division.new_train.table().num_rows == counts["to_training"]

    def rows(graph: Graph) -> set[tuple[Any, ...]]:
        return set(zip(*graph.table().to_pydict().values(), strict=True))

    assert rows(division.train) - rows(facts) == rows(splits.train)
    assert rows(division.held) - rows(facts) == rows(splits.calibration)
    assert not rows(division.train) & rows(division.held)
    assert rows(division.held[division.is_new]) == rows(facts) & rows(division.held)
    # labels of held-out facts come behind those of training facts
    used = np.unique(np.concatenate([division.train.head, division.train.tail]))
    only_held = np.setdiff1d(np.concatenate([division.held.head, division.held.tail]), used)
    old = len(run.model.vocabulary.entities)
    assert not len(only_held[only_held >= old]) or only_held[only_held >= old].min() > used.max()
    # an expected share is held out, and another seed holds out others
    assert abs(counts["to_calibration"] - 400 * division.rate) < 5 * np.sqrt(400 * division.rate)
    assert rows(divide(run, facts, seed=2).held) != rows(division.held)


def test_facts_beyond_those_that_calibrate_wait_for_the_next_update(
    run: Predictor, splits: unkgcp.Splits, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(EvidenceIntervals, "max_calibration_facts", 60)
    facts = splits.calibration
    evidence = run.method.evidence
    few = calibrate(run.model, facts, "evidence", evidence=evidence)
    few.save(tmp_path / "run")
    for one in (few, Predictor.load(tmp_path / "run")):
        held = one.method.held_out()
        assert one.method.size == len(one.method.calibration_facts()) == 60 < len(held) == len(facts)
        np.testing.assert_array_equal(np.sort(held.keys), np.sort(facts.keys))
    # which of them calibrate has nothing to do with what they say
    other = calibrate(run.model, facts.with_confidence(facts.confidence[::-1]), "evidence", evidence=evidence)
    np.testing.assert_array_equal(other.method.calibration_facts().keys, few.method.calibration_facts().keys)
    division = divide(few, week())
    assert len(division.held) == len(facts) + division.is_new.sum()


def test_a_known_triple_stays_where_it_is_and_takes_the_newest_confidence(
    run: Predictor, splits: unkgcp.Splits
) -> None:
    taught, held = splits.train[:3], splits.calibration[:2]
    older = concatenate([taught, held]).with_confidence(np.full(5, 0.111))
    newer = concatenate([taught[:2], held]).with_confidence(np.full(4, 0.222))
    division = divide(run, concatenate([older, newer, splits.train[5:9]]))
    assert division.counts() == {
        "new": 0, "to_training": 0, "to_calibration": 0, "changed": 5, "known": 4, "repeated": 4,
    }  # fmt: skip
    for part, sizes in ((division.train, (1, 2)), (division.held, (0, 2))):
        assert tuple(int((part.confidence == value).sum()) for value in (0.111, 0.222)) == sizes
    assert (len(division.train), len(division.held)) == (len(splits.train), len(splits.calibration))


def test_settings_stay_as_they_were_asked_for(splits: unkgcp.Splits, tmp_path: Path) -> None:
    model, evidence = NoModel.of(splits.train), learn(splits.train, rounds=20)
    settings: list[dict[str, Any]] = [
        {"per": "relation,degree", "floor": False},
        {"population": "open", "kinds": ["uniform", "near"]},
    ]
    for asked in settings:
        before = calibrate(model, splits.calibration, "evidence", evidence=evidence, **asked)
        after = unkgcp.update(before, week())
        assert after.method.options() == before.method.options()
        assert after.guarantee == before.guarantee
        after.save(tmp_path / "run")
        same_answers(after, unkgcp.Predictor.load(tmp_path / "run"), splits.test)
        chosen = after.select(splits.test, "confidence >= 0.5", fdr=0.5)
        assert chosen.selected is not None


def test_the_monitor_decides_by_new_training_facts() -> None:
    splits = once(mirrored_graph(4000, 3)).split(calibration=0.1, test=0.4, hold_out="rows")
    evidence = learn(splits.train, rounds=20, kinds=count_kinds(splits.train, splits.calibration))
    method = calibrate(NoModel.of(splits.train), splits.calibration, "evidence", evidence=evidence).method
    assert reason_to_learn(method, splits.test) is None
    other = splits.test.with_confidence(np.random.default_rng(0).random(len(splits.test)))
    assert "unlike those before" in str(reason_to_learn(method, other))


def test_trees_are_learned_again_where_the_monitor_asks_for_it(
    run: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "reason_to_learn", lambda *given: "so it says")
    again = unkgcp.update(run, week())
    assert again.provenance["updates"][0]["learned_again"] == "so it says"
    assert again.method.evidence is not None
    assert again.method.evidence.law.elsewhere is not run.method.evidence.law.elsewhere  # type: ignore[union-attr]


def test_only_new_facts_calibrate_where_that_is_asked_for(run: Predictor, tmp_path: Path) -> None:
    again = unkgcp.update(run, week(400), calibrate_on="new")
    assert again.method.size <= again.provenance["updates"][0]["to_calibration"]
    again.save(tmp_path / "run")
    later = unkgcp.update(unkgcp.Predictor.load(tmp_path / "run"), week(seed=11))
    assert later.method.size > run.method.size, "the old ones waited"
    with pytest.raises(InputError, match=r"too few for confidence 0.9; give more facts"):
        unkgcp.update(run, week(8), calibrate_on="new")


CONFIG = TrainConfig("ukge", dimension=4, batch_size=128, epochs=2, validate_every=1, learning_rate=1e-9)


def test_a_backbone_goes_on_from_its_tables(splits: unkgcp.Splits) -> None:
    model = train(splits.train, config=CONFIG, device="cpu")
    moved = {name: table + np.float32(0.5) for name, table in model.tables.items()}
    before = calibrate(replace(model, tables=moved), splits.calibration, "cp")
    again = unkgcp.update(before, week(), device="cpu")
    entity, old = again.model.tables["entity"], len(model.vocabulary.entities)
    np.testing.assert_allclose(entity[:old], moved["entity"], atol=1e-6)
    assert len(entity) == len(again.model.vocabulary.entities) > old
    assert abs(float(entity[old:].mean())) < 0.25, "new rows begin as they do in training"
    assert again.model.config == CONFIG
    new = again.interval([("e70", "r4", "e71")])
    assert new.status.tolist() == ["ok"]
    afresh = unkgcp.update(before, week(), refit=True, device="cpu")
    assert abs(float(afresh.model.tables["entity"].mean())) < 0.25


def test_evaluation_leaves_out_what_was_taken_in(run: Predictor, splits: unkgcp.Splits) -> None:
    dataset = Dataset("half", splits)
    half = len(splits.test) // 2
    again = unkgcp.update(run, splits.test[:half])
    found = evaluate(again, dataset, [0.9])
    assert found["taken_in"] == half
    assert found["levels"][0]["positive"]["n"] == len(splits.test) - half
    assert not evaluate(run, dataset, [0.9])["taken_in"]
    with pytest.raises(InputError, match="taken in all test facts of half"):
        evaluate(unkgcp.update(run, splits.test), dataset)


def test_refusals(run: Predictor, splits: unkgcp.Splits) -> None:
    def refused(predictor: Predictor, facts: Graph, words: str) -> None:
        with pytest.raises(InputError, match=words):
            unkgcp.update(predictor, facts)

    refused(run, week()[:0], "no fact to take in")
    refused(run, splits.train[:9], "has all of these 9 facts already")
    refused(run, week().with_ends(np.tile([0.2, 0.4], (len(week()), 1))), "have lower and upper")
    refused(replace(run, provenance={"protocol": "paper"}), week(), "also chose its model")
    refused(replace(run, model=replace(run.model, facts=None)), week(), "does not hold its training facts")
    older = run.method.with_models(run.models())
    older.waiting = None
    refused(replace(run, method=older), week(), "does not hold its calibration facts; calibrate it again")
    with pytest.raises(InputError, match="calibrate_on is 'some'"):
        unkgcp.update(run, week(), calibrate_on="some")


def random_run(method: str, **options: Any) -> Predictor:
    """A method around models that know nothing."""
    words = vocabulary(40, 3)
    facts = random_graph(300, words)
    model = replace(random_model(words), facts=NoModel.of(facts[:200]).facts)
    return calibrate(model, facts[200:], method, **options)


def test_methods_that_cannot_grow_say_what_to_do() -> None:
    words = vocabulary(40, 3)
    quantiles: dict[float, Model] = {tau: random_model(words, quantile=tau) for tau in (0.05, 0.95)}
    asked = random_run("qr", quantiles=quantiles)
    with pytest.raises(InputError, match=r"its quantile models know no new entities .* add --refit"):
        check(asked, relearn=False)
    check(asked, relearn=True)
    plain = random_run("cp")
    facts = plain.method.held_out()
    folds = create("cv+", members=[plain.model] * 2, base="cp", fold=np.arange(len(facts)) % 2)
    with pytest.raises(InputError, match=r"cv\+ trains on all of its facts"):
        check(replace(plain, method=folds.calibrate(plain.model, facts)), relearn=True)


def test_a_preview_tells_what_an_update_does(run: Predictor) -> None:
    facts = week()
    told, again = updates.preview(run, facts, seed=3), run.update(facts, seed=3)
    record = again.provenance["updates"][-1]
    assert {name: record[name] for name in told if name in record} == {
        name: value for name, value in told.items() if not name.startswith("new_")
    }
    before = len(run.model.vocabulary.entities)
    assert told["new_entities"] == again.model.vocabulary.entities[before:].to_pylist()
    assert (
        told["new_relations"]
        == again.model.vocabulary.relations[len(run.model.vocabulary.relations) :].to_pylist()
    )


def test_facts_that_were_set_aside_stay_known(run: Predictor, splits: unkgcp.Splits) -> None:
    again = run.remembering(splits.test).update(week())
    keys = again.known.graph(again.model.vocabulary).keys
    assert np.isin(splits.test.over(again.model.vocabulary).keys, keys).all()


def test_an_entity_that_was_new_is_known_after_an_update(run: Predictor) -> None:
    facts = week()
    again = unkgcp.update(run, facts)
    before, after = (one.method.kinds(facts.over(one.model.vocabulary)) for one in (run, again))
    assert (before == NEW_ENTITY).sum() > (after == NEW_ENTITY).sum()
    taught = facts.over(again.model.vocabulary)
    seen = again.model.seen_entities[taught.head] & again.model.seen_entities[taught.tail]
    assert ((after == NEW_ENTITY) == ~seen).all()
    assert seen.mean() > 0.5
