"""Archives of arrays that are none, and arrays that do not fit the run they came with; see `test_hostile`."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.bundle.hostile import ask, refused

from unkgcp.bundle.arrays import read_npz, write_npz
from unkgcp.bundle.folder import FACTS
from unkgcp.errors import InputError


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return sink.getvalue()


def array(header_text: str, data: bytes = b"") -> bytes:
    text = header_text.encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def shared_bytes() -> bytes:
    """Many members of an archive that all point at the same bytes."""
    content = archive(
        {"a.npy": array("{'descr': '<f8', 'fortran_order': False, 'shape': (1000,)}", b"\0" * 8000)}
    )
    start = content.rindex(b"PK\x01\x02")
    end = content.rindex(b"PK\x05\x06")
    entry = content[start:end]
    entries = b"".join(entry.replace(b"a.npy", bytes([97 + i]) + b".npy") for i in range(20))
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 20, 20, len(entries), start, 0)
    return content[:start] + entries + tail


PLAIN = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}"
BAD_ARRAYS: dict[str, Callable[[], bytes]] = {
    "compressed": lambda: archive({"a.npy": array(PLAIN, b"\0" * 16)}, zipfile.ZIP_DEFLATED),
    "objects": lambda: archive(
        {"a.npy": array("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", b"\0" * 16)}
    ),
    "absurd shape": lambda: archive(
        {"a.npy": array("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}", b"\0" * 16)}
    ),
    "a header that is code": lambda: archive({"a.npy": array("__import__('os').system('true')", b"")}),
    "shared bytes": shared_bytes,
    "a path outside": lambda: archive({"../a.npy": array(PLAIN, b"\0" * 16)}),
    "another file": lambda: archive({"a.txt": b"hello"}),
    "nothing": lambda: archive({}),
    "no archive": lambda: b"PK\x03\x04" + b"\0" * 100,
}


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
