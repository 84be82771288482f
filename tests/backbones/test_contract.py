"""What every registered backbone promises. A new one is tested by being in the registry."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rounding import apart, assert_within, scores_apart
from tests.worlds import random_model, vocabulary
from unkgcp.backbones import MODELS, get, score_triples
from unkgcp.errors import InputError

ENTITIES, RELATIONS, DIMENSION = 7, 3, 6
every = pytest.mark.parametrize("name", MODELS)


def triples() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grid = np.indices((ENTITIES, RELATIONS, ENTITIES)).reshape(3, -1)
    head, relation, tail = (torch.from_numpy(column) for column in grid)
    return head, relation, tail


def parameters(name: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """Initial tables, stirred so that no score is trivial."""
    noise = torch.Generator().manual_seed(seed + 100)
    tables = get(name).initial(ENTITIES, RELATIONS, DIMENSION, seed)
    return {key: table + 0.3 * torch.randn(table.shape, generator=noise) for key, table in tables.items()}


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'beurre'"):
        get("beure")


@every
def test_scores_lie_in_the_unit_interval_and_differ(name: str) -> None:
    scores = score_triples(get(name), parameters(name), *triples())
    assert scores.shape == (ENTITIES * RELATIONS * ENTITIES,)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert scores.std() > 1e-3


@every
def test_both_call_shapes_agree(name: str) -> None:
    backbone, tables = get(name), {key: table.double() for key, table in parameters(name).items()}
    # some hundred operations on numbers below 10, and the boxes divide by beta = 0.01
    rounding = apart(100, 10 / 0.01, np.float64)
    everything = torch.arange(ENTITIES)
    grid = score_triples(backbone, tables, *triples()).view(ENTITIES, RELATIONS, ENTITIES)
    head, relation = torch.tensor([0, 4, 4]), torch.tensor([2, 0, 1])
    tails = score_triples(backbone, tables, head[:, None], relation[:, None], everything[None, :])
    assert_within(tails, grid[head, relation], rounding)
    heads = score_triples(backbone, tables, everything[None, :], relation[:, None], head[:, None])
    assert_within(heads, grid[:, relation, head].T, rounding)


@every
@settings(max_examples=40, deadline=None)
@given(scale=st.sampled_from([1e-38, 1e-3, 1.0, 50.0, 1e6, 1e20, 3e38]), seed=st.integers(0, 1000))
def test_scores_are_finite_for_any_parameters(name: str, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tables = {
        key: (2 * torch.rand(table.shape, generator=generator) - 1) * scale
        for key, table in parameters(name).items()
    }
    scores = score_triples(get(name), tables, *triples())
    assert torch.isfinite(scores).all()
    assert ((scores >= 0) & (scores <= 1)).all()


@pytest.mark.parametrize(("name", "dimension", "spread"), [("ukge", 128, 0.3), ("beurre", 50, 0.1)])
def test_a_triple_has_one_score_up_to_rounding_whatever_is_asked_beside_it(
    name: str, dimension: int, spread: float
) -> None:
    model, rng = random_model(vocabulary(300, 7), name, dimension, spread=spread), np.random.default_rng(1)
    ids = [rng.integers(0, size, 20_000) for size in (300, 7, 300)]
    whole = model.score(*ids)
    assert whole.max() > 0.01
    # of boxes it is what `Model` promises: no bound of some use follows from the number of roundings
    bound = np.full(len(whole), 1e-5) if name == "beurre" else scores_apart(name, model.tables, *ids)
    for rows in (slice(0, 1), slice(8190, 8200), slice(None, None, -7)):
        assert_within(model.score(*(column[rows] for column in ids)), whole[rows], bound[rows])


@every
def test_every_entity_on_one_side_is_scored_as_in_single_triples(name: str) -> None:
    model = random_model(vocabulary(ENTITIES, RELATIONS), name, DIMENSION, spread=0.1)
    everything = np.arange(ENTITIES)
    fixed, of = np.full(ENTITIES, 4), np.full(ENTITIES, 1)
    rounding = apart(100, 1 / 0.01)  # numbers of the order of 1, and the boxes divide by beta = 0.01
    assert_within(model.tails([4], [1])[0], model.score(fixed, of, everything), rounding)
    assert_within(model.heads([1], [4])[0], model.score(everything, of, fixed), rounding)
