"""Calibration facts that the model was trained on: counted, told, refused; what repeats explain is let through."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from unkgcp.errors import InputError, TrainedFactsWarning
from unkgcp.graph import Graph, Splits, load_dataset
from unkgcp.graph.datasets import Dataset
from unkgcp.graph.facts import concatenate
from unkgcp.graph.known_facts import FALSE_ALARM, KnownFacts, count_trained, explained
from unkgcp.progress import Progress
from unkgcp.run import Predictor, calibrate, fit, recalibrate
from unkgcp.run.calibration import check_apart
from unkgcp.run.fitting import silent
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


def test_a_triple_with_another_confidence_is_another_fact(model: Model, make_facts: Facts) -> None:
    facts = make_facts(1000, seed=1)[:100]
    assert told(model, facts.with_confidence(facts.confidence / 2 + 0.4321)) is None


def test_a_model_that_does_not_know_its_facts_says_nothing(model: Model, make_facts: Facts) -> None:
    assert told(replace(model, facts=None), leaked(make_facts, 100)) is None


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


def test_random_splits_are_seldom_told(make_facts: Facts) -> None:
    """With 500 splits a false alarm of 1 in 1,000 gives more than 5 with probability 2e-5 (pairs are independent).

    The mutant that allows what is expected, and no chance, is told of every other one.
    """
    alarms = mutant = 0
    for seed in range(500):
        graph = with_repeats(make_facts, seed)
        training, calibration = graph[:4000], graph[4000:]
        trained = count_trained(training, calibration)
        alarms += trained.excess > 0
        twins = len(training) - len(np.unique(training.keys * 1.0 + training.confidence))
        mutant += trained.found > len(calibration) * 2 * twins / len(training)
    assert alarms <= 5
    assert mutant > 100


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

    def test_a_slice_held_out_of_the_training_facts_too(self, make_facts: Facts) -> None:
        training = make_facts(600, seed=1)
        model = train(training, config=replace(CONFIG, validation_fraction=0.3), device="cpu")
        assert model.stopping is None
        assert model.facts is not None
        assert len(model.facts) == 600
        with pytest.raises(InputError, match="trained on 100 of these 100 facts"):
            calibrate(model, training[:100], "cp")

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

    def test_a_damaged_list_of_them_is_refused(
        self, make_facts: Facts, make_model: Callable[..., Model], tmp_path: Path
    ) -> None:
        model = replace(make_model(), stopping=KnownFacts.of(make_facts(50)))
        predictor = calibrate(model, make_facts(100, seed=1), "cp")
        columns = model.stopping.columns  # type: ignore[union-attr]
        broken = KnownFacts(lambda: columns._replace(tail=columns.tail + np.uint8(200)))
        replace(predictor, model=replace(model, stopping=broken)).save(tmp_path / "run")
        with pytest.raises(InputError, match="not in the vocabulary"):
            Predictor.load(tmp_path / "run")


def test_a_fit_is_refused_before_it_trains(make_facts: Facts) -> None:
    facts = make_facts(600, seed=1)
    splits = Splits(facts, facts[:100], facts[:0], facts[:0])
    config = replace(CONFIG, epochs=10**9, patience=10**9)
    with pytest.raises(InputError, match="trained on 100 of these 100 facts"):
        fit(Dataset("own", splits), config, device="cpu")


def test_a_fit_tells_it_once_and_before_it_trains(make_facts: Facts) -> None:
    facts = make_facts(600, seed=1)
    shared = concatenate([make_facts(95, seed=2), facts[:5]])
    dataset = Dataset("own", Splits(facts, shared, facts[:0], facts[:0]))
    stages: list[int] = []

    def report(title: str, total: float | None) -> AbstractContextManager[Progress]:
        stages.append(len(caught))
        return silent(title, total)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(dataset, CONFIG, method="cp", device="cpu", report=report)
        found = [str(one.message) for one in caught if issubclass(one.category, TrainedFactsWarning)]
    assert len(found) == 1
    assert found[0].startswith("the model was trained on 5 of these 100 facts")
    assert stages[0] >= 1, "the sentence comes before the first stage"
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainedFactsWarning)
        fit(replace(dataset, split_here=True), CONFIG, method="cp", device="cpu")
