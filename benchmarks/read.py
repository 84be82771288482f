"""Ten million facts from a TSV file into a graph: ours beside bare pyarrow.csv and pandas, on two CPU cores.

The file is made here: labels of some seventeen characters (CN15k's names have 8, PPI5k's 13, NL27k's 29), 40
mentions an entity (as 13 in NL27k, 32 in CN15k, 109 in PPI5k), a few relations in most facts and a few confidences
shared by most of them, as in all. Facts are in no order and no entity is more popular than another: the worst case
for memory caches, for every reader. Each reader runs in a process of its own, which also measures its peak memory,
in rounds one after the other; the best round of each counts.

What each does: pyarrow parses the file into columns of strings and numbers and stops there. We also replace each
label by an id and keep the vocabulary. pandas does the same as we: `read_csv` with its C engine, then `factorize`;
how long its `read_csv` takes alone is reported too.

Writes results/read.json and results/read.md. Exits with status 1 unless ours takes at most 1.6 times the time of
bare pyarrow and no longer than pandas, with a peak below 3 GiB.

    make bench-read
"""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any

import common

ROWS, ENTITIES, RELATIONS = 10_000_000, 500_000, 400
FEW = 600_000  # rows of which each reader loads all libraries that it will need
ROUNDS = 3
SLOWER_THAN_ARROW, FASTER_THAN_PANDAS, PEAK_GIB = 1.6, 1.0, 3.0
COLUMNS = ["head", "relation", "tail", "confidence"]


def make(path: Path) -> None:
    """Write the file, a million rows at a time, the same on every machine."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as csv

    random = np.random.default_rng(0)
    kinds = ["person", "city", "company", "athlete", "band", "river", "team", "party"]
    words = ["north", "saint", "united", "black", "grand", "royal", "new", "great", "first", "east"]
    drawn = random.integers(len(words), size=ENTITIES).tolist()
    entities = pa.array([f"{kinds[n % 8]}:{words[word]}_{n}" for n, word in enumerate(drawn)])
    relations = pa.array([f"{kinds[n % 8]}_property_{n}" for n in range(RELATIONS)])
    schema = pa.schema([(name, pa.string()) for name in COLUMNS[:3]] + [(COLUMNS[3], pa.float64())])
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    with csv.CSVWriter(path, schema, write_options=options) as writer:
        for _ in range(10):
            rows = ROWS // 10
            atoms = random.choice([0.4375, 1.0, 0.859375, 0.71875], size=rows, p=[0.4, 0.37, 0.15, 0.08])
            confidence = np.where(random.random(rows) < 0.7, atoms, random.random(rows).round(6))
            columns = [
                entities.take(pa.array(random.integers(ENTITIES, size=rows))),
                relations.take(pa.array((RELATIONS * random.random(rows) ** 4).astype(np.int64))),
                entities.take(pa.array(random.integers(ENTITIES, size=rows))),
                pa.array(confidence),
            ]
            batch = pa.record_batch(columns, schema=schema)
            writer.write_batch(batch)
    csv.write_csv(batch.slice(0, FEW), path.with_name("few.tsv"), options)


def with_pyarrow(path: Path) -> Sized:
    from pyarrow import csv

    names, tabs = csv.ReadOptions(column_names=COLUMNS), csv.ParseOptions(delimiter="\t")
    return csv.read_csv(path, read_options=names, parse_options=tabs)


def with_unkgcp(path: Path) -> Sized:
    from unkgcp.graph import read

    return read(path)


def with_pandas_parsing(path: Path) -> Any:
    import pandas as pd

    return pd.read_csv(path, sep="\t", header=None, names=COLUMNS, engine="c")


def with_pandas(path: Path) -> Sized:
    import pandas as pd

    frame = with_pandas_parsing(path)
    ids = pd.factorize(pd.concat([frame["head"], frame["tail"]])), pd.factorize(frame["relation"])
    return ids[1][0]


READERS: dict[str, tuple[str, Callable[[Path], Sized]]] = {
    "pyarrow": ("pyarrow.csv.read_csv, parsing only", with_pyarrow),
    "unkgcp": ("unkgcp.graph.read, into a graph", with_unkgcp),
    "pandas": ("pandas.read_csv and factorize, the same work", with_pandas),
    "pandas-parsing": ("pandas.read_csv, parsing only", with_pandas_parsing),
}


def measure(reader: str, path: Path) -> None:
    """In a process of its own: read some lines, which imports what is needed, then the file, and print the figures."""
    run = READERS[reader][1]
    run(path.with_name("few.tsv"))
    start = time.perf_counter()
    assert len(run(path)) == ROWS
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "peak_gib": peak}))


def separately(*arguments: str) -> str:
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def compare(path: Path) -> dict[str, dict[str, Any]]:
    path.read_bytes()  # into the page cache: disks are not compared
    found: dict[str, dict[str, Any]] = {
        reader: {"what": what, "seconds": [], "peak_gib": 0.0} for reader, (what, _) in READERS.items()
    }
    for number in range(ROUNDS):
        for reader, result in found.items():
            once = json.loads(separately("measure", reader, str(path)))
            result["seconds"].append(once["seconds"])
            result["peak_gib"] = max(result["peak_gib"], once["peak_gib"])
            print(
                f"round {number + 1}: {reader:15s} {once['seconds']:6.2f} s {once['peak_gib']:5.2f} GiB",
                flush=True,
            )
    return found


def figures(found: dict[str, dict[str, Any]], versions: dict[str, str]) -> list[common.Figure]:
    best = {reader: min(result["seconds"]) for reader, result in found.items()}
    return [
        common.Figure(
            "10 million facts from TSV: times the time of parsing alone",
            best["unkgcp"] / best["pyarrow"],
            SLOWER_THAN_ARROW,
            peer=f"pyarrow {versions['pyarrow']}",
        ),
        common.Figure(
            "10 million facts from TSV: times as fast",
            best["pandas"] / best["unkgcp"],
            FASTER_THAN_PANDAS,
            at_least=True,
            peer=f"pandas {versions['pandas']}",
        ),
        common.Figure("10 million facts from TSV: GiB at the peak", found["unkgcp"]["peak_gib"], PEAK_GIB),
    ]


def main() -> int:
    common.parser(__doc__).parse_args()
    common.use_two_cores()
    with tempfile.TemporaryDirectory(prefix="unkgcp-bench-") as folder:
        path = Path(folder) / "facts.tsv"
        separately("make", str(path))
        size = path.stat().st_size
        found = compare(path)
    import pandas
    import pyarrow

    versions = {"pyarrow": pyarrow.__version__, "pandas": pandas.__version__}
    record = {
        "rows": ROWS,
        "entities": ENTITIES,
        "bytes": size,
        "cores": common.CORES,
        "python": platform.python_version(),
        **versions,
        "readers": found,
    }
    rows = [
        {
            "reader": result["what"],
            "seconds": min(result["seconds"]),
            "peak memory, GiB": result["peak_gib"],
        }
        for result in found.values()
    ]
    about = (
        f"{ROWS:,} rows, {size / 1e6:.0f} MB, {ENTITIES:,} entities; {common.CORES} cores, Python "
        f"{platform.python_version()}, pyarrow {pyarrow.__version__}, pandas {pandas.__version__}; best of {ROUNDS} "
        "rounds. `make bench-read`"
    )
    text = ["# Ten million facts from a TSV file", "", about, "", *common.markdown(rows), ""]
    common.write("read", record, "\n".join(text))
    return common.judge("read", figures(found, versions))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", path]:
            make(Path(path))
        case ["measure", reader, path]:
            measure(reader, Path(path))
        case _:
            sys.exit(main())
