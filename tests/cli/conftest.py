"""A small graph on disk and a run fitted on it, shared by the tests of the commands that need one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from unkgcp.cli import main
from unkgcp.graph import write
from unkgcp.graph.demo_graph import generate

QUICK = "dimension: 8\nepochs: 6\nvalidate_every: 2\nbatch_size: 512\nnegatives: 2\nlearning_rate: 0.02\n"


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def run_command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run `unkgcp ARGUMENTS` in this process; gives its exit status and what it printed."""

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert isinstance(ended.value.code, int), "every command ends with a number"
        return Outcome(ended.value.code, out, err)

    return run


def config_file(folder: Path, text: str) -> Path:
    """A file for `--config` that says this."""
    path = folder / f"{sum(text.encode())}.yaml"
    path.write_text(text)
    return path


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with facts.tsv (3,000 facts of the demo graph) and quick.yaml (a training of seconds)."""
    folder = tmp_path_factory.mktemp("small")
    graph = generate(seed=0).graph
    write(graph[graph.relation >= graph.n_relations - 4][:3000], folder / "facts.tsv")
    (folder / "quick.yaml").write_text(QUICK)
    return folder


@pytest.fixture(scope="session")
def fitted(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on facts.tsv; tests must not change it."""
    folder = tmp_path_factory.mktemp("fitted") / "run"
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(small / "facts.tsv"), "-o", str(folder), "--config", str(small / "quick.yaml"),
              "--split", "0.2,0.2", "--device", "cpu"])  # fmt: skip
    assert ended.value.code == 0
    return folder
