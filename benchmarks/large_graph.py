"""UKGE, d = 128, on 5 million facts and 500,000 entities beside PPI5k, in one run, on two CPU cores.

The graph is made here: 50 relations, entities popular and rare (the density of an entity falls with the square root of
its number), confidences from a latent product. Both train with their presets. Timed are whole steps, by the processor
and by the clock: an epoch of PPI5k, and a part of an epoch of the large graph (--facts of its 5 million, drawn at
random; a step is the same in all parts), with lazy steps and, for comparison, with dense ones in a fiftieth of that
part. Memory is that of parameters, moments and gradients over that of the parameters; the best tables so far lie in a
temporary file. Writes results/large-graph.json and .md; exits with status 1 when the rate on the large graph is below
0.4 of PPI5k's or memory is above 4 times the tables.

    make bench-large-graph        (needs ppi5k under $UNKGCP_DATA; five minutes)
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from typing import Any

import common

common.use_two_cores()
os.environ["OMP_WAIT_POLICY"] = (
    "passive"  # threads that wait sleep: what they spin would count as processor time
)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from unkgcp.graph import Graph, load_dataset  # noqa: E402
from unkgcp.graph.datasets import find  # noqa: E402
from unkgcp.graph.facts import Vocabulary  # noqa: E402
from unkgcp.training import Member, TrainConfig, batches, compiled_engine, config_for  # noqa: E402
from unkgcp.training.batches import TrainingData  # noqa: E402

FACTS, ENTITIES, RELATIONS = 5_000_000, 500_000, 50
REQUIRED_RATE, REQUIRED_MEMORY = 0.4, 4.0
LATER = (
    10_000  # steps that count as made: in the first thousand or so rows make up what they missed one by one
)


def made(facts: int) -> Graph:
    rng = np.random.default_rng(0)
    head, tail = ((ENTITIES * rng.random(facts) ** 2).astype(np.int32) for _ in range(2))
    relation = rng.integers(0, RELATIONS, facts, dtype=np.int32)
    latent, weight = rng.normal(size=(ENTITIES, 4)), rng.normal(size=(RELATIONS, 4))
    score = np.einsum("nd,nd,nd->n", latent[head], weight[relation], latent[tail])
    names = [[f"{kind}{i}" for i in range(n)] for kind, n in (("e", ENTITIES), ("r", RELATIONS))]
    return Graph(head, relation, tail, 1 / (1 + np.exp(-score)), Vocabulary.of(*names))


def timed(
    name: str, facts: Graph, config: TrainConfig, *, lazy: bool = True, epochs: int = 1
) -> dict[str, Any]:
    """The best of some epochs, after a few steps that compile and warm up."""
    torch.set_flush_denormal(True)
    cpu = torch.device("cpu")
    large = batches.LARGE
    if not lazy:
        batches.LARGE = sys.maxsize
    engine = compiled_engine.CompiledEngine(
        TrainingData.of(facts, None, config, cpu), config, Member(0), common.CORES
    )
    batches.LARGE = large
    engine.step.fill_(LATER)
    few = facts[: 2 * config.batch_size]
    compiled_engine.CompiledEngine(
        TrainingData.of(few, None, config, cpu), config, Member(0), common.CORES
    ).run_epoch(0)
    seconds, processor = [], []
    for epoch in range(epochs):
        start = time.perf_counter(), time.process_time()
        loss = engine.run_epoch(epoch)
        seconds.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    tables = sum(table.nbytes for table in engine.tables.values())
    state = sum(tensor.nbytes for tensor in engine.state().values())
    state += sum(gradient.nbytes for gradient in engine._gradients)
    return {
        "name": name,
        "facts": len(facts),
        "batch": engine.batch_size,
        "lazy": engine.lazy,
        "facts_a_second": len(facts) / min(seconds),
        "facts_a_processor_second": len(facts) / min(processor),
        "memory": state / tables,
        "loss": float(loss),
    }


def table(rows: list[dict[str, Any]], rate: float, memory: float) -> str:
    lines = [
        "# UKGE, d 128, on a large graph beside PPI5k, two CPU cores",
        "",
        "5 million facts, 500,000 entities; presets of each. `make bench-large-graph`",
        "",
        "| graph | facts timed | batch | steps | facts a processor second | facts a second | memory / tables |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['name']} | {row['facts']:,} | {row['batch']:,} | {'lazy' if row['lazy'] else 'dense'} "
        f"| {row['facts_a_processor_second']:,.0f} | {row['facts_a_second']:,.0f} | {row['memory']:.2f} |"
        for row in rows
    ]
    said = (
        f"The large graph trains {rate:.2f} times as many facts a processor second as PPI5k (required "
        f"{REQUIRED_RATE:g}), with parameters, moments and gradients of {memory:.2f} times its tables (required: "
        f"at most {REQUIRED_MEMORY:g}). The best tables so far, which early stopping keeps, lie in a temporary file."
    )
    load = f"Load after the last: {common.machine()['load_after']} on {common.cores()} cores."
    return "\n".join([*lines, "", said, "", load, ""])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--facts", type=int, default=1_000_000, help="of the large graph that are timed")
    given = parser.parse_args()
    folder = find("ppi5k")
    if folder is None:
        print("skipped: ppi5k is not here; set UNKGCP_DATA or run `unkgcp data fetch ppi5k`", file=sys.stderr)
        return 0
    small, config = load_dataset(folder).splits.train, config_for("ukge", "ppi5k")
    rows = [timed("ppi5k", small, config, epochs=3)]
    graph, large = made(FACTS), config_for("ukge").for_size(FACTS)
    rows.append(timed("large", graph[: given.facts], large, epochs=2))
    rows.append(timed("large", graph[: given.facts // 50], large, lazy=False))
    rows.append(timed("large", graph[: given.facts // 50], config_for("ukge"), lazy=False))
    rows[0] = max(
        rows[0], timed("ppi5k", small, config, epochs=3), key=lambda row: row["facts_a_processor_second"]
    )
    rate = rows[1]["facts_a_processor_second"] / rows[0]["facts_a_processor_second"]
    memory = rows[1]["memory"]
    record = {
        "rate": rate,
        "memory": memory,
        "required": {"rate": REQUIRED_RATE, "memory": REQUIRED_MEMORY},
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "machine": common.machine(),
        "runs": rows,
    }
    common.write("large-graph", record, table(rows, rate, memory))
    rates = common.Figure(
        "UKGE on 5 million facts: facts a processor second",
        rate,
        REQUIRED_RATE,
        None,
        at_least=True,
        peer="PPI5k",
    )
    bytes_held = common.Figure(
        "UKGE on 5 million facts: memory", memory, REQUIRED_MEMORY, None, at_least=False, peer="its tables"
    )
    return common.judge("large-graph", [rates, bytes_held])


if __name__ == "__main__":
    sys.exit(main())
