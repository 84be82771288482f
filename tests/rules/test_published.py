"""The soft-logic files published with UKGE come out of our grounding; needs the benchmarks' files."""

import numpy as np
import pytest

from unkgcp.graph import load_dataset
from unkgcp.graph.facts import contained
from unkgcp.rules import ground, parse


@pytest.mark.parametrize(("name", "relation", "count"), [("nl27k", "272", 29_229), ("ppi5k", "0", 2_370)])
def test_every_published_bound(published, name, relation, count):
    dataset = load_dataset(name, data_dir=published(name), symmetric="none")
    splits = dataset.splits
    known = [splits.train, splits.calibration, splits.test]
    new = dataset.softlogic[~np.isin(dataset.softlogic.keys, np.concatenate([part.keys for part in known]))]
    # of repeated triples the highest bound counts
    stated = new[np.lexsort((-new.confidence, new.keys))]
    stated = stated[np.unique(stated.keys, return_index=True)[1]]
    assert len(stated) == count
    rules = parse(f"{relation}(A,B) & {relation}(B,C) -> {relation}(A,C)")
    bounds = ground(rules, splits.train)
    assert contained(stated.keys, bounds.keys).all()
    ours = bounds.confidence[np.searchsorted(bounds.keys, stated.keys)]
    # the files have three decimals
    np.testing.assert_allclose(ours, stated.confidence, rtol=0, atol=0.0005 + 1e-9)


@pytest.mark.parametrize(("name", "relation", "count"), [("nl27k", "272", 162), ("ppi5k", "0", 10_905)])
def test_rows_about_calibration_and_test_follow_from_training_alone(published, name, relation, count):
    dataset = load_dataset(name, data_dir=published(name), symmetric="none")
    held = dataset.softlogic[dataset.softlogic_held]
    assert len(held) == count
    bounds = ground(
        parse(f"{relation}(A,B) & {relation}(B,C) -> {relation}(A,C)"), dataset.splits.train, minimum=0.0
    )
    rows = contained(held.keys, bounds.keys)
    stated = contained(held.keys, np.sort(dataset.splits.train.keys))  # those keep their confidence
    assert (rows | stated).all()
    best = bounds.confidence[np.searchsorted(bounds.keys, held.keys[rows])]
    assert (held.confidence[rows] <= best + 0.0005 + 1e-9).all()
