"""A run answers both directions of a symmetric relation alike, and completes them without what is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.graph.test_symmetry import both_ways, pairs
from tests.worlds import facts_of, random_model
from unkgcp.graph import read
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run import Predictor, calibrate
from unkgcp.run.updates import update

FACTS = both_ways(pairs(500, 45))
LISTED = {row[:3] for row in FACTS}


@pytest.fixture(scope="module", params=["cp", "evidence"])
def predictor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """Fitted on a file with both directions, saved and loaded."""
    if request.param == "evidence":
        pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
    splits = read(FACTS).split(seed=1)
    model = random_model(splits.train.vocabulary, "ukge")
    model = replace(model, facts=KnownFacts.of(splits.train))
    run = tmp_path_factory.mktemp("symmetric") / "run"
    calibrate(model, splits.calibration, request.param).remembering(splits.test).save(run)
    return Predictor.load(run)


def test_both_directions_get_one_answer(predictor: Predictor) -> None:
    forth = [(f"p{i}", "binds", f"p{(7 * i + 3) % 45}") for i in range(45)]
    back = [(t, r, h) for h, r, t in forth]
    one, other = predictor.interval(forth), predictor.interval(back)
    for name in ("score", "lower", "upper", "code"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    rows = other.to_arrow().select(["head", "relation", "tail"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == back, "labels stay as they were asked"


def test_completions_look_on_both_sides_and_leave_out_what_is_known(predictor: Predictor) -> None:
    for label in ("p0", "p7", "p44"):
        tails = predictor.complete(label, "binds", k=20, exclude_known=True).to_arrow()
        heads = predictor.complete(None, "binds", label, k=20, exclude_known=True).to_arrow()
        assert tails["tail"].to_pylist() == heads["head"].to_pylist()
        assert tails["lower"].equals(heads["lower"])
        for row in tails.to_pylist():
            assert (row["head"], "binds", row["tail"]) not in LISTED
        every = predictor.complete(label, "binds", k=99).to_arrow()
        sides = predictor.model.vocabulary.entity_ids(every["tail"]) < predictor.model.vocabulary.entity_ids(
            [label]
        )
        assert len(every) == 45
        assert label == "p0" or 0 < sides.sum() < 45, "candidates are on both sides"
        alone = predictor.interval([(label, "binds", tail) for tail in every["tail"].to_pylist()])
        np.testing.assert_array_equal(every["lower"].to_numpy(), alone.lower)
        np.testing.assert_array_equal(every["score"].to_numpy(), alone.score)


def test_answer_sets_ask_both_ways_alike(predictor: Predictor) -> None:
    tails = predictor.answers("p7", "binds", confidence=0.6)
    heads = predictor.answers(None, "binds", "p7", confidence=0.6)
    assert tails.known == heads.known > 0
    assert tails.candidates == heads.candidates == 45 - tails.known
    facts = facts_of(predictor.model.facts.graph(predictor.model.vocabulary))
    assert not {tail for head, _, tail, _ in facts if head == "p7"} & set(tails.entities.to_pylist())


def test_new_facts_in_either_direction_are_one(predictor: Predictor) -> None:
    week = both_ways([(f"p{i}", "binds", f"new {i}", 0.5) for i in range(30)])
    if predictor.method.evidence is None:
        predictor = replace(
            predictor, model=replace(predictor.model, config=replace(predictor.model.config, epochs=1))
        )
    again = update(predictor, read(week, symmetric="none"))
    record = again.provenance["updates"][-1]
    assert (record["new"], record["repeated"]) == (30, 0)
    assert len(again.known) == len(predictor.known) + 30
