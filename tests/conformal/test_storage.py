"""A saved calibration answers the same; a damaged or foreign file is refused with a sentence."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unkgcp.conformal import EntropyResidual, NotCalibratedError, SplitConformal
from unkgcp.conformal.split import FORMAT
from unkgcp.errors import InputError
from unkgcp.files import write_container


def _calibrators() -> dict[str, tuple[SplitConformal, dict[str, Any]]]:
    rng = np.random.default_rng(0)
    prediction, truth = rng.random(200), rng.random(200)
    scale, weight, group = rng.random(200) + 0.1, rng.random(200), rng.choice(["a", "b", "c"], 200)
    columns = {"letter": group, "code": np.arange(200) % 5}
    return {
        "plain": (SplitConformal().calibrate(prediction, truth), {}),
        "scaled": (SplitConformal(bounds=None).calibrate(prediction, truth, scale=scale), {"scale": scale}),
        "entropy": (SplitConformal(EntropyResidual(0.5, 0.5)).calibrate(prediction, truth), {}),
        "columns": (SplitConformal().calibrate(prediction, truth, group=columns), {"group": columns}),
        "delta": (SplitConformal(training_conditional=0.1).calibrate(prediction, truth), {}),
        "groups": (SplitConformal().calibrate(prediction, truth, group=group), {"group": group}),
        "codes": (
            SplitConformal().calibrate(prediction, truth, group=(group == "a").astype(int)),
            {"group": (group == "a").astype(int)},
        ),
        "weights": (
            SplitConformal().calibrate(prediction, truth, group=group, weight=weight),
            {"group": group, "weight": weight},
        ),
    }


@pytest.mark.filterwarnings("ignore::unkgcp.conformal.SmallGroupWarning")
@pytest.mark.parametrize("name", _calibrators())
def test_a_loaded_calibration_answers_the_same(name: str, tmp_path: Path) -> None:
    cal, options = _calibrators()[name]
    cal.save(tmp_path / "c.safetensors")
    loaded = SplitConformal.load(tmp_path / "c.safetensors")
    rng = np.random.default_rng(1)
    prediction, truth = rng.random(200), rng.random(200)
    levels = [0, 0.5, 0.9, 0.999, 1]
    before = cal.interval(prediction, confidence=levels, **options)
    after = loaded.interval(prediction, confidence=levels, **options)
    assert before.dtype == after.dtype
    assert np.array_equal(before, after)
    assert np.array_equal(
        cal.p_value(prediction, truth, **options), loaded.p_value(prediction, truth, **options)
    )
    assert (loaded.size, loaded.bounds) == (cal.size, cal.bounds)
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "c.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()


def test_a_calibrator_without_calibration_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(NotCalibratedError, match="call calibrate"):
        SplitConformal().save(tmp_path / "c.safetensors")
    assert not list(tmp_path.iterdir())


def _about(arrays: dict[str, Any], **changes: Any) -> Any:
    return np.array(json.dumps({**json.loads(str(arrays["about"])), **changes}))


SPOILT = {
    "nan score": lambda a: {**a, "0/scores": a["0/scores"] * np.nan},
    "missing score": lambda a: {**a, "0/scores": a["0/scores"][:-1], "0/weight": a["0/weight"][:-1]},
    "no scores": lambda a: {name: column for name, column in a.items() if name != "0/scores"},
    "integers": lambda a: {**a, "0/scores": a["0/scores"].astype(int)},
    "an empty group": lambda a: {**a, "0/sizes": a["0/sizes"] * np.array([0, 2, 1])},
    "groups": lambda a: {**a, "0/groups": a["0/groups"][::-1].copy()},
    "one group less": lambda a: {**a, "0/groups": a["0/groups"][1:]},
    "negative weights": lambda a: {**a, "0/weight": -a["0/weight"]},
    "one weight less": lambda a: {**a, "0/weight": a["0/weight"][1:]},
    "other scores": lambda a: {**a, "1/scores": a["1/scores"] + 1},
    "format": lambda a: {**a, "about": _about(a, format="unkgcp split conformal 99")},
    "score": lambda a: {**a, "about": _about(a, score="os.system")},
    "parameters": lambda a: {**a, "about": _about(a, parameters={"no": 1})},
    "bounds": lambda a: {**a, "about": _about(a, bounds=[1, 0])},
    "delta": lambda a: {**a, "about": _about(a, training_conditional="many")},
    "not json": lambda a: {**a, "about": np.array("{")},
    "deep json": lambda a: {**a, "about": np.array("[" * 100_000)},
    "a number": lambda a: {**a, "about": np.array("7")},
    "no settings": lambda a: {"scores": np.ones(3)},
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    rng = np.random.default_rng(0)
    groups = {"first": rng.choice(["a", "b", "c"], 200), "second": rng.integers(0, 2, 200)}
    cal = SplitConformal().calibrate(*rng.random((2, 200)), group=groups, weight=rng.random(200) + 0.1)
    write_container(path, FORMAT, SPOILT[name](cal.arrays()), None)
    with pytest.raises(InputError, match=r"c\.safetensors is damaged.*calibrate again") as caught:
        SplitConformal.load(path)
    assert "\n" not in str(caught.value)


def test_scores_in_another_order_are_the_same_calibration() -> None:
    cal, _ = _calibrators()["plain"]
    arrays = cal.arrays()
    again = SplitConformal.from_arrays({**arrays, "0/scores": arrays["0/scores"][::-1]})
    assert again.threshold(0.9) == cal.threshold(0.9)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    with pytest.raises(InputError, match="there is no calibration file"):
        SplitConformal.load(path)
    for content in (b"prediction,truth\n", pickle.dumps(np.ones(3))):
        path.write_bytes(content)
        with pytest.raises(InputError, match="damaged or foreign"):
            SplitConformal.load(path)
    write_container(path, "unkgcp split conformal 2", {"scores": np.zeros(1)}, None)
    with pytest.raises(InputError, match=f"this program reads '{FORMAT}'.*; calibrate again"):
        SplitConformal.load(path)
