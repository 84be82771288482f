"""Completions are the best of all candidates by their own exact answers, for every kind of backbone and method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run import Predictor, calibrate
from unkgcp.run.completion import complete_batch
from unkgcp.run.questions import completer_of
from unkgcp.training import Model

NAMES = ("head", "relation", "tail")


def batch(*rows: tuple[str | None, str | None, str | None]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(column, pa.string()) for column in zip(*rows, strict=True)], names=list(NAMES)
    )


def expected(
    predictor: Predictor, head: str | None, relation: str, tail: str | None, rank_by: str, known: bool
) -> list[tuple[str, str, str]]:
    """All candidates one by one, sorted in plain Python."""
    vocabulary, model = predictor.model.vocabulary, predictor.model
    entities = vocabulary.entities.to_pylist()
    taken = set()
    if known:
        graph = predictor.known.graph(vocabulary)
        taken = set(zip(graph.head.tolist(), graph.relation.tolist(), graph.tail.tolist(), strict=True))
    r = int(vocabulary.relation_ids([relation])[0])
    triples = []
    for place, label in enumerate(entities):
        triple = (label, relation, tail) if head is None else (head, relation, label)
        ids = (int(vocabulary.entity_ids([triple[0]])[0]), r, int(vocabulary.entity_ids([triple[2]])[0]))
        if model.seen_entities[place] and ids not in taken:
            triples.append(triple)
    answers = predictor.interval(triples, 0.7)
    keys = list(zip((-answers.lower).tolist(), (-answers.score).tolist(), range(len(triples)), strict=True))
    if rank_by == "score":
        keys = [(0.0, score, place) for _, score, place in keys]
    return [triples[place] for *_, place in sorted(keys)]


@pytest.mark.parametrize("rank_by", ["score", "lower"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("k", [1, 5, 1000])
def test_the_best_of_all(predictor: Predictor, rank_by: str, known: bool, k: int) -> None:
    for head, tail in (("entity 3", None), (None, "entity 5")):
        best = expected(predictor, head, "r1", tail, rank_by, known)[:k]
        found = predictor.complete(
            head, "r1", tail, k=k, confidence=0.7, rank_by=rank_by, exclude_known=known
        )
        assert [tuple(row[name] for name in NAMES) for row in found.to_arrow().to_pylist()] == best
        alone = predictor.interval(best, 0.7)
        for name in ("score", "lower", "upper", "code"):
            np.testing.assert_array_equal(getattr(found, name), getattr(alone, name))


@pytest.mark.parametrize("rank_by", ["score", "lower"])
def test_ties_go_by_the_vocabulary(
    make_model: Callable[..., Model],
    make_facts: Callable[..., Graph],
    rank_by: str,
) -> None:
    model = make_model(model="ukge-rect")
    tables = model.tables | {"b": np.full_like(model.tables["b"], 1e6)}  # all scores are cut to 1
    model = replace(model, tables=tables)
    predictor = calibrate(model, make_facts(200, seed=1))
    found = predictor.complete(
        head=model.vocabulary.entities[1].as_py(),
        relation=model.vocabulary.relations[0].as_py(),
        k=3,
        rank_by=rank_by,
    )
    best = np.flatnonzero(model.seen_entities)[:3]
    assert found.score.tolist() == [1, 1, 1]
    assert found.to_arrow()["tail"].to_pylist() == model.vocabulary.entities.take(pa.array(best)).to_pylist()


def test_a_batch_is_its_queries_one_by_one(predictor: Predictor) -> None:
    rows = [
        ("entity 3", "r1", "?"),
        ("nobody", "r1", ""),
        (None, "r0", "entity 7"),
        ("entity 2", "nothing", None),
        ("?", "r2", "entity 39"),  # without a training fact
    ]
    found = complete_batch(predictor, batch(*rows), 3, [0.5, 0.8], exclude_known=True, first=10).to_pylist()
    assert [(row["query"], row["rank"]) for row in found] == [
        *((10, 1), (10, 2), (10, 3), (11, 1)),
        *((12, 1), (12, 2), (12, 3), (13, 1), (14, 1)),
    ]
    status = ["ok"] * 3 + ["unknown-entity"] + ["ok"] * 3 + ["unknown-relation", "unknown-entity"]
    assert [row["status"] for row in found] == status
    for row in (found[3], found[7]):
        assert (row["tail"], row["score"], row["lower_80"], row["upper_80"]) == (None, None, 0, 1)
    assert (found[8]["head"], found[8]["tail"]) == (None, "entity 39")
    single = predictor.complete("entity 3", "r1", k=3, confidence=[0.5, 0.8], exclude_known=True).to_arrow()
    for row, alone in zip(found[:3], single.to_pylist(), strict=True):
        assert {name: row[name] for name in alone if name != "prediction"}.items() <= alone.items()


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (("a", "r1", "b"), "query 6 leaves neither head nor tail open"),
        (("?", "r1", ""), "query 6 leaves head and tail open"),
        (("a", "?", "b"), "query 6 leaves its relation open"),
    ],
)
def test_queries_without_one_open_place(
    predictor: Predictor, row: tuple[str, str, str], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        complete_batch(predictor, batch(("a", "r1", "?"), row), 3, first=4)


def test_what_cannot_be_asked(predictor: Predictor) -> None:
    with pytest.raises(InputError, match="at least 1"):
        predictor.complete("entity 1", "r1", k=0)
    with pytest.raises(InputError, match="score or lower"):
        predictor.complete("entity 1", "r1", rank_by="upper")
    bare = replace(predictor, model=replace(predictor.model, facts=None))
    with pytest.raises(InputError, match="does not hold its training facts"):
        bare.complete("entity 1", "r1", exclude_known=True)


@pytest.fixture
def evidence(make_facts: Callable[..., Graph], make_model: Callable[..., Model]) -> Predictor:
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
    model = replace(make_model(), facts=KnownFacts.of(make_facts(400)))
    return calibrate(model, make_facts(200, seed=1), "evidence")


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("k", [3, 1000])
def test_evidence_ranks_by_what_it_expects(evidence: Predictor, known: bool, k: int) -> None:
    """Not by the score, which is about facts: training facts first, by confidence, then the others."""
    completer = completer_of(evidence)
    assert completer is not None
    expected = completer.expected(3, 1, False)
    assert evidence.facts is not None
    taken = evidence.known.tails(3, 1) if known else evidence.facts.tails(3, 1)
    allowed = [
        place
        for place in np.flatnonzero(evidence.model.seen_entities).tolist()
        if not (known and place in taken)
    ]
    best = sorted(allowed, key=lambda place: (-expected[place], place))[:k]
    found = evidence.complete("entity 3", "r1", k=k, confidence=0.7, exclude_known=known)
    labels = evidence.model.vocabulary.entities.take(pa.array(best)).to_pylist()
    assert found.to_arrow()["tail"].to_pylist() == labels
    alone = evidence.interval([("entity 3", "r1", label) for label in labels], 0.7)
    np.testing.assert_array_equal(found.lower, alone.lower)
    assert found.expected is not None
    assert ((found.expected >= 0) & (found.expected <= 1)).all()
    if not known:
        first = set(np.asarray(taken).tolist()) & set(allowed)
        assert set(best[: len(first)]) <= first


def test_by_the_lower_end_of_what_is_likely_a_fact(evidence: Predictor) -> None:
    found = evidence.complete("entity 3", "r1", k=30, confidence=0.7, rank_by="lower", exclude_known=True)
    assert found.expected is not None
    worth = found.lower * np.minimum(found.expected / found.score, 1)
    assert (np.diff(worth) <= 0).all()


def test_a_completion_says_that_its_interval_presumes_a_fact(
    predictor: Predictor, evidence: Predictor, make_facts: Callable[..., Graph]
) -> None:
    for each in (predictor, evidence):
        told = complete_batch(each, batch(("entity 3", "r1", "?"), ("nobody", "r1", "?")), 2).to_pylist()
        assert [row["presumes_fact"] for row in told] == [True, True, True]
        assert ("expected" in told[0]) == (each is evidence)
        assert "presumes_fact" not in each.interval([("entity 3", "r1", "entity 4")]).to_arrow().schema.names
    assert evidence.complete("nobody", "r1").to_arrow()["expected"].to_pylist() == [None]
    opened = calibrate(evidence.model, make_facts(200, seed=1), "cp", population="open")
    names = opened.complete("entity 3", "r1", k=2).to_arrow().schema.names
    assert "presumes_fact" not in names
    assert "no_fact" in names


def test_answer_sets_of_evidence_rank_as_completions_do(
    evidence: Predictor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are calibrated with some facts, the same ones after the run was saved."""
    monkeypatch.setattr("unkgcp.run.answer_sets.FACTS", 50)
    evidence.save(tmp_path / "run")
    found, again = (
        each.answers("entity 3", "r1", confidence=0.8, per="none")
        for each in (evidence, Predictor.load(tmp_path / "run"))
    )
    assert found.calibration == 50
    assert found.notes[0].startswith("calibrated with 50 of ")
    assert again.entities.to_pylist() == found.entities.to_pylist()
    assert evidence.facts is not None
    taught = evidence.facts.graph(evidence.model.vocabulary)
    best = evidence.complete("entity 3", "r1", k=100, exclude=taught).to_arrow()["tail"].to_pylist()
    assert found.entities.to_pylist() == best[: len(found)]


def test_what_is_known_is_known(
    make_model: Callable[..., Model], make_facts: Callable[..., Graph], tmp_path: Path
) -> None:
    """Training, calibration and test facts are left out, and what a user names."""
    train, held, test = (make_facts(120, seed=seed) for seed in (1, 2, 3))
    predictor = calibrate(replace(make_model(), facts=KnownFacts.of(train)), held, "cp").remembering(test)
    predictor.save(tmp_path / "run")
    rows = {
        tuple(row[name] for name in NAMES)
        for part in (train, held, test)
        for row in part.table().select(NAMES).to_pylist()
    }
    for one in (predictor, Predictor.load(tmp_path / "run")):
        every, new = (
            {
                tuple(row[name] for name in NAMES)
                for row in one.complete("entity 3", "r1", k=99, **options).to_arrow().to_pylist()
            }
            for options in ({}, {"exclude_known": True})
        )
        assert new == every - rows < every
        left = sorted(every)[:2]
        found = one.complete("entity 3", "r1", k=99, exclude=left).to_arrow().to_pylist()
        assert {tuple(row[name] for name in NAMES) for row in found} == every - {*left}
    assert len(predictor.remembering(train, held, test).aside or ()) == len(predictor.aside or ()), (
        "each is kept once"
    )
