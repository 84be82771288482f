"""ERT: closed forms, the reference implementation, and what a classifier that has seen the answers would claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unkgcp.evaluation import slices as module
from unkgcp.evaluation.slices import FOLDS, excess_risk, folds, held_out_probabilities, risk_of

N = 20_000


def drawn(probability: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(len(probability)) < probability


def features(seed: int) -> np.ndarray:
    return np.random.default_rng([7, seed]).random((N, 3))


def test_two_kinds_of_queries() -> None:
    """A half is covered with 1, a half with 0.8: |p - 0.9| is 0.1 on average, half of it below.

    Given the right sign for every row, the mean of (covered - 0.9) over the half has standard error 0.4 / sqrt(N / 2);
    five of them are a false-alarm rate below 1e-6.
    """
    x = features(0)
    hard = x[:, 1] < 0.5
    found = excess_risk(x, drawn(np.where(hard, 0.8, 1.0), 1), 0.9, rng=np.random.default_rng(2))
    allowed = 5 * 0.4 / math.sqrt(N / 2) / 2
    assert abs(found.both - 0.1) < allowed + 0.002
    assert abs(found.below - 0.05) < allowed + 0.002


@pytest.mark.parametrize("seed", range(5))
def test_even_coverage_shows_nothing(seed: int) -> None:
    # any sign that does not look at the rows judged has mean 0 and standard error at most 0.3 / sqrt(N)
    found = excess_risk(features(seed), drawn(np.full(N, 0.9), seed), 0.9, rng=np.random.default_rng(seed))
    assert abs(found.both) < 5 * 0.3 / math.sqrt(N)
    assert abs(found.below) < 5 * 0.3 / math.sqrt(N)


def test_a_classifier_that_has_seen_its_rows_claims_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: learned from the rows it is judged on, it finds differences where there are none."""
    x, inside = features(3)[:2000], drawn(np.full(2000, 0.9), 3)
    honest = excess_risk(x, inside, 0.9, rng=np.random.default_rng(0)).both
    learn = module._boost
    monkeypatch.setattr(
        module, "_boost", lambda codes, target, rows: learn(codes, target, np.ones_like(rows))
    )
    claimed = excess_risk(x, inside, 0.9, rng=np.random.default_rng(0)).both
    assert abs(honest) < 5 * 0.3 / math.sqrt(2000)
    assert claimed > 5 * 0.3 / math.sqrt(2000)


def test_it_never_exceeds_what_there_is() -> None:
    """In expectation: by classifiers of any quality, over many kinds of uneven coverage."""
    for seed in range(8):
        x, rng = features(seed), np.random.default_rng(seed)
        probability = np.clip(0.9 + rng.normal() * 0.2 * (x[:, 0] - 0.5) * x[:, 1], 0, 1)
        found = excess_risk(x, drawn(probability, seed), 0.9, rng=rng)
        assert found.both < np.abs(probability - 0.9).mean() + 5 * 0.3 / math.sqrt(N)


def test_everything_covered() -> None:
    found = excess_risk(features(0)[:100], np.ones(100, bool), 0.9, rng=np.random.default_rng(0))
    assert found.both == pytest.approx(0.1)
    assert found.below == 0.0


def test_by_hand() -> None:
    # signs +, -, 0, -; what is covered less the level: 0.25, 0.25, -0.75, -0.75
    found = risk_of(np.array([0.8, 0.5, 0.75, 0.1]), np.array([True, True, False, False]), 0.75)
    assert found.both == (0.25 - 0.25 + 0.75) / 4
    assert found.below == (-0.25 + 0.75) / 4


def test_few_rows_and_bad_shapes() -> None:
    rng = np.random.default_rng(0)
    assert math.isnan(excess_risk(np.zeros((9, 1)), np.ones(9, bool), 0.9, rng=rng).both)
    with pytest.raises(ValueError, match="features must be"):
        excess_risk(np.zeros(20), np.ones(20, bool), 0.9, rng=rng)


def test_a_seed_gives_the_same_figure() -> None:
    x, inside = features(1)[:500], drawn(np.full(500, 0.8), 1)
    first, second = (excess_risk(x, inside, 0.9, rng=np.random.default_rng(5)) for _ in range(2))
    assert first == second


def test_the_reference_says_the_same() -> None:
    """`covmetrics` of the authors, given the same probabilities of held-out rows."""
    reference = pytest.importorskip("covmetrics.ERT", reason="pip install 'unkgcp[dev]' brings covmetrics")
    losses = pytest.importorskip("covmetrics.losses")
    x = features(2)[:5000]
    inside = drawn(np.where(x[:, 0] < 0.2, 0.5, 0.97), 2)
    fold = folds(len(x), np.random.default_rng(0))
    probability = held_out_probabilities(x, inside, fold)
    ours, covered = risk_of(probability, inside, 0.9), inside.astype(float)

    def theirs(loss: object) -> float:
        parts = [
            reference.evaluate_with_predictions(
                probability[fold == k], covered[fold == k], 1 - 0.9, loss=loss
            )
            for k in range(FOLDS)
        ]
        return float(np.mean(parts))

    assert ours.both == pytest.approx(theirs(losses.L1_miscoverage), abs=1e-12)
    assert ours.below == pytest.approx(theirs(losses.L1_miscoverage_under), abs=1e-12)
    # and with their folds and another classifier about the same comes out
    from sklearn.tree import DecisionTreeClassifier

    other = reference.ERT(model_cls=DecisionTreeClassifier, max_depth=3).evaluate(x, covered, 1 - 0.9)
    assert ours.both == pytest.approx(other, abs=5 * 0.3 / math.sqrt(len(x)))


def test_figures_of_the_reference() -> None:
    """What covmetrics 0.1.2 gives for rows that anybody can write down, so that it need not be installed.

    p = np.tile([0.95, 0.5, 0.9, 0.2], 25); z = np.arange(100) % 3 > 0
    evaluate_with_predictions(p, z.astype(float), 0.1, loss=L1_miscoverage)  # and L1_miscoverage_under
    """
    probability, inside = np.tile([0.95, 0.5, 0.9, 0.2], 25), np.arange(100) % 3 > 0
    found = risk_of(probability, inside, 0.9)
    assert found.both == pytest.approx(REFERENCE[0], abs=1e-12)
    assert found.below == pytest.approx(REFERENCE[1], abs=1e-12)


REFERENCE = (0.055, 0.12)
