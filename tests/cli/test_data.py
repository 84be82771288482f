"""`unkgcp data` through the entry point that the console script calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import config_file
from unkgcp.graph import fetching

PARTS = {
    "train": "a\tlikes\tb\t0.5\nb\tlikes\tc\t0.25\na\tlikes\tb\t0.75\n",
    "val": "a\tlikes\tc\t0.5\n",
    "test": "a\tlikes\tb\t0.9\nb\tknows\tb\t0.8\n",
}


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.delenv("UNKGCP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for part, content in PARTS.items():
        (folder / f"{part}.tsv").write_text(content)
    return folder


class TestDescribe:
    def test_json_has_the_counts(self, run_command, folder):
        status, out, _ = run_command("data", "describe", folder, "--json")
        found = json.loads(out)
        assert status == 0
        counts = {"train": 3, "calibration": 1, "test": 2, "entities": 3, "relations": 2, "self_loops": 1}
        repeats = {"relations_unseen_in_training": 1, "test_rows_in_train": 1, "repeated_triples": 1}
        assert found.items() >= (counts | repeats).items()
        assert found["confidence"]["minimum"] == 0.25
        assert set(found["files"]) == {"train.tsv", "val.tsv", "test.tsv"}

    def test_text_has_counts_bars_and_cautions(self, run_command, folder):
        status, out, _ = run_command("data", "describe", folder)
        assert status == 0
        assert "train 3, calibration 1, test 2" in out
        assert "1 without a training fact" in out
        assert "[0.9, 1.0]  1" in out
        assert "█" in out or "#" in out
        assert "1  test rows repeat a triple of the training part" in out
        assert max(map(len, out.splitlines())) <= 100

    def test_one_file_is_split_as_asked(self, run_command, tmp_path):
        path = tmp_path / "facts.csv"
        rows = "".join(f"a{i},{i / 100},r,b{i}\n" for i in range(100))
        path.write_text("subject,score,predicate,object\n" + rows)
        columns = ("--columns", "subject,predicate,object,score")
        found = json.loads(run_command("data", "describe", path, *columns, "--json")[1])
        assert (found["train"], found["calibration"], found["test"]) == (85, 7, 8)
        shares = ("--split", "0.2,0.3")
        found = json.loads(run_command("data", "describe", path, *columns, *shares, "--json")[1])
        assert (found["train"], found["calibration"], found["test"]) == (50, 20, 30)
        positions = ("--columns", "0,2,3,1", "--config", config_file(tmp_path, "header: true"))
        assert json.loads(run_command("data", "describe", path, *positions, "--json")[1])["entities"] == 200

    def test_confidences_are_scaled_as_asked(self, run_command, tmp_path):
        path = tmp_path / "facts.tsv"
        path.write_text("".join(f"a{i}\tr\tb{i}\t{i * 10}\n" for i in range(101)))
        status, _, err = run_command("data", "describe", path)
        assert status == 2
        assert "--confidence-scale" in err
        scaled = ("--config", config_file(tmp_path, "scale: {kind: minmax, cap: 500, low: 0.1, high: 0.9}"))
        found = json.loads(run_command("data", "describe", path, *scaled, "--json")[1])["confidence"]
        assert found["minimum"] == pytest.approx(0.1)
        assert found["maximum"] == pytest.approx(0.9)
        assert found["atoms"][0]["value"] == pytest.approx(0.9)
        assert found["atoms"][0]["facts"] == 51

        found = json.loads(run_command("data", "describe", path, "--confidence-scale", "0,1000", "--json")[1])
        assert found["confidence"]["maximum"] == 1
        assert found["confidence"]["minimum"] == 0
        status, _, err = run_command("data", "describe", path, "--confidence-scale", "0,500")
        assert status == 2
        assert "outside [0, 500]" in err


class TestList:
    def test_what_is_here_and_what_is_not(self, run_command, tmp_path, folder, monkeypatch):
        folder.rename(tmp_path / "ppi5k")
        monkeypatch.setenv("UNKGCP_DATA", str(tmp_path))
        status, out, _ = run_command("data", "list")
        lines = dict(line.split(maxsplit=1) for line in out.splitlines())
        assert status == 0
        assert list(lines) == ["cn15k", "nl27k", "ppi5k", "demo"]
        assert "3 / 1 / 2 facts" in lines["ppi5k"]
        assert str(tmp_path / "ppi5k") in lines["ppi5k"]
        assert "unkgcp data fetch cn15k" in lines["cn15k"]
        assert "generated" in lines["demo"]


def test_fetch_tells_how_far_it_is_and_prints_the_folder(run_command, tmp_path, monkeypatch):
    def fetch(name, progress, **where):
        progress.update(1, "train.tsv")
        return Path(where["data_dir"]) / name

    monkeypatch.setattr(fetching, "fetch", fetch)
    status, out, err = run_command("data", "fetch", "ppi5k", "--data-dir", tmp_path)
    assert (status, out) == (0, f"{tmp_path / 'ppi5k'}\n")
    assert "fetching ppi5k" in err


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nl27k", {"test": 14_034, "relations_unseen_in_training": 12}),
        ("cn15k", {"test_rows_in_train": 2_006}),
        ("ppi5k", {"test_rows_in_train": 2_971}),
    ],
)
def test_benchmarks_on_the_command_line(run_command, published, name, expected):
    found = json.loads(run_command("data", "describe", name, "--data-dir", published(name), "--json")[1])
    assert {key: found[key] for key in expected} == expected
