"""Both directions of a symmetric relation are one fact, from reading to splitting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import Fact, facts_of, graph_of
from unkgcp.errors import InputError
from unkgcp.graph import load_dataset, read
from unkgcp.graph.description import describe, description_text
from unkgcp.graph.facts import Graph, Triples
from unkgcp.graph.negatives import corrupt
from unkgcp.graph.objects import to_triples
from unkgcp.graph.symmetry import Mirrors, symmetric_as_in, with_symmetric


def pairs(n: int, entities: int, seed: int = 0) -> list[Fact]:
    """One fact for each of n pairs of different proteins, in random direction."""
    rng = np.random.default_rng(seed)
    found: dict[frozenset[int], Fact] = {}
    while len(found) < n:
        h, t = rng.choice(entities, 2, replace=False).tolist()
        found.setdefault(frozenset((h, t)), (f"p{h}", "binds", f"p{t}", round(float(rng.random()), 3)))
    return list(found.values())


def both_ways(facts: list[Fact], seed: int = 0) -> list[Fact]:
    rows = [row for h, r, t, c in facts for row in ((h, r, t, c), (t, r, h, c))]
    return [rows[place] for place in np.random.default_rng(seed).permutation(len(rows))]


def test_a_mirrored_graph_is_each_pair_once() -> None:
    facts = pairs(800, 60)
    once, twice = read(facts, symmetric=["binds"]), read(both_ways(facts))
    assert twice.vocabulary.symmetric.tolist() == [True]
    assert len(twice) == len(once) == 800
    for seed in range(3):
        assert twice.split(seed=seed).sizes() == once.split(seed=seed).sizes()
        assert twice.split(seed=seed).sizes() == read(facts, symmetric="none").split(seed=seed).sizes()
    ends = {(frozenset((h, t)), r, c) for h, r, t, c in facts}
    assert {(frozenset((h, t)), r, c) for h, r, t, c in facts_of(twice)} == ends
    assert (twice.head < twice.tail).all()
    assert len(read(both_ways(facts), symmetric="none")) == 1600


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 3), st.sampled_from([0.2, 0.7]))),
)
def test_only_the_mirror_of_a_fact_is_dropped(rows: list[tuple[int, int, int, float]]) -> None:
    """Repeats in one direction and other confidences stay facts; the other relation is left alone."""
    graph = graph_of([(f"e{h}", f"r{r}", f"e{t}", c) for h, r, t, c in [(0, 0, 1, 0.5), *rows]])
    found, first = with_symmetric(graph, ["r0"]), {}
    kept = []
    for h, r, t, c in facts_of(graph):
        direction = first.setdefault((frozenset((h, t)), c), (h, t)) if r == "r0" else (h, t)
        if direction == (h, t):
            kept.append((frozenset((h, t)), r, c) if r == "r0" else (h, r, t, c))
    told = [(frozenset((h, t)), r, c) if r == "r0" else (h, r, t, c) for h, r, t, c in facts_of(found)]
    assert told == kept


def test_mirrors_with_other_confidences_are_two_facts_and_one_unit() -> None:
    facts = pairs(300, 40)
    trust = [
        row for h, r, t, c in facts for row in ((h, r, t, c), (t, r, h, round(0.9 * (1 - c) + 0.0005, 4)))
    ]
    graph = read(trust)
    assert not graph.vocabulary.symmetric.any()
    assert len(graph) == 600
    splits = graph.split(hold_out="pairs")
    units = [{frozenset(row[::2]) for row in facts_of(part)} for part in splits.parts().values()]
    assert sum(map(len, units)) == 300


def test_a_description_tells_the_shares_and_names_the_symmetric(tmp_path) -> None:
    rows = both_ways(pairs(100, 30)) + [(f"p{i}", "near", f"p{i + 1}", 0.5) for i in range(40)]
    rows += [(f"p{i + 1}", "near", f"p{i}", 0.5 if i < 10 else 0.25) for i in range(30)]
    path = tmp_path / "facts.tsv"
    path.write_text("".join(f"{h}\t{r}\t{t}\t{c}\n" for h, r, t, c in rows))
    dataset = load_dataset(path)
    shares = "100.0% of the facts are listed in both directions, 100.0% of these with the same confidence"
    assert dataset.symmetry == f"of binds {shares}: both are one fact"
    description = describe(dataset)
    assert (description["symmetric"], description["facts"]) == (["binds"], 170)
    near = "near: 85.7% of 70 facts are listed in both directions, 33.3% of these with the same confidence"
    assert near in description_text(description)
    left = load_dataset(path, symmetric="none")
    assert left.symmetry == f"of binds {shares}: they count as two facts, with --symmetric auto as one"
    assert load_dataset(path, symmetric="near").splits.train.vocabulary.symmetric.tolist() == [False, True]


def test_a_folder_keeps_its_rows_unless_it_is_asked_for(tmp_path) -> None:
    rows = both_ways(pairs(100, 30))
    for name, part in (("train", rows[:160]), ("val", rows[160:180]), ("test", rows[180:])):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{h}\t{r}\t{t}\t{c}\n" for h, r, t, c in part))
    assert load_dataset(tmp_path).splits.sizes()["train"] == 160
    one = load_dataset(tmp_path, symmetric="auto").splits
    assert one.sizes()["train"] < 160
    assert one.test.vocabulary.symmetric.all()


@pytest.mark.parametrize(
    ("rows", "symmetric"),
    [
        (both_ways(pairs(5, 10)), True),
        (both_ways(pairs(4, 10)), False),  # too few to tell
        (pairs(100, 30), False),
        (both_ways(pairs(100, 30)) + [("p1", "binds", "p1", 0.5)] * 50, True),  # loops say nothing
        (both_ways(pairs(96, 30)) + [(f"q{i}", "binds", f"p{i}", 0.5) for i in range(8)], True),
        (both_ways(pairs(96, 30)) + [(f"q{i}", "binds", f"p{i}", 0.5) for i in range(16)], False),
    ],
)
def test_nearly_all_are_mirrored(rows: list[Fact], symmetric: bool) -> None:
    assert Mirrors.of(graph_of(rows)).symmetric.tolist() == [symmetric]


def test_every_way_to_ids_is_canonical() -> None:
    graph = read([("b", "binds", "a", 0.5), ("a", "acts", "b", 0.7)], symmetric=["binds"])
    words = graph.vocabulary  # b is 0, a is 1
    both = [("a", "binds", "b"), ("b", "binds", "a"), ("a", "acts", "b"), ("zz", "binds", "a")]
    ids = np.array([[1, 0, 0], [0, 0, 1], [1, 1, 0], [-1, 0, 1]])
    columns = Triples(*ids.T.astype(np.int32))
    expected = [[0, 0, 1], [0, 0, 1], [1, 1, 0], [1, 0, -1]]
    other = graph_of([(*row, 0.5) for row in both])
    for queries in (both, ids, columns, other, other.table().select(["head", "relation", "tail"])):
        assert np.stack(to_triples(queries, words), axis=1).tolist() == expected
    assert Graph(*columns, np.zeros(4), words).head.tolist() == [0, 0, 1, 1]
    back = symmetric_as_in(other, words)
    assert len(back) == 3, "the mirror is one fact there, too"


def test_corruptions_are_canonical_and_no_mirror_of_a_fact() -> None:
    graph = read(both_ways(pairs(300, 40)))
    for kind in ("uniform", "same-type", "near"):
        wrong = corrupt(graph, graph, seed=0, kind=kind)
        assert (wrong.head <= wrong.tail).all()
        assert not np.isin(wrong.keys, graph.keys).any()
    assert not len(corrupt(graph, graph, seed=0, kind="reversed")), "it has no direction"


def test_an_unknown_relation_is_refused() -> None:
    with pytest.raises(InputError, match="there is no relation 'bind' that could be symmetric"):
        read(pairs(20, 10), symmetric="binds,bind")


def test_soft_logic_and_negatives_are_as_symmetric_as_the_facts(tmp_path: Path) -> None:
    pairs = [(f"a{i}", f"a{(i * 7 + 3) % 40}") for i in range(40)]
    both = [ends for head, tail in pairs for ends in ((head, tail), (tail, head))]
    for name in ("train", "val", "test"):
        rows = (f"{head}\tr\t{tail}\t0.{i + 1}\n" for i, (head, tail) in enumerate(pairs))
        (tmp_path / f"{name}.tsv").write_text("".join(rows))
    (tmp_path / "softlogic.tsv").write_text("".join(f"{head}\tr\t{tail}\t0.9\n" for head, tail in both))
    (tmp_path / "test_with_neg.tsv").write_text("".join(f"{head}\tr\t{tail}\t0\n" for head, tail in both))
    dataset = load_dataset(tmp_path)
    assert dataset.softlogic is not None
    assert dataset.negatives is not None
    assert len(dataset.softlogic) == len(dataset.negatives) == len(both)


def test_of_a_large_graph_the_relations_that_may_be_mirrored_are_counted_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One relation mirrored, one by half, one with few facts, one with an accidental mirror, and one not at all."""
    rng = np.random.default_rng(3)
    rows = []
    for relation, (pairs, share) in enumerate(
        [(4000, 1.0), (4000, 0.5), (12, 1.0), (4000, 0.0), (4000, 0.0)]
    ):
        drawn = rng.choice(300 * 299 // 2, pairs, replace=False)
        first, second = np.triu_indices(300, 1)
        for place, pair in enumerate(drawn):
            ends = (f"e{first[pair]}", f"e{second[pair]}")
            for head, tail in (ends, ends[::-1]) if place < share * pairs else (ends,):
                rows.append((head, f"r{relation}", tail, 0.5))
    rows.append((rows[-5000][2], rows[-5000][1], rows[-5000][0], 0.5))
    whole = Mirrors.of(graph_of(rows))
    monkeypatch.setattr("unkgcp.graph.symmetry.SAMPLED", len(rows) // 5)
    some = Mirrors.of(graph_of(rows))
    assert whole.symmetric.tolist() == [True, False, True, False, False]
    assert some.lines(some.symmetric) == whole.lines(whole.symmetric)
    for name in ("facts", "mirrored", "equal"):
        np.testing.assert_array_equal(getattr(some, name)[:3], getattr(whole, name)[:3])
    assert some.mirrored.sum() <= whole.mirrored.sum()
