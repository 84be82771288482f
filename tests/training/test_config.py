import math
from pathlib import Path

import pytest

from unkgcp.backbones import MODELS
from unkgcp.errors import InputError
from unkgcp.training import TrainConfig, config_for
from unkgcp.training.config import SMALLEST_BATCH, config_with, settings_in


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("data", [None, "cn15k", "nl27k", "ppi5k", "demo"])
@pytest.mark.parametrize("protocol", ["strict", "paper"])
def test_every_preset_is_valid_and_survives_the_round_trip(
    model: str, data: str | None, protocol: str
) -> None:
    config = config_for(model, data, protocol)
    assert config.model == model
    assert TrainConfig.from_dict(config.to_dict()) == config


PAPER = {
    ("ukge", "cn15k"): {"batch_size": 128},
    ("ukge", "ppi5k"): {"batch_size": 256},
    ("passleaf", "nl27k"): {
        "dimension": 512,
        "batch_size": 512,
        "pool_size": 10**7,
        "pool_from": 20,
        "pool_train_from": 30,
        "pool_share": 0.8,
    },
    ("beurre", "cn15k"): {
        "dimension": 64,
        "batch_size": 4096,
        "negatives": 30,
        "learning_rate": 1e-4,
        "patience": 50,
    },
}


@pytest.mark.parametrize(("model", "data"), PAPER)
def test_the_papers_hyperparameters(model: str, data: str) -> None:
    config = config_for(model, data, "paper")
    assert config.to_dict().items() >= PAPER[model, data].items()
    assert config.for_size(10**9) == config.for_size(100) == config
    assert not config.map_scores


def test_batches_fit_the_size_of_the_graph_and_the_benchmarks_keep_theirs() -> None:
    for data in ("cn15k", "nl27k", "ppi5k"):
        for model in MODELS:
            assert config_for(model, data).for_size(300_000) == config_for(model, data)
    config = config_for("ukge")
    large = config.for_size(5_000_000)
    assert large.batch_size == 5 * config.batch_size
    assert large.learning_rate == pytest.approx(math.sqrt(5) * config.learning_rate)
    assert large.for_size(5_000_000) == large
    small = config.for_size(5_000)
    assert (small.batch_size, small.learning_rate) == (50, config.learning_rate)
    assert config.for_size(100).batch_size == SMALLEST_BATCH


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dimensoin: 32\n", "did you mean 'dimension'"),
        ("dimension: wide\n", "not of type int"),
        ("dimension: 0\n", "at least 1"),
        ("dimension: 100000000\n", "at most 65,536"),
        ("dimension: true\n", "not of type int"),
        ("model: ukg\n", "ukge"),
        ("learning_rate: -1\n", "must be positive"),
        ("learning_rate: .inf\n", "learning_rate is inf but must be a finite number"),
        ("regularization: .nan\n", "must be a finite number"),
        ("side_regularization: .inf\n", "must be a finite number"),
        ("quantile: 1.5\n", "between 0 and 1"),
        ("- a\n- b\n", "key: value"),
        ("a: [1\n", "not valid YAML"),
        (
            "dimension: 8\nepochs: 2\ndimension: 16\n",
            "it says dimension twice, in line 1 and in line 3; leave one",
        ),
        ("{epochs: 2, epochs: 3}\n", "it says epochs twice, in line 1"),
        ("a: " + "[" * 5000, "nested too deeply"),
    ],
)
def test_a_wrong_file_is_named_with_its_fault(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=says) as error:
        config_with(settings_in(file), None, where=str(file))
    assert str(file) in str(error.value)
    with pytest.raises(InputError, match=r"nowhere\.yaml cannot be read"):
        settings_in(tmp_path / "nowhere.yaml")
