"""Parts of a graph are disjoint as rows, together the whole, and of the asked sizes, whatever the graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import vocabulary
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.facts import Splits, hold_out, split


def numbered(n: int, n_triples: int | None = None, seed: int = 0) -> Graph:
    """n facts whose confidence is their row number; about `n_triples` distinct triples."""
    generator = np.random.default_rng(seed)
    triple = generator.integers(n_triples, size=n) if n_triples else np.arange(n)
    n_entities = int(triple.max(initial=0)) + 1
    return Graph(
        triple.astype(np.int32),
        np.zeros(n, np.int32),
        triple[::-1].copy().astype(np.int32) if n_triples is None else triple.astype(np.int32),
        np.arange(n, dtype=np.float64),
        vocabulary(n_entities),
    )


def rows(splits: Splits) -> list[np.ndarray]:
    return [part.confidence for part in splits.parts().values()]


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(30, 400),
    n_triples=st.integers(15, 400),
    calibration=st.floats(0.05, 0.45),
    test=st.floats(0.05, 0.45),
    validation=st.sampled_from([0.0, 0.1, 0.3]),
    seed=st.integers(0, 2**32 - 1),
    together=st.booleans(),
)
def test_parts_are_disjoint_and_together_the_whole(
    n, n_triples, calibration, test, validation, seed, together
):
    graph = numbered(n, n_triples, seed)
    try:
        splits = split(
            graph,
            calibration=calibration,
            test=test,
            validation=validation,
            seed=seed,
            keep_repeats_together=together,
        )
    except InputError:
        # right only where whole groups cannot fill every part, or too few are left for a validation slice
        assert together or (validation and n * (1 - calibration - test) < 6)
        return
    assert np.sort(np.concatenate(rows(splits))).tolist() == list(range(n))
    assert all(np.all(np.diff(part) > 0) for part in rows(splits)), "rows keep their order"
    assert min(len(splits.train), len(splits.calibration), len(splits.test)) > 0
    if together:
        keys = [set(part.keys.tolist()) for part in splits.parts().values()]
        assert sum(map(len, keys)) == len(set.union(*keys))
    else:
        assert abs(len(splits.calibration) - calibration * n) <= 0.5
        assert abs(len(splits.test) - test * n) <= 0.5


@pytest.mark.parametrize(
    ("n", "parts"), [(100, (85, 7, 8)), (10_000, (8500, 700, 800)), (1_234, (1049, 86, 99))]
)
def test_the_default_is_85_7_8(n, parts):
    splits = split(numbered(n))
    assert (len(splits.train), len(splits.calibration), len(splits.test)) == parts
    assert len(splits.validation) == 0


def test_a_seed_gives_the_same_parts_and_another_seed_others():
    graph = numbered(1000)
    same, again, other = split(graph, seed=3), split(graph, seed=3), split(graph, seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(rows(same), rows(again), strict=True))
    assert not np.array_equal(same.test.confidence, other.test.confidence)


def test_every_fact_is_equally_likely_to_be_tested():
    graph = numbered(50)
    hits = np.zeros(50)
    for seed in range(2000):
        hits[split(graph, calibration=0.1, test=0.2, seed=seed).test.confidence.astype(int)] += 1
    # 2000 draws of probability 0.2 each: standard deviation 17.9; 4.5 of them for the worst of 50 facts
    assert np.abs(hits - 400).max() < 4.5 * 17.9


def test_a_validation_slice_comes_out_of_the_training_part_alone():
    graph = numbered(1000)
    without, with_slice = split(graph, seed=1), split(graph, seed=1, validation=0.1)
    assert np.array_equal(without.calibration.confidence, with_slice.calibration.confidence)
    assert np.array_equal(without.test.confidence, with_slice.test.confidence)
    assert len(with_slice.validation) == 85
    assert set(with_slice.validation.confidence) <= set(without.train.confidence)


def test_repeats_stay_together_and_sizes_stay_near():
    graph = numbered(20_000, 9_000)
    splits = split(graph, seed=0, keep_repeats_together=True)
    assert (len(splits.calibration), len(splits.test)) == (1400, 1600), (
        "small groups can fill the parts exactly"
    )
    assert not np.isin(splits.test.keys, splits.train.keys).any()
    loose = split(graph, seed=0)
    assert np.isin(loose.test.keys, loose.train.keys).mean() > 0.5, "without the option repeats do leak"


def test_one_giant_group_never_swallows_a_small_part():
    head = np.array([0] * 500 + list(range(1, 501)), dtype=np.int32)
    graph = Graph(head, np.zeros_like(head), head, np.zeros(1000), vocabulary(501))
    for seed in range(20):
        splits = split(graph, seed=seed, keep_repeats_together=True)
        assert (len(splits.calibration), len(splits.test)) == (70, 80)


def test_groups_larger_than_the_room_are_taken_when_that_is_nearer():
    head = np.repeat(np.arange(20, dtype=np.int32), 5)
    graph = Graph(head, np.zeros_like(head), head, np.zeros(100), vocabulary(20))
    splits = split(graph, keep_repeats_together=True)
    assert (len(splits.calibration), len(splits.test)) == (5, 10), "7 is nearer to 5, 8 is nearer to 10"


def test_hold_out_gives_rest_and_held_out():
    graph = numbered(200)
    rest, held = hold_out(graph, 0.1, seed=5)
    assert (len(rest), len(held)) == (180, 20)
    assert sorted([*rest.confidence, *held.confidence]) == list(range(200))
    repeated = numbered(2000, 700)
    rest, held = hold_out(repeated, 0.1, seed=5, keep_repeats_together=True)
    assert len(held) == 200
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
    ],
)
def test_impossible_fractions_are_refused(n, options, sentence):
    with pytest.raises(InputError) as error:
        split(numbered(n), **options)
    assert sentence in str(error.value)


def test_a_graph_of_one_repeated_triple_cannot_be_kept_together():
    head = np.zeros(50, np.int32)
    graph = Graph(head, head, head, np.zeros(50), vocabulary(1))
    with pytest.raises(InputError, match="would be empty"):
        split(graph, keep_repeats_together=True)


def test_the_method_of_a_graph_is_the_same_function():
    graph = numbered(300)
    assert np.array_equal(
        graph.split(0.1, 0.2, seed=2).test.confidence,
        split(graph, calibration=0.1, test=0.2, seed=2).test.confidence,
    )
