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


def test_ukge_rect_is_trained_without_the_cut() -> None:
    rows = {"entity": torch.tensor([[3.0]])}
    linear = get("ukge-rect").value(
        rows,
        {"relation": torch.tensor([[2.0]])},
        rows,
        {"w": torch.tensor([[1.0]]), "b": torch.tensor([[0.0]])},
    )
    assert float(linear) == 18.0


def test_complex_is_the_real_part_of_the_hermitian_product() -> None:
    h, r, t = complex(1, 2), complex(0.5, -1), complex(-1, 0.25)
    raw = (h * r * t.conjugate()).real
    value = score(
        "passleaf-complex", entity=[[1.0, 2], [-1, 0.25]], relation=[[0.5, -1]], w=[[1.0]], b=[[0.0]]
    )
    assert value == pytest.approx(1 / (1 + math.exp(-raw)), rel=1e-12)


def test_rotate_is_a_distance_after_rotation() -> None:
    h, t, angle = complex(1, 0), complex(0, 0.5), math.pi / 2
    raw = -abs(h * complex(math.cos(angle), math.sin(angle)) - t)
    value = score("passleaf-rotate", entity=[[1.0, 0], [0, 0.5]], angle=[[angle]], w=[[3.0]], b=[[1.0]])
    assert value == pytest.approx(1 / (1 + math.exp(-(3 * raw + 1))), rel=1e-12)


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


def test_beurre_cuts_negative_scales_at_zero() -> None:
    tables = {
        "low": [[0.0], [0.0]],
        "log_side": [[0.0], [0.0]],
        "head_shift": [[0.0]],
        "tail_shift": [[0.0]],
        "tail_scale": [[1.0]],
    }
    assert score("beurre", head_scale=[[-3.0]], **tables) == score("beurre", head_scale=[[0.0]], **tables)
