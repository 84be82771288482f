"""Evidence intervals on the benchmarks beside the paper's methods: coverage, width, interval score, error, time.

    make bench-evidence                                  figures of five seeds, then times beside OpenUKGE
    python benchmarks/evidence.py figures [--seeds 5] [--data nl27k,...] [--per none --per doubt,relation] [--jobs 1]
    python benchmarks/evidence.py backbones [--seeds 1] [--data nl27k,...] [--models ukge,...] [--protocol paper]
    python benchmarks/evidence.py times [--data ppi5k,...]
    python benchmarks/evidence.py report

`figures`: official splits; learned from the training facts, calibrated on val, judged on test. The seed decides which
facts stop the boosting and which features each tree sees. What is learned is calibrated once for every `--per`
(`none`: one threshold for all facts). `--crossfit` adds the scores of cross-fitted UKGE (a GPU trains them; their time
is not counted).
`backbones`: the paper's models with `cp` and `unkgcp`, judged by the same functions: slices by the doubt of each method
itself and, as `evidence_doubt`, by the doubt of an evidence model learned from the same training facts.
Both write lines to results/evidence.jsonl as they go, one for each (data, seed, per or model and method); lines that
are there are not computed again.
`times`: one fit and calibration on two cores beside an epoch of OpenUKGE's UKGE (after a warm one) on the same data in
the same run; that epoch counts ten times.
`report`: results/evidence.json and evidence.md and docs/evidence.svg from these lines; all of the above end with it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common

DOCS = Path(__file__).parents[1] / "docs"
NAMES = ("cn15k", "nl27k", "ppi5k")
LEVELS = (0.8, 0.9, 0.95)
EPOCHS = 10
PEER = ("openukge==1.0.2", "torch")
DEFAULT = "doubt,relation"
MODELS = ("ukge", "ukge-rect", "passleaf", "beurre")
METHODS = ("cp", "unkgcp")
# at 90 %, of the default: interval score required and aimed at, MSE and MAE
TARGETS = {
    "cn15k": (0.46, 0.40, 0.027, 0.115),
    "nl27k": (0.10, 0.070, 0.0085, 0.045),
    "ppi5k": (0.031, 0.022, 0.0013, 0.011),
}
# at 90 %, of the default: the least coverage of the worst slice
LEAST = {"doubt": 0.88, "degree": 0.88, "relation_100": 0.85}


def one(name: str, seed: int, pers: list[str], scores: Path | None = None) -> Iterator[dict[str, Any]]:
    """Learn once; calibrate and judge for every promise."""
    import numpy as np

    from unkgcp.evidence import learn
    from unkgcp.graph import load_dataset
    from unkgcp.methods import create

    splits = load_dataset(name).splits
    start = time.perf_counter()
    extra = {} if scores is None else _stored(np.load(scores), seed, splits)
    model = learn(splits.train, seed=seed, **extra)
    learned = time.perf_counter()
    for per in pers:
        begin = time.perf_counter()
        method = create("evidence", evidence=model, per=per)
        method.calibrate(model, splits.calibration)
        calibrated = time.perf_counter()
        found = method.interval(splits.test, LEVELS)
        answered = time.perf_counter()
        yield {
            "data": name,
            "seed": seed,
            "row": f"evidence, {per}",
            "per": per,
            "crossfit": scores is not None,
            "calibration": method.size,
            "seconds": {
                "learn": round(learned - start, 2),
                "calibrate": round(calibrated - begin, 2),
                "answer": round(answered - calibrated, 2),
            },
            "levels": judged(method, splits, found, seed),
        }


def one_backbone(name: str, seed: int, model: str, protocol: str) -> Iterator[dict[str, Any]]:
    """Train a model of the paper; calibrate and judge both of its methods."""
    from unkgcp.evidence import learn
    from unkgcp.graph import load_dataset
    from unkgcp.methods import create
    from unkgcp.run.fitting import fit, method_options, recalibrate
    from unkgcp.training import config_for

    dataset = load_dataset(name)
    splits = dataset.splits
    start = time.perf_counter()
    trained = fit(dataset, config_for(model, name, protocol), method="cp", seed=seed, protocol=protocol)
    seconds = {"learn": round(time.perf_counter() - start, 2)}
    evidence = create("evidence", evidence=learn(splits.train, seed=seed))
    for method in METHODS:
        options = method_options(method, name, protocol)
        predictor = recalibrate(trained, splits.calibration, method, **options).method
        found = predictor.interval(splits.test, LEVELS)
        yield {
            "data": name,
            "seed": seed,
            "row": f"{model} + {method}",
            "model": model,
            "method": method,
            "protocol": protocol,
            "calibration": predictor.size,
            "seconds": seconds,
            "levels": judged(predictor, splits, found, seed, evidence),
        }


def judged(method: Any, splits: Any, found: Any, seed: int, evidence: Any = None) -> dict[str, Any]:
    """What `unkgcp evaluate` says of answers at each level, without the single slices.

    `evidence`: a method whose doubt sorts the facts a second time.
    """
    from dataclasses import replace

    import numpy as np

    from unkgcp.evaluation import slices
    from unkgcp.graph.facts import Triples

    train, test = splits.train, splits.test
    everyone, known = np.ones(len(test), bool), found.code == 0
    free = ~np.isin(test.keys, np.concatenate([train.keys, splits.calibration.keys]))
    asked, truth = Triples(test.head[known], test.relation[known], test.tail[known]), test.confidence[known]
    ways = {"own_doubt": slices.describe(method, train, asked, found.score[known])}
    if evidence is not None:
        ways["evidence_doubt"] = replace(ways["own_doubt"], doubt=evidence.doubt(asked))
    labels = test.vocabulary.relations.to_pylist()
    ends = found.lower[known], found.upper[known]
    judged = {
        way: slices.judge_slices(
            queries, slices.slices_of(queries, labels), truth, *ends, LEVELS, sizes=None, seed=seed
        )
        for way, queries in ways.items()
    }
    levels: dict[str, Any] = {}
    for place, level in enumerate(LEVELS):
        levels[str(level)] = {
            "all": _figures(found, test.confidence, place, everyone, level),
            "overlap_free": _figures(found, test.confidence, place, free, level),
        }
        for way, results in judged.items():
            result = results[place]
            large = [one["coverage"] for one in result["slices"]["relation"] if one["n"] >= 100]
            result["worst"]["relation_100"] = min(large, default=None)
            tenths = [one["coverage"] for one in result["slices"]["doubt"]]
            levels[str(level)][way] = {"worst": result["worst"], "ert": result["ert"], "tenths": tenths}
    return levels


def _figures(found: Any, truth: Any, place: int, rows: Any, level: float) -> dict[str, float]:
    import numpy as np

    from unkgcp.evaluation import metrics

    lower, upper, truth = found.lower[rows, place], found.upper[rows, place], truth[rows]
    error = found.score[rows].astype(np.float64) - truth
    return {
        "n": int(rows.sum()),
        "coverage": metrics.coverage(truth, lower, upper),
        "sharpness": metrics.sharpness(lower, upper),
        "interval_score": metrics.interval_score(truth, lower, upper, level),
        "single_values": float(np.mean(metrics.widths(lower, upper) < 1e-9)),
        "mse": float(np.nanmean(error**2)),
        "mae": float(np.nanmean(np.abs(error))),
    }


class _Table:
    """Scores of cross-fitted models that were computed before, found by triple."""

    columns = 2

    def __init__(self, keys: Any, values: Any, n_entities: int, n_relations: int) -> None:
        import numpy as np

        self.keys, first = np.unique(keys, return_index=True)
        self.values, self.sizes = values[first], (n_entities, n_relations)

    def scores(self, triples: Any, fold: None = None) -> Any:
        import numpy as np

        from unkgcp.graph.facts import triple_keys

        keys = triple_keys(triples.head, triples.relation, triples.tail, *self.sizes)
        return self.values[np.searchsorted(self.keys, keys)]


def _stored(stored: Any, seed: int, splits: Any) -> dict[str, Any]:
    import numpy as np

    parts = {"calibration": splits.calibration, "test": splits.test}
    keys = np.concatenate([part.keys for part in parts.values()])
    values = np.concatenate([stored[f"{name}{seed}"] for name in parts])
    table = _Table(keys, values, splits.train.n_entities, splits.train.n_relations)
    return {"backbone": table, "out_of_fold": stored[f"train{seed}"]}


def crossfit(name: str, seeds: int, folder: Path) -> Path:
    """Cross-fitted scores of all seeds, trained together; kept in `folder`."""
    import numpy as np

    from unkgcp.evidence.crossfit import cross_fit, fold_of_rows, shortened
    from unkgcp.graph import load_dataset
    from unkgcp.training import config_for

    path = folder / f"{name}.npz"
    if path.exists():
        return path
    splits = load_dataset(name).splits
    fold = fold_of_rows(len(splits.train), 0)
    found = cross_fit(splits.train, shortened(config_for("ukge", name)), range(seeds), fold)
    arrays = {}
    for seed, models in enumerate(found):
        arrays[f"train{seed}"] = models.scores(splits.train, fold)
        for part in ("calibration", "test"):
            arrays[f"{part}{seed}"] = models.scores(getattr(splits, part))
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return path


def collect(work: list[tuple[list[str], list[tuple[Any, ...]]]], jobs: int) -> None:
    """Run each command whose lines are not all there yet, and add its lines to results/evidence.jsonl."""
    lines = common.RESULTS / "evidence.jsonl"
    common.RESULTS.mkdir(exist_ok=True)
    done = {_key(row) for row in _read(lines)}

    def run(command: list[str]) -> None:
        said = subprocess.run(
            [sys.executable, __file__, *command], check=True, stdout=subprocess.PIPE, text=True
        )
        for row in said.stdout.splitlines():
            if row.startswith('{"data"') and _key(json.loads(row)) not in done:
                with lines.open("a") as file:
                    file.write(row + "\n")
                print(row[:200], flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, [command for command, keys in work if not done.issuperset(keys)]))


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a line is about."""
    return row["data"], row["seed"], row["row"], row.get("crossfit"), row.get("protocol")


def figures(names: list[str], seeds: int, pers: list[str], jobs: int, scores: Path | None) -> None:
    work = []
    for seed in range(seeds):
        for name in names:
            command = ["one", "--data", name, "--seed", str(seed)]
            command += [part for per in pers for part in ("--per", per)]
            if scores is not None:
                command += ["--scores", str(scores / f"{name}.npz")]
            keys = [(name, seed, f"evidence, {per}", scores is not None, None) for per in pers]
            work.append((command, keys))
    collect(work, jobs)


def backbones(names: list[str], seeds: int, models: list[str], protocol: str, jobs: int) -> None:
    work = []
    for seed in range(seeds):
        for name in names:
            for model in models:
                command = ["one", "--data", name, "--seed", str(seed), "--models", model]
                keys = [(name, seed, f"{model} + {method}", None, protocol) for method in METHODS]
                work.append(([*command, "--protocol", protocol], keys))
    collect(work, jobs)


def times(names: list[str]) -> None:
    """Beside the peer, on the same two cores, one after the other."""
    import peers
    from unkgcp.graph.datasets import find

    path = common.RESULTS / "evidence-times.json"
    rows = json.loads(path.read_text()) if path.exists() else {}
    python = peers.ensure(*PEER)
    for name in names:
        folder = find(name)
        if folder is None:
            continue
        ours = next(one(name, 0, [DEFAULT]))["seconds"]
        peer = peers.run(python, "openukge_epoch.py", str(folder), "ukge", "1", threads=common.CORES)
        rows[name] = {
            "evidence_seconds": round(ours["learn"] + ours["calibrate"], 1),
            "parts": ours,
            "peer": f"{peer['name']} {peer['version']}",
            "peer_epoch_seconds": [round(value, 2) for value in peer["seconds"]],
            "peer_ten_epochs_seconds": round(EPOCHS * min(peer["seconds"]), 1),
            "machine": common.machine(),
        }
        path.write_text(json.dumps(rows, indent=1) + "\n")
        print(name, rows[name], flush=True)


def report() -> int:
    """Means over seeds, and what was missed at 90 % by the default; status 1 if something was."""
    rows = _read(common.RESULTS / "evidence.jsonl")
    path = common.RESULTS / "evidence-times.json"
    timing = json.loads(path.read_text()) if path.exists() else {}
    columns = ["coverage", "width", "interval score", "most doubtful tenth", "worst tenth by doubt"]
    columns += ["worst fifth by degree", "worst relation (>= 50)", "worst relation (>= 100)", "worst slab"]
    columns += ["ERT", "of it below", "by evidence's doubt: most doubtful tenth", "worst tenth", "MSE", "MAE"]
    text = [
        "# Evidence intervals beside the paper's methods",
        "",
        "Official splits, test facts, mean over seeds. `evidence, none` has one threshold for all facts; runs without "
        "`--quick` (with cross-fitted scores) are marked so. Each method is cut into tenths by its own doubt; the "
        "paper's also by that of an evidence model. `make bench-evidence`, `python benchmarks/evidence.py backbones`",
        "",
        f"| data | method | seeds | level | {' | '.join(columns)} |",
        "|" + "---|" * (4 + len(columns)),
    ]
    summary = [_mean(own, level) for own in _blocks(rows) for level in LEVELS]
    for row in summary:
        shown = " | ".join("-" if row[name] is None else f"{row[name]:.4f}" for name in SHOWN)
        text.append(f"| {row['data']} | {row['row']} | {row['seeds']} | {row['level']:g} | {shown} |")
    text += [
        "",
        "| data | fit + calibrate, 2 cores | ten epochs of OpenUKGE (one timed, times ten) |",
        "|---|---|---|",
    ]
    for name, row in timing.items():
        text.append(f"| {name} | {row['evidence_seconds']:.0f} s | {row['peer_ten_epochs_seconds']:.0f} s |")
    text.append("")
    figure(summary)
    written = json.dumps({"figures": summary, "times": timing}, indent=1)
    (common.RESULTS / "evidence.json").write_text(written + "\n")
    (common.RESULTS / "evidence.md").write_text("\n".join(text))
    print("\n".join(text))
    limits = _limits(summary)
    if not limits:
        raise SystemExit("the default was not measured: python benchmarks/evidence.py figures")
    limits += [
        common.Figure(
            f"evidence, {name}: time of fit and calibrate over ten epochs of the peer",
            row["evidence_seconds"] / row["peer_ten_epochs_seconds"],
            1,
            peer=row["peer"],
        )
        for name, row in timing.items()
    ]
    return common.judge("evidence", limits)


SHOWN = (
    *("coverage", "sharpness", "interval_score", "most_doubtful", "doubt", "degree", "relation"),
    *("relation_100", "slab", "ert", "ert_below", "evidence_most_doubtful", "evidence_doubt", "mse", "mae"),
)


def _blocks(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Lines that differ in the seed alone, in the order of the data sets."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        data, _, *rest = _key(row)
        found.setdefault((data, *rest), []).append(row)
    return [found[key] for key in sorted(found, key=lambda key: (NAMES.index(key[0]), list(map(str, key))))]


def _mean(own: list[dict[str, Any]], level: float) -> dict[str, Any]:
    """One line of the table: means over seeds."""
    import numpy as np

    parts = [row["levels"][str(level)] for row in own]

    def mean(*path: str) -> float | None:
        values = list(parts)
        for name in path:
            values = [value.get(name) if value else None for value in values]
        return None if None in values else float(np.mean(values))

    first = own[0]
    marks = [", cross-fitted"] if first.get("crossfit") else []
    marks += [f", {first['protocol']} protocol"] if first.get("protocol") else []
    return {
        "data": first["data"],
        "row": "".join([first["row"], *marks]),
        "level": level,
        "seeds": len(own),
        **{name: mean("all", name) for name in ("coverage", "sharpness", "interval_score", "mse", "mae")},
        **{
            name: mean("own_doubt", "worst", name)
            for name in ("most_doubtful", "doubt", "degree", "relation", "relation_100", "slab")
        },
        "ert": mean("own_doubt", "ert", "both"),
        "ert_below": mean("own_doubt", "ert", "below"),
        "evidence_most_doubtful": mean("evidence_doubt", "worst", "most_doubtful"),
        "evidence_doubt": mean("evidence_doubt", "worst", "doubt"),
        "overlap_free": {name: mean("overlap_free", name) for name in ("coverage", "sharpness")},
    }


def _limits(summary: list[dict[str, Any]]) -> list[common.Figure]:
    """What the default at 90 % has to reach."""
    found = []
    for row in summary:
        if row["level"] != 0.9 or row["row"] != f"evidence, {DEFAULT}":
            continue
        title = f"evidence, {row['data']}, 90 %"
        required, goal, mse, mae = TARGETS[row["data"]]
        found += [
            common.Figure(f"{title}: interval score", row["interval_score"], required, goal),
            common.Figure(f"{title}: MSE", row["mse"], mse),
            common.Figure(f"{title}: MAE", row["mae"], mae),
        ]
        found += [
            common.Figure(f"{title}: coverage of the worst slice by {by}", row[by], least, at_least=True)
            for by, least in LEAST.items()
            if row[by] is not None
        ]
    return found


def figure(summary: list[dict[str, Any]]) -> None:
    """Interval score at 90 % beside that of the paper's methods, the better of the two, as docs/evidence.svg."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "evidence"
    from matplotlib import pyplot

    rows = [row for row in summary if row["level"] == 0.9 and "cross-fitted" not in row["row"]]
    names = [name for name in NAMES if any(row["data"] == name for row in rows)]
    if not names:
        return
    drawn, axes = pyplot.subplots(1, len(names), figsize=(9, 2.6), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        bars: dict[str, float] = {}
        for row in (row for row in rows if row["data"] == name):
            label = (
                row["row"].split(" + ")[0].replace(", none", ", one threshold").replace(f", {DEFAULT}", "")
            )
            bars[label] = min(row["interval_score"], bars.get(label, float("inf")))
        labels = sorted(bars, key=lambda label: -bars[label])
        colours = ["#0b7285" if label.startswith("evidence") else "#9aa5b1" for label in labels]
        axis.barh(labels, [bars[label] for label in labels], color=colours)
        for place, label in enumerate(labels):
            axis.text(bars[label], place, f" {bars[label]:.3g}", va="center", fontsize=8)
        axis.set(title=name, xlim=(0, 1.2 * max(bars.values())), xlabel="interval score at 90 %")
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    drawn.savefig(DOCS / "evidence.svg", metadata={"Date": None})


def _read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that say which row of the table they belong to; older ones do not."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row for row in rows if "row" in row]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="?", default="all", choices=["all", "figures", "backbones", "times", "report", "one"]
    )
    parser.add_argument("--data", default=",".join(NAMES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--per", action="append", help="may be given several times")
    parser.add_argument("--models")
    parser.add_argument("--protocol", default="paper", choices=["paper", "strict"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--crossfit", action="store_true")
    parser.add_argument("--scores", type=Path)
    parser.add_argument(
        "--store", type=Path, default=Path("local/evidence"), help="folder of cross-fitted scores"
    )
    options = parser.parse_args()
    names, pers = options.data.split(","), options.per or ["none", DEFAULT]
    if options.what == "one":
        if options.models:
            found = one_backbone(names[0], options.seed, options.models, options.protocol)
        else:
            found = one(names[0], options.seed, pers, options.scores)
        for row in found:
            print(json.dumps(row), flush=True)
        return 0
    if options.what in ("all", "times"):
        common.use_two_cores()
    if options.what in ("all", "figures"):
        if options.crossfit:
            for name in names:
                crossfit(name, options.seeds, options.store)
        figures(names, options.seeds, pers, options.jobs, options.store if options.crossfit else None)
    if options.what == "backbones":
        models = options.models.split(",") if options.models else list(MODELS)
        backbones(names, options.seeds, models, options.protocol, options.jobs)
    if options.what in ("all", "times"):
        times(names)
    return report()


if __name__ == "__main__":
    sys.exit(main())
