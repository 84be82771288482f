"""The formulas of the paper on values worked out by hand, in double precision, so that rounding hides no mistake."""

import math

import pytest
import torch

from unkgcp.backbones import get, score_triples
from unkgcp.backbones.beurre import BETA, EULER_GAMMA

IDS = (torch.tensor([0]), torch.tensor([0]), torch.tensor([1]))


def score(name: str, **tables: list[list[float]]) -> float:
    parameters = {key: torch.tensor(rows, dtype=torch.float64) for key, rows in tables.items()}
    return float(score_triples(get(name), parameters, *IDS))


def test_ukge_logi() -> None:
    # s = 1*2*0.5 + 2*(-1)*1 = -1, so w s + b = -2 + 0.5
    value = score("ukge", entity=[[1, 2], [0.5, 1]], relation=[[2, -1]], w=[[2.0]], b=[[0.5]])
    assert value == pytest.approx(1 / (1 + math.exp(1.5)), rel=1e-12)


@pytest.mark.parametrize(("b", "expected"), [(0.5, 0.25), (5.0, 1.0), (-5.0, 0.0)])
def test_ukge_rect_is_cut_to_the_unit_interval(b: float, expected: float) -> None:
    value = score("ukge-rect", entity=[[1.0, 2], [0.5, 1]], relation=[[2.0, -1]], w=[[0.25]], b=[[b]])
    assert value == pytest.approx(expected)


def gumbel_side(low1: float, side1: float, low2: float, side2: float) -> float:
    low = BETA * math.log(math.exp(low1 / BETA) + math.exp(low2 / BETA))
    high = -BETA * math.log(math.exp(-(low1 + side1) / BETA) + math.exp(-(low2 + side2) / BETA))
    return high - low


def log_softplus(x: float) -> float:
    return math.log(math.log1p(math.exp(x)))


def test_beurre_is_the_covered_share_of_the_tail_box() -> None:
    # head box [0.1, 0.1 + 0.5 * 2], tail box [0.2, 0.2 + 0.8 * 1]
    offset = 2 * EULER_GAMMA * BETA
    shared = gumbel_side(0.1, 1.0, 0.2, 0.8)
    expected = math.exp(log_softplus(shared - offset) - log_softplus(0.8 - offset))
    value = score(
        "beurre",
        low=[[0.05], [0.3]],
        log_side=[[math.log(0.5)], [math.log(0.8)]],
        head_shift=[[0.05]],
        head_scale=[[2.0]],
        tail_shift=[[-0.1]],
        tail_scale=[[1.0]],
    )
    assert value == pytest.approx(expected, rel=1e-12)
