"""Queries with an open head or tail: how well completions rank, and how often answer sets contain the answer.

    unkgcp fit nl27k -o run --method evidence
    python benchmarks/completions.py run [RUN ...] [--facts 3000]                   writes results/completions.md
    python benchmarks/completions.py run [RUN ...] --answers [--min-confidence 0.7] writes results/answers.md

Completions: for each run, mean reciprocal rank and hits of the test facts of its data with a confidence of at least
0.7 among all entities, by what completions are ranked by and, where the run has one, by its backbone alone; and the
time of a question.

Answer sets (`--answers`): for each run, coverage of new test facts beside the band that holds it 999 times in 1,000 if
the promise is kept, mean size beside the k of which the best k contain as many answers, and the mean distance of a
relation's coverage from the level, with one threshold for all relations and with one a relation; and the time of the
first question, which calibrates, and of later ones. Exits with status 1 if a coverage is outside its band.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import common
from unkgcp.evaluation.completion_quality import judge_answers, ranking
from unkgcp.graph.datasets import Dataset
from unkgcp.methods import IntervalPredictor, create
from unkgcp.run import Predictor
from unkgcp.run.provenance import reload
from unkgcp.training.model import Model

LEAST = 0.7  # confidence of the test facts that completions are judged by
LEVELS = (0.8, 0.9, 0.95)  # of answer sets


def loaded(folders: list[str]) -> Iterator[tuple[Predictor, Dataset]]:
    """Each run with the data that it was fitted on."""
    for folder in folders:
        predictor = Predictor.load(folder)
        yield predictor, reload(predictor.provenance.get("data", {}), folder)


@dataclass(frozen=True)
class Waits:
    """Milliseconds of each question after the first, and processor seconds of the first."""

    first: float
    later: list[float]


def wait(data: Dataset, questions: int, ask: Callable[[str, str], object]) -> Waits:
    """Ask for the tails of so many random test facts and one more."""
    test, names = data.splits.test, data.splits.test.vocabulary
    rows = np.random.default_rng(1).permutation(len(test))[: questions + 1].tolist()
    took, first = [], 0.0
    for row in rows:
        head = names.entities[int(test.head[row])].as_py()
        relation = names.relations[int(test.relation[row])].as_py()
        start, used = time.perf_counter(), time.process_time()
        ask(head, relation)
        took.append(1000 * (time.perf_counter() - start))
        first = first or time.process_time() - used
    return Waits(first, took[1:])


# Completions.


@dataclass(frozen=True)
class Backbone:
    """The backbone of a run as something that completes by its own score."""

    model: Model
    method: IntervalPredictor


def ranked_facts(name: str, data: Dataset, ranked: Any, facts: int) -> dict[str, Any]:
    splits = data.splits
    chosen = np.random.default_rng(0).permutation(len(splits.test))
    # facts that are not ranked are known ones all the same, and left out of the candidates
    asked, rest = splits.test[chosen[:facts]], splits.test[chosen[facts:]]
    start = time.monotonic()
    found = ranking(ranked, asked, [splits.train, splits.validation, splits.calibration, rest], LEAST)
    return {"run": name, "data": data.name, "seconds": round(time.monotonic() - start, 1), **found}


def completions(folders: list[str], facts: int) -> int:
    title = (
        f"Completions: test facts with a confidence of at least {LEAST}, filtered, tails and heads together"
    )
    records, rows = [], []
    for predictor, data in loaded(folders):
        ways: dict[str, Any] = {} if predictor.method.evidence is None else {"evidence": predictor}
        if predictor.model.tables:
            score = create("cp").calibrate(predictor.model, data.splits.calibration)
            config = predictor.model.config
            ways[f"{config.model}, {config.epochs} epochs"] = Backbone(predictor.model, score)
        for name, ranked in ways.items():
            found = ranked_facts(name, data, ranked, facts)
            if ranked is predictor:
                later = wait(
                    data, 200, lambda head, relation, of=predictor: of.complete(head, relation, k=10)
                ).later
                found["median_ms"] = float(np.median(later))
                found["p95_ms"] = float(np.quantile(later, 0.95))
            records.append(found)
            both = found["both"]
            hits = {f"Hits@{k}": share for k, share in both["hits"].items()}
            row = {"data": data.name, "ranked by": name, "facts": both["facts"], "MRR": both["mrr"], **hits}
            rows.append({**row, "ms": found.get("median_ms")})
            print(rows[-1], flush=True)
    text = "\n".join([f"# {title}", "", *common.markdown(rows), ""])
    common.write("completions", {"machine": common.machine(), "results": records}, text)
    return 0


# Answer sets.


def answers(folders: list[str], least: float) -> int:
    records: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for predictor, data in loaded(folders):
        wait(data, 0, predictor.complete)  # compiles
        waits = wait(data, 100, lambda head, relation, of=predictor: of.answers(head, relation, k=10))
        median = float(np.median(waits.later))
        used = time.process_time()
        found = judge_answers(predictor, data.splits.test, LEVELS, least)
        name = "evidence" if predictor.method.evidence is not None else predictor.model.config.model
        records.append(
            {
                "run": name,
                "data": data.name,
                "judged_cpu_s": time.process_time() - used,
                "calibration_cpu_s": waits.first,
                "median_ms": median,
                **found,
            }
        )
        for level in found["levels"]:
            row = {"data": data.name, "run": name, "level": level["confidence"]}
            for side in ("tails", "heads"):
                own = level[side]
                row |= {side: own["coverage"], f"{side}, ties at random": own["coverage_smoothed"]}
                row[f"{side}, band"] = "{:.3f}-{:.3f}".format(*own["band"])
            both = level["both"]
            row |= {"mean size": both["mean_size"], "gap": both["gap"], "gap, large": both["gap_large"]}
            rows.append({**row, "CPU s": waits.first, "ms": median})
            print(rows[-1], flush=True)
    ending = f"-{least:g}" if least else ""
    text = ["# Answer sets: tails and heads of new test facts", "", *common.markdown(rows), ""]
    common.write(f"answers{ending}", {"machine": common.machine(), "results": records}, "\n".join(text))
    return common.judge(f"answers{ending}", figures(records))


def figures(records: list[dict[str, Any]]) -> list[common.Figure]:
    """How far coverage lies outside its band, ties broken at random (they alone may raise it): the farthest."""
    found = []
    for record in records:
        outside = [
            max(side["band"][0] - side["coverage_smoothed"], side["coverage_smoothed"] - side["band"][1], 0.0)
            for level in record["levels"]
            for side in (level["tails"], level["heads"])
        ]
        what = f"answer sets, {record['data']}, {record['run']}: coverage outside its band, at any level"
        found.append(common.Figure(what, max(outside), 0.0))
    return found


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--facts", type=int, default=10**9, help="ask for this many test facts only")
    parser.add_argument("--answers", action="store_true", help="judge answer sets instead of completions")
    parser.add_argument("--min-confidence", type=float, default=0.0, help="with --answers")
    asked = parser.parse_args()
    common.use_two_cores()
    return (
        answers(asked.runs, asked.min_confidence) if asked.answers else completions(asked.runs, asked.facts)
    )


if __name__ == "__main__":
    sys.exit(main())
