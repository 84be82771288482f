"""`unkgcp reproduce` on a small data set: continues after any end, notices damage, changes nothing that is done."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from unkgcp.cli import main
from unkgcp.errors import InputError
from unkgcp.evaluation.reproduction import Plan, has_quantiles


def arguments(folder: Path, out: Path, *more: str) -> list[str]:
    return [
        "reproduce", "-o", str(out), "--data", str(folder / "tiny"), "--models", "ukge", "--device", "cpu",
        "--config", str(folder / "quick.yaml"), "--no-figures", *more,
    ]  # fmt: skip


def run(capfd, *words: str) -> tuple[int, str, str]:
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capfd.readouterr()
    return ended.value.code, out, err


def cells(out: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file of a finished step with its inode, time of change and content."""
    found = {}
    for path in sorted((out / "cells").rglob("seed-*")):
        state = path.stat()
        found[str(path.relative_to(out))] = (state.st_ino, state.st_mtime_ns, path.read_bytes())
    return found


@pytest.fixture(scope="module")
def done(folder, tmp_path_factory):
    """A finished reproduction: ukge, two seeds, quantile regression included; tests copy it."""
    out = tmp_path_factory.mktemp("done") / "out"
    with pytest.raises(SystemExit) as ended:
        main(arguments(folder, out, "--seeds", "2", "--levels", "0.8,0.9"))
    assert ended.value.code == 0
    return out


@pytest.fixture
def copy(done, tmp_path):
    import shutil

    return Path(shutil.copytree(done, tmp_path / "out"))


AGAIN = ("--seeds", "2", "--levels", "0.8,0.9")


def test_a_finished_run_has_everything(done):
    folder = done / "cells" / "paper" / "tiny" / "ukge"
    cell = json.loads((folder / "seed-1.json").read_text())
    assert list(cell["predictors"]) == ["fpi", "qr", "cp", "unkgcp"]
    assert cell["levels"] == [0.8, 0.9]
    assert cell["training"]["together"] == 1  # on a CPU one seed after the other
    with np.load(folder / "seed-1.npz") as stored:
        assert stored["test"].dtype == np.float32
        assert len(stored["test"]) == len(stored["negatives"]) == 150
    with np.load(folder / "seed-1-quantiles.npz") as stored:
        assert stored["test"].shape == (4, 150)
    assert json.loads((done / "plan.json").read_text())["paper"]["seeds"] == 2
    assert (done / "tables" / "table1.md").exists()


@pytest.mark.parametrize("wanted", ["cp", "fpi", "qr", "fpi,unkgcp"])
def test_only_the_predictors_that_were_asked_for_are_measured(folder, copy, capfd, wanted):
    """Nothing else is in the cells, and tables, figures and report are made without it; no model is trained again."""
    scores = {name: found for name, found in cells(copy).items() if name.endswith(".npz")}
    words = [word for word in arguments(folder, copy, *AGAIN) if word != "--no-figures"]
    status, _, err = run(capfd, *words, "--predictors", wanted)
    assert status == 0, err
    for path in sorted((copy / "cells").rglob("seed-*.json")):
        cell = json.loads(path.read_text())
        asked = wanted.split(",")
        assert list(cell["predictors"]) == asked
        assert list(cell["conditionality"]["positive"]["predictors"]) == asked
        conformal = [name for name in asked if name in ("cp", "unkgcp")]
        assert list(cell["calibration_size"]["positive"]["predictors"]) == conformal
    assert (copy / "report.html").exists()
    assert scores.items() <= cells(copy).items()


def test_seeds_measured_with_other_predictors_do_not_mix(folder, copy, capfd):
    run(capfd, *arguments(folder, copy, *AGAIN, "--predictors", "cp"))
    status, _, err = run(
        capfd, *arguments(folder, copy, "--seeds", "1", "--levels", "0.8,0.9", "--predictors", "fpi")
    )
    assert status == 2
    assert "have no predictor in common" in err


def test_a_report_without_the_level_of_the_papers_tables(folder, copy, capfd):
    words = [word for word in arguments(folder, copy, "--seeds", "2") if word != "--no-figures"]
    status, _, err = run(capfd, *words, "--levels", "0.8", "--predictors", "cp")
    assert status == 0, err


def test_seeds_differ(done):
    folder = done / "cells" / "paper" / "tiny" / "ukge"
    first, second = (np.load(folder / f"seed-{seed}.npz")["test"] for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_doing_it_again_changes_nothing(folder, copy, capfd):
    before = cells(copy)
    status, _, err = run(capfd, *arguments(folder, copy, *AGAIN))
    assert status == 0
    assert "2 cells are there already" in err
    assert cells(copy) == before


def test_steps_at_the_same_time_measure_the_same(folder, done, tmp_path, capfd, monkeypatch):
    """As with a GPU: all seeds together, scored in a thread and measured in another process."""
    monkeypatch.setattr("unkgcp.evaluation.reproduction.scoring.uses_gpu", lambda device: True)
    monkeypatch.setattr("unkgcp.evaluation.reproduction.scoring.machine", lambda device: "this one")
    code, _, err = run(capfd, *arguments(folder, tmp_path / "out", "--seeds", "2", "--levels", "0.8,0.9"))
    assert code == 0
    assert err.count(": stored") == 2
    for seed in (0, 1):
        found, expected = (
            json.loads(next(out.glob(f"cells/*/*/*/seed-{seed}.json")).read_text())
            for out in (tmp_path / "out", done)
        )
        assert found["training"]["together"] == 2
        for name in ("predictors", "errors", "conditionality", "calibration_size", "fingerprint"):
            assert found[name] == expected[name]


def test_an_error_of_a_step_elsewhere_ends_the_run(folder, tmp_path, capfd, monkeypatch):
    def full(*given):
        raise InputError("the disk is full")

    monkeypatch.setattr("unkgcp.evaluation.reproduction.scoring.uses_gpu", lambda device: True)
    monkeypatch.setattr("unkgcp.evaluation.reproduction.scoring.machine", lambda device: "this one")
    monkeypatch.setattr("unkgcp.evaluation.reproduction.scoring.write_scores", full)
    code, _, err = run(capfd, *arguments(folder, tmp_path / "out", "--seeds", "1", "--predictors", "cp"))
    assert code == 2
    assert "the disk is full" in err
    assert not list(tmp_path.glob("out/cells/*/*/*/seed-0.json"))


def test_another_seed_is_added_to_those_that_are_there(folder, copy, capfd):
    before = cells(copy)
    status, _, err = run(capfd, *arguments(folder, copy, "--seeds", "3", "--levels", "0.8,0.9"))
    assert status == 0
    assert "1 of 3 cells to do" in err
    after = cells(copy)
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 3


@pytest.mark.parametrize("kind", ["seed-0.json", "seed-0.npz", "seed-0-quantiles.npz"])
def test_a_damaged_file_is_named_and_made_again(folder, copy, capfd, kind):
    before = cells(copy)
    path = copy / "cells" / "paper" / "tiny" / "ukge" / kind
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content[:-20] if kind.endswith("s.npz") else content)
    status, _, err = run(capfd, *arguments(folder, copy, *AGAIN))
    assert status == 0
    assert kind in err
    assert "made again" in err
    after = cells(copy)
    for name, (_, _, text) in before.items():
        if "seed-1" in name:
            assert after[name] == before[name]
        elif name.endswith("npz") and not name.endswith(f"/{kind}"):
            assert after[name] == before[name]  # the sound score file is not trained again
        elif name.endswith("json"):
            old, new = json.loads(text), json.loads(after[name][2])
            assert old["predictors"] == new["predictors"]  # a seed gives the same model


def test_other_settings_are_noticed(folder, copy, capfd, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text((folder / "quick.yaml").read_text().replace("epochs: 4", "epochs: 2"))
    words = arguments(folder, copy, *AGAIN)
    words[words.index("--config") + 1] = str(other)
    status, _, err = run(capfd, *words)
    assert status == 0
    assert err.count("other data or settings") >= 2
    assert json.loads((copy / "cells/paper/tiny/ukge/seed-0.json").read_text())["training"]["epochs"] == 2


def test_cells_alone_are_enough_for_tables(folder, copy, capfd):
    before = (copy / "tables" / "table1.csv").read_text()
    for path in [*copy.rglob("*.npz"), *(copy / "tables").iterdir(), copy / "summary.json"]:
        path.unlink()
    status, out, _ = run(capfd, "reproduce", "-o", str(copy), "--tables-only", "--no-figures", "--json")
    found = json.loads(out)
    assert (status, found["output"], found["report"]) == (0, str(copy), None)
    assert found["summary"] == json.loads((copy / "summary.json").read_text())
    assert (copy / "tables" / "table1.csv").read_text() == before
    status, _, err = run(capfd, *arguments(folder, copy, *AGAIN))
    assert "2 cells are there already" in err
    assert not list(copy.rglob("*.npz"))


def test_dry_run_lists_and_writes_nothing(folder, tmp_path, capfd):
    out = tmp_path / "nothing"
    status, text, _ = run(capfd, *arguments(folder, out, "--seeds", "2", "--dry-run"))
    assert status == 0
    assert "paper/tiny/ukge" in text
    assert "to do" in text
    assert not out.exists()


def test_dry_run_knows_what_is_done(folder, done, capfd):
    _, text, _ = run(capfd, *arguments(folder, done, "--seeds", "3", "--levels", "0.8,0.9", "--dry-run"))
    row = next(line for line in text.splitlines() if line.startswith("paper/tiny/ukge"))
    assert row.split()[1:4] == ["3", "2", "1"]
    _, text, _ = run(
        capfd, *arguments(folder, done, "--seeds", "3", "--levels", "0.8,0.9", "--dry-run", "--json")
    )
    (block,) = json.loads(text)["blocks"]
    assert (block["block"], block["cells"], block["missing"]) == ("paper/tiny/ukge", 3, 1)
    assert block["seconds"] > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--models", "nothing"], "no model 'nothing'"),
        (["--seeds", "0"], "at least 1"),
        (["--levels", "0.9,x"], "no numbers"),
        (["--levels", "1.5"], "above 0 and below 1"),
        (["--protocol", "loose"], "paper or strict"),
        (["--only", "nl27k"], "selects nothing"),
        (["--predictors", "magic"], "no predictor 'magic'"),
        (["--data", "nowhere"], "nowhere"),
    ],
)
def test_bad_words_end_with_a_sentence_and_nothing_written(folder, tmp_path, capfd, words, sentence):
    out = tmp_path / "out"
    status, _, err = run(capfd, *arguments(folder, out), *words)
    assert status == 2
    assert sentence in err
    assert "Traceback" not in err
    assert not (out / "cells").exists()


def test_only_selects_blocks():
    plan = Plan(data=("cn15k", "ppi5k"), models=("ukge", "beurre"), only=("cn15k/*", "paper/ppi5k/beurre"))
    assert [block.name for block in plan.blocks()] == [
        "paper/cn15k/ukge", "paper/cn15k/beurre", "paper/ppi5k/beurre",
    ]  # fmt: skip
    assert [block.model for block in Plan(data=("demo",)).blocks() if not has_quantiles(block.model)] == [
        "passleaf"
    ]
    with pytest.raises(InputError, match="two data sets"):
        Plan(data=("a/x.tsv", "b/x.csv"))


def test_killed_and_run_again_loses_the_cell_in_flight_alone(folder, tmp_path, capfd):
    """SIGKILL after two of six cells: what was finished is neither computed nor written again."""
    out = tmp_path / "out"
    slow = tmp_path / "slow.yaml"
    slow.write_text((folder / "quick.yaml").read_text().replace("epochs: 4", "epochs: 40"))
    words = arguments(folder, out, "--seeds", "6", "--predictors", "cp,unkgcp")
    words[words.index("--config") + 1] = str(slow)
    code = f"from unkgcp.cli import main; main({words!r})"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", code], stderr=log, stdout=log)
    second = out / "cells" / "paper" / "tiny" / "ukge" / "seed-1.json"
    give_up = time.monotonic() + 120
    while not second.exists() and process.poll() is None and time.monotonic() < give_up:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL, (
        tmp_path / "log"
    ).read_text()  # else it was not at work any more
    before = cells(out)
    finished = [name for name in before if name.endswith("json")]
    assert 2 <= len(finished) < 6

    status, _, err = run(capfd, *words)
    assert status == 0
    assert f"{6 - len(finished)} of 6 cells to do" in err
    after = cells(out)
    assert {name: after[name] for name in before} == before
    assert len([name for name in after if name.endswith("json")]) == 6
