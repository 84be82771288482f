"""Every file of a run, mutated in every way we could think of: one sentence, exit status 2, no traceback.

A stranger can make the list of hashes agree with what he wrote, so each mutation is tried with and without that. A
mutation that hashes find is damage; one that agrees with its hash must be refused for what it is, before memory is
asked for.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.archives import BAD_ARRAYS
from tests.run.hostile import ask, refused
from tests.worlds import random_graph, random_model, vocabulary
from unkgcp.errors import InputError
from unkgcp.files import read_npz, write_npz
from unkgcp.run import calibrate
from unkgcp.run.provenance import ALWAYS, FACTS, NOT_ALWAYS

NAMES = [*ALWAYS, *NOT_ALWAYS]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("agree", [False, True], ids=["damaged", "foreign"])
def test_truncated_extended_and_flipped(
    name: str, agree: bool, original: dict[str, bytes], write: Callable[..., Path]
) -> None:
    content = original[name]
    rng = np.random.default_rng(0)
    cuts = [content[:size] for size in {0, 1, 7, len(content) // 2, len(content) - 1} if size < len(content)]
    if not agree:
        flipped = []
        for place in rng.integers(0, len(content), 8):
            changed = bytearray(content)
            changed[place] ^= 1 << int(rng.integers(8))
            flipped.append(bytes(changed))
        for changed_content in [*cuts, content + b"\0", *flipped]:
            assert "damaged" in refused(write(name, changed_content, agree=False))
        return
    for cut in cuts:
        if name in ("config.yaml", "metrics.json"):
            continue  # a shorter text may still be good YAML; what it lacks is tested below
        assert "damaged" in refused(write(name, cut))
    # whatever is flipped: it loads, or it is refused in a sentence; never another error
    for place in rng.integers(0, len(content), 25):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        run = write(name, bytes(changed))
        with contextlib.suppress(InputError):
            ask(run)


def header(tables: dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    text = json.dumps(tables).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def table(shape: Any, offsets: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"model/entity": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


BAD_WEIGHTS = {
    "no header": b"\xff" * 8,
    "absurd header length": header({}, length=1 << 62),
    "header longer than the file": header({}, length=10_000),
    "not JSON": struct.pack("<Q", 8) + b"{{{{{{{{",
    "deep JSON": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "a list": struct.pack("<Q", 8) + b"[1,2,3] ",
    "absurd shape": header(table([1 << 40, 1 << 40], [0, 16]), b"\0" * 16),
    "absurd offsets": header(table([2, 2], [1 << 60, (1 << 60) + 16]), b"\0" * 16),
    "negative offsets": header(table([2, 2], [-16, 0]), b"\0" * 16),
    "overlap": header(
        {**table([2, 2], [0, 16]), "b": {"dtype": "F32", "shape": [2, 2], "data_offsets": [8, 24]}},
        b"\0" * 24,
    ),
    "a gap": header(table([2, 2], [4, 20]), b"\0" * 20),
    "more data than said": header(table([2, 2], [0, 16]), b"\0" * 32),
    "less data than said": header(table([2, 2], [0, 16]), b"\0" * 8),
    "half precision": header(table([2, 4], [0, 16], "F16"), b"\0" * 16),
    "true as a size": header(table([True, 4], [0, 16]), b"\0" * 16),
    "three dimensions": header(table([1, 2, 2], [0, 16]), b"\0" * 16),
    "a text as shape": header(table("22", [0, 16]), b"\0" * 16),
    "no tables": header({}),
    "tables of other models": header(
        {"x": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}, b"\0" * 16
    ),
}


@pytest.mark.parametrize("what", BAD_WEIGHTS)
def test_weights(what: str, write: Callable[..., Path]) -> None:
    assert "damaged" in refused(write("model.safetensors", BAD_WEIGHTS[what]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers(
    value: float, original: dict[str, bytes], write: Callable[..., Path]
) -> None:
    content = original["model.safetensors"]
    changed = content[:-8] + np.float32(value).tobytes() + content[-4:]
    assert "not finite" in refused(write("model.safetensors", changed))


def test_altered_weights_of_any_size_answer_nothing(tmp_path: Path) -> None:
    words = vocabulary(entities=20, relations=2)
    model = random_model(words, dimension=1 << 20)  # 84 MiB
    calibrate(model, random_graph(50, words), "cp").save(tmp_path / "run")
    weights = tmp_path / "run" / "model.safetensors"
    assert weights.stat().st_size > 64 << 20
    with weights.open("r+b") as file:
        file.seek(-6, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-6, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    (tmp_path / "q.tsv").write_text("e1\tr1\te2\n")
    sentence = f"unkgcp: {weights} is damaged: it is not what was written; fit the run again\n"
    for command in (["predict", "run", "q.tsv"], ["fit", "--from", "run", "q.tsv", "-o", "laundered"]):
        done = subprocess.run(
            [sys.executable, "-m", "unkgcp", *command],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (2, ""), command
        assert done.stderr == sentence.replace(f"{tmp_path}/", ""), command
    assert not (tmp_path / "laundered").exists()


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"compression": "none", "store_schema": False, **options})
    return sink.getvalue()


def labels(n: int = 40, m: int = 4, **changes: Any) -> pa.Table:
    columns: dict[str, Any] = {
        "kind": ["entity"] * n + ["relation"] * m,
        "label": [f"e{i}" for i in range(n)] + [f"r{i}" for i in range(m)],
        "seen": [True] * (n + m),
    }
    return pa.table({**columns, **changes})


BAD_LABELS: dict[str, Callable[[], bytes]] = {
    "compressed": lambda: parquet(labels(), compression="zstd"),
    "too many rows": lambda: parquet(labels(10_000)),
    "too few rows": lambda: parquet(labels(39)),
    "no rows": lambda: parquet(
        labels(0, 0, label=pa.array([], "str"), kind=pa.array([], "str"), seen=pa.array([], "bool"))
    ),
    "relations first": lambda: parquet(labels(kind=["relation"] * 4 + ["entity"] * 40)),
    "another kind": lambda: parquet(labels(kind=["entity"] * 39 + ["thing"] + ["relation"] * 4)),
    "a label twice": lambda: parquet(labels(label=["same"] * 2 + [f"e{i}" for i in range(42)])),
    "no label": lambda: parquet(labels(label=[None, *(f"e{i}" for i in range(43))])),
    "unknown whether seen": lambda: parquet(labels(seen=[None] * 44)),
    "numbers as labels": lambda: parquet(labels(label=list(range(44)))),
    "another column": lambda: parquet(labels(more=[1] * 44)),
    "a missing column": lambda: parquet(labels().drop_columns(["seen"])),
    "not UTF-8": lambda: parquet(labels(label=[f"e{i}" for i in range(44)])).replace(b"e17", b"\xff\xfe7"),
    "one long label many times": lambda: parquet(labels(label=["x" * 1_000_000] * 44)),
    "many row groups": lambda: parquet(labels(), row_group_size=1),
}


@pytest.mark.parametrize("what", BAD_LABELS)
def test_labels(what: str, write: Callable[..., Path]) -> None:
    assert "damaged" in refused(write("vocabulary.parquet", BAD_LABELS[what]()))


BAD_SETTINGS = {
    "laughs": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "merges": b"a: &a {x: 1}\nb:\n  <<: *a\n",
    "deep": b"a: " + b"[" * 20_000,
    "too long": b"# " + b"x" * 70_000,
    "an object": b"a: !!python/object/apply:os.system ['echo hacked > /tmp/hacked']\n",
    "a tag": b"a: !!binary zz\n",
    "a list": b"- a\n- b\n",
    "nothing": b"",
    "not UTF-8": b"a: \xff\n",
    "no method": b"seed: 0\noptions: {}\ntraining: {}\n",
    "unknown method": b"method: ../../etc\nseed: 0\noptions: {}\ntraining: {model: ukge, dimension: 8}\n",
    "unknown model": b"method: cp\nseed: 0\noptions: {}\ntraining: {model: os.system, dimension: 8}\n",
    "a text as dimension": b"method: cp\nseed: 0\noptions: {}\ntraining: {model: ukge, dimension: many}\n",
    "an absurd dimension": b"method: cp\nseed: 0\noptions: {}\ntraining: {model: ukge, dimension: 100000000000}\n",
    "an absurd option": b"method: cp\nseed: 0\noptions: {model: 3}\ntraining: {model: ukge, dimension: 8}\n",
    "options as a list": b"method: cp\nseed: 0\noptions: [1]\ntraining: {model: ukge, dimension: 8}\n",
    "no seed": b"method: cp\nseed: x\noptions: {}\ntraining: {model: ukge, dimension: 8}\n",
    "numbers as names": b"1: 2\n",
    "a name twice": b"method: cp\nseed: 0\noptions: {}\ntraining: {model: ukge, dimension: 8}\nseed: 1\n",
}


@pytest.mark.parametrize("what", BAD_SETTINGS)
def test_settings(what: str, write: Callable[..., Path]) -> None:
    assert "damaged" in refused(write("config.yaml", BAD_SETTINGS[what]))
    assert not Path("/tmp/hacked").exists()


def test_settings_that_say_two_things(original: dict[str, bytes], write: Callable[..., Path]) -> None:
    """YAML itself would keep the last, and whoever reads the file may see the first."""
    content = original["config.yaml"] + b"seed: 0\n"
    assert "it says seed twice, in line" in refused(write("config.yaml", content))


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary.parquet", "calibration.npz"])
def test_too_little_memory_is_not_called_damage(
    name: str, original: dict[str, bytes], write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 7.45 GiB")

    readers = {"model.safetensors": "read_weights", "vocabulary.parquet": "labels_in"}
    monkeypatch.setattr(f"unkgcp.run.run_reader.{readers.get(name, 'arrays_of')}", none_left)
    run = write("config.yaml", original["config.yaml"])
    with pytest.raises(MemoryError) as caught:
        ask(run)
    assert str(caught.value).startswith(f"there is too little memory for {run / name}: free some")


@pytest.mark.parametrize("name", [*NAMES, "provenance.json"])
@pytest.mark.parametrize("what", ["link", "dangling link", "pipe", "folder"])
def test_files_that_are_none(
    name: str, what: str, original: dict[str, bytes], write: Callable[..., Path]
) -> None:
    run = write(name, original[name])
    path = run / name
    path.unlink()
    if what == "link":
        (run.parent / "elsewhere").write_bytes(original[name])
        path.symlink_to(run.parent / "elsewhere")
    elif what == "dangling link":
        path.symlink_to("/nowhere/at/all")
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    sentence = refused(run)
    assert name in sentence


@pytest.mark.parametrize("version", [1, 3, 99, "2", None, [2], {"x": 2}])
def test_other_versions(version: Any, original: dict[str, bytes], write: Callable[..., Path]) -> None:
    provenance = json.loads(original["provenance.json"]) | {"version": version}
    sentence = refused(write("provenance.json", json.dumps(provenance).encode()))
    assert "this program reads 2; fit the run again or use the version of unkgcp that wrote it" in sentence


@pytest.mark.parametrize(
    "files",
    [None, [], {}, {"model.safetensors": 3}, {"../../etc/passwd": {"bytes": 1, "sha256": "x"}}],
)
def test_lists_of_files(files: Any, original: dict[str, bytes], write: Callable[..., Path]) -> None:
    provenance = json.loads(original["provenance.json"])
    found = {**provenance["files"], **files} if isinstance(files, dict) and files else files
    assert "damaged" in refused(write("provenance.json", json.dumps(provenance | {"files": found}).encode()))


@pytest.mark.parametrize("name", ["metrics.json", "provenance.json"])
@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"3", b"", b"\xff", b"{" + b" " * (17 << 20) + b"}", b"[" * 90_000]
)
def test_json(name: str, content: bytes, write: Callable[..., Path]) -> None:
    assert "damaged" in refused(write(name, content))


def test_the_command_says_it_in_one_line(write: Callable[..., Path], tmp_path: Path) -> None:
    run = write("model.safetensors", BAD_WEIGHTS["absurd shape"])
    (tmp_path / "q.tsv").write_text("a\tb\tc\n")
    done = subprocess.run(
        [sys.executable, "-m", "unkgcp", "predict", str(run), str(tmp_path / "q.tsv")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"unkgcp: {run / 'model.safetensors'} is damaged")


# Archives of arrays that are none, and arrays that do not fit the run they came with.


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
