"""The soft-logic files published with UKGE come out of our grounding; needs the benchmarks' files."""

import os
from pathlib import Path

import numpy as np
import pytest

from unkgcp.graph import load_dataset
from unkgcp.graph.facts import contained
from unkgcp.rules import ground, parse, unseen

DATA = os.environ.get("UNKGCP_DATA", "")


@pytest.mark.parametrize(("name", "relation", "count"), [("nl27k", "272", 29_229), ("ppi5k", "0", 2_370)])
def test_every_published_bound(name, relation, count):
    if not (Path(DATA) / name / "softlogic.tsv").is_file():
        pytest.skip(f"set UNKGCP_DATA to a folder with {name}")
    dataset = load_dataset(name, data_dir=DATA)
    splits = dataset.splits
    known = [splits.train, splits.calibration, splits.test]
    published = unseen(dataset.softlogic, known)
    assert len(published) == count
    rules = parse(f"{relation}(A,B) & {relation}(B,C) -> {relation}(A,C)")
    bounds = ground(rules, splits.train, exclude=known[1:])
    assert contained(published.keys, bounds.keys).all()
    ours = bounds.confidence[np.searchsorted(bounds.keys, published.keys)]
    # the files have three decimals
    np.testing.assert_allclose(ours, published.confidence, rtol=0, atol=0.0005 + 1e-9)
