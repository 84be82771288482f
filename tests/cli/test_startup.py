"""Starting up is quick and loads nothing heavy."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

HEAVY = {"torch", "numba", "lightgbm", "matplotlib", "pandas", "numpy", "pyarrow", "scipy"}
SHOW = "import sys; print(' '.join(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)"
HELP = "from unkgcp.cli import main; main(['--help'])"


def loaded(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after running the code."""
    ending = f"try:\n    exec({code!r})\nexcept SystemExit:\n    pass\n{SHOW}"
    done = subprocess.run([sys.executable, "-c", ending], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import unkgcp",
        HELP,
        "from unkgcp.cli import main; main(['--version'])",
        "from unkgcp.cli import main; main(['data', '--help'])",
        "from unkgcp.cli import main; main(['data', 'describe', '--help'])",
        "from unkgcp.cli import main; main(['data', 'fetch', '--help'])",
    ],
)
def test_nothing_heavy_is_imported(code):
    modules = loaded(code)
    assert "unkgcp" in modules
    assert not modules & HEAVY


def test_the_look_at_modules_would_notice():
    assert "numpy" in loaded("import unkgcp.graph.facts")


def seconds(code: str) -> float:
    """Processor time of a new interpreter that runs the code; other work on the machine does not count."""
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


@pytest.mark.parametrize("code", ["import unkgcp", HELP])
def test_start_up_takes_no_more_than_eight_bare_interpreters(code):
    # taken in turns, the best of each: other work on the machine slows single runs, never the fastest of many
    pairs = [(seconds("pass"), seconds(code)) for _ in range(12)]
    bare, ours = (min(times) for times in zip(*pairs, strict=True))
    assert ours <= 8 * bare
