"""`unkgcp rules` through the entry point that the console script calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import config_file
from unkgcp.graph import load_dataset

PARTS = {
    "train": "a\tlikes\tb\t0.9\nb\tlikes\tc\t0.8\nc\tlikes\td\t0.9\n",
    "val": "a\tlikes\tc\t0.5\n",
    "test": "d\tlikes\te\t1.0\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for part, content in PARTS.items():
        (folder / f"{part}.tsv").write_text(content)
    (folder / "my.rules").write_text(
        "# mine\nlikes(A,B) & likes(B,C) -> likes(A,C)\n0.5: likes(A,B) -> likes(B,A)\n"
    )
    return folder


def facts(path: Path) -> dict[tuple[str, ...], float]:
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    return {tuple(line[:3]): float(line[3]) for line in lines if line[3] != "confidence"}


EXPECTED = {
    # a-c is in val with another confidence, of which nothing is known here; nothing from d-e, which is in test
    ("a", "likes", "c"): 0.7,
    ("b", "likes", "d"): 0.7,
    ("b", "likes", "a"): 0.4,
    ("c", "likes", "b"): 0.3,
    ("d", "likes", "c"): 0.4,
}


def test_a_folder(run_command, folder):
    status, out, _ = run_command("rules", folder, folder / "my.rules", "-o", folder / "softlogic.tsv")
    assert (status, out) == (0, f"5 facts written to {folder / 'softlogic.tsv'}\n")
    assert facts(folder / "softlogic.tsv") == pytest.approx(EXPECTED)
    softlogic = load_dataset(folder).softlogic
    assert softlogic is not None
    assert len(softlogic) == 5, "they take part in the data set"
    out = run_command("rules", folder, folder / "my.rules", "-o", folder / "softlogic.tsv", "--json").out
    assert json.loads(out) == {"rules": 2, "facts": 5, "output": str(folder / "softlogic.tsv")}


def test_minimum_and_rounds(run_command, folder):
    output = folder / "softlogic.tsv"
    run_command("rules", folder, folder / "my.rules", "-o", output, "--min-confidence", 0.65)
    assert facts(output) == pytest.approx({("a", "likes", "c"): 0.7, ("b", "likes", "d"): 0.7})
    run_command("rules", folder, folder / "my.rules", "-o", output, "--min-confidence", 0.55,
                "--config", config_file(folder, "rounds: 2"))  # fmt: skip
    assert facts(output) == pytest.approx(
        {("a", "likes", "c"): 0.7, ("b", "likes", "d"): 0.7, ("a", "likes", "d"): 0.6}
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "likes(A,B) -> lykes(B,A)\n",
            "my.rules, line 1: the graph has no relation 'lykes'; did you mean 'likes'?",
        ),
        (
            "\nlikes(A,B) likes(B,A)\n",
            "my.rules, line 2: the rule is not understood at `likes(A,B) likes(B,A)`; write it as in",
        ),
    ],
)
def test_bad_rules_are_one_sentence(run_command, folder, text, sentence):
    (folder / "my.rules").write_text(text)
    status, _, err = run_command("rules", folder, folder / "my.rules", "-o", folder / "softlogic.tsv")
    assert status == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert not (folder / "softlogic.tsv").exists()
