"""What the machine lacks is told as such: a library, memory, room on the disk, a folder for compiled code.

The commands run in processes of their own, since most of this is settled when a process starts.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from unkgcp.graph import Graph
from unkgcp.run import calibrate
from unkgcp.training import Model


@pytest.fixture(scope="module")
def run(
    make_model: Callable[..., Model],
    make_facts: Callable[..., Graph],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("machine") / "run"
    calibrate(make_model(), make_facts(100)).save(folder)
    return folder


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    (tmp_path / "q.tsv").write_text("".join(f"entity {i}\tr1\tentity {i + 1}\n" for i in range(1, 30)))
    return tmp_path / "q.tsv"


def command(
    *arguments: object, before: str = "", file_size: int | None = None
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which does something else before."""
    code = f"import sys\n{before}\nfrom unkgcp.cli import main\nmain(sys.argv[1:])"

    def limit() -> None:
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )


def test_a_missing_library_names_what_to_install(tmp_path: Path) -> None:
    without = """
class Missing:
    def find_spec(self, name, *where):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Missing())
"""
    done = command("fit", "demo", "-o", tmp_path / "run", "--model", "ukge", before=without)
    assert done.returncode == 2
    assert "unkgcp: this needs torch, which is not installed: pip install torch numba" in done.stderr
    assert done.stderr.endswith("; --method evidence alone needs no model\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("library", "code", "bring"),
    [
        ("torch", "import unkgcp; unkgcp.train(unkgcp.read('demo'))", "torch numba"),
        ("numba", "import unkgcp.evidence.tree_kernels", "lightgbm numba matplotlib"),
    ],
)
def test_so_it_is_in_python(library: str, code: str, bring: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{library!r}] = None; {code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"ModuleNotFoundError: this needs {library}, which is not installed: pip install {bring}"
    assert done.stderr.splitlines()[-1].startswith(said)


def test_a_library_that_no_extra_brings_is_named_as_it_is(run: Path, queries: Path) -> None:
    done = command("predict", run, queries, before='sys.modules["safetensors"] = None')
    assert done.returncode == 2
    assert done.stderr == "unkgcp: import of safetensors halted; None in sys.modules\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "MemoryError('Unable to allocate 7.45 GiB')",
            "too little memory for {run}/run.safetensors: free some",
        ),
        ("MemoryError()", "too little memory for {run}/run.safetensors: free some"),
    ],
)
def test_too_little_memory_is_a_failure_of_the_machine(
    run: Path, queries: Path, error: str, said: str
) -> None:
    before = f"""
import unkgcp.files
def none_left(*_):
    raise {error}
unkgcp.files._read = none_left
"""
    done = command("predict", run, queries, before=before)
    assert (done.returncode, done.stdout) == (1, "")
    assert said.format(run=run) in done.stderr
    assert "damaged" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_full_disk_names_the_file(run: Path, queries: Path, tmp_path: Path) -> None:
    for name in ("out.tsv", "out.csv.gz", "out.parquet"):
        done = command("predict", run, queries, "-o", tmp_path / name, file_size=100)
        assert done.returncode == 2, name
        assert f"{tmp_path / name} cannot be written (File too large); free some room" in done.stderr
    left = command("fit", "--from", run, queries, "-o", tmp_path / "again", file_size=100)
    assert left.returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["q.tsv"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_standard_output_is_named(run: Path, queries: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "unkgcp", "predict", str(run), str(queries)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert (
        "unkgcp: standard output cannot be written (No space left on device); free some room" in done.stderr
    )


def test_compiled_code_needs_no_folder_to_be_kept_in(run: Path, queries: Path) -> None:
    """As in a container without a home whose package is read-only."""
    usual = command("predict", run, queries)
    nowhere = "import numba.core.caching as caching\ncaching.CacheImpl._locator_classes = []"
    done = command("predict", run, queries, before=nowhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout == usual.stdout
    assert done.stdout.count("\n") == 30
