"""The tutorials of the site run from their first cell to their last, and show what they computed."""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.worlds import written
from unkgcp.evidence import evidence_model

DOCS = Path(__file__).parents[1] / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
sys.path.append(str(DOCS / "tools"))  # of the site, outside of the package

import notebooks  # noqa: E402


@pytest.fixture
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """One form of the law, with few trees: what is learned is judged elsewhere, and `make docs` learns all of it."""
    monkeypatch.setattr(evidence_model, "FEW_ROWS", 0)
    for part in ("SUGGESTED", "ELSEWHERE", "LOCATION", "SCALE"):
        monkeypatch.setattr(evidence_model, part, replace(getattr(evidence_model, part), rounds=20))


@pytest.mark.usefixtures("_few_trees")
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path) -> None:
    if "pykeen" in path.stem:
        pytest.importorskip("pykeen", reason="PyKEEN is not installed: pip install 'unkgcp[pykeen]'")
    gc.freeze()  # PyKEEN collects garbage after every epoch, among all that tests have left
    found = notebooks.run(path, tmp_path)
    text, figures = notebooks.page(found, path.stem)
    assert text.startswith("# ")
    assert figures
    written = json.loads(notebooks.notebook(found))
    assert len(written["cells"]) == len(found)
    assert {output["output_type"] for cell in written["cells"] for output in cell.get("outputs", ())}


def test_cells_show_what_they_print_and_end_with(tmp_path: Path) -> None:
    source = "# %% [markdown]\n# # A title\n#\n# Text.\n\n# %%\nprint(1)\nx = 2\n\n# %%\nx + 1\n"
    source += "# %%\n# !unkgcp --version\n"
    found = notebooks.run(written(tmp_path / "one.py", source), tmp_path)
    assert [cell.kind for cell in found] == ["markdown", "code", "code", "command"]
    assert [[text.split()[0] for _, text in cell.outputs] for cell in found] == [
        [],
        ["1"],
        ["3"],
        ["unkgcp"],
    ]
    text, _ = notebooks.page(found, "one")
    assert text.startswith("# A title\n")
    assert "```console\n$ unkgcp --version\n```" in text
    assert "```python\nprint(1)\nx = 2\n```\n\n```{.text .output}\n1\n```" in text


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("1 / 0", ZeroDivisionError),
        ("# !unkgcp predict nowhere queries.tsv", RuntimeError),
        ("# !rm -r everything", ValueError),
    ],
)
def test_a_cell_that_fails_is_no_tutorial(cell: str, error: type[Exception], tmp_path: Path) -> None:
    path = written(tmp_path / "one.py", f"# %% [markdown]\n# # Title\n# %%\n{cell}\n")
    with pytest.raises(error):
        notebooks.run(path, tmp_path)
