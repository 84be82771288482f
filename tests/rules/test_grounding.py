from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import worlds
from unkgcp.errors import InputError
from unkgcp.graph import Graph, Vocabulary
from unkgcp.graph.facts import concatenate
from unkgcp.graph.symmetry import with_symmetric
from unkgcp.rules import Rule, ground, parse

VOCABULARY = Vocabulary.of(list("abcdefgh"), ["r", "s", "t"])


def graph_of(facts: list[worlds.Fact]) -> Graph:
    return worlds.graph_of(facts, VOCABULARY)


def facts_of(graph: Graph) -> dict[tuple[str, str, str], float]:
    rows = worlds.facts_of(graph)
    facts = {tuple(triple): confidence for *triple, confidence in rows}
    assert len(facts) == len(rows), "a triple came out twice"
    return facts


TRANSITIVE = parse("r(A,B) & r(B,C) -> r(A,C)")


@pytest.mark.parametrize(
    ("rule", "facts", "expected"),
    [
        # transitivity: 0.9 + 0.8 - 1
        ("r(A,B) & r(B,C) -> r(A,C)", [("a", "r", "b", 0.9), ("b", "r", "c", 0.8)], {("a", "r", "c"): 0.7}),
        # the best of two ways: max(0.9 + 0.8, 0.6 + 1.0) - 1
        (
            "r(A,B) & r(B,C) -> r(A,C)",
            [("a", "r", "b", 0.9), ("b", "r", "c", 0.8), ("a", "r", "d", 0.6), ("d", "r", "c", 1.0)],
            {("a", "r", "c"): 0.7},
        ),
        # composition of two relations into a third
        ("r(A,B) & s(B,C) -> t(A,C)", [("a", "r", "b", 0.75), ("b", "s", "c", 0.5)], {("a", "t", "c"): 0.25}),
        # symmetry and inversion keep the confidence
        ("r(A,B) -> r(B,A)", [("a", "r", "b", 0.65)], {("b", "r", "a"): 0.65}),
        ("r(A,B) -> s(B,A)", [("a", "r", "b", 0.65)], {("b", "s", "a"): 0.65}),
        # a weight is one more conjunct: 0.9 + 0.8 + 0.75 - 2
        (
            "0.75: r(A,B) & r(B,C) -> r(A,C)",
            [("a", "r", "b", 0.9), ("b", "r", "c", 0.8)],
            {("a", "r", "c"): 0.45},
        ),
        ("0.5: r(A,B) -> s(A,B)", [("a", "r", "b", 0.9), ("c", "r", "d", 0.5)], {("a", "s", "b"): 0.4}),
        # three atoms: 0.9 + 0.8 + 0.7 - 2
        (
            "r(A,B) & s(B,C) & t(C,D) -> r(A,D)",
            [("a", "r", "b", 0.9), ("b", "s", "c", 0.8), ("c", "t", "d", 0.7)],
            {("a", "r", "d"): 0.4},
        ),
        # both variables shared: 0.9 + 0.6 - 1, and only where both facts are there
        (
            "r(A,B) & s(A,B) -> t(B,A)",
            [("a", "r", "b", 0.9), ("a", "s", "b", 0.6), ("c", "r", "d", 1.0)],
            {("b", "t", "a"): 0.5},
        ),
        # one variable twice: loops alone
        (
            "r(A,A) & s(A,B) -> t(A,B)",
            [("a", "r", "a", 0.9), ("b", "r", "c", 1.0), ("a", "s", "b", 1.0), ("b", "s", "c", 1.0)],
            {("a", "t", "b"): 0.9},
        ),
        # a bound of 0 says nothing
        ("r(A,B) & r(B,C) -> r(A,C)", [("a", "r", "b", 0.5), ("b", "r", "c", 0.5)], {}),
        # a triple stated twice counts with its mean, 0.7
        ("r(A,B) -> s(A,B)", [("a", "r", "b", 0.6), ("a", "r", "b", 0.8)], {("a", "s", "b"): 0.7}),
        # what is stated is not derived, however low its confidence
        ("r(A,B) -> r(B,A)", [("a", "r", "b", 0.9), ("b", "r", "a", 0.1)], {}),
        # without and with `A != C`
        ("r(A,B) & r(C,B) -> s(A,C)", [("a", "r", "b", 1.0)], {("a", "s", "a"): 1.0}),
        ("r(A,B) & r(C,B) & A != C -> s(A,C)", [("a", "r", "b", 1.0)], {}),
        ("r(A,B) -> s(A,B)", [], {}),
        ("r(A,B) & s(B,C) -> t(A,C)", [("a", "r", "b", 1.0)], {}),
    ],
)
def test_solved_by_hand(rule, facts, expected):
    bounds = facts_of(ground(parse(rule), graph_of(facts), minimum=0.0))
    assert bounds == pytest.approx(expected, abs=1e-12)


def test_the_minimum_counts_as_reached_despite_rounding():
    facts = graph_of([("a", "r", "b", 0.7), ("b", "r", "c", 0.6), ("c", "r", "d", 0.69)])
    assert 0.7 + 0.6 - 1.0 < 0.3
    assert facts_of(ground(TRANSITIVE, facts, minimum=0.3)) == {("a", "r", "c"): 0.3}


def test_rules_together_give_the_highest_bound():
    rules = parse("0.5: r(A,B) -> t(A,B)\n s(A,B) -> t(A,B)\n 0.9: r(A,B) -> t(A,B)")
    facts = graph_of([("a", "r", "b", 1.0), ("a", "s", "b", 0.7), ("c", "s", "d", 0.8)])
    expected = {("a", "t", "b"): 0.9, ("c", "t", "d"): 0.8}
    assert facts_of(ground(rules, facts)) == pytest.approx(expected)


def test_rounds_carry_bounds_on():
    chain = graph_of([("a", "r", "b", 0.9), ("b", "r", "c", 0.9), ("c", "r", "d", 0.9), ("d", "r", "e", 0.9)])
    two = {("a", "r", "c"): 0.8, ("b", "r", "d"): 0.8, ("c", "r", "e"): 0.8}
    four = two | {("a", "r", "d"): 0.7, ("b", "r", "e"): 0.7, ("a", "r", "e"): 0.6}
    assert facts_of(ground(TRANSITIVE, chain)) == pytest.approx(two)
    assert facts_of(ground(TRANSITIVE, chain, rounds=2)) == pytest.approx(four)
    assert facts_of(ground(TRANSITIVE, chain, rounds=None)) == pytest.approx(four)


ATOMS = st.tuples(st.sampled_from("rst"), st.sampled_from("XYZ"), st.sampled_from("XYZ"))


@st.composite
def rules(draw: st.DrawFn) -> list[Rule]:
    made = []
    for _ in range(draw(st.integers(1, 3))):
        body = draw(st.lists(ATOMS, min_size=1, max_size=3))
        head = draw(ATOMS)
        weight = draw(st.sampled_from([1.0, 0.9, 0.75]))
        differ = draw(st.sampled_from(["", " & X != Y", " & X != Y & Z != X"]))
        text = " & ".join(f"{r}({a},{b})" for r, a, b in body) + differ
        try:
            made += parse(f"{weight}: {text} -> {head[0]}({head[1]},{head[2]})")
        except InputError:
            continue
    return made


FACTS = st.lists(
    st.tuples(
        st.sampled_from("abcd"), st.sampled_from("rst"), st.sampled_from("abcd"),
        st.integers(1, 20).map(lambda x: x / 20),
    ),
    max_size=25,
)  # fmt: skip


def by_brute_force(rules, facts, minimum):
    """Every assignment of entities to variables, one by one."""
    stated: dict[tuple[str, str, str], list[float]] = {}
    for head, relation, tail, confidence in facts:
        stated.setdefault((head, relation, tail), []).append(confidence)
    truth = {triple: sum(values) / len(values) for triple, values in stated.items()}
    bounds: dict[tuple[str, str, str], float] = {}
    for rule in rules:
        names = sorted(rule.variables)
        for entities in product("abcd", repeat=len(names)):
            value = dict(zip(names, entities, strict=True))
            body = [
                truth.get((value[atom.first], atom.relation, value[atom.second]), 0.0) for atom in rule.body
            ]
            bound = max(0.0, sum(body) + rule.weight - len(body))
            head = (value[rule.head.first], rule.head.relation, value[rule.head.second])
            differ = all(value[first] != value[second] for first, second in rule.distinct)
            if differ and bound > 1e-9 and bound >= minimum - 1e-9 and head not in truth:
                bounds[head] = max(bound, bounds.get(head, 0.0))
    return bounds


@settings(max_examples=150, deadline=None)
@given(rules(), FACTS, st.sampled_from([0.0, 0.3, 0.5]))
def test_equals_brute_force(rules, facts, minimum):
    found = facts_of(ground(rules, graph_of(facts), minimum=minimum))
    assert found == pytest.approx(by_brute_force(rules, facts, minimum), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(rules(), FACTS, st.sampled_from([0.0, 0.3]))
def test_a_symmetric_relation_fills_atoms_in_both_directions(rules, facts, minimum):
    first = {}
    for (
        head,
        relation,
        tail,
        confidence,
    ) in facts:  # one confidence for each fact of r, whatever its direction
        first.setdefault(
            (*sorted((head, tail)), relation) if relation == "r" else (head, tail, relation), confidence
        )
    once = graph_of([(head, relation, tail, c) for (head, tail, relation), c in first.items()])
    mirrors = [(tail, relation, head, c) for (head, tail, relation), c in first.items() if relation == "r"]
    both = concatenate([once, graph_of(mirrors)]) if mirrors else once
    found = facts_of(ground(rules, with_symmetric(once, "r"), minimum=minimum))
    expected = facts_of(ground(rules, both, minimum=minimum))
    for (head, r, tail), bound in list(expected.items()):
        if r == "r":  # a bound of one direction is one of the other
            expected[tail, r, head] = max(bound, expected.get((tail, r, head), 0.0))
    turned = {(tail, r, head): bound for (head, r, tail), bound in found.items() if r == "r"}
    assert found | turned == pytest.approx(expected, abs=1e-9)


def test_rules_may_use_the_names_behind_ids():
    facts = graph_of([("a", "r", "b", 0.9), ("b", "s", "c", 0.8)])
    rules = parse("'likes'(A,B) -> t(B,A)\n s(A,B) -> likes(A,B)")
    found = facts_of(ground(rules, facts, names={"r": "likes", "s": "knows"}))
    assert found == {("b", "t", "a"): 0.9, ("b", "r", "c"): 0.8}


@pytest.mark.parametrize(
    ("rules", "options", "sentence"),
    [
        ("u(A,B) -> s(B,A)", {}, "rules, line 1: the graph has no relation 'u'; it has 'r', 's', 't'"),
        ("SS(A,B) -> s(B,A)", {}, "did you mean 's'"),
        (
            "r(A,B) & r(C,B) -> s(A,C)",
            {"limit": 10},
            "more than 10 distinct groundings; raise the minimum bound",
        ),
        ("r(A,B) -> s(A,B)", {"minimum": 1.1}, "choose"),
        ("r(A,B) -> s(A,B)", {"rounds": 0}, "choose"),
    ],
)
def test_what_cannot_be_grounded_is_said(rules, options, sentence):
    facts = graph_of([(a, "r", b, 1.0) for a in "abcd" for b in "efgh"])
    with pytest.raises(InputError, match=sentence):
        ground(parse(rules), facts, **options)
