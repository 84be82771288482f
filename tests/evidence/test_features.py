"""Features against loops in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rounding import apart
from tests.worlds import crowded_graph
from unkgcp.evidence import Evidence
from unkgcp.evidence.fact_groups import Values
from unkgcp.evidence.pairs import PRIOR, SLOTS
from unkgcp.graph import Graph

SINGLE = apart(1, 1.0)  # a number up to 1 that is stored in single precision


def test_where_no_two_facts_join_the_same_entities() -> None:
    """As in a network of one relation: nothing is suggested, to training facts and to queries."""
    graph = crowded_graph(60, 0)
    _, alone = np.unique(np.sort(np.stack([graph.head, graph.tail]), axis=0), axis=1, return_index=True)
    evidence = Evidence.of(graph[alone])
    assert (evidence.features(graph).slots == -1).sum() > 0
    assert (Evidence.of(graph[alone][5:]).features(graph[alone][:5]).slots == -1).all()


def matching(graph: Graph, head: int | None, relation: int | None, tail: int | None) -> np.ndarray:
    """The confidences, rounded to nine decimals, of the facts with these ids."""
    fits = np.ones(len(graph), bool)
    for column, wanted in ((graph.head, head), (graph.relation, relation), (graph.tail, tail)):
        if wanted is not None:
            fits &= column == wanted
    return np.sort(graph.confidence[fits].round(9))


@pytest.mark.parametrize("seed", range(3))
def test_statistics_by_hand(seed: int) -> None:
    graph, queries = crowded_graph(80, seed), crowded_graph(40, seed + 100)
    evidence = Evidence.of(graph)
    table = evidence.features(queries).table
    column = {name: place for place, name in enumerate(evidence.names)}
    assert len(column) == table.shape[1]
    for row, (h, r, t) in enumerate(zip(queries.head, queries.relation, queries.tail, strict=True)):
        views = {
            "relation": (None, r, None),
            "head": (h, None, None),
            "tail": (None, None, t),
            "head-relation": (h, r, None),
            "relation-tail": (None, r, t),
            "head-as-tail": (None, None, h),
            "tail-as-head": (t, None, None),
            "head-as-tail-relation": (None, r, h),
            "tail-as-head-relation": (t, r, None),
            "pair": (h, None, t),
            "reversed": (t, None, h),
            "triple": (h, r, t),
            "reversed-triple": (t, r, h),
        }
        for name, end in (("head-anywhere-relation", h), ("tail-anywhere-relation", t)):
            either = (graph.relation == r) & ((graph.head == end) | (graph.tail == end))
            # a loop stands at both of its ends
            size = either.sum() + (either & (graph.head == graph.tail)).sum()
            assert table[row, column[f"{name}: count"]] == size
        for name, pattern in views.items():
            found = matching(graph, *pattern)
            told = {
                kind: table[row, column[f"{name}: {kind}"]]
                for kind in ("count", "mean", "spread", "lowest", "middle", "highest")
            }
            assert told["count"] == len(found)
            if not len(found):
                assert all(np.isnan(value) for kind, value in told.items() if kind != "count")
                continue
            assert told["mean"] == pytest.approx(found.mean(), abs=SINGLE)
            assert told["spread"] == pytest.approx(found.std(), abs=2e-3)
            middle = found[(len(found) - 1) // 2]
            assert [told["lowest"], told["middle"], told["highest"]] == pytest.approx(
                [found[0], middle, found[-1]], abs=SINGLE
            )
        common = evidence.values.centre[evidence.groups[0].frequent[0]]
        share = table[row, column["tail: share of value 0"]]
        found = matching(graph, None, None, t)
        if len(found):
            assert share == pytest.approx(np.mean(np.abs(found - common) < 1e-9), abs=SINGLE)


@pytest.mark.parametrize("seed", range(3))
def test_suggested_values_by_hand(seed: int) -> None:
    graph, queries = crowded_graph(50, seed, entities=5), crowded_graph(30, seed + 50, entities=5)
    evidence = Evidence.of(graph)
    found = evidence.pairs.candidates(
        *(np.asarray(c, np.int64) for c in (queries.head, queries.relation, queries.tail))
    )
    facts = list(
        zip(
            graph.head.tolist(),
            graph.relation.tolist(),
            graph.tail.tolist(),
            evidence.codes.tolist(),
            strict=True,
        )
    )

    def same_pair(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return {a[0], a[2]} == {b[0], b[2]}

    def turned(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return (a[0] > a[2]) != (b[0] > b[2])

    counts: dict[tuple[int, int, bool], list[int]] = {}
    total = [0, 0]
    for i, a in enumerate(facts):
        for j, b in enumerate(facts):
            if i != j and same_pair(a, b):
                cell = counts.setdefault((a[1], b[1], turned(a, b)), [0, 0])
                for sums in (cell, total):
                    sums[0] += a[3] == b[3]
                    sums[1] += 1
    rate = (total[0] + 1) / (total[1] + 2)
    for row, q in enumerate(
        zip(queries.head.tolist(), queries.relation.tolist(), queries.tail.tolist(), strict=True)
    ):
        best: dict[int, tuple[float, int]] = {}
        for b in facts:
            if same_pair(q, b):
                agree, all_ = counts.get((q[1], b[1], turned(q, b)), [0, 0])
                belief = float(np.float32((agree + PRIOR * rate) / (all_ + PRIOR)))
                before = best.get(b[3], (0.0, 0))
                best[b[3]] = (max(before[0], belief), before[1] + 1)
        order = sorted(best, key=lambda code: (-best[code][0], -best[code][1], -code))[:SLOTS]
        assert found.code[row].tolist() == order + [-1] * (SLOTS - len(order))
        assert found.distinct[row] == len(best)
        np.testing.assert_allclose(
            found.belief[row, : len(order)], [best[code][0] for code in order], rtol=0, atol=SINGLE
        )
        assert found.support[row, : len(order)].tolist() == [best[code][1] for code in order]


def test_a_query_is_told_the_same_in_any_company() -> None:
    graph, queries = crowded_graph(80, 0), crowded_graph(20, 9)
    evidence = Evidence.of(graph)
    together = evidence.features(queries).table
    for row in range(20):
        np.testing.assert_array_equal(evidence.features(queries[row : row + 1]).table[0], together[row])


def test_nothing_known_is_missing_not_zero() -> None:
    graph = crowded_graph(10, 0, entities=4)
    strange = Graph(*np.array([[3], [2], [3]], np.int32), np.zeros(1), graph.vocabulary)
    kept = graph[(graph.head != 3) & (graph.tail != 3) & (graph.relation != 2)]
    table, slots = Evidence.of(kept).features(strange)
    assert (slots == -1).all()
    names = Evidence.of(kept).names
    assert all(np.isnan(table[0, i]) for i, name in enumerate(names) if name.endswith(": mean"))


def test_one_value_written_in_two_ways() -> None:
    values = Values.of(np.array([0.4375, 0.4374999999999998, 1.0, 0.9999999999999998]))
    assert len(values) == 2
    assert values.low.tolist() == [0.4374999999999998, 0.9999999999999998]
    assert values.high.tolist() == [0.4375, 1.0]
    assert values.code(np.array([1.0, 0.4375, 0.5])).tolist() == [1, 0, -1]
