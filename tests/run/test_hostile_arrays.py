"""Archives of arrays that are none, and arrays that do not fit the run they came with; see `test_hostile`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.archives import BAD_ARRAYS
from tests.run.hostile import ask, refused
from unkgcp.errors import InputError
from unkgcp.files import read_npz, write_npz
from unkgcp.run.provenance import FACTS


@pytest.mark.parametrize("what", BAD_ARRAYS)
@pytest.mark.parametrize("name", ["calibration.npz", FACTS])
def test_arrays(what: str, name: str, write: Callable[..., Path]) -> None:
    assert "damaged" in refused(write(name, BAD_ARRAYS[what]()))


def mutations(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Arrays with one thing wrong in one of them."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, column in arrays.items():
        found[f"without {name}"] = {key: value for key, value in arrays.items() if key != name}
        if column.ndim == 1:
            found[f"{name} too short"] = {**arrays, name: column[:-1]}
            found[f"{name} in two dimensions"] = {**arrays, name: column[:, None]}
        if column.dtype.kind == "f" and column.size:
            bad = column.copy()
            bad.flat[0] = np.nan
            found[f"{name} NaN"] = {**arrays, name: bad}
        if column.dtype.kind in "fiu":
            found[f"{name} as text"] = {**arrays, name: column.astype("U4")}
    return found


def test_calibrations_and_facts_that_do_not_fit(
    original: dict[str, bytes], write: Callable[..., Path], tmp_path: Path
) -> None:
    accepted = []
    for name in ("calibration.npz", FACTS):
        (tmp_path / "x.npz").write_bytes(original[name])
        for what, arrays in mutations(dict(read_npz(tmp_path / "x.npz"))).items():
            write_npz(tmp_path / "y.npz", arrays)
            run = write(name, (tmp_path / "y.npz").read_bytes())
            with contextlib.suppress(InputError):
                ask(run)
                accepted.append((name, what))
    # kept for watching a run; without them a run is a run
    optional = {("calibration.npz", f"without facts/{name}") for name in ("relations", "sides")}
    assert set(accepted) <= optional


@pytest.mark.parametrize("change", ["offsets", "relation", "tail", "code"])
def test_facts_outside_the_vocabulary(
    change: str, original: dict[str, bytes], write: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "x.npz").write_bytes(original[FACTS])
    arrays = {name: column.copy() for name, column in read_npz(tmp_path / "x.npz").items()}
    arrays[change] = arrays[change].astype(np.uint32)
    arrays[change][len(arrays[change]) // 2] = 4_000_000_000
    write_npz(tmp_path / "y.npz", arrays)
    assert "damaged" in refused(write(FACTS, (tmp_path / "y.npz").read_bytes()))
