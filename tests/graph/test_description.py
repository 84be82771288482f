"""Counts of a description against counts made the slow way, on graphs full of repeats and overlaps."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds import graph_of_ids, vocabulary
from unkgcp.graph import Graph, Splits
from unkgcp.graph.datasets import Dataset
from unkgcp.graph.description import chart, describe, description_text

ENTITIES, RELATIONS = 4, 3
VOCABULARY = vocabulary(ENTITIES, RELATIONS)
fact = st.tuples(
    st.integers(0, ENTITIES - 1),
    st.integers(0, RELATIONS - 1),
    st.integers(0, ENTITIES - 1),
    st.sampled_from([0.0, 0.1, 0.3, 0.7, 0.9999999999999998, 1.0]),
)
some = st.lists(fact, min_size=1, max_size=12)


def graph_of(rows: list[tuple[int, int, int, float]]) -> Graph:
    return graph_of_ids(rows, VOCABULARY)


@settings(max_examples=200, deadline=None)
@given(
    train=some, validation=st.lists(fact, max_size=4), calibration=some, test=some, negatives=st.none() | some
)
def test_all_counts_agree_with_counting_by_hand(train, validation, calibration, test, negatives):
    splits = Splits(*(graph_of(part) for part in (train, calibration, test, validation)))
    found = describe(Dataset("d", splits, None if negatives is None else graph_of(negatives)))
    rows = train + validation + calibration + test
    triples = Counter(row[:3] for row in rows)
    learned = [row[:3] for row in train + validation]
    seen = {row[1] for row in learned}
    assert (found["facts"], found["train"], found["validation"]) == (len(rows), len(train), len(validation))
    assert (found["calibration"], found["test"]) == (len(calibration), len(test))
    assert found["entities"] == len({end for row in rows for end in (row[0], row[2])})
    assert found["relations"] == len({row[1] for row in rows})
    assert found["relations_unseen_in_training"] == len({row[1] for row in rows} - seen)
    assert found["test_rows_in_unseen_relations"] == sum(row[1] not in seen for row in test)
    known = {end for row in learned for end in (row[0], row[2])}
    assert found["entities_unseen_in_training"] == len({e for row in rows for e in (row[0], row[2])} - known)
    assert found["distinct_triples"] == len(triples)
    assert found["repeated_triples"] == sum(count > 1 for count in triples.values())
    values = {triple: {row[3] for row in rows if row[:3] == triple} for triple in triples}
    assert found["repeated_triples_with_other_confidence"] == sum(len(v) > 1 for v in values.values())
    assert found["self_loops"] == sum(row[0] == row[2] for row in rows)
    assert found["calibration_rows_in_train"] == sum(row[:3] in learned for row in calibration)
    assert found["test_rows_in_train"] == sum(row[:3] in learned for row in test)
    assert found["test_rows_in_calibration"] == sum(row[:3] in [c[:3] for c in calibration] for row in test)
    assert found["negatives_that_are_facts"] == sum(row[:3] in triples for row in negatives or [])
    confidence = np.array([row[3] for row in rows])
    assert found["confidence"]["mean"] == pytest.approx(confidence.mean())
    assert sum(found["confidence"]["histogram"]) == len(rows)
    atoms = Counter(round(value, 6) for value in confidence)
    assert {atom["value"]: atom["facts"] for atom in found["confidence"]["atoms"]} == dict(atoms)


def dataset_of(confidence: list[float]) -> Dataset:
    part = graph_of([(0, 0, 1, value) for value in confidence])
    return Dataset("d", Splits(part, part, part, part[:0]), hashes={"train.tsv": "abc"})


def test_atoms_need_a_hundredth_of_the_facts_and_come_largest_first():
    rare = [i / 1000 for i in range(1, 700)]
    found = describe(dataset_of([*rare, *[0.75] * 290, *[0.9999999999999998] * 11]))
    assert [(atom["value"], atom["facts"]) for atom in found["confidence"]["atoms"]] == [
        (0.75, 870),
        (1.0, 33),
    ]
    assert found["confidence"]["atoms"][0]["share"] == pytest.approx(0.29)


def test_the_dictionary_is_plain_json_and_its_keys_are_documented():
    keys = json.loads(json.dumps(describe(dataset_of([0.5]))))
    assert {"train", "calibration", "test", "entities", "relations", "relations_unseen_in_training"} <= set(
        keys
    )
    assert {"test_rows_in_train", "negatives_that_are_facts", "softlogic_rows_held", "files"} <= set(keys)
    assert set(keys["confidence"]) == {
        "minimum",
        "maximum",
        "mean",
        "standard_deviation",
        "histogram",
        "atoms",
    }


def test_bars_are_proportional_and_never_hide_a_fact():
    lines = chart([0, 1, 100, 200, 0, 0, 0, 0, 0, 50], width=60, plain=True)
    lengths = [line.count("#") for line in lines]
    assert lengths[3] == max(lengths) > 20
    assert lengths[1] == 1
    assert lengths[0] == 0
    assert abs(lengths[2] - lengths[3] / 2) <= 1
    assert all(len(line) <= 60 for line in lines)
    assert lines[0].strip() == "[0.0, 0.1)    0"
    assert lines[9].startswith("  [0.9, 1.0]")
    assert chart([0, 1, 100, 2000, 0, 0, 0, 0, 0, 50], width=60)[1].endswith("1  █")


def test_text_warns_only_of_what_is_there():
    clean = Splits(*(graph_of([(0, i, 1, 0.5)]) for i in range(3)), graph_of([]))
    splits = Splits(clean.train, clean.train, clean.test, graph_of([(0, 2, 1, 0.5)]))
    shown = description_text(describe(Dataset("my data", splits)))
    assert "my data" in shown
    assert "validation 1" in shown
    assert "1  calibration rows repeat a triple of the training part" in shown
    assert "self-loops" not in shown
    assert "negatives" not in shown
