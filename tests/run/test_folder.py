"""A run on disk is whole or refused: damage, strangers, other versions, half-written folders."""

from __future__ import annotations

import errno
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unkgcp import files
from unkgcp._version import __version__
from unkgcp.errors import InputError
from unkgcp.files import read_npz, write_npz
from unkgcp.graph import Graph
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.run import Predictor, calibrate
from unkgcp.run.provenance import ALWAYS, FACTS, MODEL, PROVENANCE
from unkgcp.run.run_writer import check_target
from unkgcp.training import Model


@pytest.fixture
def run(make_model: Callable[..., Model], make_facts: Callable[..., Graph], tmp_path: Path) -> Path:
    calibrate(make_model(), make_facts(100)).save(tmp_path / "run")
    return tmp_path / "run"


def refingerprint(run: Path, name: str) -> None:
    """Make the run's list of files agree with a changed file, as a stranger would."""
    import hashlib

    provenance = json.loads((run / "provenance.json").read_text())
    content = (run / name).read_bytes()
    provenance["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (run / "provenance.json").write_text(json.dumps(provenance))


@pytest.mark.parametrize("name", [*ALWAYS, MODEL])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "append"])
def test_every_damaged_file_is_noticed(run: Path, name: str, damage: str) -> None:
    content = bytearray((run / name).read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    elif damage == "append":
        content += b"\0"
    else:
        content = content[: len(content) // 2 if damage == "truncate" else 0]
    (run / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} is damaged"):
        Predictor.load(run)


@pytest.mark.parametrize("name", [*ALWAYS, MODEL])
@pytest.mark.parametrize("content", [b"", b"garbage \xff\x00", b"{}", b"[]"])
def test_foreign_content_under_our_names_is_one_sentence(run: Path, name: str, content: bytes) -> None:
    if (name, content) == ("metrics.json", b"{}"):
        return
    (run / name).write_bytes(content)
    refingerprint(run, name)
    with pytest.raises(InputError, match="damaged"):
        Predictor.load(run)


@pytest.mark.parametrize("name", [*ALWAYS, MODEL])
def test_a_missing_file_is_named(run: Path, name: str) -> None:
    (run / name).unlink()
    with pytest.raises(InputError, match=f"{name} is missing"):
        Predictor.load(run)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "damaged or foreign"),
        ("[]", "it holds no names"),
        ('{"format": "other"}', "not written by unkgcp"),
        ('{"format": "unkgcp-run", "version": 99}', "format version 99, this program reads 2"),
        ('{"format": "unkgcp-run", "version": 2}', "does not list the files"),
        ('{"format": "unkgcp-run", "version": 2, "files": {"../x": {}}}', "does not list the files"),
        ("[" * 100_000, "damaged or foreign"),
    ],
)
def test_provenance_of_others(run: Path, content: str, sentence: str) -> None:
    (run / "provenance.json").write_text(content)
    with pytest.raises(InputError, match=sentence):
        Predictor.load(run)


@pytest.mark.parametrize(
    "changed",
    [
        {"data": 3},
        {"data": {"argument": 3}},
        {"data": {"argument": "demo"}},
        {"data": {"argument": "demo", "name": "demo", "seed": "0", "options": {}, "hashes": {}}},
        {"data": {"argument": "demo", "name": "demo", "seed": -1, "options": {}, "hashes": {}}},
        {"data": {"argument": "demo", "name": "demo", "seed": 0, "options": [], "hashes": {}}},
        {"data": {"argument": "demo", "name": "demo", "seed": 0, "options": {}, "hashes": "none"}},
        {"recalibrated": 3},
    ],
)
def test_provenance_with_an_edited_record(run: Path, changed: dict[str, object]) -> None:
    path = run / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with pytest.raises(InputError, match=r"provenance\.json is damaged or foreign"):
        Predictor.load(run)


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder; make one with unkgcp fit"):
        Predictor.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"it has no provenance\.json"):
        Predictor.load(tmp_path)
    (tmp_path / ".checkpoint").mkdir()
    with pytest.raises(InputError, match=r"not finished; continue with .* --resume"):
        Predictor.load(tmp_path)


def test_parts_that_do_not_fit_together(run: Path) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("dimension: 8", "dimension: 9"))
    refingerprint(run, "config.yaml")
    with pytest.raises(InputError, match=r"do not fit together .*should have shape"):
        Predictor.load(run)


def test_settings_of_another_method_are_refused(run: Path) -> None:
    config = (run / "config.yaml").read_text()
    changed = config.replace("method: unkgcp", "method: cp").replace("mapped_entropy: false", "")
    (run / "config.yaml").write_text(changed.replace("options:", "options: {}"))
    refingerprint(run, "config.yaml")
    with pytest.raises(InputError, match="belongs to another method"):
        Predictor.load(run)


def test_a_run_written_again_says_when_and_by_which_version(run: Path) -> None:
    provenance = json.loads((run / "provenance.json").read_text())
    provenance |= {"unkgcp": "0.0.1", "created": "1999-01-01T00:00:00+00:00", "note": "kept"}
    (run / "provenance.json").write_text(json.dumps(provenance))
    Predictor.load(run).save(run)
    again = json.loads((run / "provenance.json").read_text())
    assert (again["format"], again["version"], again["unkgcp"]) == ("unkgcp-run", 2, __version__)
    assert again["created"] > "2000"
    assert again["note"] == "kept"


def test_yaml_cannot_run_code(run: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (run / "config.yaml").write_text(f"!!python/object/apply:os.mkdir ['{victim}']")
    refingerprint(run, "config.yaml")
    with pytest.raises(InputError, match="damaged or foreign"):
        Predictor.load(run)
    assert not victim.exists()


class TestTarget:
    def test_a_folder_with_something_else_is_not_touched(
        self, make_model: Callable[..., Model], make_facts: Callable[..., Graph], tmp_path: Path
    ) -> None:
        (tmp_path / "thesis.tex").write_text("precious")
        predictor = calibrate(make_model(), make_facts(50))
        with pytest.raises(InputError, match="is not a run of unkgcp; give another folder"):
            predictor.save(tmp_path)
        assert os.listdir(tmp_path) == ["thesis.tex"]

    def test_a_file_is_not_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="is not a folder"):
            check_target(tmp_path / "file")

    def test_new_empty_unfinished_and_run_are_fine(self, run: Path, tmp_path: Path) -> None:
        check_target(tmp_path / "new")
        (tmp_path / "empty").mkdir()
        check_target(tmp_path / "empty")
        (tmp_path / "empty" / ".checkpoint").mkdir()
        check_target(tmp_path / "empty")
        check_target(run)

    def test_replacing_a_run_keeps_other_files(
        self, run: Path, make_model: Callable[..., Model], make_facts: Callable[..., Graph]
    ) -> None:
        (run / "answers.tsv").write_text("mine")
        calibrate(make_model(5), make_facts(50), "cp").save(run)
        assert (run / "answers.tsv").read_text() == "mine"
        assert Predictor.load(run).method.name == "cp"

    def test_nothing_is_left_when_writing_fails(
        self,
        make_model: Callable[..., Model],
        make_facts: Callable[..., Graph],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise OSError("Input/output error")

        monkeypatch.setattr("unkgcp.run.run_writer.write_npz", broken)
        with pytest.raises(OSError, match="Input/output error"):
            calibrate(make_model(), make_facts(50)).save(tmp_path / "run")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", [*ALWAYS, MODEL, FACTS, PROVENANCE])
    def test_a_full_disk_names_the_file_and_leaves_the_run_as_it_was(
        self,
        name: str,
        make_model: Callable[..., Model],
        make_facts: Callable[..., Graph],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        model = replace(make_model(), facts=KnownFacts.of(make_facts(30)))
        calibrate(model, make_facts(50)).save(tmp_path / "run")
        before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
        usual = files.sync

        def full(path: Path) -> None:
            if path.name == name:
                raise OSError(errno.ENOSPC, "No space left on device")
            usual(path)

        monkeypatch.setattr(files, "sync", full)
        sentence = (
            rf"run/{name} cannot be written \(No space left on device\); free some room or give another place"
        )
        with pytest.raises(InputError, match=sentence):
            calibrate(model, make_facts(60)).save(tmp_path / "run")
        assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


class TestArrays:
    def test_round_trip(self, tmp_path: Path) -> None:
        arrays = {"a/b": np.arange(6.0).reshape(2, 3), "empty": np.empty(0, np.int32), "one": np.array(True)}
        write_npz(tmp_path / "x.npz", arrays)
        found = read_npz(tmp_path / "x.npz")
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array, strict=True)

    def test_numpy_reads_it_too(self, tmp_path: Path) -> None:
        write_npz(tmp_path / "x.npz", {"a": np.arange(3)})
        assert np.load(tmp_path / "x.npz")["a"].tolist() == [0, 1, 2]

    def test_objects_are_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", a=np.array([{}], dtype=object))
        with pytest.raises(ValueError, match="does not hold plain numbers"):
            read_npz(tmp_path / "x.npz")

    def test_compressed_members_are_refused(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "x.npz", a=np.zeros(10**6))
        with pytest.raises(ValueError, match="promises more than it holds"):
            read_npz(tmp_path / "x.npz")

    def test_a_header_that_promises_too_much_is_refused(self, tmp_path: Path) -> None:
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
        )
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr("a.npy", buffer.getvalue() + b"\0" * 8)
        with pytest.raises(ValueError, match="not as long as its header says"):
            read_npz(tmp_path / "x.npz")
