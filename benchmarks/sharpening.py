"""Methods that have nothing but a score: what shortest intervals bring, and what groups bring and cost.

    UNKGCP_DATA=... python benchmarks/sharpening.py [DIR] [--protocol paper]             writes results/sharpening.md
    UNKGCP_DATA=... python benchmarks/sharpening.py --groups [--epochs 15] [--seeds 2]   writes results/groups.md

Shortest intervals: how much narrower than UnKGCP they are at equal coverage, for every data set and model. Reads the
scores that `unkgcp reproduce -o DIR` stored (DIR/cells/PROTOCOL/DATA/MODEL/seed-N.npz) and the data sets' labels, and
calibrates CP, UnKGCP and the shortest intervals on the very same scores. Trains nothing. On CN15k UnKGCP takes the
entropy at 0.5 M + 0.5, as in the paper, which is narrower there.

Groups (`--groups`): CP, UnKGCP and shortest intervals with groups by doubt, relation and degree. Everything happens
within the training facts of PPI5k: a tenth of them calibrates, a tenth is asked, UKGE is trained on the rest for a few
epochs. Calibration and test facts of the data set are not looked at.
"""

from __future__ import annotations

import argparse
import platform
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import common
from unkgcp.conformal import EntropyResidual, SplitConformal
from unkgcp.evaluation.metrics import coverage_band, coverage_by_group, equal_bins
from unkgcp.evaluation.tables import Table
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.methods import create
from unkgcp.training.config import config_for
from unkgcp.training.trainer import train

DATA, MODELS = ("cn15k", "ppi5k", "nl27k"), ("ukge", "passleaf", "beurre")
LEVELS = [0.8, 0.85, 0.9, 0.95]
METHODS = ("cp", "unkgcp", "shortest", "with relation")
GROUPED, GROUPS_LEVEL = "ppi5k", 0.9
PER = ("none", "doubt", "relation", "doubt,relation", "degree")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scores", nargs="?", default="local/reproduction", help="a folder that `reproduce` wrote"
    )
    parser.add_argument("--protocol", default="paper")
    parser.add_argument("--groups", action="store_true", help="measure groups instead")
    parser.add_argument("--data", default=GROUPED, help="with --groups")
    parser.add_argument("--epochs", type=int, default=15, help="with --groups")
    parser.add_argument("--seeds", type=int, default=2, help="with --groups")
    options = parser.parse_args()
    if options.groups:
        groups(options.data, options.epochs, options.seeds)
    else:
        shortest(options)


def shortest(options: argparse.Namespace) -> None:
    cells = Path(options.scores) / "cells" / options.protocol
    files = {
        (data, model): sorted(
            file for file in (cells / data / model).glob("seed-*.npz") if "quantiles" not in file.name
        )
        for data in DATA
        for model in MODELS
    }
    if not any(files.values()):
        sys.exit(
            f"there are no stored scores under {cells}; make them with "
            f"unkgcp reproduce --protocol {options.protocol} -o {options.scores}"
        )
    results = []
    for data in DATA:
        if not any(files[data, model] for model in MODELS):
            continue
        dataset = load_dataset(data)
        for model in MODELS:
            seeds = [one_seed(dataset, file) for file in files[data, model]]
            if seeds:
                results.append(summary(data, model, seeds))
                print(line(results[-1]), flush=True)
    narrower = sum(row["levels"][2]["narrower"] >= 0.12 for row in results)
    report = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}",
        "protocol": options.protocol,
        "seeds": max((row["seeds"] for row in results), default=0),
        "pairs": len(results),
        "at least 12 % narrower at 0.9": narrower,
        "results": results,
    }
    common.write("sharpening", report, markdown(report))
    print(f"at least 12 % narrower than UnKGCP on {narrower} of {len(results)} pairs at 0.9")


def one_seed(dataset: Dataset, file: Path) -> dict[str, Any]:
    """Coverage and width of each method on the test facts; facts about the unknown count as the whole range."""
    with np.load(file) as stored:
        calibration, test = (stored[name].astype(np.float64) for name in ("calibration", "test"))
    labels = dataset.splits.calibration.confidence, dataset.splits.test.confidence
    if (len(calibration), len(test)) != (len(labels[0]), len(labels[1])):
        sys.exit(f"{file} does not fit the facts of {dataset.name}; reproduce it again")
    usable = ~np.isnan(calibration)
    known = ~np.isnan(test)
    mapped = dataset.name == "cn15k"
    entropy = EntropyResidual(slope=0.5, offset=0.5) if mapped else EntropyResidual()
    found: dict[str, Any] = {}
    relations = dataset.splits.calibration.relation[usable], dataset.splits.test.relation[known]
    for name in METHODS:
        score: Any = {"cp": "residual", "unkgcp": entropy}.get(name, "shortest")
        kinds = [{"kind": relation} if name == "with relation" else {} for relation in relations]
        cal = SplitConformal(score).calibrate(calibration[usable], labels[0][usable], **kinds[0])
        ends = np.empty((len(test), 2, len(LEVELS)))
        ends[:, 0], ends[:, 1] = 0.0, 1.0
        ends[known] = cal.interval(test[known], confidence=LEVELS, **kinds[1])
        inside = (ends[:, 0] <= labels[1][:, None]) & (labels[1][:, None] <= ends[:, 1])
        tenths = equal_bins(test[known].astype(np.float64), 10)
        worst = [
            float(coverage_by_group(labels[1][known], *ends[known, :, i].T, tenths).coverage.min())
            for i in range(len(LEVELS))
        ]
        found[name] = {
            "coverage": inside.mean(axis=0).tolist(),
            "sharpness": (ends[:, 1] - ends[:, 0]).mean(axis=0).tolist(),
            "worst_decile": worst,
            "calibration": cal.size,
        }
    # UnKGCP with the multiplier at which it covers exactly as many test facts as the shortest intervals do
    scale = entropy.prepare(test[known])
    strange = np.sort(entropy.score(test[known], labels[1][known], scale))
    found["unkgcp_at_that_coverage"] = []
    for covered in found["shortest"]["coverage"]:
        hits = min(max(round(covered * len(test)) - int((~known).sum()), 1), len(strange))
        lower, upper = entropy.bounds(test[known], np.float64(strange[hits - 1]), scale, (0.0, 1.0))
        found["unkgcp_at_that_coverage"].append(
            (float((upper - lower).sum()) + float((~known).sum())) / len(test)
        )
    found["test"] = len(test)
    return found


def summary(data: str, model: str, seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds; `narrower` compares with UnKGCP at the coverage that the shortest intervals reached."""

    def mean(method: str, what: str, place: int) -> float:
        return float(np.mean([seed[method][what][place] for seed in seeds]))

    levels = []
    for place, level in enumerate(LEVELS):
        methods = {
            method: {
                "coverage": mean(method, "coverage", place),
                "sharpness": mean(method, "sharpness", place),
                "worst_decile": mean(method, "worst_decile", place),
            }
            for method in METHODS
        }
        equal = float(np.mean([seed["unkgcp_at_that_coverage"][place] for seed in seeds]))
        levels.append(
            {
                "confidence": level,
                **methods,
                "unkgcp_at_equal_coverage": equal,
                "narrower": 1 - methods["shortest"]["sharpness"] / equal,
                "narrower_as_calibrated": 1
                - methods["shortest"]["sharpness"] / methods["unkgcp"]["sharpness"],
                "band": coverage_band(seeds[0]["shortest"]["calibration"], seeds[0]["test"], level, 0.999),
            }
        )
    return {"data": data, "model": model, "seeds": len(seeds), "levels": levels}


def line(row: dict[str, Any]) -> str:
    at = row["levels"][2]
    parts = [f"{name} {at[name]['coverage']:.3f} / {at[name]['sharpness']:.3f}" for name in METHODS]
    return f"{row['data']} {row['model']} ({row['seeds']} seeds): {', '.join(parts)}; {at['narrower']:.0%} narrower"


def markdown(report: dict[str, Any]) -> str:
    header = [
        "data",
        "model",
        "CP",
        "UnKGCP",
        "shortest",
        "narrower",
        "with the relation",
        "worst decile",
        "",
        "",
    ]
    rows = []
    for row in report["results"]:
        at = row["levels"][2]
        cell = {name: f"{at[name]['coverage']:.3f} / {at[name]['sharpness']:.3f}" for name in METHODS}
        rows.append(
            [row["data"], row["model"], cell["cp"], cell["unkgcp"], cell["shortest"], f"{at['narrower']:.1%}"]
            + [cell["with relation"]]
            + [f"{at[name]['worst_decile']:.3f}" for name in METHODS[1:]]
        )
    lines = [
        "# Score-only sharpening",
        "",
        f"Test facts, 90 %: coverage / mean width, means over {report['seeds']} seeds, from the stored scores of the "
        f"{report['protocol']} protocol. `narrower` compares the shortest intervals with UnKGCP widened or narrowed to "
        "the very coverage that they reached. With the relation: the same calibration, given the relation as well. "
        "Worst decile: coverage in the worst tenth of the predictions, of UnKGCP, shortest, and with the relation.",
        "",
        "```",
        Table(header, rows).terminal(),
        "```",
        "",
        f"At least 12 % narrower on {report['at least 12 % narrower at 0.9']} of {report['pairs']} pairs. "
        f"Made {report['made']} on {report['machine']} with `make bench-sharpening`.",
        "",
    ]
    return "\n".join(lines)


# Groups.


def grouped(data: str, epochs: int, seed: int) -> dict[str, dict[str, float]]:
    """Figures of every method with all groups, by `method per`."""
    whole = load_dataset(data, seed=0).splits.train
    order, n = np.random.default_rng(seed).permutation(len(whole)), len(whole) // 10
    calibration, test, rest = whole[order[:n]], whole[order[n : 2 * n]], whole[np.sort(order[2 * n :])]
    config = replace(config_for("ukge", data, "strict"), epochs=epochs)
    model = train(rest, "ukge", seed=seed, config=config, device="cpu")
    found = {}
    for method in METHODS[:3]:
        for per in PER:
            made = create(method, per=per).calibrate(model, calibration)
            result = made.interval(test, GROUPS_LEVEL)
            below, above = result.lower - test.confidence, test.confidence - result.upper
            known, missed = result.code == 0, np.maximum(below, 0) + np.maximum(above, 0)
            tenths = np.array_split(np.argsort(made.doubt(test[known]), kind="stable"), 10)
            found[f"{method} {per}"] = {
                "coverage": float((missed == 0).mean()),
                "width": float(result.width.mean()),
                "interval_score": float((result.width + 2 / (1 - GROUPS_LEVEL) * missed).mean()),
                "worst_tenth": float(min((missed[known][rows] == 0).mean() for rows in tenths)),
            }
    return found


def groups(data: str, epochs: int, seeds: int) -> None:
    runs = [grouped(data, epochs, seed) for seed in range(seeds)]
    columns = ["method", "groups", "coverage", "width", "interval score", "worst tenth by doubt"]
    note = f"{data}, UKGE, {epochs} epochs, {GROUPS_LEVEL:.0%}, mean of {seeds} seeds, training facts alone"
    table = Table(columns, title="Groups for methods that have nothing but a score", note=note)
    for name in runs[0]:
        mean = {key: float(np.mean([run[name][key] for run in runs])) for key in runs[0][name]}
        table.add(*name.split(" "), *(f"{value:.3f}" for value in mean.values()))
    asked = {"data": data, "epochs": epochs, "seeds": seeds, "level": GROUPS_LEVEL}
    common.write("groups", {**asked, "machine": common.machine(), "runs": runs}, table.markdown())


if __name__ == "__main__":
    main()
