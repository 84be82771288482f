"""Calibration facts that the model was trained on: counted, told, refused; what repeats explain is let through."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.worlds import random_graph, vocabulary
from unkgcp.errors import InputError, TrainedFactsWarning
from unkgcp.graph import Graph, Splits, load_dataset
from unkgcp.graph.datasets import Dataset
from unkgcp.graph.facts import concatenate
from unkgcp.graph.known_facts import FALSE_ALARM, KnownFacts, count_trained, explained
from unkgcp.run import Predictor, calibrate, fit, recalibrate
from unkgcp.run.calibration import check_apart
from unkgcp.training import Model, TrainConfig, train

Facts = Callable[..., Graph]
CONFIG = TrainConfig(dimension=4, epochs=2, validate_every=1, batch_size=64, negatives=1)


@pytest.fixture
def model(make_model: Callable[..., Model], make_facts: Facts) -> Model:
    """Trained on 1,000 facts, none of them twice."""
    return replace(make_model(), facts=KnownFacts.of(make_facts(1000, seed=1)))


def told(model: Model, facts: Graph) -> str | None:
    """The sentence that calibrating on these facts brings, if any."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calibrate(model, facts, "cp")
    sentences = [str(one.message) for one in caught if issubclass(one.category, TrainedFactsWarning)]
    assert len(sentences) <= 1
    return sentences[0] if sentences else None


def leaked(make_facts: Facts, count: int, size: int = 100) -> Graph:
    """`size` facts, `count` of which the model was trained on."""
    return concatenate([make_facts(size - count, seed=2), make_facts(1000, seed=1)[:count]])


def test_none(model: Model, make_facts: Facts) -> None:
    assert told(model, leaked(make_facts, 0)) is None


@pytest.mark.parametrize("count", [1, 10])
def test_one_without_repeats_in_training_and_up_to_a_tenth_are_told(
    model: Model, make_facts: Facts, count: int
) -> None:
    assert told(model, leaked(make_facts, count)) == (
        f"the model was trained on {count} of these 100 facts; repeats in the graph explain no more than 0; its "
        "errors on them are too small, and so are the intervals: leave these facts out"
    )


def test_more_than_a_tenth_are_refused(model: Model, make_facts: Facts) -> None:
    with pytest.raises(
        InputError, match=r"the model was trained on 11 of these 100 facts; .* it has not seen"
    ):
        told(model, leaked(make_facts, 11))


def with_repeats(make_facts: Facts, seed: int) -> Graph:
    """4,000 facts, 400 of them twice, in random order."""
    facts = make_facts(4000, seed=seed)
    order = np.random.default_rng(seed).permutation(4400)
    return concatenate([facts, facts[:400]])[order]


def test_repeats_of_the_graph_explain_some(make_model: Callable[..., Model], make_facts: Facts) -> None:
    """A random split is left in peace; one fact more than explained is told, also where much is explained."""
    graph = with_repeats(make_facts, 0)
    training, calibration = graph[:4000], graph[4000:]
    found, expected, allowed = count_trained(training, calibration)
    assert 0 < expected < allowed < 200
    assert 0 < found <= allowed
    model = replace(make_model(), facts=KnownFacts.of(training))
    assert told(model, calibration) is None
    marks = set(zip(training.keys.tolist(), training.confidence.tolist(), strict=True))
    trained = np.array(
        [
            pair in marks
            for pair in zip(calibration.keys.tolist(), calibration.confidence.tolist(), strict=True)
        ]
    )
    assert trained.sum() == found
    fresh = calibration[~trained]
    for more in (0, 1):
        facts = concatenate([fresh[: 400 - allowed - more], training[: allowed + more]])
        sentence = told(model, facts)
        if more:
            assert sentence is not None
            assert (
                f"trained on {allowed + 1} of these 400 facts; repeats in the graph explain no more than {allowed};"
                in sentence
            )
        else:
            assert sentence is None


@pytest.mark.parametrize("units", [None, "rows", "pairs"])
def test_repeats_explain_what_a_split_cuts_apart_however_it_draws(units: str | None) -> None:
    """A file that lists every twentieth fact twice; 100 splits give one false alarm in ten, three in a million."""
    graph = random_graph(2000, vocabulary(300), 1)
    graph = concatenate([graph, graph[:100]])
    alarms = 0
    for seed in range(100):
        splits = graph.split(seed=seed, hold_out=units)
        trained = count_trained(splits.train, splits.calibration)
        alarms += trained.excess > 0
        assert trained.shared - trained.expected < 0.1 * len(splits.calibration)
    assert alarms <= 3
    leaked = count_trained(splits.train, splits.train[:140])
    assert leaked.shared - leaked.expected > 0.1 * 140


@pytest.mark.parametrize(
    ("twins", "training", "calibration"), [(2, 1000, 70), (64, 4000, 400), (10_221, 204_984, 16_881)]
)
def test_the_bound_is_the_quantile_of_the_negative_binomial_law(
    twins: int, training: int, calibration: int
) -> None:
    law = stats.nbinom(twins / 2 + 0.5, training / (training + 2 * calibration))
    bound = explained(twins, training, calibration)
    assert law.sf(bound) <= FALSE_ALARM < law.sf(bound - 1)
    assert explained(training, training, 3) == 3  # never more than there are


@pytest.mark.parametrize("name", ["cn15k", "nl27k", "ppi5k"])
def test_the_published_splits_are_left_in_peace(published: Callable[[str], Path], name: str) -> None:
    splits = load_dataset(name, data_dir=published(name)).splits
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for part in (splits.calibration, splits.test):
            check_apart(splits.train, None, part)


class TestEarlyStopping:
    def test_facts_it_looked_at_count_as_trained_on(self, make_facts: Facts, tmp_path: Path) -> None:
        training, validation, fresh = (
            make_facts(600, seed=1),
            make_facts(100, seed=2),
            make_facts(100, seed=3),
        )
        predictor = calibrate(
            train(training, config=CONFIG, validation=validation, device="cpu"), fresh, "cp"
        )
        predictor.save(tmp_path / "run")
        loaded = Predictor.load(tmp_path / "run")
        assert loaded.model.stopping is not None
        assert sorted(loaded.model.stopping.graph(fresh.vocabulary).keys) == sorted(validation.keys)
        for known in (predictor, loaded):
            with pytest.raises(
                InputError, match="trained on 100 of these 100 facts or was chosen by them in early"
            ):
                recalibrate(known, validation, "cp")
            with pytest.warns(
                TrainedFactsWarning, match="trained on 5 of these 100 facts or was chosen by them"
            ):
                recalibrate(known, concatenate([fresh[:95], validation[:5]]), "cp")

    def test_the_protocol_of_the_paper_goes_on_and_says_so(self, make_facts: Facts, tmp_path: Path) -> None:
        training, calibration = make_facts(600, seed=1), make_facts(100, seed=2)
        splits = Splits(training, calibration, training[:0], training[:0])
        with warnings.catch_warnings():
            warnings.simplefilter("error", TrainedFactsWarning)
            predictor = fit(Dataset("own", splits), CONFIG, protocol="paper", device="cpu")
            predictor.save(tmp_path / "run")
            again = recalibrate(Predictor.load(tmp_path / "run"), calibration, "cp")
        assert "so the guarantee is not strict" in again.provenance["early_stopping"]
        with pytest.raises(InputError, match="trained on 100 of these 100 facts; "):
            recalibrate(again, training[:100], "cp")
        with pytest.raises(InputError, match="chosen by them in early stopping"):
            calibrate(predictor.model, calibration, "cp")  # nobody said that it was to be as in the paper


def test_a_fit_is_refused_before_it_trains(make_facts: Facts) -> None:
    facts = make_facts(600, seed=1)
    splits = Splits(facts, facts[:100], facts[:0], facts[:0])
    config = replace(CONFIG, epochs=10**9, patience=10**9)
    with pytest.raises(InputError, match="trained on 100 of these 100 facts"):
        fit(Dataset("own", splits), config, device="cpu")
