"""A run on disk is whole or refused: damage, strangers, other formats, writers that are killed, readers meanwhile.

`tests/faults/test_runs_on_disk.py` does some of it for longer and with more processes.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.processes import killed_at
from tests.runs import FILES, rewritten, which
from unkgcp import files
from unkgcp._version import __version__
from unkgcp.errors import InputError
from unkgcp.files import read_container
from unkgcp.graph import Graph
from unkgcp.run import Predictor, calibrate
from unkgcp.run.provenance import describe, reload
from unkgcp.run.store import FORMAT, RUN, check_target
from unkgcp.training import Model


def refused(run: Path) -> str:
    """The sentence with which a run is refused."""
    with pytest.raises(InputError) as caught:
        Predictor.load(run)
    sentence = str(caught.value)
    assert sentence.startswith(f"{run / RUN} is damaged or foreign (")
    assert sentence.endswith("; fit the run again")
    assert "\n" not in sentence
    return sentence


def test_files_for_people_are_not_read_back(run: Path, original: Path) -> None:
    assert {path.name for path in run.iterdir()} == FILES
    for name in FILES - {RUN}:
        (run / name).write_bytes(b"\xff garbage")
    queries = [("entity 1", "r1", "entity 2")]
    before, after = (Predictor.load(folder).interval(queries) for folder in (original, run))
    assert (before.lower, before.upper) == (after.lower, after.upper)


def test_altered_bytes_are_noticed_wherever_they_are(run: Path) -> None:
    content, rng = (run / RUN).read_bytes(), np.random.default_rng(0)
    altered = [content[: len(content) // 2], content[:-1], content + b"\0", b""]
    for place in rng.integers(0, len(content), 60).tolist():
        flipped = content[place] ^ 1 << int(rng.integers(8))
        altered.append(content[:place] + bytes([flipped]) + content[place + 1 :])
    for one in altered:
        (run / RUN).write_bytes(one)
        refused(run)


@pytest.mark.parametrize("provenance", [{"protocol": "papes"}, {"data": {"seed": "0"}}])
def test_what_could_not_be_loaded_does_not_take_the_place_of_a_run(
    run: Path, provenance: dict[str, Any]
) -> None:
    before = (run / RUN).read_bytes()
    with pytest.raises(InputError, match="this run cannot be written, and nothing was replaced"):
        replace(Predictor.load(run), provenance=provenance).save(run)
    assert (run / RUN).read_bytes() == before
    assert {path.name for path in run.iterdir()} == FILES


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused_beside_arrays_too(run: Path, number: str) -> None:
    rewritten(run, lambda arrays, about: about["metrics"].update(x=123454321))
    with safe_open(run / RUN, "numpy") as file:
        _, _, text = file.metadata()[files.KEY].partition(" ")
    arrays, text = load_file(run / RUN), text.replace("123454321", number)
    save_file(arrays, run / RUN, {files.KEY: f"{files._digest(arrays, text)} {text}"})
    assert "not JSON compliant" in refused(run)


def test_another_format_is_refused(run: Path) -> None:
    arrays, about, _ = read_container(run / RUN, FORMAT, "")
    files.write_container(run / RUN, "unkgcp run 99", arrays, about)
    assert f"its format is 'unkgcp run 99', this program reads '{FORMAT}'" in refused(run)


def mutations(array: np.ndarray) -> dict[str, np.ndarray]:
    """The array with one thing wrong."""
    found: dict[str, np.ndarray] = {"two more dimensions": array[..., None, None]}
    if array.ndim:
        found["too short"] = array[:-1]
    if array.dtype.kind in "iuf":
        found["as text"] = array.astype("U4")
        found["half as wide"] = array.astype(np.float16)
    if array.dtype.kind == "f" and array.size:
        for value in (np.nan, np.inf):
            found[str(value)] = array.copy()
            found[str(value)].flat[0] = value
    return found


def test_arrays_that_do_not_fit_are_refused(run: Path) -> None:
    content, (arrays, _, _) = (run / RUN).read_bytes(), read_container(run / RUN, FORMAT, "")
    accepted = []
    for name, array in arrays.items():
        for what, wrong in {**mutations(array), "missing": None}.items():
            (run / RUN).write_bytes(content)

            def change(arrays: dict[str, Any], about: object, name: str = name, wrong: Any = wrong) -> None:
                arrays[name] = wrong
                if wrong is None:
                    del arrays[name]

            try:
                Predictor.load(rewritten(run, change))
                accepted.append((name, what))
            except InputError:
                pass
    # scores may be infinite, and as narrow as they like: they are ranked only
    assert set(accepted) <= {("calibration/0/scores", what) for what in ("inf", "half as wide")}


HOSTILE_ARRAYS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a label twice": lambda a: {
        "labels/entities/bytes": np.frombuffer(
            bytes(a["labels/entities/bytes"]).replace(b"entity 3", b"entity 2", 1), np.uint8
        )
    },
    "not UTF-8": lambda a: {"labels/entities/bytes": a["labels/entities/bytes"] | 128},
    "labels in no order": lambda a: {"labels/entities/offsets": a["labels/entities/offsets"][::-1].copy()},
    "labels of one byte more": lambda a: {
        "labels/relations/bytes": np.append(a["labels/relations/bytes"], np.uint8(65))
    },
    "another entity": lambda a: {"facts/tail": np.full_like(a["facts/tail"], 255)},
    "another relation": lambda a: {"facts/relation": np.full_like(a["facts/relation"], 255)},
    "facts without heads": lambda a: {"facts/offsets": a["facts/offsets"] * 0},
    "a table of nobody": lambda a: {"tables/x": np.zeros((2, 2), np.float32)},
    "a text as array": lambda a: {"calibration/size": np.array("many")},
}


@pytest.mark.parametrize("what", HOSTILE_ARRAYS)
def test_arrays_of_a_stranger(run: Path, what: str) -> None:
    refused(rewritten(run, lambda arrays, about: arrays.update(HOSTILE_ARRAYS[what](arrays))))


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("config", {"method": "../../etc"}),
        ("config", {"method": "cp"}),
        ("config", {"method": None}),
        ("config", {"seed": "x"}),
        ("config", {"options": [1]}),
        ("config", {"options": {"model": 3}}),
        ("config", {"training": {"model": "os.system", "dimension": 8}}),
        ("config", {"training": {"model": "ukge", "dimension": "many"}}),
        ("config", {"training": {"model": "ukge", "dimension": 10**11}}),
        ("config", {"training": {"model": "none"}}),
        ("config", {"training": 3}),
        ("provenance", {"protocol": "papes"}),
        ("provenance", {"held_out_rate": 2.0}),
        ("provenance", {"held_out_rate": 1}),
        ("provenance", {"updates": {}}),
        ("provenance", {"recalibrated": 3}),
        ("provenance", {"data": 3}),
        ("provenance", {"data": {"argument": 3}}),
        ("provenance", {"data": {"seed": "0"}}),
        ("provenance", {"data": {"options": []}}),
        ("provenance", {"data": {"hashes": "none"}}),
    ],
)
def test_settings_of_a_stranger(run: Path, part: str, changes: dict[str, Any]) -> None:
    refused(rewritten(run, lambda arrays, about: about[part].update(changes)))


def test_a_model_of_pykeen_is_measured_before_memory_is_asked_for(run: Path) -> None:
    pytest.importorskip("pykeen", reason="pykeen is not installed: pip install 'unkgcp[pykeen]'")
    training = {"model": "pykeen:RESCAL", "dimension": 60_000}  # would ask for gigabytes

    def change(arrays: dict[str, Any], about: dict[str, Any]) -> None:
        about["config"]["training"] = training

    assert "is missing" in refused(rewritten(run, change))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"argument": "http://user:x@127.0.0.1:1/facts.tsv"}, "an address in a run is not followed"),
        ({"argument": "s3://bucket/facts.tsv"}, "an address in a run is not followed"),
        ({"hashes": {}}, "does not tell the hashes of its data"),
        ({"options": {"no_such_option": 3}}, "name them with DATA or --data"),
        ({"options": {"header": {"a": 1}, "scale": 3}}, "name them with DATA or --data"),
        ({"seed": -1}, "name them with DATA or --data"),
        ({"hashes": {"facts.tsv": "0"}}, "has changed since the run was fitted"),
    ],
)
def test_the_data_of_a_stranger_s_run(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    from unkgcp.graph.datasets import load_dataset

    (tmp_path / "facts.tsv").write_text("".join(f"a{i}\tr\tb{i % 7}\t0.{i}\n" for i in range(100)))
    record = describe(str(tmp_path / "facts.tsv"), load_dataset(tmp_path / "facts.tsv"), 0, {})
    assert len(reload(record, "run").splits.test)
    with pytest.raises(InputError, match=sentence):
        reload({**record, **changes}, "run")


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder; make one with unkgcp fit"):
        Predictor.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"it has no run\.safetensors"):
        Predictor.load(tmp_path)
    (tmp_path / ".checkpoint").mkdir()
    with pytest.raises(InputError, match=r"not finished; continue with .* --resume"):
        Predictor.load(tmp_path)


def test_a_run_written_again_says_when_and_by_which_version(run: Path) -> None:
    old = {"unkgcp": "0.0.1", "created": "1999-01-01T00:00:00+00:00", "note": "kept"}
    Predictor.load(rewritten(run, lambda arrays, about: about["provenance"].update(old))).save(run)
    again = Predictor.load(run).provenance
    assert again["unkgcp"] == __version__
    assert again["created"] > "2000"
    assert again["note"] == "kept"


class TestTarget:
    def test_a_folder_with_something_else_is_not_touched(self, original: Path, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("precious")
        with pytest.raises(InputError, match="is not a run of unkgcp; give another folder"):
            Predictor.load(original).save(tmp_path)
        assert os.listdir(tmp_path) == ["thesis.tex"]
        with pytest.raises(InputError, match="is not a folder"):
            check_target(tmp_path / "thesis.tex")

    def test_new_empty_unfinished_and_run_are_fine(self, run: Path, tmp_path: Path) -> None:
        check_target(tmp_path / "new")
        (tmp_path / "empty").mkdir()
        check_target(tmp_path / "empty")
        (tmp_path / "empty" / ".checkpoint").mkdir()
        check_target(tmp_path / "empty")
        (run / "answers.tsv").write_text("mine")
        check_target(run)

    def test_a_full_disk_leaves_the_run_as_it_was(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        predictor, before = Predictor.load(run), {path.name: path.read_bytes() for path in run.iterdir()}

        def full(path: Path) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(files, "sync", full)
        sentence = f"run/{RUN} cannot be written \\(No space left on device\\); free some room"
        with pytest.raises(InputError, match=sentence):
            predictor.save(run)
        assert {path.name: path.read_bytes() for path in run.iterdir()} == before

    def test_what_cannot_be_loaded_again_is_not_written(self, run: Path) -> None:
        predictor, before = Predictor.load(run), (run / RUN).read_bytes()
        predictor.model.tables["w"] = np.full((1, 1), np.inf, np.float32)
        with pytest.raises(
            InputError, match=r"not finite.*this run cannot be written, and nothing was replaced"
        ):
            predictor.save(run)
        assert (run / RUN).read_bytes() == before
        assert {path.name for path in run.iterdir()} == FILES

    def test_a_run_that_another_program_has_written_meanwhile(self, run: Path) -> None:
        first, second = Predictor.load(run), Predictor.load(run)
        first.provenance["note"] = "first"
        first.save(run, replaces=first.digest)
        with pytest.raises(InputError, match="was written by another program meanwhile; do it again"):
            second.save(run, replaces=second.digest)
        assert Predictor.load(run).provenance["note"] == "first"

    def test_of_two_that_replace_a_run_at_once_one_is_refused(
        self, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            files, "sync", lambda path: time.sleep(0.2)
        )  # between the check and the replacement
        first, second = Predictor.load(run), Predictor.load(run)
        first.provenance["note"], second.provenance["note"] = "first", "second"

        def refusal(one: Predictor) -> str:
            try:
                one.save(run, replaces=one.digest)
            except InputError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(2) as threads:
            said = sorted(threads.map(refusal, (first, second)))
        assert said[0] == ""
        assert "was written by another program meanwhile" in said[1]


# One run takes the place of another.


@pytest.fixture
def pair(make_model: Callable[..., Model], make_facts: Callable[..., Graph]) -> list[Predictor]:
    """Two runs; which of them one has is told by the model and by the calibration, each by itself."""
    return [calibrate(make_model(seed), make_facts(50 + 50 * seed), "cp") for seed in (0, 1)]


@pytest.mark.parametrize("before", [-1, 0], ids=["no run yet", "over a run"])
def test_a_writer_killed_at_any_moment_leaves_what_was_there_or_the_new_run(
    pair: list[Predictor], tmp_path: Path, before: int
) -> None:
    kept = []
    for step in range(200):
        run = tmp_path / f"run-{step}"
        if before == 0:
            pair[0].save(run)
        if not killed_at(step, run, lambda run=run: pair[1].save(run)):
            break
        kept.append(which(run, pair) if (run / RUN).exists() else -1)
        # what killed writers left is no obstacle, and is removed when it is old
        for left in run.glob(".partial-*"):
            os.utime(left, (0, 0))
        pair[0].save(run)
        assert not list(run.glob(".partial-*.safetensors"))
    assert kept == sorted(kept)  # there is one step: what was there before it, the new run from it on
    assert set(kept) == {before, 1}


def test_readers_of_a_run_that_is_replaced_meanwhile_never_get_a_mixture(
    pair: list[Predictor], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    pair[0].save(run)
    child = os.fork()
    if not child:
        for turn in range(30):
            pair[1 - turn % 2].save(run)
        os._exit(0)
    seen = set()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        seen.add(which(run, pair))
    assert seen == {0, 1}
