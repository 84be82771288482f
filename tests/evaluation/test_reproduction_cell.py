"""A cell measured from stored scores agrees with the definitions, worked out here in another way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.evaluation.conftest import by_hand
from tests.rounding import apart
from unkgcp.conformal.scores import EntropyResidual, Residual
from unkgcp.evaluation.metrics import error_bins
from unkgcp.evaluation.reproduction import LEVELS, PREDICTORS, Block
from unkgcp.evaluation.reproduction.cell_figures import measure, size_curve, sizes, width_by_error
from unkgcp.evaluation.slices import tenths_of_doubt
from unkgcp.graph import Dataset

BLOCK = Block("paper", "tiny", "ukge", (0,))


def kth_smallest(scores: np.ndarray, level: float) -> float:
    """The threshold by the paper's formula, in integers."""
    k = math.ceil(round(level * 100) * (len(scores) + 1) / 100)
    return float(np.sort(scores)[k - 1]) if k <= len(scores) else math.inf


def entropy(m: np.ndarray) -> np.ndarray:
    m = np.clip(m, 1e-6, 1 - 1e-6)
    return -m * np.log(m) - (1 - m) * np.log(1 - m)


def expected(method: str, calibration, asked, level):
    """Coverage, mean width, interval score and worst tenth of CP and UnKGCP, written down plainly."""
    (m, c), (q, y) = calibration, asked
    unit, wide = (np.ones_like(m), np.ones_like(q)) if method == "cp" else (entropy(m), entropy(q))
    threshold = kth_smallest(np.abs(m - c) / unit, level)
    inside = np.abs(q - y) / wide <= threshold
    width = np.minimum(q + threshold * wide, 1) - np.maximum(q - threshold * wide, 0)
    low, high = np.maximum(q - threshold * wide, 0), np.minimum(q + threshold * wide, 1)
    missed = np.maximum(np.maximum(low - y, y - high), 0)
    _, worst = tenths_of_doubt(entropy(q), inside)
    return inside.mean(), width.mean(), (width + 2 / (1 - level) * missed).mean(), worst


@pytest.fixture(scope="module")
def measured(dataset: Dataset):
    scores = by_hand(dataset)
    return scores, measure(BLOCK, 0, dataset, LEVELS, scores, None, PREDICTORS)


@pytest.mark.parametrize("method", ["cp", "unkgcp"])
@pytest.mark.parametrize("part", ["positive", "negative", "combined_positive", "combined_negative"])
def test_each_part_has_its_own_threshold(dataset, measured, method, part):
    scores, cell = measured
    truth = {"calibration": dataset.splits.calibration.confidence, "test": dataset.splits.test.confidence}
    column = {
        name: (value.astype(float), truth.get(name, np.zeros(len(value)))) for name, value in scores.items()
    }
    both = tuple(
        np.concatenate(pair)
        for pair in zip(column["calibration"], column["calibration_negatives"], strict=True)
    )
    source = {"positive": column["calibration"], "negative": column["calibration_negatives"]}.get(part, both)
    asked = column["negatives" if "negative" in part else "test"]
    for place, level in enumerate(LEVELS):
        coverage, width, score, worst = expected(method, source, asked, level)
        found = cell["predictors"][method][part]
        assert found["coverage"][place] == pytest.approx(coverage, abs=1e-12)
        assert found["sharpness"][place] == pytest.approx(width, abs=1e-9)
        assert found["interval_score"][place] == pytest.approx(score, abs=1e-7)
        assert found["worst_tenth"][place] == pytest.approx(worst, abs=1e-12)


def test_the_thresholds_differ(measured):
    """Else the test above could not tell a wrong one."""
    figures = measured[1]["predictors"]["cp"]
    assert len({tuple(figures[part]["sharpness"]) for part in ("positive", "combined_positive")}) == 2
    assert len({tuple(figures[part]["sharpness"]) for part in ("negative", "combined_negative")}) == 2


def test_overlap_free_facts_are_those_of_no_earlier_triple(dataset, measured):
    splits = dataset.splits
    known = {
        triple
        for part in (splits.train, splits.calibration)
        for triple in zip(part.head.tolist(), part.relation.tolist(), part.tail.tolist(), strict=True)
    }
    test = zip(
        splits.test.head.tolist(), splits.test.relation.tolist(), splits.test.tail.tolist(), strict=True
    )
    free = [triple not in known for triple in test]
    assert 0 < sum(free) < len(free)
    assert measured[1]["n"]["overlap_free"] == sum(free)
    error = measured[0]["test"].astype(float)[free] - splits.test.confidence[free]
    assert measured[1]["errors"]["overlap_free"]["mse"] == pytest.approx(np.mean(error**2))


def test_unknown_facts_get_the_whole_range_and_no_error(dataset):
    plain, scores = by_hand(dataset), by_hand(dataset, unknown=30)
    cell = measure(BLOCK, 0, dataset, (0.9,), scores, None, PREDICTORS)
    without = {**plain, "test": plain["test"][30:]}
    rest = Dataset("tiny", type(dataset.splits)(dataset.splits.train, dataset.splits.calibration,
                   dataset.splits.test[30:], dataset.splits.validation), dataset.negatives)  # fmt: skip
    other = measure(BLOCK, 0, rest, (0.9,), without, None, PREDICTORS)
    n = len(scores["test"])
    for kind in ("coverage", "sharpness"):
        known = other["predictors"]["unkgcp"]["positive"][kind][0]
        assert cell["predictors"]["unkgcp"]["positive"][kind][0] == pytest.approx((known * (n - 30) + 30) / n)
    assert cell["errors"]["positive"] == pytest.approx(other["errors"]["positive"])
    assert cell["n"]["unknown_test"] == 30


def test_quantile_regression_takes_the_stored_quantiles(dataset):
    scores = by_hand(dataset)
    test, negatives = scores["test"], scores["negatives"]
    # the second pair crosses on purpose: the ends change places
    stored = {
        "quantiles": np.array([0.05, 0.1, 0.9, 0.95]),
        "test": np.stack([test - 0.3, test + 0.1, test - 0.1, test + 0.2]),
        "negatives": np.stack([negatives] * 4),
    }
    cell = measure(BLOCK, 0, dataset, (0.8, 0.9), scores, stored, PREDICTORS)
    truth = dataset.splits.test.confidence
    lower, upper = test.astype(float) - 0.3, test.astype(float) + 0.2
    found = cell["predictors"]["qr"]["positive"]
    assert found["sharpness"] == pytest.approx([0.2, 0.5], abs=apart(4, 1.0))  # quantiles in single precision
    assert found["coverage"][1] == pytest.approx(np.mean((lower <= truth) & (truth <= upper)), abs=0.01)
    assert cell["predictors"]["qr"]["negative"]["sharpness"] == [0.0, 0.0]


def test_the_plain_entropy_stands_beside_the_mapped_one(dataset):
    scores = by_hand(dataset)
    mapped = measure(Block("paper", "cn15k", "ukge", (0,)), 0, dataset, LEVELS, scores, None, PREDICTORS)[
        "predictors"
    ]
    plain = measure(BLOCK, 0, dataset, LEVELS, scores, None, PREDICTORS)["predictors"]
    assert mapped["unkgcp-plain"] == plain["unkgcp"]
    assert mapped["unkgcp"] != plain["unkgcp"]
    assert "unkgcp-plain" not in plain


def test_bins_of_error_and_their_mean_width(dataset, measured):
    scores, cell = measured
    truth = dataset.splits.test.confidence
    error = np.abs(scores["test"].astype(float) - truth)
    found = cell["conditionality"]["positive"]
    edges = np.linspace(error.min(), error.max(), 31)
    assert found["edges"] == pytest.approx(edges.tolist())
    assert found["count"] == np.histogram(error, edges)[0].tolist()
    cp = found["predictors"]["cp"]
    assert sum(cp["covered"]) == round(cell["predictors"]["cp"]["positive"]["coverage"][2] * len(error))
    assert [width is None for width in cp["width"]] == [count == 0 for count in cp["covered"]]


def test_only_covered_facts_are_averaged():
    error = np.array([0.0, 0.5, 0.5, 1.0])
    _, member = error_bins(error)
    width = np.array([0.1, 0.2, 0.9, 0.4])
    found = width_by_error(error, member, width, np.array([True, True, False, False]))
    kept = [value for value in found["width"] if value is not None]
    assert kept == [0.1, 0.2]
    assert found["spearman"] == pytest.approx(1.0)
    assert sum(found["covered"]) == 2


def test_sizes_double_up_to_all():
    assert sizes(100) == [10, 20, 40, 80, 100]
    assert sizes(7) == [7]
    assert sizes(40) == [10, 20, 40]


@pytest.mark.parametrize(("score", "method"), [(Residual(), "cp"), (EntropyResidual(), "unkgcp")])
def test_the_whole_calibration_set_gives_the_figures_of_the_cell(dataset, measured, score, method):
    cell = measured[1]
    found = cell["calibration_size"]["positive"]
    assert found["sizes"] == [10, 20, 40, 80, 150]
    own = cell["predictors"][method]["positive"]
    assert found["predictors"][method]["coverage"][-1] == pytest.approx(own["coverage"][2], abs=1e-12)
    assert found["predictors"][method]["sharpness"][-1] == pytest.approx(own["sharpness"][2], abs=1e-9)
    assert found["predictors"][method]["coverage_sd"][-1] == 0
    assert found["predictors"][method]["coverage_sd"][0] > 0


def test_subsets_cover_on_average():
    """Coverage of random subsets of size 10 at 90 % averages 10/11: four standard errors are allowed."""
    rng = np.random.default_rng(3)
    prediction, truth = rng.random(4000), rng.random(4000)
    found = size_curve(
        Residual(), (prediction[:2000], truth[:2000]), (prediction[2000:], truth[2000:]), seed=1, draws=400
    )
    assert found["coverage"][0] == pytest.approx(10 / 11, abs=4 * found["coverage_sd"][0] / 20)
