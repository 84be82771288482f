"""How much a triple looks like a fact: learned, stored, and calibrated for the open world."""

from __future__ import annotations

import numpy as np
import pytest

from tests.worlds import mirrored_graph
from unkgcp.errors import InputError
from unkgcp.evidence import Evidence, EvidenceModel
from unkgcp.evidence.nonfacts import FactLikeness, learn_likeness
from unkgcp.evidence.trees import Boosting
from unkgcp.graph import load_dataset, write
from unkgcp.graph.negatives import KINDS, corrupt
from unkgcp.methods.open_world import OpenWorld
from unkgcp.run import Predictor, fit

pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'unkgcp[evidence]'")
FEW = Boosting(rounds=20, leaves=7)


def unlearned(graph):
    return EvidenceModel(Evidence.of(graph), None, None, None)  # type: ignore[arg-type]


def test_facts_look_more_like_facts_and_arrays_bring_it_back():
    graph = mirrored_graph(3000, 0)
    order = np.random.default_rng(0).permutation(len(graph))
    train, rest = graph[order[:2400]], graph[order[2400:]]
    model = unlearned(train)
    likeness = learn_likeness(model, trees=FEW)
    facts, others = likeness(rest), likeness(corrupt(rest, train, seed=1))
    assert np.mean(facts[:, None] > others[None, :]) > 0.8
    again = FactLikeness.restore(model, likeness.arrays())
    assert (again(rest) == facts).all()
    assert (likeness(rest[:7]) == facts[:7]).all()
    with pytest.raises(ValueError, match="trees"):
        FactLikeness.restore(unlearned(train), {**likeness.arrays(), "features": np.array(999)})


def test_a_large_graph_is_learned_from_in_part(monkeypatch):
    seen = []

    class Watched(Boosting):
        def learn(self, table, label, held_table, held_label, total):
            seen.append(np.concatenate([label, held_label]))
            return super().learn(table, label, held_table, held_label, total)

    monkeypatch.setattr("unkgcp.evidence.nonfacts.MOST", 300)
    learn_likeness(unlearned(mirrored_graph(3000, 0)), trees=Watched(rounds=5))
    (label,) = seen
    assert (label == 1).sum() == 300
    assert 200 < (label == 0).sum() <= 300


def test_a_value_that_one_fold_alone_has_keeps_its_columns():
    graph = mirrored_graph(300, 0)
    confidence = np.where(graph.confidence > 0.5, 0.8, 0.2)
    confidence[17] = 0.5
    model = unlearned(graph.with_confidence(confidence))
    likeness = learn_likeness(model, trees=FEW)
    assert (FactLikeness.restore(model, likeness.arrays())(graph) == likeness(graph)).all()


def test_a_run_for_the_open_world(tmp_path):
    write(mirrored_graph(2500, 1), tmp_path / "facts.tsv")
    dataset = load_dataset(str(tmp_path / "facts.tsv"), seed=0)
    predictor = fit(dataset, population="open")
    predictor.save(tmp_path / "run")
    loaded = Predictor.load(tmp_path / "run")
    assert isinstance(loaded.method, OpenWorld)
    assert set(loaded.method.scores) == set(KINDS) - {
        "reversed"
    }  # half of its facts are known the other way round
    assert "(uniform, same-type, frequent, relation, near)" in loaded.method.guarantee
    one, other = (each.interval(dataset.splits.test, [0.8, 0.9]) for each in (predictor, loaded))
    assert (one.lower == other.lower).all()
    assert (one.no_fact == other.no_fact).all()
    with pytest.raises(InputError, match="odd"):
        fit(dataset, population="open", kinds=("odd",))
