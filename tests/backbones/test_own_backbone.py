"""A backbone in somebody's own file: the example of docs/own-models.md, executed outside the package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own-models.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```python\n(# mymodule\.py\n.*?)```", PAGE, re.DOTALL)

SCORE = re.search(r"```python\n(from dataclasses .*?)```", PAGE, re.DOTALL)

IN_PYTHON = """
import numpy as np
import mymodule, unkgcp
from tests.worlds import learnable_graph
from dataclasses import replace
from unkgcp.training import config_for
facts = learnable_graph(400)
config = replace(config_for("mine"), dimension=8, epochs=20)
model = unkgcp.train(facts[:300], config=config, device="cpu")
assert model.called == "mymodule:Mine", model.called
import myscore
unkgcp.calibrate(model, facts[300:], "cp", score="above").save("scored")
unkgcp.calibrate(model, facts[300:], "cp").save("run")
assert (np.ptp(model.score(facts.head, facts.relation, facts.tail)) > 0.01)
"""
LOADED = """
import unkgcp
for name, module in (("run", "mymodule"), ("scored", "myscore")):
    try:
        unkgcp.Predictor.load(name)
    except Exception as refused:
        print(refused)
    __import__(module)
    print(*unkgcp.Predictor.load(name).interval([("e1", "r1", "e2")]).status)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "myscore.py").write_text(f"import numpy as np\n{SCORE[1]}")
    (tmp_path / "mymodule.py").write_text(EXAMPLE[1])
    return tmp_path


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **environment}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def test_the_example_of_twenty_lines_is_trained_saved_and_loaded(folder: Path) -> None:
    assert len((folder / "mymodule.py").read_text().splitlines()) <= 20
    done = run(folder, sys.executable, "-c", IN_PYTHON)
    assert done.returncode == 0, done.stderr
    loaded = run(folder, sys.executable, "-c", LOADED)
    no_backbone, one, no_score, other = loaded.stdout.splitlines()
    assert "import mymodule and call unkgcp.register_backbone(Mine)" in no_backbone
    assert "import myscore and call unkgcp.register_score" in no_score
    assert one == other == "ok", loaded.stderr


def test_the_command_line_takes_module_and_class(folder: Path) -> None:
    lines = [f"a{i % 7}\tr\tb{i % 11}\t{(i % 7) / 7:.2f}" for i in range(77)]
    (folder / "facts.tsv").write_text("\n".join(lines) + "\n")
    (folder / "short.yaml").write_text("model: mymodule:Mine\nepochs: 2\ndimension: 4\n")
    unkgcp = (sys.executable, "-m", "unkgcp")
    done = run(
        folder, *unkgcp, "fit", "facts.tsv", "-o", "run", "--model", "mymodule:Mine", "--config",
        "short.yaml", "--method", "cp", "--device", "cpu",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ask = (*unkgcp, "predict", "run", "facts.tsv", "-o", "out.csv")
    refused = run(folder, *ask)
    assert refused.returncode != 0
    assert "set UNKGCP_IMPORT=mymodule" in refused.stderr
    assert "Traceback" not in refused.stderr
    answered = run(folder, *ask, UNKGCP_IMPORT="mymodule")
    assert answered.returncode == 0, answered.stderr


@pytest.mark.parametrize(
    ("model", "sentence"),
    [("nowhere:Mine", "there is no module 'nowhere'"), ("json:Mine", "module 'json' has no class 'Mine'"),
     ("json:JSONDecoder", "no subclass of unkgcp.backbones.Backbone"), ("mine", "must be one of")],
)  # fmt: skip
def test_what_cannot_be_a_backbone_is_said(model: str, sentence: str) -> None:
    import unkgcp
    from tests.worlds import learnable_graph

    with pytest.raises(unkgcp.InputError, match=sentence):
        unkgcp.train(learnable_graph(30), model=model, device="cpu")
