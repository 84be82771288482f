"""The learned distribution: a stored model answers like the original, and its intervals cover."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.worlds import learnable_graph, mirrored_graph
from unkgcp.conformal.ranks import p_exceeds
from unkgcp.errors import InputError
from unkgcp.evidence import EvidenceModel, learn, trees
from unkgcp.evidence.evidence_model import WORK
from unkgcp.evidence.trees import Boosting, Trees
from unkgcp.graph import Graph
from unkgcp.methods import create

lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
FEW = Boosting(rounds=20, leaves=7)


@pytest.fixture(scope="module")
def parts() -> tuple[Graph, Graph, Graph]:
    graph = mirrored_graph(3600, 0)
    order = np.random.default_rng(0).permutation(len(graph))
    return graph[order[:2000]], graph[order[2000:2600]], graph[order[2600:]]


@pytest.fixture(scope="module")
def model(parts: tuple[Graph, Graph, Graph]) -> EvidenceModel:
    return learn(parts[0], rounds=20)


def test_trees_say_what_lightgbm_says() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1500, 6)).astype(np.float32)
    table[rng.random(table.shape) < 0.2] = np.nan
    table[:, 5] = np.nan_to_num(table[:, 5])  # a column without missing values
    label = (np.nan_to_num(table[:, 0]) > 0).astype(int) + 2 * (table[:, 5] > 0.5)
    settings = {"objective": "multiclass", "num_class": 4, "verbosity": -1, "num_threads": 1}
    booster = lightgbm.train(settings, lightgbm.Dataset(table, label), 5)
    from unkgcp.evidence.trees import from_lightgbm

    trees = from_lightgbm(booster.model_to_string(), 6, np.arange(4), 4, np.zeros(4), 5)
    asked = np.concatenate([table, np.full((1, 6), np.nan, np.float32)])
    np.testing.assert_allclose(trees.probabilities(asked), booster.predict(asked), rtol=1e-12, atol=1e-15)


def test_it_learns_to_copy(model: EvidenceModel, parts: tuple[Graph, Graph, Graph]) -> None:
    test = parts[2]
    error = np.abs(model.distribution(test).centre.median - test.confidence)
    spread = np.abs(np.median(parts[0].confidence) - test.confidence)
    assert error.mean() < 0.75 * spread.mean()


def test_coverage_is_within_the_exact_law(model: EvidenceModel, parts: tuple[Graph, Graph, Graph]) -> None:
    """Beta-binomial; a predictor off by a tenth fails. False alarm: one in a million, and ties only raise coverage."""
    _, calibration, test = parts
    predictor = create("evidence", evidence=model, per="none").calibrate(model, calibration)
    result = predictor.interval(test, [0.5, 0.8, 0.95])
    for place, level in enumerate((0.5, 0.8, 0.95)):
        k = -int(-level * (predictor.size + 1) // 1)
        law = stats.betabinom(len(test), k, predictor.size + 1 - k)
        inside = (result.lower[:, place] <= test.confidence) & (test.confidence <= result.upper[:, place])
        assert law.cdf(inside.sum()) > 1e-6
    p_value = predictor.rankings.p_values(predictor.nonconformity(test, test.confidence), [None])  # type: ignore[attr-defined]
    inside = (result.lower[:, 1] <= test.confidence) & (test.confidence <= result.upper[:, 1])
    np.testing.assert_array_equal(inside, p_exceeds(p_value, predictor.size, 0.8))


def test_a_model_that_knows_nothing_still_covers(parts: tuple[Graph, Graph, Graph]) -> None:
    """The guarantee does not depend on the distribution: with shuffled confidences intervals are wide, but cover."""
    train, calibration, test = parts
    shuffled = train.with_confidence(np.random.default_rng(1).permutation(train.confidence))
    wrong = learn(shuffled, rounds=20)
    result = create("evidence", evidence=wrong, per="none").calibrate(wrong, calibration).interval(test, 0.8)
    inside = (result.lower <= test.confidence) & (test.confidence <= result.upper)
    law = stats.betabinom(len(test), 481, 120)
    assert law.cdf(inside.sum()) > 1e-6


def test_confidences_in_a_sliver_of_the_range_are_answered_there() -> None:
    """As narrow, beside the range of the confidences, as where they fill [0, 1]; no mass lies outside that range."""
    graph, low, size = learnable_graph(1500), 0.9986, 0.0008
    sliver = graph.with_confidence(np.round(low + size * graph.confidence, 9))
    widths = []
    for facts, scale in ((graph, 1.0), (sliver, size)):
        distribution = learn(facts[:1200], rounds=20).distribution(facts[1200:])
        ends = distribution.bounds(np.full((300, 1), 0.9))[:, :, 0]
        assert ends.min() >= facts.confidence.min() - 0.01 * scale
        assert ends.max() <= facts.confidence.max() + 0.01 * scale
        widths.append(np.diff(ends).mean() / scale)
    assert widths[1] < 1.2 * widths[0]


def test_the_same_seed_gives_the_same_model(model: EvidenceModel, parts: tuple[Graph, Graph, Graph]) -> None:
    told: list[float] = []

    class Watcher:
        def update(self, done: float, text: str = "") -> None:
            told.append(done)

    again = learn(parts[0], rounds=20, progress=Watcher())
    assert max(told) == told[-1] == WORK
    assert len(set(told)) > 20, "folds and rounds are told, not only ends of parts"
    other = learn(parts[0], seed=1, rounds=20)
    leaves = [each.law.errors.locations[0].leaf for each in (model, again, other)]
    np.testing.assert_array_equal(leaves[0], leaves[1])
    assert len(leaves[0]) != len(leaves[2]) or (leaves[0] != leaves[2]).any()


def test_round_trip(model: EvidenceModel, parts: tuple[Graph, Graph, Graph]) -> None:
    again = restored(model)
    for name in ("class_mass", "slot_mass", "slot_value", "location", "scale", "group", "actual"):
        np.testing.assert_array_equal(
            getattr(again.distribution(parts[2]), name), getattr(model.distribution(parts[2]), name)
        )
    assert (again.seen_entities == model.seen_entities).all()


def restored(model: EvidenceModel, arrays: dict[str, Any] | None = None) -> EvidenceModel:
    train = model.evidence.train
    return EvidenceModel.restore(arrays or model.arrays(), train.n_entities, train.n_relations)


def test_no_number_that_a_stranger_writes_is_asked_for_as_memory(model: EvidenceModel) -> None:
    arrays = model.arrays()
    hostile = {
        "entities": {"entities": np.array(2**31 - 1)},
        "relations": {"relations": np.array(2**31 - 1)},
        # trees that agree with the cells: the probabilities of one query would take eight terabytes
        "classes": {"cells.classes": np.array(10**12), "elsewhere.total": np.array(10**12)},
    }
    for what, changed in hostile.items():
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match=r"\w+ \w+"):
                restored(model, {**arrays, **changed}).score(*(np.zeros(1, np.int32) for _ in range(3)))
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert most < 50_000_000, what


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("location0.if_left", lambda a: a[1:]),
        ("location0.if_right", lambda a: a.astype(np.int64)),
        ("elsewhere.feature", lambda a: a + np.int32(10**6)),
        ("elsewhere.leaf", lambda a: a * np.nan),
        ("elsewhere.first_node", lambda a: a[::-1].copy()),
        ("location0.classes", lambda a: a + 7),
        ("scale1.leaf", lambda a: a * np.nan),
        ("errors.shape", lambda a: a[:, ::-1].copy()),
        ("actual", lambda a: a[:-1]),
        ("by_errors", lambda a: a - 2.0),
        ("practice.doubt", lambda a: a[:-1]),
        ("factors.0.of_row", lambda a: a * np.float32(np.nan)),
        ("factors.0.rows", lambda a: a[::-1].copy()),
        ("cells.class_of_piece", lambda a: a + 1000),
        ("cells.low", lambda a: a + 0.5),
        ("head", lambda a: a - np.int32(10)),
        ("confidence", lambda a: a * np.nan),
        ("elsewhere.total", lambda a: a + 1),
        ("location0.features", lambda a: a + 1),
        ("entities", lambda a: np.array(2**31 - 1)),  # a small file, and labels for all of them
        ("relations", lambda a: np.array(10**6)),
        ("entities", lambda a: np.array([int(a)])),
        ("cells.classes", lambda a: np.array(10**12)),
        ("cells.classes", lambda a: np.array(np.nan)),
        ("cells.classes", lambda a: np.repeat(a, 3)),
        ("cells.class_of_value", lambda a: a + 10**6),
        ("cells.class_of_value", lambda a: a[:-1]),
        ("cells.share", lambda a: a[:, None]),
        ("tail", lambda a: a[:-1]),
        ("confidence", lambda a: a[:0]),
        ("confidence", lambda a: a[:, None]),
    ],
)
def test_a_stranger_cannot_reach_beyond_the_arrays(model: EvidenceModel, name: str, change) -> None:  # type: ignore[no-untyped-def]
    arrays = model.arrays()
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        restored(model, {**arrays, name: change(arrays[name])})
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        restored(model, {key: array for key, array in arrays.items() if key != name})


def test_too_few_facts(parts: tuple[Graph, Graph, Graph]) -> None:
    with pytest.raises(InputError, match="19 training facts are too few"):
        learn(parts[0][:19])
    tiny = learn(parts[0][:20])
    ends = tiny.distribution(parts[1]).bounds(np.full((len(parts[1]), 1), 0.9))
    assert (ends[:, 0] <= ends[:, 1]).all()


def test_one_class_needs_no_trees() -> None:
    table = np.zeros((10, 2), np.float32)
    trees = FEW.learn(table, np.full(10, 2), table, np.full(10, 2), 4)
    assert isinstance(trees, Trees)
    assert trees.probabilities(table[:1]).tolist() == [[0.0, 0.0, 1.0, 0.0]]


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_trees_give_what_their_learner_gives(classes, monkeypatch):
    rng = np.random.default_rng(0)
    table = rng.random((3000, 4)).astype(np.float32)
    label = (table[:, 0] * classes).astype(np.int64)
    table[rng.random(table.shape) < 0.2] = np.nan
    texts = []
    convert = trees.from_lightgbm
    monkeypatch.setattr(
        trees, "from_lightgbm", lambda text, *rest: texts.append(text) or convert(text, *rest)
    )
    learned = trees.Boosting(rounds=12, feature_fraction=1.0).learn(
        table[:2500], label[:2500], table[2500:], label[2500:], classes
    )
    raw = lightgbm.Booster(model_str=texts[0]).predict(table[2500:], raw_score=True) + learned.prior
    expected = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(learned.probabilities(table[2500:]), expected, rtol=1e-12)
