"""Where parts are kept until all of them are there, and how they become the output, whole or not at all.

What it is: a folder under a temporary name beside the output with `answers/` (one Parquet file a part), `attempts/`
(a mark for each attempt at a part) and, for text input, `queries/`. At the end `answers/` is renamed, or its parts
are written into one file in order. What it is not: it computes nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from unkgcp.bundle.engines.parts import part_name
from unkgcp.bundle.output import ENDINGS, open_output
from unkgcp.errors import InputError

ANSWERS, ATTEMPTS, QUERIES = "answers", "attempts", "queries"


def is_folder(target: str | None) -> bool:
    """Whether the output is to be a folder of parts: an existing one, or a name without an ending."""
    if target is None or target == "-":
        return False
    if target.endswith(("/", os.sep)) or Path(target).is_dir():
        return True
    return not target.lower().endswith(ENDINGS) and not Path(target).suffix


def check_target(target: str | None) -> None:
    """Refuse, before any work is done, an output that could not be written in the end."""
    if target is None or target == "-":
        return
    path = Path(target)
    if not is_folder(target):
        if not target.lower().endswith(ENDINGS):
            raise InputError(
                f"{target} does not end in {', '.join(ENDINGS)}; its ending says how to write it, "
                "and the name of a folder of Parquet files ends in /"
            )
    elif path.is_dir() and any(path.iterdir()):
        raise InputError(f"{target} is a folder with something in it; give the name of a new one with -o")
    elif path.exists() and not path.is_dir():
        raise InputError(f"{target} is a file; give the name of a new folder with -o")


@contextmanager
def staged(target: str | None) -> Iterator[Path]:
    """A folder for the parts, on the file system of the output; gone at the end, whatever happens."""
    beside = Path(tempfile.gettempdir()) if target in (None, "-") else Path(target).absolute().parent
    beside.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(dir=beside, prefix=".partial-"))
    try:
        for name in (ANSWERS, ATTEMPTS, QUERIES):
            (stage / name).mkdir()
        stage.chmod(0o777 & ~_umask())  # workers may run as somebody else
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def deliver(stage: Path, parts: int, target: str | None) -> None:
    """Make the output of the parts 0 to `parts` - 1."""
    answers = stage / ANSWERS
    names = [part_name(number) for number in range(parts)]
    there = {entry.name for entry in answers.iterdir()}
    if missing := set(names) - there:
        raise FileNotFoundError(f"{min(missing)} is missing among the answers in {answers}")
    for name in there - set(names):
        (answers / name).unlink()  # what a worker was writing when it died
    if is_folder(target):
        answers.rename(str(target).rstrip("/" + os.sep) or "/")
        return
    with open_output(target) as write:
        for name in names:
            with pq.ParquetFile(answers / name) as file:
                for batch in file.iter_batches():
                    write(batch)
            (answers / name).unlink()  # the disk never holds the answers twice


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
