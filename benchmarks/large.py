"""Large graphs, made here: popular and rare entities, 50 relations, a twentieth as many entities as facts.

`facts` makes such a graph of any size. The benchmark fits evidence on one, as a file and through the command line, and
takes one per cent more facts into the run with `unkgcp update`. Both are measured by the processor time of their
processes, since other programs may use the machine too; the fit has the evaluation on test facts in it, which users
wait for, and is given without it beside.

    python benchmarks/large.py [FACTS]              # a million if it is not given; writes results/update.json
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import common
from unkgcp.graph import Graph, Vocabulary, write

RELATIONS, COMMUNITIES = 50, 8
NEW = 0.01
REQUIRED = 0.1


def facts(n: int, seed: int = 0) -> Graph:
    """About n facts, each triple once, in random order.

    An entity is the more popular the smaller its number: the first of 50,000 has a hundredth of all facts, the last a
    handful. What a confidence is depends on the relation and on the communities of the two entities; a third are one
    of two values that people write down.
    """
    rng = np.random.default_rng(seed)
    entities = max(n // 20, 2)
    head, tail = (entities * rng.random((2, round(1.02 * n))) ** 2.5).astype(np.int32)
    relation = rng.integers(0, RELATIONS, len(head), dtype=np.int32)
    words = Vocabulary.of(
        [f"entity-{i}" for i in range(entities)], [f"relation-{i}" for i in range(RELATIONS)]
    )
    graph = Graph(head, relation, tail, np.zeros(len(head)), words)
    rows = np.unique(graph.keys, return_index=True)[1]
    graph = graph[rng.permutation(rows)[:n]]
    community = rng.integers(0, COMMUNITIES, entities)
    place = rng.beta(2, 1, (RELATIONS, COMMUNITIES, COMMUNITIES))
    found = place[graph.relation, community[graph.head], community[graph.tail]] + rng.normal(
        0, 0.1, len(graph)
    )
    stock = rng.random(len(graph))
    found = np.where(stock < 0.25, 0.7, np.where(stock < 0.33, 1.0, found))
    return graph.with_confidence(np.clip(found, 0.05, 1).round(3))


def timed(*arguments: object) -> tuple[float, str]:
    """Processor seconds of `unkgcp ARGUMENTS`, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "unkgcp", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout


def measure(n: int) -> dict[str, Any]:
    graph = facts(round(n * (1 + NEW)))
    with tempfile.TemporaryDirectory() as folder:
        old, week, run = Path(folder) / "facts.tsv", Path(folder) / "week.tsv", Path(folder) / "run"
        write(graph[:n], old)
        write(graph[n:], week)
        warm_up = Path(folder) / "few.tsv"  # compiled code is kept from here on
        write(graph[:3000], warm_up)
        timed("fit", warm_up, "-o", Path(folder) / "few", "--method", "evidence", "--quick")
        fit, said = timed("fit", old, "-o", run, "--method", "evidence", "--quick", "--json")
        update, told = timed("update", run, week, "-o", Path(folder) / "new", "--json")
    return {
        "facts": n,
        "fit": round(fit, 1),
        "fit_times": json.loads(said)["times"],
        "update": round(update, 1),
        "update_record": json.loads(told)["update"],
        "ratio": round(update / fit, 3),
        "machine": common.machine(),
    }


def main() -> int:
    common.use_two_cores()
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    found = measure(n)
    common.write("update", found)
    print(json.dumps(found, indent=2))
    what = f"update with {NEW:.0%} new facts of {n:,}, processor time beside that of fit"
    return common.judge("large", [common.Figure(what, found["ratio"], REQUIRED)])


if __name__ == "__main__":
    sys.exit(main())
