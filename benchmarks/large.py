"""Evidence on large invented graphs: popular and rare entities, 50 relations, a twentieth as many entities as facts.

Learns from graphs of several sizes, each in a process of its own. Measured are processor time, the most memory above
that of the training facts themselves, and processor time of answers, beside that on NL27k where its data are here. The
memory that boosting takes does not grow with the graph and is the larger part on a small one. Bytes a fact are
therefore those of one fact more, from the last size but one to the last.

    python benchmarks/large.py                          # 1 and 10 million; writes results/large.json
    python benchmarks/large.py 100000 1000000 3000000

With `--update` and `--answer` such a graph is written to a file and fitted by the command line. Then `unkgcp update`
takes one per cent more facts into the run, and `unkgcp predict` asks the run, beside a run fitted on NL27k in the same
way where its data are here. Figures are processor times of whole commands, since other programs may use the machine
too. The time of the fit includes the evaluation on test facts, which users wait for.

    python benchmarks/large.py --update --answer 10000000        # writes results/update.json and results/answering.json
    python benchmarks/large.py --answer 10000000 --queries 10000000

Both runs are asked the same number of queries, from a Parquet file to a Parquet file, at one level: on the large graph
different triples drawn like its facts, on NL27k its test facts again and again, which caches favour. The required ratio
is that of the whole commands. Reading a run of ten million facts is a large part of a command with few queries, so a
second command with few queries is timed to tell what a further query takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import common
from unkgcp.graph import Graph, Vocabulary, load_dataset, write
from unkgcp.graph.datasets import find

RELATIONS, COMMUNITIES = 50, 8
SIZES = (1_000_000, 10_000_000)
NEW = 0.01
REQUIRED = 0.1  # of the time of fit
GROWS, BYTES, ANSWERS = 13, 120, 4  # times for ten times the facts; beside the facts; times as on NL27k
ASKED = 100_000
QUERIES, FEW = 1_000_000, 1_000  # of `predict`


def facts(n: int, seed: int = 0) -> Graph:
    """About n facts, each triple once, in random order.

    An entity is the more popular the smaller its number: the first of 50,000 has a hundredth of all facts, the last a
    handful. What a confidence is depends on the relation and on the communities of the two entities; a third are one
    of two values that people write down.
    """
    rng = np.random.default_rng(seed)
    entities = max(n // 20, 2)
    head, relation, tail = triples(round(1.02 * n), entities, rng)
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


def triples(n: int, entities: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Heads, relations and tails, (n,) each, some of them more than once."""
    head, tail = (entities * rng.random((2, n)) ** 2.5).astype(np.int32)
    return head, rng.integers(0, RELATIONS, n, dtype=np.int32), tail


def timed(*arguments: object) -> common.Took:
    return common.timed(common.unkgcp(*arguments))


def commands(n: int, update: bool, queries: int) -> int:
    """Fit, then take new facts in and ask so many queries, if any."""
    graph = facts(round(n * (1 + NEW)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old, week, run, few = (folder / part for part in ("facts.tsv", "week.tsv", "run", "few.tsv"))
        write(graph[:n], old)
        write(graph[n:], week)
        write(graph[:3000], few)
        words = graph.vocabulary
        del graph
        # compiled code is kept from here on
        timed("fit", few, "-o", folder / "small", "--method", "evidence")
        fit = timed("fit", old, "-o", run, "--method", "evidence", "--json")
        print(f"fit: {fit.processor:.1f} s of the processor", flush=True)
        status = updated(n, fit, run, week, folder) if update else 0
        return status | (answered(n, run, words, queries, folder) if queries else 0)


def updated(n: int, fit: common.Took, run: Path, week: Path, folder: Path) -> int:
    update = timed("update", run, week, "-o", folder / "new", "--json")
    found = {
        "facts": n,
        "fit": round(fit.processor, 1),
        "fit_times": json.loads(fit.said)["times"],
        "update": round(update.processor, 1),
        "update_record": {
            name: said for name, said in json.loads(update.said)["update"].items() if name != "source"
        },
        "ratio": round(update.processor / fit.processor, 3),
        "machine": common.machine(),
    }
    common.write("update", found)
    print(json.dumps(found, indent=2))
    what = f"update with {NEW:.0%} new facts of {n:,}, processor time beside that of fit"
    return common.judge("update", [common.Figure(what, found["ratio"], REQUIRED)])


def answered(n: int, run: Path, words: Vocabulary, queries: int, folder: Path) -> int:
    """`unkgcp predict` on the large graph and on NL27k."""
    if common.data_folder("nl27k") is None:
        return 0
    beside, test = folder / "nl27k", load_dataset("nl27k").splits.test
    timed("fit", "nl27k", "-o", beside, "--method", "evidence")
    asked = triples(queries, len(words.entities), np.random.default_rng(1))
    again = np.arange(queries) % len(test)
    known = (test.head[again], test.relation[again], test.tail[again])
    found: dict[str, Any] = {"facts": n, "queries": queries}
    for name, which, ids, own in ((str(n), run, asked, words), ("nl27k", beside, known, test.vocabulary)):
        labels = (own.entities, own.relations, own.entities)
        table = pa.table(
            [part.take(pa.array(column)) for part, column in zip(labels, ids, strict=True)],
            names=["head", "relation", "tail"],
        )
        seconds = []
        for count in (FEW, FEW, queries):  # the first call only brings the run into the system's cache
            path = folder / "asked.parquet"
            pq.write_table(table[:count], path)
            seconds.append(timed("predict", which, path, "-o", folder / "answers.parquet").processor)
            assert pq.ParquetFile(folder / "answers.parquet").metadata.num_rows == count
        each = (seconds[2] - seconds[1]) / (queries - FEW)
        found[name] = {
            "processor_seconds": round(seconds[2], 1),
            f"of_{FEW}_queries": round(seconds[1], 1),
            "microseconds_a_query_more": round(1e6 * each, 2),
            "run_bytes": sum(file.stat().st_size for file in which.iterdir()),
        }
        print(name, found[name], flush=True)
    large, small = found[str(n)], found["nl27k"]
    found["ratio"] = round(large["processor_seconds"] / small["processor_seconds"], 3)
    found["machine"] = common.machine()
    common.write("answering", found)
    what = f"predict, {queries:,} queries, evidence on {n:,} facts: processor time, beside that on nl27k"
    return common.judge("answering", [common.Figure(what, found["ratio"], ANSWERS)])


def learn(what: str) -> dict[str, float]:
    """What learning and answering take on a graph of so many facts, or a named one; in a process of its own."""
    from unkgcp.evidence import learn as learn_evidence

    few = learn_evidence(facts(3000).split(seed=0).train)  # compiled code is there from here on
    few.score(*(np.zeros(5000, np.int32) for _ in range(3)))
    parts = facts(int(what)).split(seed=0) if what.isdigit() else load_dataset(what).splits
    train, asked = parts.train, parts.test[np.arange(ASKED) % len(parts.test)]
    del few, parts
    before = common.memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the most memory is that from here on
    start = time.process_time()
    model = learn_evidence(train)
    learned = time.process_time()
    held = common.memory("VmRSS") - before
    start_of_answers = time.process_time()
    model.score(asked.head, asked.relation, asked.tail)
    return {
        "facts": len(train),
        "seconds": round(learned - start, 2),
        "most_bytes": common.memory("VmHWM") - before,
        "bytes_held": held,
        "microseconds_a_query": round(1e6 * (time.process_time() - start_of_answers) / len(asked), 2),
    }


def learning(sizes: list[int]) -> int:
    named = ["nl27k"] if find("nl27k") is not None else []
    found = {}
    for what in [*map(str, sizes), *named]:
        command = [sys.executable, __file__, "--one", what]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[what] = json.loads(done.stdout)
        print(what, found[what], flush=True)
    first, before, last = (found[str(n)] for n in (sizes[0], sizes[-2], sizes[-1]))
    more = last["facts"] - before["facts"]
    record = {
        "sizes": found,
        "times_as_long": round(last["seconds"] / first["seconds"], 2),
        "bytes_a_fact": round((last["most_bytes"] - before["most_bytes"]) / more, 1),
        "bytes_a_fact_in_all": round(last["most_bytes"] / last["facts"], 1),
        "bytes_a_fact_held": round((last["bytes_held"] - before["bytes_held"]) / more, 1),
        "machine": common.machine(),
    }
    common.write("large", record)
    of = f"evidence, {sizes[0]:,} to {sizes[-1]:,} facts"
    grown = sizes[-1] / sizes[0] / 10
    figures = [
        common.Figure(f"{of}: processor time of learning grows by", record["times_as_long"], GROWS * grown),
        common.Figure(f"{of}: peak bytes a fact more, beside the facts", record["bytes_a_fact"], BYTES),
    ]
    for name in named:
        ratio = last["microseconds_a_query"] / found[name]["microseconds_a_query"]
        what = f"evidence, {sizes[-1]:,} facts: processor time of an answer, beside that on {name}"
        figures.append(common.Figure(what, round(ratio, 3), ANSWERS))
    return common.judge("large", figures)


def main() -> int:
    common.use_two_cores()
    parser = common.parser(__doc__)
    parser.add_argument("sizes", nargs="*", type=int, help="numbers of facts")
    parser.add_argument("--update", action="store_true", help="fit and update by the command line")
    parser.add_argument("--answer", action="store_true", help="fit and predict by the command line")
    parser.add_argument("--queries", type=int, default=QUERIES, help="of --answer")
    parser.add_argument("--one", help="for the processes that this one starts")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(learn(asked.one)))
        return 0
    if asked.update or asked.answer:
        size = asked.sizes[0] if asked.sizes else SIZES[-1]
        return commands(size, asked.update, asked.queries if asked.answer else 0)
    return learning(asked.sizes or list(SIZES))


if __name__ == "__main__":
    sys.exit(main())
