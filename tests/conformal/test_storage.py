"""A saved calibration answers the same; a damaged or foreign file is refused with a sentence."""

from __future__ import annotations

import json
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.archives import BAD_ARRAYS
from unkgcp.conformal import EntropyResidual, SplitConformal
from unkgcp.errors import InputError


def _calibrators() -> dict[str, tuple[SplitConformal, dict[str, Any]]]:
    rng = np.random.default_rng(0)
    prediction, truth = rng.random(200), rng.random(200)
    scale, weight, group = rng.random(200) + 0.1, rng.random(200), rng.choice(["a", "b", "c"], 200)
    single = prediction.astype(np.float32), truth.astype(np.float32)
    return {
        "plain": (SplitConformal().calibrate(prediction, truth), {}),
        "scaled": (SplitConformal(bounds=None).calibrate(prediction, truth, scale=scale), {"scale": scale}),
        "entropy": (SplitConformal(EntropyResidual(0.5, 0.5)).calibrate(prediction, truth), {}),
        "single": (SplitConformal().calibrate(*single), {}),
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


@pytest.mark.parametrize("name", _calibrators())
def test_a_loaded_calibration_answers_the_same(name: str, tmp_path: Path) -> None:
    cal, options = _calibrators()[name]
    cal.save(tmp_path / "c.npz")
    loaded = SplitConformal.load(tmp_path / "c.npz")
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
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "c.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()


def test_a_calibrator_without_calibration_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="call calibrate"):
        SplitConformal().save(tmp_path / "c.npz")
    assert not list(tmp_path.iterdir())


def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path) as file:
        return dict(file)


def _about(arrays: dict[str, Any], **changes: Any) -> Any:
    return np.array(json.dumps({**json.loads(str(arrays["about"])), **changes}))


SPOILED = {
    "unsorted": lambda a: {**a, "scores": a["scores"][::-1].copy()},
    "nan score": lambda a: {**a, "scores": np.where(np.arange(len(a["scores"])) == 7, np.nan, a["scores"])},
    "missing score": lambda a: {**a, "scores": a["scores"][:-1]},
    "no scores": lambda a: {name: column for name, column in a.items() if name != "scores"},
    "integers": lambda a: {**a, "scores": a["scores"].astype(int)},
    "offsets": lambda a: {**a, "offsets": a["offsets"][:-1]},
    "negative offsets": lambda a: {**a, "offsets": np.array([0, -1, *a["offsets"][2:]])},
    "groups": lambda a: {**a, "groups": a["groups"][::-1].copy()},
    "one group less": lambda a: {**a, "groups": a["groups"][1:]},
    "weights": lambda a: {**a, "tails": a["tails"][::-1].copy()},
    "a tail of nothing": lambda a: {**a, "tails": np.append(a["tails"][:-1], 0.5)},
    "negative scores": lambda a: {**a, "scores": a["scores"] - 10},
    "negative weights": lambda a: {**a, "tails": np.where(a["tails"] == 0, 0.0, a["tails"] - 1e9)},
    "a last group with scores": lambda a: {**a, "offsets": np.array([*a["offsets"][:-2], 199, 200])},
    "no weights": lambda a: {name: column for name, column in a.items() if name != "tails"},
    "format": lambda a: {**a, "about": _about(a, format="unkgcp split conformal 99")},
    "score": lambda a: {**a, "about": _about(a, score="os.system")},
    "parameters": lambda a: {**a, "about": _about(a, parameters={"no": 1})},
    "bounds": lambda a: {**a, "about": _about(a, bounds=[1, 0])},
    "not json": lambda a: {**a, "about": np.array("{")},
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    _calibrators()["weights"][0].save(path)
    np.savez(path, **SPOILED[name](_arrays(path)))
    with pytest.raises(InputError, match=r"c\.npz is damaged.*calibrate again"):
        SplitConformal.load(path)


def test_files_of_version_one_are_read_unless_small_groups_kept_no_promise(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    old = {"format": "unkgcp split conformal 1", "min_group": 19, "heaviest": None}
    for name in ("plain", "groups"):
        cal, _ = _calibrators()[name]
        cal.save(path)
        arrays = _arrays(path)
        np.savez(path, **{**arrays, "about": _about(arrays, **old)})
        if name == "plain":
            assert np.array_equal(SplitConformal.load(path).interval([0.5]), cal.interval([0.5]))
        else:
            with pytest.raises(InputError, match=r"c\.npz: .* version 0\.1.*; calibrate or fit again"):
                SplitConformal.load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    with pytest.raises(InputError, match="there is no calibration file"):
        SplitConformal.load(path)
    path.write_text("prediction,truth\n")
    with pytest.raises(InputError, match="not a saved calibration"):
        SplitConformal.load(path)
    np.savez(path, scores=np.ones(3))
    with pytest.raises(InputError, match="is damaged: 'about' is missing or out of place; calibrate again"):
        SplitConformal.load(path)
    np.save(tmp_path / "c.npy", np.ones(3))
    with pytest.raises(InputError, match="not a saved calibration"):
        SplitConformal.load(tmp_path / "c.npy")
    _calibrators()["plain"][0].save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="damaged or not a saved calibration"):
        SplitConformal.load(path)


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (print, ("executed",))

    np.savez(tmp_path / "c.npz", about=np.array("{}"), scores=np.array([Trap()], object))
    with pytest.raises(InputError, match="damaged or not a saved calibration"):
        SplitConformal.load(tmp_path / "c.npz")
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match="damaged or not a saved calibration"):
        SplitConformal.load(tmp_path / "p.npz")
    _calibrators()["groups"][0].save(tmp_path / "ok.npz")
    assert all(name.endswith(".npy") for name in zipfile.ZipFile(tmp_path / "ok.npz").namelist())


@pytest.mark.parametrize("what", BAD_ARRAYS)
def test_hostile_archives_are_refused_before_memory_is_asked_for(what: str, tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    path.write_bytes(BAD_ARRAYS[what]())
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"c\.npz is damaged") as caught:
            SplitConformal.load(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert most < 2_000_000  # the arrays that "a bomb" and "absurd shape" ask for are larger


def test_hostile_settings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    _calibrators()["plain"][0].save(path)
    arrays = _arrays(path)
    for about in ("[" * 100_000, "7", '{"format": []}', _about(arrays, training_conditional="many")):
        np.savez(path, **{**arrays, "about": np.array(about)})
        with pytest.raises(InputError, match=r"c\.npz is damaged") as caught:
            SplitConformal.load(path)
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_does_not_make_the_reader_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "c.npz")
    with pytest.raises(InputError, match="damaged or not a saved calibration"):
        SplitConformal.load(tmp_path / "c.npz")


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """Earlier versions wrote with `numpy.savez`."""
    cal = _calibrators()["weights"][0]
    cal.save(tmp_path / "c.npz")
    np.savez(tmp_path / "old.npz", **_arrays(tmp_path / "c.npz"))
    SplitConformal.load(tmp_path / "old.npz").save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "c.npz").read_bytes()
