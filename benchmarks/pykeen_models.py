"""Models of PyKEEN trained on the confidences of NL27k, with CP and UnKGCP: coverage, width and interval score.

UKGE stands beside, trained here for as many epochs. All choose their epoch by the validation facts; calibration facts
are seen once, test facts at the end. The band holds the coverage of test facts 999 times in 1,000 if the promise is
kept. PyKEEN has to be installed (extra `pykeen`).

    python benchmarks/pykeen_models.py [--data nl27k] [--epochs 60] [--learning-rate 0.002] [--runs FOLDER]

With --runs trained models are kept there, and trained only where there is none.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import common
from unkgcp.errors import InputError
from unkgcp.evaluation.assessment import evaluate
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.run import Predictor, fit
from unkgcp.run.fitting import recalibrate
from unkgcp.training.config import config_for

LEVEL = 0.9
MODELS = ("pykeen:TransE", "pykeen:RotatE", "pykeen:ComplEx", "ukge")
METHODS = ("cp", "unkgcp")


def trained(name: str, dataset: Dataset, asked: Any, folder: Path) -> Predictor:
    """A run of the model with CP: the one in the folder, or a new one that is put there."""
    target = folder / name.replace(":", "-")
    if target.exists():
        return Predictor.load(target)
    config = replace(config_for(name, asked.data), epochs=asked.epochs)
    if config.of_pykeen:
        config = replace(config, learning_rate=asked.learning_rate)
    start = time.process_time()
    predictor = fit(dataset, config, method="cp", seed=asked.seed, device="cpu")
    predictor.provenance["processor_seconds"] = round(time.process_time() - start, 1)
    predictor.save(target)
    return predictor


def figures_of(predictor: Predictor, dataset: Dataset) -> dict[str, Any]:
    found = evaluate(predictor, dataset, [LEVEL])
    facts = found["levels"][0]["positive"]
    return {
        "coverage": facts["coverage"],
        "least_possible": facts["least_possible"],
        "band": facts["band"],
        "width": facts["sharpness"],
        "interval_score": facts["interval_score"],
        "worst_tenth": facts["worst"]["doubt"],
        "mae": facts["mae"],
    }


def main() -> int:
    options = common.parser(__doc__)
    preset = config_for("pykeen:RotatE")
    options.add_argument("--data", default="nl27k")
    options.add_argument("--epochs", type=int, default=preset.epochs)
    options.add_argument("--learning-rate", type=float, default=preset.learning_rate)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--runs", type=Path)
    asked = options.parse_args()
    if find_spec("pykeen") is None:
        print("skipped: PyKEEN is not here; pip install 'unkgcp[pykeen]'", file=sys.stderr)
        return 0
    try:
        dataset = load_dataset(asked.data, seed=asked.seed)
    except InputError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in MODELS:
            predictor = trained(name, dataset, asked, asked.runs or Path(temporary))
            for method in METHODS:
                again = recalibrate(predictor, dataset.splits.calibration, method)
                seconds = predictor.provenance.get("processor_seconds")
                rows.append(
                    {"model": name, "method": method}
                    | figures_of(again, dataset)
                    | {"dimension": predictor.model.config.dimension, "processor_seconds": seconds}
                )
                print(rows[-1], flush=True)
    note = (
        f"{asked.data}, {LEVEL:.0%}, at most {asked.epochs} epochs, seed {asked.seed}; PyKEEN's models: dimension "
        f"{preset.dimension}, learning rate {asked.learning_rate:g}"
    )
    text = "\n".join(["# Models of PyKEEN with intervals", "", note, "", *common.markdown(rows), ""])
    record = vars(asked) | {"runs": None, "level": LEVEL, "machine": common.machine(), "rows": rows}
    common.write("pykeen-models", record, text)
    unavoidable = [row["least_possible"] - LEVEL for row in rows]
    outside = sum(
        not row["band"][0] <= row["coverage"] <= row["band"][1] + more
        for row, more in zip(rows, unavoidable, strict=True)
    )
    least = min(row["coverage"] - row["band"][0] for row in rows)
    return common.judge(
        "pykeen-models",
        [
            common.Figure(
                "PyKEEN's models and UKGE, cp and unkgcp: coverages outside their bands", outside, 0
            ),
            common.Figure(
                "the same: least coverage above the lower end of its band", least, 0, at_least=True
            ),
        ],
    )


if __name__ == "__main__":
    raise SystemExit(main())
