"""How soon a monitor finds the paper's shift, and whether it raises no alarm on test facts.

    python benchmarks/monitor.py RUN [RUN ...]         runs of `unkgcp fit`, on data sets that are at hand

Facts are calibrated; then streams of the data set's negatives (confidence 0) come in, in random order, and the query
at which the alarm goes off is noted, at a false-alarm rate of 0.01. Figures go to benchmarks/results/monitor.{json,md}.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import common
from unkgcp.evaluation.assessment import negatives_of
from unkgcp.evaluation.monitor import Monitor
from unkgcp.graph.facts import concatenate
from unkgcp.run import Predictor, provenance, recalibrate

METHODS = ("cp", "unkgcp")
STREAMS, LONGEST, RATE = 100, 2000, 0.01


def measure(run: str) -> list[dict[str, Any]]:
    trained = Predictor.load(run)
    dataset = provenance.reload(trained.provenance["data"], run)
    test, negatives = dataset.splits.test, negatives_of(dataset, 0)[0]
    rows = []
    for method in METHODS:
        predictor = recalibrate(trained, dataset.splits.calibration, method)
        quiet = Monitor(predictor, false_alarm=RATE)
        shuffled = test[np.random.default_rng(0).permutation(len(test))]
        quiet.update(shuffled, shuffled.confidence)
        found: dict[str, list[int]] = {"negatives": [], "half negatives": []}
        for seed in range(STREAMS):
            rng = np.random.default_rng([1, seed])
            wrong = negatives[rng.permutation(len(negatives))[:LONGEST]]
            half = concatenate([wrong[: LONGEST // 2], test[rng.permutation(len(test))[: LONGEST // 2]]])
            for kind, stream in zip(found, (wrong, half[rng.permutation(len(half))]), strict=True):
                monitor = Monitor(predictor, false_alarm=RATE, seed=seed, by_relation=False)
                monitor.update(stream, stream.confidence)
                found[kind].append(monitor.all.alarm_at or LONGEST + 1)
        rows.append(
            {
                "data": dataset.name,
                "model": trained.model.config.model,
                "method": method,
                "test_facts": quiet.facts,
                "test_coverage": quiet.coverage,
                "test_p_value": quiet.coverage_p_value,
                "test_alarms": quiet.alarms,
                **{
                    f"{kind}_{name}": int(np.quantile(at, share, method="higher"))
                    for kind, at in found.items()
                    for name, share in (("median", 0.5), ("p95", 0.95), ("last", 1.0))
                },
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    rows = [row for run in parser.parse_args().runs for row in measure(run)]
    shown = [
        {name: row[name] for name in ("data", "model", "method")}
        | {
            kind: " / ".join(f"{row[f'{kind}_{name}']:,}" for name in ("median", "p95", "last"))
            for kind in ("negatives", "half negatives")
        }
        | {
            "test facts": f"{row['test_facts']:,}",
            "coverage at 0.9 (p-value)": f"{row['test_coverage']:.4f} ({row['test_p_value']:.2g})",
            "alarms": ", ".join(row["test_alarms"]) or "none",
        }
        for row in rows
    ]
    note = (
        f"Facts until the alarm over {STREAMS} streams of negatives at a false-alarm rate of {RATE:g} "
        f"(median / 95 % / slowest; {LONGEST + 1:,} means not found), and the verdict on the test facts."
    )
    about = {"streams": STREAMS, "longest": LONGEST, "false_alarm": RATE, "rows": rows}
    common.write("monitor", about, "\n".join([note, "", *common.markdown(shown), ""]))


if __name__ == "__main__":
    main()
