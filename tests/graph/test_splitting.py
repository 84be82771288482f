"""Parts of a graph are disjoint as rows, together the whole, of the asked sizes, and hold whole units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import vocabulary
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.facts import Splits, hold_out, pair_keys, split
from unkgcp.graph.kinds import KINDS, NEW_ENTITY, NEW_PAIR, Kinds, describe_kinds

MIXTURES = ("pairs", "rows", "triples", "entities", "pairs,rows", "entities,pairs,rows", "triples,rows", None)


def random_graph(n: int, entities: int, seed: int = 0, relations: int = 3) -> Graph:
    """n facts between random entities, whose confidence is their row number."""
    generator = np.random.default_rng(seed)
    columns = (generator.integers(size, size=n).astype(np.int32) for size in (entities, relations, entities))
    return Graph(*columns, np.arange(n, dtype=np.float64), vocabulary(entities, relations))


def of_pairs(sizes: list[int]) -> Graph:
    """A graph with so many facts of one pair each, no entity in two pairs."""
    pair = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    n = len(pair)
    return Graph(
        2 * pair, np.zeros(n, np.int32), 2 * pair + 1, np.arange(n, dtype=float), vocabulary(2 * len(sizes))
    )


def star(n: int) -> Graph:
    zeros = np.zeros(n, np.int32)
    return Graph(
        zeros, zeros, np.arange(1, n + 1, dtype=np.int32), np.arange(n, dtype=float), vocabulary(n + 1)
    )


def rows(splits: Splits) -> list[np.ndarray]:
    return [part.confidence for part in splits.parts().values()]


def kinds(splits: Splits, facts: Graph) -> np.ndarray:
    return Kinds.of(splits.train, facts.n_entities, facts.n_relations).codes(facts)


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(60, 400),
    entities=st.integers(8, 200),
    calibration=st.floats(0.05, 0.4),
    test=st.floats(0.05, 0.4),
    validation=st.sampled_from([0.0, 0.1, 0.3]),
    seed=st.integers(0, 2**32 - 1),
    units=st.sampled_from(MIXTURES),
)
def test_parts_are_disjoint_together_the_whole_and_hold_whole_units(
    n, entities, calibration, test, validation, seed, units
):
    graph = random_graph(n, entities, seed)
    try:
        splits = split(
            graph, calibration=calibration, test=test, validation=validation, seed=seed, hold_out=units
        )
    except InputError:
        assert units not in ("rows", None) or validation
        return
    assert np.sort(np.concatenate(rows(splits))).tolist() == list(range(n))
    assert all(np.all(np.diff(part) > 0) for part in rows(splits)), "rows keep their order"
    assert min(len(splits.train), len(splits.calibration), len(splits.test)) > 0
    if units == "rows":
        assert abs(len(splits.calibration) - calibration * n) <= 0.5
        assert abs(len(splits.test) - test * n) <= 0.5
    if units in ("pairs", "triples"):
        keys = [
            part.keys if units == "triples" else pair_keys(part, entities) for part in splits.parts().values()
        ]
        assert sum(len(np.unique(own)) for own in keys) == len(np.unique(np.concatenate(keys)))
    if units == "entities":
        for part in (splits.calibration, splits.test, splits.validation):
            assert (kinds(splits, part) == NEW_ENTITY).all()


@pytest.mark.parametrize("units", MIXTURES)
def test_the_default_shares_are_85_7_8_whatever_the_unit(units):
    splits = split(random_graph(20_000, 300, relations=2), hold_out=units)
    sizes = [len(splits.train), len(splits.calibration), len(splits.test), len(splits.validation)]
    tolerance = 70 if units and "entities" in units else 12
    assert np.abs(np.subtract(sizes, [17_000, 1400, 1600, 0])).max() <= tolerance, sizes


def test_the_default_holds_out_half_by_pairs_and_half_by_rows_of_other_pairs():
    splits = split(random_graph(40_000, 150, relations=2))  # 3.5 facts a pair
    for part in (splits.calibration, splits.test):
        shares = np.bincount(kinds(splits, part), minlength=len(KINDS)) / len(part)
        assert shares.tolist() == pytest.approx([0.5, 0.5, 0, 0], abs=0.01)


def test_pairs_give_what_rows_cannot():
    once = split(of_pairs([1] * 1000), seed=1)
    assert (len(once.calibration), len(once.test)) == (70, 80), "no pair has several rows: pairs alone"
    few = split(of_pairs([2] * 40 + [1] * 920), seed=1)
    held = np.concatenate([few.calibration.head, few.test.head])
    by_rows = np.isin(held, few.train.head).sum()
    assert len(held) == pytest.approx(150, abs=1)
    assert by_rows == pytest.approx(20, abs=1), "at most half of the further rows are held out by themselves"
    timed = split(of_pairs([500, 500]), seed=1)
    assert (len(timed.calibration), len(timed.test)) == (70, 80), "too few pairs: rows alone"


def test_a_seed_gives_the_same_parts_and_another_seed_others():
    graph = random_graph(1000, 100)
    same, again, other = (graph.split(seed=seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(rows(same), rows(again), strict=True))
    assert not np.array_equal(same.test.confidence, other.test.confidence)


@pytest.mark.parametrize("units", ["rows", "pairs", "entities"])
def test_calibration_and_test_are_drawn_alike(units):
    """A fact that is held out is as likely to calibrate as to test, if the shares are equal, however large its unit."""
    graph, calibrating, testing = random_graph(300, 60), np.zeros(300), np.zeros(300)
    for seed in range(1500):
        splits = split(graph, calibration=0.1, test=0.1, seed=seed, hold_out=units)
        calibrating[splits.calibration.confidence.astype(int)] += 1
        testing[splits.test.confidence.astype(int)] += 1
    noise = np.sqrt(calibrating + testing)  # the standard deviation of the difference, were draws independent
    assert np.abs(calibrating - testing).max() < 5 * noise.max()
    assert abs((calibrating - testing).sum()) < 0.02 * (calibrating + testing).sum()


def test_a_validation_slice_comes_out_of_the_training_part_alone():
    graph = random_graph(1000, 100)
    without, with_slice = split(graph, seed=1), split(graph, seed=1, validation=0.1)
    assert np.array_equal(without.calibration.confidence, with_slice.calibration.confidence)
    assert np.array_equal(without.test.confidence, with_slice.test.confidence)
    assert len(with_slice.validation) == pytest.approx(85, abs=1)
    assert set(with_slice.validation.confidence) <= set(without.train.confidence)


@pytest.mark.parametrize(
    ("graph", "units"),
    [
        (of_pairs([500] + [1] * 500), "pairs"),
        (of_pairs([970] + [1] * 60), "pairs"),
        (star(1000), "entities"),
        (star(1000), None),
    ],
)
def test_a_unit_with_half_of_the_graph_trains(graph, units):
    """So does the hub of a star, which is an entity of every fact."""
    for seed in range(5):
        splits = split(graph, seed=seed, hold_out=units)
        assert 0 in splits.train.head
        assert len(splits.train) > len(graph) // 2
        assert (
            not np.isin(0, np.concatenate([splits.calibration.head, splits.test.head]))
            or len(np.unique(graph.head)) == 1
        )


def test_hold_out_gives_rest_and_held_out():
    graph = random_graph(2000, 100)
    for units in ("rows", "triples"):
        rest, held = hold_out(graph, 0.1, seed=5, units=units)
        assert len(held) == pytest.approx(200, abs=1)
        assert sorted([*rest.confidence, *held.confidence]) == list(range(2000))
    assert not np.isin(held.keys, rest.keys).any()


@pytest.mark.parametrize(
    ("n", "options", "sentence"),
    [
        (1, {}, "one fact only cannot be split"),
        (0, {}, "0 facts cannot be split"),
        (5, {}, "the calibration part (0.07 of them) would be empty"),
        (100, {"calibration": 0.0}, "the calibration fraction is 0"),
        (100, {"test": -0.1}, "the test fraction is -0.1"),
        (100, {"test": float("nan")}, "the test fraction is nan"),
        (100, {"calibration": 0.5, "test": 0.5}, "leave nothing for training"),
        (100, {"calibration": 1.5}, "the calibration fraction is 1.5"),
        (2, {"calibration": 0.49, "test": 0.5}, "nothing is left for training"),
        (20, {"validation": 0.01}, "the validation part (0.01 of them) would be empty"),
        (20, {"validation": 1.0}, "the validation fraction is 1"),
        (19, {"hold_out": "pairs"}, "there are only 19 pairs in 19 facts, too few to hold out some of them"),
        (19, {"hold_out": "triples,rows"}, "there are only 19 triples in 19 facts"),
        (9, {"hold_out": "entities"}, "there are only 18 entities in 9 facts"),
        (100, {"hold_out": "edges"}, "facts are held out by entities, pairs, triples, rows, or by several"),
        (100, {"hold_out": "rows,rows"}, "each once; not by 'rows,rows'"),
        (100, {"hold_out": ""}, "not by ''"),
    ],
)
def test_what_cannot_be_drawn_is_refused(n, options, sentence):
    with pytest.raises(InputError) as error:
        split(of_pairs([1] * n), **options)
    assert sentence in str(error.value)


def test_relations_of_one_fact_each_are_refused_at_once():
    """As where an id of the row was taken for the relation."""
    n = np.arange(1000, dtype=np.int32)
    graph = Graph(n % 40, n, n % 31, np.full(1000, 0.5), vocabulary(40, 1000))
    with pytest.raises(InputError, match="hardly any of the 1,000 relations has a second fact"):
        split(graph)
    assert len(split(replace(graph, relation=n // 2)).test) == 80


@pytest.mark.parametrize(
    ("graph", "units", "sentence"),
    [
        (
            random_graph(40_000, 150),
            "rows",
            "of the 2,800 calibration facts 94.5 % about known pairs and 5.4 % about new pairs: nothing is promised "
            "for new pairs and new entities; for these fit it with --hold-out pairs,entities,rows",
        ),
        (
            of_pairs([1] * 1000),
            None,
            "of the 70 calibration facts 100 % about new entities: nothing is promised for known pairs and new pairs",
        ),
    ],
)
def test_a_sentence_tells_the_kinds_of_calibration_facts(graph, units, sentence):
    splits = split(graph, hold_out=units)
    assert describe_kinds(splits, split_here=True) == sentence
    assert (kinds(splits, splits.calibration) == NEW_PAIR).sum() == (152 if units else 0)
