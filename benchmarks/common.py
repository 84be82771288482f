"""What the benchmarks share: two cores, timed commands, the machine, where results go, and the table of all figures.

A benchmark is run as a script, so that this folder is on its path. Import this module before NumPy, torch and numba
where `use_two_cores` has to limit their threads. A benchmark ends with `write`, which writes a page results/NAME.md and
the raw numbers results/NAME.json, and with `judge`, which adds figures that have a limit to results/figures.json and
makes README.md of this folder anew. Raw numbers that no page or script reads are not kept in the repository
(.gitignore names those that are).

>>> common.use_two_cores()                                         # doctest: +SKIP
>>> common.write("train", {"machine": common.machine()}, text)     # doctest: +SKIP
>>> common.judge("train", [Figure("times as fast", 18.2, 12, 15, at_least=True, peer="OpenUKGE")])  # doctest: +SKIP
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

CORES = 2
RESULTS = Path(__file__).parent / "results"
# commands start from compiled files, as they do for users, also where the environment says that none be written
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def use_two_cores() -> None:
    """This process and those that it starts, where the system can pin them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = str(CORES)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": cores(),
        "python": platform.python_version(),
        "load_after": round(
            os.getloadavg()[0], 2
        ),  # far above the number of cores: other programs were running
    }


def parser(about: str | None) -> argparse.ArgumentParser:
    """Of a script whose docstring is the text of its --help."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def memory(name: str) -> int:
    """Bytes of this process alone, as Linux counts them: now (VmRSS) or at its highest (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(name)))


def unkgcp(*arguments: object) -> list[str]:
    """`unkgcp ARGUMENTS` as a command of this Python."""
    return [sys.executable, "-m", "unkgcp", *map(str, arguments)]


class Took(NamedTuple):
    """Seconds of a command by the clock and by the processor, its highest memory, and what it printed."""

    clock: float
    processor: float
    megabytes: float
    said: str


def timed(command: Sequence[str]) -> Took:
    """Run a command to its end. Its memory counts from that of this process at the time."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as problems:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=said, stderr=problems)
        _, status, used = os.wait4(process.pid, 0)
        clock = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        problems.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{problems.read()[-2000:]}")
        return Took(clock, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said.read())


def data_folder(name: str) -> Path | None:
    """Where the data set is; None, after a sentence, where it is not."""
    from unkgcp.graph.datasets import find

    found = find(name)
    if found is None:
        print(
            f"skipped: {name} is not here; set UNKGCP_DATA or run `unkgcp data fetch {name}`", file=sys.stderr
        )
    return found


def markdown(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The lines of a table whose columns are the keys of the rows; numbers with four digits, None as nothing."""

    def shown(value: Any) -> str:
        return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return lines + [f"| {' | '.join(shown(row.get(name)) for name in columns)} |" for row in rows]


def write(name: str, record: Any, text: str | None = None, folder: Path = RESULTS) -> None:
    """NAME.json and, with a text, NAME.md; earlier ones are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    if text is not None:
        (folder / f"{name}.md").write_text(text)
        print(text)


@dataclass(frozen=True)
class Figure:
    """Something measured, what it must be and what is aimed at; a ratio comes from one run of both sides."""

    what: str
    value: float
    required: float | None = None
    goal: float | None = None
    at_least: bool = False  # at most, otherwise
    peer: str = ""  # with its version

    def reaches(self, limit: float | None) -> bool:
        return limit is None or (self.value >= limit if self.at_least else self.value <= limit)

    def sentence(self) -> str:
        mark = "kept" if self.reaches(self.required) else "MISSED"
        limits = [
            f"{name} {'>=' if self.at_least else '<='} {limit:.4g}"
            for name, limit in (("required", self.required), ("goal", self.goal))
            if limit is not None
        ]
        beside = f" (beside {self.peer})" if self.peer else ""
        return f"{mark}: {self.what}{beside}: {self.value:.4g} [{', '.join(limits)}]"


def command() -> str:
    """That of this process as others may give it: of paths in a temporary folder the last name alone."""
    arguments = [Path(one).name if one.startswith(tempfile.gettempdir()) else one for one in sys.argv[1:]]
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments])


def judge(name: str, figures: Sequence[Figure]) -> int:
    """Keep the figures of a benchmark, write the table of all, say each in a line; 1 if a required one is missed."""
    path = RESULTS / "figures.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept[name] = {
        "date": time.strftime("%Y-%m-%d"),
        "command": command(),
        "machine": machine(),
        "figures": [asdict(figure) for figure in figures],
    }
    path.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    (RESULTS.parent / "README.md").write_text(page(kept))
    for figure in figures:
        print(figure.sentence())
    return 0 if all(figure.reaches(figure.required) for figure in figures) else 1


def page(kept: dict[str, Any]) -> str:
    """The table of all figures and the runs they come from, in Markdown."""
    lines = [
        "# What is measured, and what it must be",
        "",
        "For people who compare speed and quality with other libraries, or who check that a change costs nothing. Each",
        "row is a measured figure beside the value that is required and the one that is aimed at. The column *run*",
        "points to the second table, which gives date, machine and command. A figure that misses its requirement is in",
        "bold. Each ratio comes from one run of both sides on the same machine.",
        "",
        "`make bench` runs these benchmarks and writes this page; `make bench-NAME` runs one script. The docstring of",
        "a script says what it measures and needs; its details are in [results](results).",
        "",
        "| figure | measured | required | goal | beside | run |",
        "|---|---|---|---|---|---|",
    ]
    runs = ["", "| run | date | machine | command |", "|---|---|---|---|"]
    for number, (_, record) in enumerate(sorted(kept.items()), 1):
        for each in record["figures"]:
            figure = Figure(**each)
            sign = "≥" if figure.at_least else "≤"
            limits = [
                "" if limit is None else f"{sign} {limit:.4g}" for limit in (figure.required, figure.goal)
            ]
            value = f"{figure.value:.4g}" if figure.reaches(figure.required) else f"**{figure.value:.4g}**"
            lines.append(
                f"| {figure.what} | {value} | {limits[0]} | {limits[1]} | {figure.peer} | {number} |"
            )
        about = record["machine"]
        where = f"{about['cores']} cores, {about['processor']}, Python {about['python']}"
        if about["load_after"] is not None:  # was not written down at first
            where += f", load {about['load_after']:g}"
        runs.append(f"| {number} | {record['date']} | {where} | `{record['command']}` |")
    return "\n".join([*lines, *runs]) + "\n"
