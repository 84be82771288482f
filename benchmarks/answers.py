"""Answer sets: how often they contain the tails and heads of test facts, how large they are, and the gap by relation.

For each run given: coverage of new test facts beside the band that holds it 999 times in 1,000 if the promise is kept,
mean size beside the k of which the best k contain as many answers, and the mean distance of a relation's coverage from
the level, with one threshold for all relations and with one a relation. Also the time of the first question, which
calibrates, and of later ones.

    unkgcp fit nl27k -o run --method evidence --quick
    python benchmarks/answers.py run [RUN ...] [--min-confidence 0.7]
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np

import common
from unkgcp.evaluation.answer_quality import judge_answers
from unkgcp.evaluation.tables import Table
from unkgcp.graph.datasets import Dataset
from unkgcp.run import Predictor
from unkgcp.run.provenance import reload

LEVELS = (0.8, 0.9, 0.95)
QUESTIONS = 100


def times(predictor: Predictor, data: Dataset) -> dict[str, float]:
    """Processor seconds of the first question for tails, and milliseconds of those after it."""
    test, names = data.splits.test, data.splits.test.vocabulary
    rows = np.random.default_rng(1).permutation(len(test))[: QUESTIONS + 1].tolist()
    predictor.complete(
        names.entities[int(test.head[rows[0]])].as_py(), names.relations[0].as_py()
    )  # compiles
    took, calibrated = [], 0.0
    for row in rows:
        head = names.entities[int(test.head[row])].as_py()
        relation = names.relations[int(test.relation[row])].as_py()
        start, used = time.perf_counter(), time.process_time()
        predictor.answers(head, relation, k=10)
        took.append(1000 * (time.perf_counter() - start))
        calibrated = calibrated or time.process_time() - used
    return {"calibration_cpu_s": calibrated, "median_ms": float(np.median(took[1:]))}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("runs", nargs="+")
    options.add_argument("--min-confidence", type=float, default=0.0)
    asked = options.parse_args()
    common.use_two_cores()
    title = "Answer sets: tails and heads of new test facts"
    shares = [cell for side in ("tails", "heads") for cell in (side, "ties at random", "band")]
    columns = ["data", "run", "level", "threshold", *shares, "mean size", "top k"]
    table = Table([*columns, "gap", "gap, large", "CPU s", "ms"], title=title)
    records: list[dict[str, Any]] = []
    for folder in asked.runs:
        predictor = Predictor.load(folder)
        data = reload(predictor.provenance.get("data", {}), folder)
        waits = times(predictor, data)
        used = time.process_time()
        found = judge_answers(predictor, data.splits.test, LEVELS, asked.min_confidence)
        name = "evidence" if predictor.method.evidence is not None else predictor.model.config.model
        records.append(
            {"run": name, "data": data.name, "judged_cpu_s": time.process_time() - used, **waits, **found}
        )
        for level in found["levels"]:
            for way, said in (("before", "one for all"), ("after", "per relation")):
                sides = [level[side][way] for side in ("tails", "heads")]
                shares = [
                    cell
                    for side in sides
                    for cell in (
                        f"{side['coverage']:.3f}",
                        f"{side['coverage_smoothed']:.3f}",
                        "{:.3f}-{:.3f}".format(*side["band"]),
                    )
                ]
                both = level["both"][way]
                numbers = (f"{both['mean_size']:,.1f}", f"{both['top_k']:,}")
                gaps = (f"{both['gap']:.3f}", f"{both['gap_large']:.3f}")
                wait = (f"{waits['calibration_cpu_s']:.1f}", f"{waits['median_ms']:.0f}")
                table.add(data.name, name, f"{level['confidence']:g}", said, *shares, *numbers, *gaps, *wait)
        print(table.terminal(), flush=True)
    least = f"-{asked.min_confidence:g}" if asked.min_confidence else ""
    common.write(f"answers{least}", {"machine": common.machine(), "results": records}, table.markdown())
    return common.judge(f"answers{least}", figures(records))


def figures(records: list[dict[str, Any]]) -> list[common.Figure]:
    """How far coverage lies outside its band, ties broken at random (they alone may raise it): the farthest."""
    found = []
    for record in records:
        outside = [
            max(side["band"][0] - side["coverage_smoothed"], side["coverage_smoothed"] - side["band"][1], 0.0)
            for level in record["levels"]
            for name in ("tails", "heads")
            for side in (level[name]["before"], level[name]["after"])
        ]
        what = f"answer sets, {record['data']}, {record['run']}: coverage outside its band, at any level"
        found.append(common.Figure(what, max(outside), 0.0))
    return found


if __name__ == "__main__":
    sys.exit(main())
