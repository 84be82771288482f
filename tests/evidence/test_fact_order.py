"""`FactOrder` gives the same rows as a plain sort by columns, in few bytes, even if one id has most facts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unkgcp.errors import InputError
from unkgcp.evidence.fact_groups import FactOrder, as_one, smallest
from unkgcp.graph import known_facts


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    n=st.integers(0, 700),
    limits=st.lists(st.integers(1, 3000), min_size=2, max_size=4),
    hub=st.booleans(),
)
def test_rows_come_as_a_plain_sort_puts_them(seed: int, n: int, limits: list[int], hub: bool) -> None:
    """With one id that has more than half of the facts, which are then sorted byte by byte."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, limit, n).astype(np.int32) for limit in limits]
    if hub:
        columns[0][rng.random(n) < 0.6] = 0
    rows = np.lexsort(columns[::-1])
    order = FactOrder.of([columns], limits)
    np.testing.assert_array_equal(order.first, np.searchsorted(columns[0][rows], np.arange(limits[0] + 1)))
    for place in range(1, len(limits)):
        found = order.column(place)
        np.testing.assert_array_equal(found, columns[place][rows])
        assert found.dtype == smallest(2 * limits[place] - 1) or found.dtype == smallest(limits[place])
    np.testing.assert_array_equal(
        order.column(1, len(limits) - 1), as_one([column[rows] for column in columns[1:]], limits[1:])
    )
    # runs of rows that are equal in the first two columns
    first, starts = order.runs(1)
    pairs, begin = np.unique(np.stack([column[rows] for column in columns[:2]]), axis=1, return_index=True)
    np.testing.assert_array_equal(starts, [*begin, n])
    np.testing.assert_array_equal(first, np.searchsorted(pairs[0], np.arange(limits[0] + 1)))
    np.testing.assert_array_equal(order.at(first, starts[:-1]).column(1), pairs[1])


def test_parts_are_joined_and_taken_in_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    head, tail, other = rng.integers(0, 9, (3, 100)).astype(np.int32)
    parts = [(head, 1, tail, other), (tail, 0, head, other)]
    whole = FactOrder.of(parts, [9, 2, 9, 9])
    both = [np.concatenate([head, tail]), np.repeat([1, 0], 100), np.concatenate([tail, head])]
    rows = np.lexsort([np.tile(other, 2), *both[::-1]])
    for place in (1, 2):
        np.testing.assert_array_equal(whole.column(place), both[place][rows])
    monkeypatch.setattr(known_facts, "PIECE", 7)
    np.testing.assert_array_equal(FactOrder.of(parts, [9, 2, 9, 9]).keys, whole.keys)
    np.testing.assert_array_equal(known_facts.distinct(other / 10), np.unique(other / 10))


def test_ids_that_no_key_can_hold_are_refused() -> None:
    column = np.zeros(1, np.int32)
    assert len(FactOrder.of([[column] * 3], [2, 1 << 31, 1 << 31])) == 1
    with pytest.raises(InputError, match="round the confidences"):
        FactOrder.of([[column] * 4], [2, 1 << 31, 1 << 31, 3])
