"""The soft-logic files published with UKGE come out of our grounding; needs the benchmarks' files."""

import numpy as np
import pytest

from unkgcp.graph import load_dataset
from unkgcp.graph.facts import contained
from unkgcp.rules import ground, parse, unseen


@pytest.mark.parametrize(("name", "relation", "count"), [("nl27k", "272", 29_229), ("ppi5k", "0", 2_370)])
def test_every_published_bound(published, name, relation, count):
    dataset = load_dataset(name, data_dir=published(name))
    splits = dataset.splits
    known = [splits.train, splits.calibration, splits.test]
    stated = unseen(dataset.softlogic, known)
    assert len(stated) == count
    rules = parse(f"{relation}(A,B) & {relation}(B,C) -> {relation}(A,C)")
    bounds = ground(rules, splits.train, exclude=known[1:])
    assert contained(stated.keys, bounds.keys).all()
    ours = bounds.confidence[np.searchsorted(bounds.keys, stated.keys)]
    # the files have three decimals
    np.testing.assert_allclose(ours, stated.confidence, rtol=0, atol=0.0005 + 1e-9)
